/* Descriptors: eventfds, numbers that are reused, duplicates, high numbers, plain files. */
#include "check.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

static int ends[2];

static void *read_one(void *argument)
{
    char byte;
    return number(read(ends[0], &byte, 1));
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

static void *nothing(void *unused)
{
    return unused;
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

/* The first number that select can't name is one that programs try. */
CASE(numbers_from_1024_on_are_free)
{
    join(start(nothing, NULL));
    for (int fd = 1024; fd < 1500; fd++) {
        FAILS(fcntl(fd, F_GETFD), EBADF);
    }
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
