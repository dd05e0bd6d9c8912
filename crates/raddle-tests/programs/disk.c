/* Files that wait for a disk. */
#include "disk.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>

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
    limit_files(4 * BLOCK);
    join(start(write_too_much, NULL));
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

static long sleeps(void)
{
    struct rusage usage;
    GET(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_nvcsw;
}

static void *sync_in_memory(void *unused)
{
    (void)unused;
    int fd = (int)GET(memfd_create("synced", MFD_CLOEXEC));
    long before = 0;
    for (int i = 0; i < 2100; i++) {
        if (i == 100) {
            before = sleeps();
        }
        IS(pwrite(fd, "x", 1, i), 1);
        GET(i % 2 ? fsync(fd) : fdatasync(fd));
    }
    CHECK(sleeps() - before < 1000);
    FAILS(fsync(1000), EBADF);
    close(fd);
    return NULL;
}

/* The calling thread syncs files without a disk: no kernel thread sleeps for it. */
CASE(a_file_in_memory_is_synced_at_once)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        join(start(sync_in_memory, NULL));
    }
    for (int i = 0; i < 2; i++) {
        threads[i] = start(sync_in_memory, NULL);
    }
    join_all(threads, 2);
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

static atomic_long reads;

/* Reads blocks that are dropped from the cache again and again. */
static void *read_dropped_until_over(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    unsigned long dice = (unsigned long)me + 1;
    while (!atomic_load(&over)) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        long index = (long)((dice >> 33) % BLOCKS);
        IS(pread(file, block, BLOCK, index * BLOCK), BLOCK);
        check_block(block, index);
        if (atomic_fetch_add(&reads, 1) % 16 == 0) {
            forget_cached(file);
        }
    }
    free(block);
    return NULL;
}

enum { READERS = 8 };
static pthread_t readers[READERS];

static void start_readers(void)
{
    make_file();
    file = (int)GET(open("data", O_RDONLY));
    for (long i = 0; i < READERS; i++) {
        readers[i] = start(read_dropped_until_over, number(i));
    }
}

static void await_reads(long count)
{
    for (long first = atomic_load(&reads); atomic_load(&reads) - first < count;) {
        sleep_ms(1);
    }
}

static void stop_readers(void)
{
    atomic_store(&over, 1);
    join_all(readers, READERS);
}

/* The number always names a file with the same blocks, never none. */
CASE(reads_go_on_when_their_number_means_another_file)
{
    start_readers();
    for (int i = 0; i < 100; i++) {
        int other = (int)GET(open("data", O_RDONLY));
        await_reads(3);
        IS(dup2(other, file), file);
        close(other);
    }
    stop_readers();
}

static void *open_pipe(void *unused)
{
    (void)unused;
    close((int)GET(open("pipe", O_RDONLY)));
    return NULL;
}

CASE(reads_go_on_beside_a_thread_stuck_in_the_kernel)
{
    GET(mkfifo("pipe", 0600));
    start_readers();
    for (int i = 0; i < 5; i++) {
        pthread_t stuck = start(open_pipe, NULL);
        await_reads(200);
        int end = (int)GET(open("pipe", O_WRONLY));
        join(stuck);
        close(end);
    }
    stop_readers();
}

static void *compute_until_over(void *unused)
{
    (void)unused;
    volatile long steps = 0;
    while (!atomic_load(&over)) {
        steps++;
    }
    return NULL;
}

CASE(reads_go_on_beside_a_thread_that_computes)
{
    pthread_t computing = start(compute_until_over, NULL);
    start_readers();
    await_reads(500);
    stop_readers();
    join(computing);
}

/* Each child reads the same file, alone and with others, while its parent's reads wait. */
CASE(fork_while_dropped_blocks_are_read)
{
    start_readers();
    for (int i = 0; i < 5; i++) {
        await_reads(20);
        pid_t child = (pid_t)GET(fork());
        if (child == 0) {
            read_at_random(number(8));
            read_by_many(file, 8);
            _exit(5);
        }
        int status;
        IS(GET(waitpid(child, &status, 0)), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    }
    await_reads(20);
    stop_readers();
}

/* Carriers are made for those that are stuck, read as well, and are too many in the end. */
CASE(reads_go_on_while_carriers_come_and_go)
{
    enum { STUCK = 8 };
    pthread_t stuck[STUCK];
    GET(mkfifo("pipe", 0600));
    start_readers();
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < STUCK; k++) {
            stuck[k] = start(open_pipe, NULL);
        }
        await_reads(50);
        int end = (int)GET(open("pipe", O_RDWR));
        join_all(stuck, STUCK);
        close(end);
        await_reads(50);
    }
    stop_readers();
}

/* The lock of a file is released as soon as its reads are over, if the file's last number was
   closed while these waited. */
CASE(a_closed_file_is_let_go)
{
    pthread_t computing = 0;
    start_readers();
    int other = (int)GET(open("data", O_RDONLY));
    for (int i = 0; i < 10; i++) {
        if (i == 5) {
            computing = start(compute_until_over, NULL);
        }
        int locked = (int)GET(open("data", O_RDONLY));
        GET(flock(locked, LOCK_EX));
        IS(dup2(locked, file), file);
        close(locked);
        await_reads(5);
        IS(dup2(other, file), file); /* only its readers have the locked one now */
        while (flock(other, LOCK_EX | LOCK_NB) != 0) {
            IS(errno, EWOULDBLOCK);
            sleep_ms(1);
        }
        GET(flock(other, LOCK_UN));
    }
    stop_readers();
    join(computing);
    close(other);
}

/* The same while more threads than there are carriers sit in the kernel. */
CASE(a_closed_file_is_let_go_beside_threads_stuck_in_the_kernel)
{
    enum { STUCK = 6 };
    pthread_t stuck[STUCK];
    GET(mkfifo("pipe", 0600));
    start_readers();
    int other = (int)GET(open("data", O_RDONLY));
    for (int i = 0; i < 10; i++) {
        int locked = (int)GET(open("data", O_RDONLY));
        GET(flock(locked, LOCK_EX));
        IS(dup2(locked, file), file);
        close(locked);
        await_reads(20);
        for (int k = 0; k < STUCK; k++) {
            stuck[k] = start(open_pipe, NULL);
        }
        await_reads(20);
        IS(dup2(other, file), file);
        while (flock(other, LOCK_EX | LOCK_NB) != 0) {
            IS(errno, EWOULDBLOCK);
            sleep_ms(1);
        }
        GET(flock(other, LOCK_UN));
        int end = (int)GET(open("pipe", O_RDWR));
        join_all(stuck, STUCK);
        close(end);
    }
    stop_readers();
    close(other);
}
