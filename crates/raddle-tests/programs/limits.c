/* Limits of the process, as its threads meet them. */
#include "check.h"
#include <stdatomic.h>
#include <sys/resource.h>

static struct rlimit limited(int which, rlim_t value)
{
    struct rlimit limit;
    OK(getrlimit(which, &limit));
    limit.rlim_cur = value;
    OK(setrlimit(which, &limit));
    return limit;
}

static int ends[2];

static void *read_byte(void *unused)
{
    char byte;
    IS(read(ends[0], &byte, 1), 1);
    return unused;
}

/* Threads that wait need no descriptor that a program could miss. */
CASE(descriptors_end_at_the_limit)
{
    closefrom(3);
    GET(pipe(ends));
    limited(RLIMIT_NOFILE, 64);
    int last = -1, next;
    while ((next = dup(0)) >= 0) {
        IS(next, last == -1 ? ends[1] + 1 : last + 1);
        last = next;
    }
    IS(errno, EMFILE);
    IS(last, 63);
    pthread_t reader = start(read_byte, NULL);
    let_others_block();
    FAILS(dup(0), EMFILE);
    IS(write(ends[1], "x", 1), 1);
    join(reader);
    close(40);
    IS(dup(0), 40);
}

/* The program has all numbers below its soft limit, also if none is left when it makes a thread. */
static void open_all(rlim_t most)
{
    for (rlim_t next = ends[1] + 1; next < most; next++) {
        IS(dup(0), next);
    }
    FAILS(dup(0), EMFILE);
}

static void use_a_thread_and_all_descriptors(rlim_t most, int is_full)
{
    closefrom(3);
    GET(pipe(ends));
    limited(RLIMIT_NOFILE, most);
    if (is_full) {
        open_all(most);
    }
    pthread_t reader = start(read_byte, NULL);
    closefrom(ends[1] + 1);
    open_all(most);
    IS(write(ends[1], "x", 1), 1);
    join(reader);
}

CASE(a_soft_limit_on_descriptors_leaves_them_all)
{
    for (int i = 0; i < 8; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            use_a_thread_and_all_descriptors(8 << i / 2 * 2, i % 2);
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}

/* If the runtime's descriptors would take a part of the program's, threads are the kernel's. */
CASE(a_hard_limit_on_descriptors_leaves_them_all)
{
    closefrom(3);
    GET(pipe(ends));
    struct rlimit limit = {24, 24};
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    pthread_t reader = start(read_byte, NULL);
    for (int next = ends[1] + 1; next < 24; next++) {
        IS(dup(0), next);
    }
    FAILS(dup(0), EMFILE);
    IS(write(ends[1], "x", 1), 1);
    join(reader);
}

static void *pass(void *unused)
{
    return unused;
}

/* Another process lowers the limit of one with threads: it holds at once, and threads go on. */
CASE(another_process_sets_the_limit)
{
    closefrom(3);
    GET(pipe(ends));
    pthread_t reader = start(read_byte, NULL);
    pid_t parent = getpid(), child = GET(fork());
    struct rlimit limit;
    if (child == 0) {
        OK(prlimit(parent, RLIMIT_NOFILE, NULL, &limit));
        limit.rlim_cur = 48;
        OK(prlimit(parent, RLIMIT_NOFILE, &limit, NULL));
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    OK(getrlimit(RLIMIT_NOFILE, &limit));
    IS(limit.rlim_cur, 48);
    open_all(48);
    join(start(pass, NULL));
    IS(write(ends[1], "x", 1), 1);
    join(reader);
}

static void *size_of_stack(void *unused)
{
    pthread_attr_t attributes;
    size_t size;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstacksize(&attributes, &size));
    OK(pthread_attr_destroy(&attributes));
    (void)unused;
    return number((long)size);
}

/* The limit on stacks at the program's start is the size of its threads' stacks. */
CASE(the_limit_on_stacks_is_inherited_as_their_size)
{
    if (getenv("SECOND_LIFE")) {
        IS(join(start(size_of_stack, NULL)), 3 << 20);
        return;
    }
    limited(RLIMIT_STACK, 3 << 20);
    OK(setenv("SECOND_LIFE", "1", 1));
    join(start(size_of_stack, NULL));
    execl("/proc/self/exe", "limits", case_name, NULL);
    CHECK(!"reached");
}

static void *ask_for_limit(void *unused)
{
    struct rlimit limit;
    OK(getrlimit(RLIMIT_CORE, &limit));
    IS(limit.rlim_cur, 4096);
    OK(prlimit(getpid(), RLIMIT_CORE, NULL, &limit));
    IS(limit.rlim_cur, 4096);
    return unused;
}

CASE(limits_are_of_all_threads)
{
    GET(pipe(ends));
    pthread_t other = start(read_byte, NULL);
    limited(RLIMIT_CORE, 4096);
    join(start(ask_for_limit, NULL));
    IS(write(ends[1], "x", 1), 1);
    join(other);
}

static void *sleep_often(void *unused)
{
    for (int i = 0; i < 20; i++) {
        sleep_ms(3);
    }
    return unused;
}

static atomic_int ends_now;

static void *burn(void *unused)
{
    while (!ends_now) {
    }
    return unused;
}

/* A program may forbid itself all further descriptors; timers and preemption go on. */
CASE(a_limit_of_no_descriptor_delays_no_thread)
{
    for (rlim_t most = 0; most < 4; most++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            pthread_t burner = start(burn, NULL), sleeper = start(sleep_often, NULL);
            limited(RLIMIT_NOFILE, most);
            join(sleeper);
            ends_now = 1;
            join(burner);
            clock_t used = clock();
            sleep_ms(300);
            CHECK(clock() - used < CLOCKS_PER_SEC / 10);
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}
