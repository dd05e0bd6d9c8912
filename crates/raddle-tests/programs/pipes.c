/* Pipes, eventfds and plain files: blocking, partial transfers, ends, duplicates, reuse. */
#include "check.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

static int ends[2];

static void *write_numbers(void *argument)
{
    for (int i = 0; i < 5000; i++) {
        IS(write(ends[1], &i, sizeof i), sizeof i);
    }
    return argument;
}

CASE(a_reader_waits_for_a_writer)
{
    GET(pipe(ends));
    pthread_t thread = start(write_numbers, NULL);
    for (int i = 0; i < 5000; i++) {
        int got;
        IS(read(ends[0], &got, sizeof got), sizeof got);
        IS(got, i);
    }
    join(thread);
}

enum { LARGE = 3 << 20 };

static void *write_large(void *argument)
{
    char *data = malloc(LARGE);
    for (int i = 0; i < LARGE; i++) {
        data[i] = (char)(i * 31 + (i >> 8));
    }
    IS(write(ends[1], data, LARGE), LARGE);
    close(ends[1]);
    free(data);
    return argument;
}

CASE(a_write_larger_than_the_pipe_is_completed)
{
    GET(pipe(ends));
    pthread_t thread = start(write_large, NULL);
    char chunk[10007];
    long total = 0, count;
    while ((count = GET(read(ends[0], chunk, sizeof chunk))) > 0) {
        for (long i = 0; i < count; i++) {
            long at = total + i;
            CHECK(chunk[i] == (char)(at * 31 + (at >> 8)));
        }
        total += count;
    }
    IS(total, LARGE);
    join(thread);
}

static void *echo_byte(void *pipes)
{
    int *fds = pipes;
    char byte;
    while (GET(read(fds[0], &byte, 1)) == 1) {
        IS(write(fds[3], &byte, 1), 1);
    }
    close(fds[3]);
    return NULL;
}

CASE(a_hundred_pairs_of_pipes_echo)
{
    static int fds[100][4];
    pthread_t threads[100];
    for (int i = 0; i < 100; i++) {
        GET(pipe(fds[i]));
        GET(pipe(fds[i] + 2));
        threads[i] = start(echo_byte, fds[i]);
    }
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++) {
            char byte = (char)(i + round);
            IS(write(fds[i][1], &byte, 1), 1);
        }
        for (int i = 0; i < 100; i++) {
            char byte;
            IS(read(fds[i][2], &byte, 1), 1);
            IS(byte, (char)(i + round));
        }
    }
    for (int i = 0; i < 100; i++) {
        char byte;
        close(fds[i][1]);
        IS(read(fds[i][2], &byte, 1), 0);
    }
    join_all(threads, 100);
}

static void *read_one(void *argument)
{
    char byte;
    return number(read(ends[0], &byte, 1));
}

CASE(closing_the_last_writer_wakes_every_reader_with_0)
{
    pthread_t threads[10];
    GET(pipe(ends));
    for (int i = 0; i < 10; i++) {
        threads[i] = start(read_one, NULL);
    }
    let_others_block();
    close(ends[1]);
    for (int i = 0; i < 10; i++) {
        IS(join(threads[i]), 0);
    }
}

CASE(each_byte_wakes_one_reader)
{
    pthread_t threads[20];
    GET(pipe(ends));
    for (int i = 0; i < 20; i++) {
        threads[i] = start(read_one, NULL);
    }
    for (int i = 0; i < 20; i++) {
        IS(write(ends[1], "x", 1), 1);
        sched_yield();
    }
    for (int i = 0; i < 20; i++) {
        IS(join(threads[i]), 1);
    }
}

static void *fill_until_broken(void *argument)
{
    static char data[1 << 16];
    ssize_t count;
    while ((count = write(ends[1], data, sizeof data)) > 0) {
    }
    return number(errno);
}

CASE(closing_the_reader_wakes_a_writer_with_epipe)
{
    signal(SIGPIPE, SIG_IGN);
    GET(pipe(ends));
    pthread_t thread = start(fill_until_broken, NULL);
    let_others_block();
    close(ends[0]);
    IS(join(thread), EPIPE);
    FAILS(write(ends[1], "x", 1), EPIPE);
}

CASE(o_nonblock_says_again)
{
    char data[4096] = {0};
    GET(pipe2(ends, O_NONBLOCK));
    FAILS(read(ends[0], data, 1), EAGAIN);
    long total = 0, count;
    while ((count = write(ends[1], data, sizeof data)) > 0) {
        total += count;
    }
    IS(errno, EAGAIN);
    CHECK(total >= 4096);
    IS(GET(fcntl(ends[0], F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
}

CASE(flags_stay_as_the_program_set_them)
{
    GET(pipe(ends));
    pthread_t thread = start(read_one, NULL);
    let_others_block();
    IS(GET(fcntl(ends[0], F_GETFL)) & O_NONBLOCK, 0);
    IS(GET(fcntl(ends[0], F_GETFD)), 0);
    int waiting;
    GET(ioctl(ends[0], FIONREAD, &waiting));
    IS(waiting, 0);
    IS(write(ends[1], "x", 1), 1);
    IS(join(thread), 1);
    GET(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    FAILS(read(ends[0], &waiting, 1), EAGAIN);
    GET(fcntl(ends[0], F_SETFL, 0));
    thread = start(read_one, NULL);
    let_others_block();
    IS(write(ends[1], "x", 1), 1);
    IS(join(thread), 1);
}

CASE(bad_descriptors_are_told)
{
    char byte = 0, *volatile nowhere = NULL;
    FAILS(read(-1, &byte, 1), EBADF);
    FAILS(write(9999, &byte, 1), EBADF);
    GET(pipe(ends));
    FAILS(write(ends[0], &byte, 1), EBADF);
    FAILS(read(ends[1], &byte, 1), EBADF);
    FAILS(read(GET(open(".", O_RDONLY)), &byte, 1), EISDIR);
    FAILS(write(ends[1], nowhere, 1), EFAULT);
    IS(write(ends[1], nowhere, 0), 0);
}

CASE(readv_and_writev_scatter_and_gather)
{
    GET(pipe(ends));
    struct iovec out[3] = {{"one", 3}, {"", 0}, {"three", 5}};
    IS(writev(ends[1], out, 3), 8);
    char a[4] = {0}, b[10] = {0};
    struct iovec in[2] = {{a, 3}, {b, 9}};
    IS(readv(ends[0], in, 2), 8);
    IS(strcmp(a, "one"), 0);
    IS(strcmp(b, "three"), 0);
}

static void *vector_writer(void *argument)
{
    char *data = calloc(1, 1 << 20);
    struct iovec parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i].iov_base = data + i * (1 << 18);
        parts[i].iov_len = 1 << 18;
        memset(parts[i].iov_base, 'a' + i, 1 << 18);
    }
    IS(writev(ends[1], parts, 4), 1 << 20);
    free(data);
    return argument;
}

CASE(a_large_writev_is_completed)
{
    GET(pipe(ends));
    pthread_t thread = start(vector_writer, NULL);
    for (long total = 0, count; total < 1 << 20; total += count) {
        char chunk[5000];
        count = GET(read(ends[0], chunk, sizeof chunk));
        for (long i = 0; i < count; i++) {
            IS(chunk[i], 'a' + ((total + i) >> 18));
        }
    }
    join(thread);
}

static void *add_to_event(void *fd)
{
    for (int i = 0; i < 100; i++) {
        IS(eventfd_write((int)(long)fd, 1), 0);
    }
    return NULL;
}

CASE(eventfd_counts)
{
    int fd = GET(eventfd(0, 0));
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(add_to_event, number(fd));
    }
    for (uint64_t total = 0, got; total < 1000; total += got) {
        GET(eventfd_read(fd, &got));
        CHECK(got >= 1);
    }
    join_all(threads, 10);
}

static void *take_from_semaphore(void *fd)
{
    uint64_t got;
    GET(eventfd_read((int)(long)fd, &got));
    return number((long)got);
}

CASE(eventfd_as_a_semaphore_wakes_one_for_each)
{
    int fd = GET(eventfd(0, EFD_SEMAPHORE));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(take_from_semaphore, number(fd));
    }
    let_others_block();
    GET(eventfd_write(fd, 20));
    for (int i = 0; i < 20; i++) {
        IS(join(threads[i]), 1);
    }
    GET(fcntl(fd, F_SETFL, O_NONBLOCK));
    uint64_t got;
    FAILS(eventfd_read(fd, &got), EAGAIN);
}

static void *block_on_full_event(void *fd)
{
    GET(eventfd_write((int)(long)fd, 5));
    return NULL;
}

CASE(a_full_eventfd_blocks_its_writer)
{
    int fd = GET(eventfd(0, 0));
    uint64_t got;
    GET(eventfd_write(fd, UINT64_MAX - 1));
    pthread_t thread = start(block_on_full_event, number(fd));
    let_others_block();
    GET(eventfd_read(fd, &got));
    CHECK(got == UINT64_MAX - 1);
    join(thread);
    GET(eventfd_read(fd, &got));
    IS(got, 5);
}

CASE(descriptors_are_the_lowest_free_and_reused)
{
    int first = GET(dup(0));
    close(first);
    for (int i = 0; i < 200; i++) {
        GET(pipe(ends));
        IS(ends[0], first);
        IS(ends[1], first + 1);
        pthread_t thread = start(read_one, NULL);
        if (i % 3 == 0) {
            sched_yield();
        }
        IS(write(ends[1], "x", 1), 1);
        IS(join(thread), 1);
        close(ends[0]);
        close(ends[1]);
    }
}

CASE(a_number_reused_for_another_kind_of_file_works)
{
    for (int i = 0; i < 50; i++) {
        GET(pipe(ends));
        pthread_t thread = start(read_one, NULL);
        sched_yield();
        IS(write(ends[1], "x", 1), 1);
        IS(join(thread), 1);
        int event = GET(eventfd(1, 0)), number_of_event = ends[0];
        IS(dup2(event, number_of_event), number_of_event);
        uint64_t got;
        GET(eventfd_read(number_of_event, &got));
        IS(got, 1);
        thread = start(take_from_semaphore, number(number_of_event));
        sched_yield();
        GET(eventfd_write(event, 9));
        IS(join(thread), 9);
        close(event);
        close(ends[0]);
        close(ends[1]);
    }
}

CASE(duplicates_share_one_pipe)
{
    GET(pipe(ends));
    int original = ends[0];
    ends[0] = GET(dup(original));
    pthread_t thread = start(read_one, NULL);
    let_others_block();
    close(original);
    IS(write(ends[1], "x", 1), 1);
    IS(join(thread), 1);
    int copy = GET(fcntl(ends[0], F_DUPFD_CLOEXEC, 500));
    CHECK(copy >= 500);
    IS(GET(fcntl(copy, F_GETFD)), FD_CLOEXEC);
    IS(write(ends[1], "y", 1), 1);
    IS(read(copy, &original, 1), 1);
}

CASE(descriptors_above_1024_block_and_wake)
{
    struct rlimit limit;
    GET(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    GET(setrlimit(RLIMIT_NOFILE, &limit));
    GET(pipe(ends));
    ends[0] = GET(fcntl(ends[0], F_DUPFD, 3000));
    ends[1] = GET(fcntl(ends[1], F_DUPFD, 3000));
    pthread_t thread = start(read_one, NULL);
    let_others_block();
    IS(write(ends[1], "x", 1), 1);
    IS(join(thread), 1);
}

/* Servers close every number they don't know before they start a child, or as daemons. */
CASE(closing_every_other_descriptor_harms_nobody)
{
    GET(syscall(SYS_close_range, 3, ~0u, 0));
    for (int fd = 3; fd < 2000; fd++) {
        close(fd);
    }
    GET(pipe(ends));
    pthread_t thread = start(read_one, NULL);
    let_others_block();
    IS(write(ends[1], "x", 1), 1);
    IS(join(thread), 1);
    sleep_ms(5);
}

static int file;

static void *write_own_region(void *me)
{
    char block[1000];
    memset(block, 'a' + (int)(long)me, sizeof block);
    for (int i = 0; i < 50; i++) {
        off_t at = ((long)me * 50 + i) * 1000;
        IS(pwrite(file, block, 1000, at), 1000);
        char back[1000];
        IS(pread(file, back, 1000, at), 1000);
        IS(memcmp(block, back, 1000), 0);
    }
    return NULL;
}

CASE(files_are_written_and_read_by_16_threads)
{
    pthread_t threads[16];
    file = GET(open("file", O_RDWR | O_CREAT | O_TRUNC, 0600));
    for (long i = 0; i < 16; i++) {
        threads[i] = start(write_own_region, number(i));
    }
    join_all(threads, 16);
    IS(lseek(file, 0, SEEK_END), 16 * 50000);
    IS(lseek(file, 0, SEEK_SET), 0);
    char block[16];
    IS(read(file, block, 16), 16);
    IS(block[0], 'a');
    GET(fsync(file));
    GET(ftruncate(file, 10));
    IS(read(file, block, 16), 0);
    unlink("file");
}

static void *append_lines(void *me)
{
    char line[20];
    int length = snprintf(line, sizeof line, "%08ld\n", (long)me);
    for (int i = 0; i < 100; i++) {
        IS(write(file, line, length), length);
    }
    return NULL;
}

CASE(o_append_keeps_lines_whole)
{
    pthread_t threads[8];
    long sum = 0, value;
    file = GET(open("log", O_WRONLY | O_CREAT | O_APPEND, 0600));
    for (long i = 0; i < 8; i++) {
        threads[i] = start(append_lines, number(i));
    }
    join_all(threads, 8);
    FILE *back = fopen("log", "r");
    while (fscanf(back, "%ld", &value) == 1) {
        sum += value;
    }
    fclose(back);
    unlink("log");
    IS(sum, 2800);
}

static void *read_line(void *line)
{
    return fgets(line, 100, stdin);
}

CASE(standard_input_is_read_by_threads)
{
    char line[100];
    int count = 0;
    while (join(start(read_line, line))) {
        count++;
        printf("%d: %s", count, line);
    }
    CHECK(feof(stdin));
}
