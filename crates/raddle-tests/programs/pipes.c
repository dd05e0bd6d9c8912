/* Pipes: blocking, partial transfers, ends, errors; and standard input. */
#include "check.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
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
