/* The policy of memory (set_mempolicy), which the kernel keeps for each thread. */
#include "check.h"

#include <sched.h>
#include <sys/syscall.h>

enum { THREADS = 8 };

enum { PREFERRED = 1 };

static void memory_policy_is_now(int expected)
{
    int mode = -1;
    OK(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0));
    IS(mode, expected);
}

/* Before and after others have run. A thread with a kernel thread of its own yields its CPU to the
 * whole machine: not often, where many threads do so many times. */
static void memory_policy_stays(int expected)
{
    memory_policy_is_now(expected);
    sched_yield();
    memory_policy_is_now(expected);
}

static void memory_policy_is(int expected)
{
    for (int i = 0; i < 20; i++) {
        memory_policy_stays(expected);
    }
}

static void set_memory_policy(int mode, unsigned long nodes)
{
    OK(syscall(SYS_set_mempolicy, mode, nodes ? &nodes : NULL, nodes ? 8 * sizeof nodes : 0));
}

/* A thread begins with its creator's policy. */
static void *keep_memory_policy(void *unused)
{
    memory_policy_is(PREFERRED);
    return unused;
}

static void *probe_memory_policies(void *unused)
{
    /* As libraries do when they start; what was tried is forgotten. */
    for (int i = 0; i < 50; i++) {
        set_memory_policy(PREFERRED, 1);
        memory_policy_stays(PREFERRED);
        IS(syscall(SYS_set_mempolicy, 1000, NULL, 0), -1);
        IS(errno, EINVAL);
        memory_policy_stays(PREFERRED);
        set_memory_policy(0, 0);
        memory_policy_stays(0);
    }
    set_memory_policy(PREFERRED, 1);
    join(start(keep_memory_policy, NULL));
    memory_policy_is(PREFERRED);
    return unused;
}

CASE(a_policy_of_memory_is_of_one_thread)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(probe_memory_policies, NULL);
    }
    memory_policy_is(0);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    memory_policy_is(0);
}
