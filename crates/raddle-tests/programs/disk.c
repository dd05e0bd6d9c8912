/* Files that wait for a disk, and calls that wait for locks, queues and semaphores. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { BLOCK = 4096, BLOCKS = 512 };

static int file;

static void fill(char *block, long index)
{
    for (long i = 0; i < BLOCK / (long)sizeof(long); i++) {
        ((long *)block)[i] = index * 1000 + i;
    }
}

static void check_block(const char *block, long index)
{
    for (long i = 0; i < BLOCK / (long)sizeof(long); i++) {
        IS(((const long *)block)[i], index * 1000 + i);
    }
}

static void make_file(void)
{
    static char block[BLOCK];
    int fd = (int)GET(open("data", O_CREAT | O_TRUNC | O_WRONLY, 0600));
    for (long i = 0; i < BLOCKS; i++) {
        fill(block, i);
        IS(write(fd, block, BLOCK), BLOCK);
    }
    GET(fsync(fd));
    close(fd);
}

/* Past the cache where the file system can. */
static int open_direct(int flags)
{
    int fd = open("data", flags | O_DIRECT);
    return fd >= 0 ? fd : (int)GET(open("data", flags));
}

static void forget_cached(int fd)
{
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}

static void *read_at_random(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    unsigned long dice = (unsigned long)me + 1;
    for (int i = 0; i < 40; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        long index = (long)((dice >> 33) % BLOCKS);
        IS(pread(file, block, BLOCK, index * BLOCK), BLOCK);
        check_block(block, index);
        if (i % 8 == 0) {
            forget_cached(file);
        }
    }
    free(block);
    return NULL;
}

static void read_by_many(int fd, int count)
{
    pthread_t threads[64];
    file = fd;
    for (long i = 0; i < count; i++) {
        threads[i] = start(read_at_random, number(i));
    }
    join_all(threads, count);
    close(fd);
}

CASE(sixty_four_threads_read_past_the_cache)
{
    make_file();
    read_by_many(open_direct(O_RDONLY), 64);
}

CASE(sixty_four_threads_read_what_was_dropped_from_the_cache)
{
    make_file();
    read_by_many((int)GET(open("data", O_RDONLY)), 64);
}

/* The same in a process that may not make an io_uring. */
CASE(reads_go_on_where_io_uring_is_refused)
{
    if (argument_count > 2) {
        make_file();
        read_by_many(open_direct(O_RDONLY), 64);
        return;
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 425 /* io_uring_setup */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    GET(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    execl("/proc/self/exe", "disk", case_name, "refused", NULL);
    CHECK(!"exec");
}

static atomic_int seen[BLOCKS];

static void *read_in_turn(void *unused)
{
    (void)unused;
    char *block = aligned_alloc(BLOCK, BLOCK);
    long got;
    while ((got = GET(read(file, block, BLOCK))) != 0) {
        IS(got, BLOCK);
        long index = *(long *)block / 1000;
        check_block(block, index);
        atomic_fetch_add(&seen[index], 1);
        if (index % 16 == 0) {
            forget_cached(file);
        }
    }
    free(block);
    return NULL;
}

static void share_position(int fd)
{
    pthread_t threads[8];
    file = fd;
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 8; i++) {
        threads[i] = start(read_in_turn, NULL);
    }
    join_all(threads, 8);
    for (int i = 0; i < BLOCKS; i++) {
        IS(atomic_load(&seen[i]), 1);
    }
    IS(lseek(fd, 0, SEEK_CUR), BLOCK * BLOCKS);
    close(fd);
}

CASE(threads_share_one_position)
{
    make_file();
    share_position((int)GET(open("data", O_RDONLY)));
    share_position(open_direct(O_RDONLY));
}

enum { LINE = 100, LINES = 20, WRITERS = 8 };

static void *append_lines(void *me)
{
    char line[LINE];
    memset(line, 'a' + (int)(long)me, LINE);
    for (int i = 0; i < LINES; i++) {
        IS(write(file, line, LINE), LINE);
    }
    return NULL;
}

CASE(appended_lines_stay_whole)
{
    pthread_t threads[WRITERS];
    int counts[WRITERS] = {0};
    char line[LINE];
    file = (int)GET(open("lines", O_CREAT | O_RDWR | O_APPEND | O_DSYNC, 0600));
    for (long i = 0; i < WRITERS; i++) {
        threads[i] = start(append_lines, number(i));
    }
    join_all(threads, WRITERS);
    IS(lseek(file, 0, SEEK_END), LINE * LINES * WRITERS);
    for (int i = 0; i < LINES * WRITERS; i++) {
        IS(pread(file, line, LINE, i * LINE), LINE);
        for (int k = 1; k < LINE; k++) {
            IS(line[k], line[0]);
        }
        counts[line[0] - 'a']++;
    }
    for (int i = 0; i < WRITERS; i++) {
        IS(counts[i], LINES);
    }
}

static void *write_in_places(void *me)
{
    char *block = aligned_alloc(BLOCK, 2 * BLOCK);
    for (long i = (long)me; i < BLOCKS; i += WRITERS) {
        fill(block, i);
        if (i % 2 == 0) {
            IS(pwrite(file, block, BLOCK, i * BLOCK), BLOCK);
        } else {
            struct iovec halves[2] = {{block, BLOCK / 2}, {block + BLOCK / 2, BLOCK / 2}};
            IS(pwritev(file, halves, 2, i * BLOCK), BLOCK);
        }
    }
    free(block);
    return NULL;
}

CASE(blocks_are_written_in_their_places)
{
    pthread_t threads[WRITERS];
    static char block[BLOCK];
    file = (int)GET(open("data", O_CREAT | O_TRUNC | O_RDWR | O_DSYNC, 0600));
    for (long i = 0; i < WRITERS; i++) {
        threads[i] = start(write_in_places, number(i));
    }
    join_all(threads, WRITERS);
    IS(lseek(file, 0, SEEK_CUR), 0);
    for (long i = 0; i < BLOCKS; i++) {
        struct iovec halves[2] = {{block, 100}, {block + 100, BLOCK - 100}};
        IS(preadv(file, halves, 2, i * BLOCK), BLOCK);
        check_block(block, i);
    }
}

/* Slow and quick descriptors in turn: `drop` makes the next read wait. */
static void check_ends(int fd, int drop)
{
    static char buffer[4 * BLOCK] __attribute__((aligned(4096)));
    off_t end = BLOCKS * BLOCK;
    for (int i = 0; i < 20; i++) {
        if (drop) {
            forget_cached(fd);
        }
        IS(pread(fd, buffer, 4 * BLOCK, end - BLOCK), BLOCK);
        check_block(buffer, BLOCKS - 1);
        IS(pread(fd, buffer, 4 * BLOCK, end - 4 * BLOCK), 4 * BLOCK);
        check_block(buffer + 3 * BLOCK, BLOCKS - 1);
        IS(pread(fd, buffer, BLOCK, end), 0);
        IS(pread(fd, buffer, BLOCK, 10 * end), 0);
        IS(pread(fd, buffer, 0, 0), 0);
        FAILS(pread(fd, buffer, BLOCK, -1), EINVAL);
        FAILS(pread(fd, buffer, BLOCK, -4096), EINVAL);
        FAILS(pread(fd, (void *)4096, BLOCK, 0), EFAULT);
        FAILS(pwrite(fd, buffer, BLOCK, 0), EBADF);
        FAILS(pread(1000, buffer, BLOCK, 0), EBADF);
    }
}

static void *check_all_ends(void *unused)
{
    (void)unused;
    make_file();
    int fd = (int)GET(open("data", O_RDONLY));
    check_ends(fd, 0);
    check_ends(fd, 1);
    close(fd);
    fd = open_direct(O_RDONLY);
    check_ends(fd, 0);
    close(fd);
    return NULL;
}

CASE(ends_and_errors_are_told)
{
    join(start(check_all_ends, NULL));
}

CASE(pread_of_a_pipe_is_refused)
{
    int ends[2];
    char byte;
    join(start(check_all_ends, NULL));
    GET(pipe(ends));
    FAILS(pread(ends[0], &byte, 1, 0), ESPIPE);
    FAILS(pwrite(ends[1], &byte, 1, 0), ESPIPE);
}

static atomic_int over;
static _Atomic pthread_t signalled;

static void note_thread(int unused)
{
    (void)unused;
    signalled = pthread_self();
}

static void *write_too_much(void *unused)
{
    static char block[BLOCK];
    (void)unused;
    int fd = (int)GET(open("limited", O_CREAT | O_RDWR | O_DSYNC, 0600));
    for (int i = 0; i < 4; i++) {
        IS(write(fd, block, BLOCK), BLOCK);
    }
    for (int i = 0; i < 4; i++) {
        signalled = 0;
        if (i % 2 == 0) {
            FAILS(write(fd, block, BLOCK), EFBIG);
        } else {
            FAILS(pwrite(fd, block, BLOCK, 4 * BLOCK), EFBIG);
        }
        CHECK(pthread_equal(signalled, pthread_self()));
        IS(pwrite(fd, block, BLOCK, 0), BLOCK);
    }
    return NULL;
}

CASE(who_writes_beyond_the_size_limit_gets_the_signal)
{
    struct rlimit limit = {4 * BLOCK, 4 * BLOCK};
    signal(SIGXFSZ, note_thread);
    GET(setrlimit(RLIMIT_FSIZE, &limit));
    join(start(write_too_much, NULL));
}

static void *read_until_over(void *unused)
{
    (void)unused;
    char *block = aligned_alloc(BLOCK, BLOCK);
    for (long i = 0; !atomic_load(&over); i++) {
        IS(pread(file, block, BLOCK, i % BLOCKS * BLOCK), BLOCK);
        check_block(block, i % BLOCKS);
    }
    free(block);
    return NULL;
}

CASE(fork_while_reads_are_under_way)
{
    pthread_t threads[16];
    make_file();
    file = open_direct(O_RDONLY);
    for (int i = 0; i < 16; i++) {
        threads[i] = start(read_until_over, NULL);
    }
    for (int i = 0; i < 5; i++) {
        sleep_ms(5);
        pid_t child = (pid_t)GET(fork());
        if (child == 0) {
            read_by_many(file, 8);
            _exit(5);
        }
        int status;
        IS(GET(waitpid(child, &status, 0)), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    atomic_store(&over, 1);
    join_all(threads, 16);
}

static void *sync_until_over(void *unused)
{
    (void)unused;
    int fd = (int)GET(open("synced", O_CREAT | O_RDWR, 0600));
    for (int i = 0; !atomic_load(&over); i++) {
        IS(pwrite(fd, "x", 1, i), 1);
        GET(i % 2 ? fsync(fd) : fdatasync(fd));
    }
    GET(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    FAILS(fsync(1000), EBADF);
    close(fd);
    return NULL;
}

static void do_nothing(int unused)
{
    (void)unused;
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = flags};
    GET(sigaction(signal, &action, NULL));
}

/* Neither fsync nor a read of a disk ever says EINTR. */
CASE(signals_do_not_interrupt_the_disk)
{
    pthread_t threads[8];
    handle(SIGUSR1, 0);
    make_file();
    file = open_direct(O_RDONLY);
    for (int i = 0; i < 8; i++) {
        threads[i] = start(i % 2 ? sync_until_over : read_until_over, NULL);
    }
    for (int i = 0; i < 200; i++) {
        OK(pthread_kill(threads[i % 8], SIGUSR1));
        if (i % 10 == 0) {
            sleep_ms(1);
        }
    }
    atomic_store(&over, 1);
    join_all(threads, 8);
}

static int locked(void)
{
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(flock(fd, LOCK_EX));
    return fd;
}

static void *lock_and_unlock(void *unused)
{
    (void)unused;
    close(locked());
    return number(1);
}

CASE(a_lock_is_handed_over)
{
    pthread_t threads[8];
    int fd = locked();
    for (int i = 0; i < 8; i++) {
        threads[i] = start(lock_and_unlock, NULL);
    }
    let_others_block();
    GET(flock(fd, LOCK_UN));
    join_all(threads, 8);
}

static void *lock_a_record(void *command)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(fcntl(fd, (int)(long)command, &lock));
    close(fd);
    return number(1);
}

CASE(record_locks_wait_for_their_owner)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(fcntl(fd, F_OFD_SETLKW, &lock));
    pthread_t thread = start(lock_a_record, number(F_OFD_SETLKW));
    let_others_block();
    lock.l_type = F_UNLCK;
    GET(fcntl(fd, F_OFD_SETLKW, &lock));
    join(thread);

    int ends[2];
    char byte;
    GET(pipe(ends));
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        lock.l_type = F_WRLCK;
        GET(fcntl(fd, F_SETLKW, &lock));
        IS(write(ends[1], "x", 1), 1);
        sleep_ms(50);
        _exit(0);
    }
    IS(read(ends[0], &byte, 1), 1);
    IS(join(start(lock_a_record, number(F_SETLKW))), 1);
    IS(GET(waitpid(child, NULL, 0)), child);
}

static int queue;
static int semaphores;

struct text {
    long kind;
    char text[8];
};

static void make_queues(void)
{
    queue = (int)GET(msgget(IPC_PRIVATE, 0600));
    semaphores = (int)GET(semget(IPC_PRIVATE, 2, 0600));
    OK(semctl(semaphores, 0, SETVAL, 0));
    OK(semctl(semaphores, 1, SETVAL, 0));
}

static void remove_queues(void)
{
    GET(msgctl(queue, IPC_RMID, NULL));
    GET(semctl(semaphores, 0, IPC_RMID));
}

static long change(int which, int by)
{
    struct sembuf operation = {(unsigned short)which, (short)by, 0};
    return semop(semaphores, &operation, 1);
}

static void *answer(void *unused)
{
    struct text message;
    (void)unused;
    for (int i = 0; i < 200; i++) {
        IS(GET(msgrcv(queue, &message, sizeof message.text, 1, 0)), 5);
        GET(change(0, -1));
        message.kind = 2;
        GET(msgsnd(queue, &message, 5, 0));
        GET(change(1, 1));
    }
    return NULL;
}

CASE(queues_and_semaphores_wake_each_other)
{
    make_queues();
    pthread_t thread = start(answer, NULL);
    struct text message = {1, "hello"};
    for (int i = 0; i < 200; i++) {
        message.kind = 1;
        GET(msgsnd(queue, &message, 5, 0));
        GET(change(0, 1));
        IS(GET(msgrcv(queue, &message, sizeof message.text, 2, 0)), 5);
        GET(change(1, -1));
    }
    join(thread);
    FAILS(msgrcv(queue, &message, sizeof message.text, 1, IPC_NOWAIT), ENOMSG);
    struct sembuf now = {0, -1, IPC_NOWAIT};
    FAILS(semop(semaphores, &now, 1), EAGAIN);
    struct timespec limit = timespec_of(20 * MS);
    now.sem_flg = 0;
    int64_t started = now_ns();
    FAILS(semtimedop(semaphores, &now, 1, &limit), EAGAIN);
    check_took(started, 20);
    FAILS(semop(semaphores, NULL, 1), EFAULT);
    remove_queues();
}

static void *take_message(void *unused)
{
    struct text message;
    (void)unused;
    return number(msgrcv(queue, &message, sizeof message.text, 9, 0) == -1 ? errno : 0);
}

static void *take_semaphore(void *unused)
{
    (void)unused;
    return number(change(0, -1) == -1 ? errno : 0);
}

static void *take_lock(void *unused)
{
    (void)unused;
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    long result = flock(fd, LOCK_EX) == -1 ? errno : 0;
    close(fd);
    return number(result);
}

/* Signals until the call ends, with this. */
static long interrupted(thread_function wait)
{
    void *value;
    pthread_t thread = start(wait, NULL);
    while (pthread_tryjoin_np(thread, &value) == EBUSY) {
        OK(pthread_kill(thread, SIGUSR1));
        sleep_ms(5);
    }
    return (long)value;
}

CASE(each_call_restarts_or_not_as_in_linux)
{
    make_queues();
    int fd = locked();
    handle(SIGUSR1, 0);
    IS(interrupted(take_lock), EINTR);
    IS(interrupted(take_message), EINTR);
    IS(interrupted(take_semaphore), EINTR);
    handle(SIGUSR1, SA_RESTART);
    IS(interrupted(take_message), EINTR);
    IS(interrupted(take_semaphore), EINTR);
    pthread_t thread = start(take_lock, NULL);
    for (int i = 0; i < 10; i++) {
        OK(pthread_kill(thread, SIGUSR1));
        sleep_ms(5);
    }
    GET(flock(fd, LOCK_UN));
    IS(join(thread), 0);
    remove_queues();
}

static void *read_fifo(void *unused)
{
    char byte;
    (void)unused;
    int fd = (int)GET(open("fifo", O_RDWR));
    return number(read(fd, &byte, 1));
}

static void *open_fifo(void *unused)
{
    (void)unused;
    return number(open("fifo", O_RDONLY));
}

static void cancel(thread_function wait)
{
    pthread_t thread = start(wait, NULL);
    let_others_block();
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
}

CASE(waits_are_cancelled)
{
    make_queues();
    GET(mkfifo("fifo", 0600));
    cancel(open_fifo);
    cancel(read_fifo);
    cancel(take_message);
    remove_queues();
}

static void *fill_at_random(void *unused)
{
    unsigned char bytes[1000] = {0};
    int counts[256] = {0};
    (void)unused;
    for (int i = 0; i < 50; i++) {
        IS(GET(getrandom(bytes, sizeof bytes, i % 2 ? GRND_NONBLOCK : 0)), sizeof bytes);
        for (size_t k = 0; k < sizeof bytes; k++) {
            counts[bytes[k]]++;
        }
    }
    for (int i = 0; i < 256; i++) {
        CHECK(counts[i] > 50 && counts[i] < 500);
    }
    return NULL;
}

CASE(random_bytes_in_four_threads)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(fill_at_random, NULL);
    }
    join_all(threads, 4);
}
