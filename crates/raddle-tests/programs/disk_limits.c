/* Reads of files under restrictions, and during other changes. */
#include "disk.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* A filter that answers these calls, of the calling thread or of all, with a verdict. */
static void filter(const int *calls, int count, unsigned verdict, unsigned flags)
{
    struct sock_filter code[20];
    int length = 0;
    code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                                  offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                      (unsigned)calls[i], 0, 1);
        code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    }
    code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)length, code};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    long listener = GET(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program));
    IS(listener > 0, (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0);
}

static void read_both_ways(int count)
{
    make_file();
    read_by_many(open_direct(O_RDONLY), count);
    read_by_many((int)GET(open("data", O_RDONLY)), count);
}

static void again_as(const char *what)
{
    execl("/proc/self/exe", "disk", case_name, what, NULL);
    CHECK(!"exec");
}

/* Reads in a process that may not make these calls. */
static void read_without(const int *calls, int count)
{
    if (argument_count > 2) {
        FAILS(syscall(calls[0], 0, 0, 0, 0, 0, 0), EPERM);
        return read_both_ways(64);
    }
    filter(calls, count, SECCOMP_RET_ERRNO | EPERM, 0);
    again_as("refused");
}

CASE(reads_go_on_where_io_uring_is_refused)
{
    read_without((int[]){SYS_io_uring_setup}, 1);
}

CASE(reads_go_on_where_aio_is_refused)
{
    read_without((int[]){SYS_io_setup}, 1);
}

CASE(reads_go_on_where_both_are_refused)
{
    read_without((int[]){SYS_io_setup, SYS_io_uring_setup}, 2);
}

CASE(reads_go_on_where_both_can_be_made_and_not_used)
{
    read_without((int[]){SYS_io_uring_register, SYS_io_submit}, 2);
}

enum { BUSY = 16 };

static atomic_long rounds[BUSY];
static int written;

/* Half of the threads read what was dropped from the cache, half write past it. */
static void *read_or_write(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    long i = (long)me, index = i;
    while (!atomic_load(&over)) {
        index = (index + BUSY) % BLOCKS;
        if (i % 2 == 0) {
            IS(pread(file, block, BLOCK, index * BLOCK), BLOCK);
            check_block(block, index);
        } else {
            fill(block, index);
            IS(pwrite(written, block, BLOCK, index * BLOCK), BLOCK);
        }
        if (atomic_fetch_add(&rounds[i], 1) % 4 == 0) {
            forget_cached(file);
        }
    }
    free(block);
    return NULL;
}

static void start_busy(pthread_t *threads)
{
    make_file();
    file = (int)GET(open("data", O_RDONLY));
    written = open_direct(O_WRONLY);
    for (long i = 0; i < BUSY; i++) {
        threads[i] = start(read_or_write, number(i));
    }
}

static void wait_for_rounds(long count)
{
    for (int i = 0; i < BUSY; i++) {
        long before = atomic_load(&rounds[i]);
        while (atomic_load(&rounds[i]) < before + count) {
            sleep_ms(1);
        }
    }
}

/* A sandbox for all threads, while they read and write. */
static void go_on_when_filtered(const int *calls, int count, unsigned verdict, unsigned flags)
{
    pthread_t threads[BUSY];
    start_busy(threads);
    wait_for_rounds(20);
    filter(calls, count, verdict, SECCOMP_FILTER_FLAG_TSYNC | flags);
    wait_for_rounds(10);
    atomic_store(&over, 1);
    join_all(threads, BUSY);
}

CASE(transfers_go_on_when_entering_a_ring_is_refused_from_now_on)
{
    go_on_when_filtered((int[]){SYS_io_uring_enter}, 1, SECCOMP_RET_ERRNO | EPERM, 0);
}

static const int ring_calls[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
                                 SYS_io_setup,       SYS_io_submit,      SYS_io_destroy};

CASE(transfers_go_on_when_rings_and_contexts_kill_from_now_on)
{
    go_on_when_filtered(ring_calls, 6, SECCOMP_RET_KILL_PROCESS, 0);
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        read_both_ways(16);
        _exit(5);
    }
    int status;
    IS(GET(waitpid(child, &status, 0)), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

/* The result of success is a descriptor then. */
CASE(transfers_go_on_when_somebody_listens_to_the_filter)
{
    go_on_when_filtered(ring_calls, 6, SECCOMP_RET_KILL_PROCESS,
                        SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
}

/* A filter that the kernel refuses changes nothing. */
CASE(transfers_go_on_when_a_filter_is_refused)
{
    pthread_t threads[BUSY];
    start_busy(threads);
    struct sock_fprog nothing = {0, NULL};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    for (int i = 0; i < 20; i++) {
        FAILS(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &nothing),
              EINVAL);
        wait_for_rounds(2);
    }
    atomic_store(&over, 1);
    join_all(threads, BUSY);
}

CASE(reads_go_on_without_memory_to_lock)
{
    struct rlimit none = {0, 0};
    GET(setrlimit(RLIMIT_MEMLOCK, &none));
    read_both_ways(64);
}

/* More reads at once than any queue takes. */
CASE(seven_hundred_threads_read)
{
    enum { THREADS = 700 };
    static pthread_t threads[THREADS];
    make_file();
    for (int direct = 0; direct < 2; direct++) {
        file = direct ? open_direct(O_RDONLY) : (int)GET(open("data", O_RDONLY));
        for (long i = 0; i < THREADS; i++) {
            threads[i] = start_small(read_at_random, number(i));
        }
        join_all(threads, THREADS);
        close(file);
    }
}

/* Files that are in memory, that the kernel makes up, and that are devices. */
CASE(files_without_a_disk_are_read)
{
    char folder[] = "/dev/shm/raddle-disk-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    GET(chdir(folder));
    make_file();
    read_by_many((int)GET(open("data", O_RDONLY)), 16);
    GET(unlink("data"));
    GET(rmdir(folder));
    char bytes[64], zeros[64] = {0};
    int fd = (int)GET(open("/proc/self/stat", O_RDONLY));
    long expected = getpid();
    for (int i = 0; i < 100; i++) {
        CHECK(GET(pread(fd, bytes, sizeof bytes - 1, 0)) > 0);
        IS(atol(bytes), expected);
    }
    close(fd);
    fd = (int)GET(open("/dev/zero", O_RDWR));
    for (int i = 0; i < 100; i++) {
        memset(bytes, 1, sizeof bytes);
        IS(pread(fd, bytes, sizeof bytes, i), sizeof bytes);
        OK(memcmp(bytes, zeros, sizeof bytes));
        IS(pwrite(fd, bytes, sizeof bytes, i), sizeof bytes);
    }
    close(fd);
}

/* A file of one file system that is kept in another; where that can't be had, of a plain one. */
CASE(files_of_an_overlay_are_read)
{
    if (argument_count > 2) {
        GET(chdir("merged"));
        return read_both_ways(16);
    }
    GET(mkdir("merged", 0700));
    GET(mkdir("lower", 0700));
    if (unshare(CLONE_NEWNS) == 0 &&
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0) {
        GET(mkdir("upper", 0700));
        GET(mkdir("work", 0700));
        mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work");
    }
    again_as("mounted");
}

static int count_aio_mappings(void)
{
    char line[1000];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        found += strstr(line, "[aio]") != NULL;
    }
    fclose(maps);
    return found;
}

static void start_reading(pthread_t *threads, int count)
{
    make_file();
    file = open_direct(O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < count; i++) {
        threads[i] = start(read_until_over, NULL);
    }
    sleep_ms(30);
}

CASE(exec_while_reads_are_under_way)
{
    pthread_t threads[16];
    if (argument_count > 2) {
        IS(count_aio_mappings(), 0);
        IS(open("/dev/null", O_RDONLY), atoi(arguments[2]));
        return read_both_ways(16);
    }
    char lowest[20];
    int fd = (int)GET(open("/dev/null", O_RDONLY));
    snprintf(lowest, sizeof lowest, "%d", fd);
    close(fd);
    start_reading(threads, 16);
    again_as(lowest);
}

CASE(a_child_has_none_of_its_parents_reads)
{
    pthread_t threads[16];
    start_reading(threads, 16);
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        IS(count_aio_mappings(), 0);
        _exit(5);
    }
    int status;
    IS(GET(waitpid(child, &status, 0)), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    atomic_store(&over, 1);
    join_all(threads, 16);
}

/* Closes every unknown number, as daemons do. */
CASE(reads_outlive_loops_that_close_everything)
{
    pthread_t threads[16];
    start_reading(threads, 16);
    for (int round = 0; round < 3; round++) {
        long limit = sysconf(_SC_OPEN_MAX);
        for (long fd = 3; fd < limit && fd < 100000; fd++) {
            if (fd != file) {
                close((int)fd);
            }
        }
        GET(syscall(SYS_close_range, file + 1, ~0u, 0));
        sleep_ms(5);
    }
    atomic_store(&over, 1);
    join_all(threads, 16);
    close(file);
    read_both_ways(16);
}

static int never[2];

static void *get_stuck(void *unused)
{
    long result;
    char byte;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_read), "D"(never[0]), "S"(&byte), "d"(1)
                     : "rcx", "r11", "memory");
    IS(result, 1);
    return unused;
}

static void *compute(void *unused)
{
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {}
    return unused;
}

/* A completed read isn't left with a carrier that waits in the kernel, or computes. */
CASE(reads_end_beside_threads_that_are_stuck_and_that_compute)
{
    enum { READERS = 8, OTHERS = 4 };
    pthread_t readers[READERS], others[2 * OTHERS];
    GET(pipe(never));
    make_file();
    for (int direct = 0; direct < 2; direct++) {
        atomic_store(&over, 0);
        file = direct ? open_direct(O_RDONLY) : (int)GET(open("data", O_RDONLY));
        for (int i = 0; i < OTHERS; i++) {
            others[i] = start(compute, NULL);
        }
        for (long i = 0; i < READERS; i++) {
            readers[i] = start(read_at_random, number(i));
            if (i < OTHERS) {
                others[OTHERS + i] = start(get_stuck, NULL);
            }
        }
        join_all(readers, READERS);
        atomic_store(&over, 1);
        IS(write(never[1], "xxxx", OTHERS), OTHERS);
        join_all(others, 2 * OTHERS);
        close(file);
    }
}

static void *use_vectors(void *me)
{
    char *block = aligned_alloc(BLOCK, 2 * BLOCK);
    struct iovec halves[2] = {{block + BLOCK, BLOCK}, {block, BLOCK}};
    for (long i = (long)me; i + 1 < BLOCKS; i += 8) {
        IS(preadv(file, halves, 2, i * BLOCK), 2 * BLOCK);
        check_block(block + BLOCK, i);
        check_block(block, i + 1);
    }
    IS(preadv(file, halves, 2, (BLOCKS - 1L) * BLOCK), BLOCK);
    check_block(block + BLOCK, BLOCKS - 1);
    IS(preadv(file, halves, 2, (long)BLOCKS * BLOCK), 0);
    FAILS(syscall(SYS_preadv, file, halves, -1L, 0L, 0L), EINVAL);
    FAILS(syscall(SYS_preadv, file, halves, 2L, -1L, 0L), EINVAL);
    FAILS(syscall(SYS_preadv, file, 8L, 2L, 0L, 0L), EFAULT);
    free(block);
    return NULL;
}

CASE(vectors_are_read_past_the_cache)
{
    pthread_t threads[8];
    make_file();
    file = open_direct(O_RDONLY);
    for (long i = 0; i < 8; i++) {
        threads[i] = start(use_vectors, number(i));
    }
    join_all(threads, 8);
    close(file);
}

/* Bytes that were written through the cache are read past it, and the other way round; the mode of
 * a descriptor changes meanwhile. */
static void *mix_ways(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    int fd = open_direct(O_RDWR);
    int flags = (int)GET(fcntl(fd, F_GETFL));
    long index = (long)me;
    for (long i = 0; i < 60; i++) {
        fill(block, index + i);
        IS(pwrite(file, block, BLOCK, index * BLOCK), BLOCK);
        memset(block, 0, BLOCK);
        GET(fcntl(fd, F_SETFL, i % 20 < 15 ? flags : flags & ~O_DIRECT));
        IS(pread(fd, block, BLOCK, index * BLOCK), BLOCK);
        check_block(block, index + i);
    }
    close(fd);
    free(block);
    return NULL;
}

CASE(reads_past_the_cache_see_what_was_written_through_it)
{
    pthread_t threads[16];
    make_file();
    file = (int)GET(open("data", O_RDWR));
    for (long i = 0; i < 16; i++) {
        threads[i] = start(mix_ways, number(i));
    }
    join_all(threads, 16);
}

static void *copy_too_much(void *unused)
{
    enum { MUCH = 256 * 1024 };
    make_file();
    int from = (int)GET(open("data", O_RDONLY));
    int to = (int)GET(open("limited", O_CREAT | O_RDWR, 0600));
    limit_files(BLOCK);
    for (int i = 0; i < 6; i++) {
        off_t end = BLOCK;
        IS(pwrite(to, "x", 1, BLOCK - 1), 1);
        GET(lseek(to, BLOCK, SEEK_SET));
        signalled = 0;
        if (i % 2 == 0) {
            FAILS(sendfile(to, from, NULL, MUCH), EFBIG);
        } else {
            FAILS(copy_file_range(from, NULL, to, &end, MUCH, 0), EFBIG);
        }
        CHECK(pthread_equal(signalled, pthread_self()));
    }
    close(from);
    close(to);
    return unused;
}

CASE(who_copies_beyond_the_size_limit_gets_the_signal)
{
    join(start(copy_too_much, NULL));
}

static void *copy_all(void *me)
{
    enum { ALL = BLOCK * BLOCKS };
    char path[20];
    snprintf(path, sizeof path, "copy%ld", (long)me);
    int from = (int)GET(open("data", O_RDONLY));
    int to = (int)GET(open(path, O_CREAT | O_RDWR, 0600));
    for (long done = 0; done < ALL;) {
        done += GET(copy_file_range(from, NULL, to, NULL, (size_t)(ALL - done), 0));
    }
    IS(copy_file_range(from, NULL, to, NULL, ALL, 0), 0);
    IS(lseek(to, 0, SEEK_CUR), ALL);
    static __thread char block[BLOCK];
    for (long i = 0; i < BLOCKS; i += 37) {
        IS(pread(to, block, BLOCK, i * BLOCK), BLOCK);
        check_block(block, i);
    }
    close(from);
    close(to);
    return NULL;
}

CASE(four_threads_copy_a_file)
{
    pthread_t threads[4];
    make_file();
    for (long i = 0; i < 4; i++) {
        threads[i] = start(copy_all, number(i));
    }
    join_all(threads, 4);
}
