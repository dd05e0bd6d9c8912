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

static atomic_int over;

static void say_over(int signal)
{
    IS(signal, SIGXCPU);
    over = 1;
}

static void *compute_until_over(void *unused)
{
    while (!over) {
    }
    return unused;
}

/* The CPU time of all threads counts together. */
CASE(cpu_time_beyond_the_limit_raises_a_signal)
{
    struct sigaction action = {.sa_handler = say_over};
    pthread_t threads[3];
    GET(sigaction(SIGXCPU, &action, NULL));
    limited(RLIMIT_CPU, 1);
    for (int i = 0; i < 3; i++) {
        threads[i] = start(compute_until_over, NULL);
    }
    join_all(threads, 3);
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) > 900 * MS);
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

/* What the limit on stacks is when a program begins is the size of its threads'. */
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
