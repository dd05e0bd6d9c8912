/* Limits of the process, as its threads meet them. */
#include "check.h"
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
