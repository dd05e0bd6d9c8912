/* A policy of your own for `raddle run --policy ./mine.so`: which runnable thread runs next.
 *
 * Compile it as
 *
 *     cc -O2 -shared -fPIC -fno-stack-protector -nostdlib -o mine.so mine.c
 *
 * and export one table of this name:
 *
 *     const struct raddle_policy raddle_policy = {
 *         .version = RADDLE_POLICY_VERSION,
 *         .size = sizeof(struct raddle_policy),
 *         .enqueue = my_enqueue,
 *         .pick = my_pick,
 *     };
 *
 * The functions run inside the runtime, on the stacks of green threads and of kernel threads that
 * libc doesn't know. So they
 *
 *   - call nothing of libc, make no system calls, and touch no thread-local variable;
 *   - are compiled for the baseline of x86-64 (no AVX), and use less than a kilobyte of stack;
 *   - return within some microseconds: a lock is held meanwhile, and no two calls overlap.
 *
 * Nothing needs allocating: each thread has room for links in `user`. The file's constructors may
 * not have run when `create` is called.
 *
 * A policy that picks something else than a thread which it was given and has not picked since,
 * that picks nothing while it has threads, that spends an eighth of the time in calls of more than
 * 100 us, or that is in one call for 50 ms of CPU time or for a second, is not called again but for
 * `destroy`: threads run first come, first served from then on, and a line on standard error says
 * so. A call that does not return is abandoned, with the stack that it uses, and `destroy` is not
 * called then. A policy that writes where it mustn't takes the program with it.
 *
 * A program that links libraddle can give such a table, of any name, to an engine of its own, where
 * much more is allowed: raddle_engine_options of raddle_engine.h says what is different.
 */
#ifndef RADDLE_POLICY_H
#define RADDLE_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RADDLE_POLICY_VERSION 1

/* Why a thread is runnable. */
enum raddle_reason {
    RADDLE_NEW = 0,       /* it has never run */
    RADDLE_WOKEN = 1,     /* what it waited for happened */
    RADDLE_YIELDED = 2,   /* it let others run */
    RADDLE_PREEMPTED = 3, /* its quantum is over */
};

/* One green thread. Its memory lives as long as the thread; another may get it afterwards, with
 * `user` zeroed. Everything but `user` is written by the runtime, before each call with it. */
struct raddle_policy_thread {
    uint64_t user[4];     /* the policy's own: links, keys */
    uint64_t ran_ns;      /* CPU time that it has used */
    uint64_t deadline_ns; /* of SCHED_DEADLINE, from becoming runnable on; 0 for none */
    uint32_t tid;         /* what gettid returns to it */
    int32_t nice;         /* -20 to 19 */
    uint32_t sched_class; /* SCHED_OTHER, SCHED_FIFO, ... */
    uint32_t priority;    /* 1 to 99 in the real-time classes, else 0 */
};

struct raddle_policy {
    uint32_t version; /* RADDLE_POLICY_VERSION */
    uint32_t size;    /* sizeof(struct raddle_policy) */

    /* Gives the state that all other functions get; may be null. Called again in the child of a
     * fork, which has none of the threads: the state must be fresh then. */
    void *(*create)(void);

    /* A thread became runnable. */
    void (*enqueue)(void *state, struct raddle_policy_thread *thread, uint32_t reason,
                    uint64_t now_ns);

    /* Takes the thread that runs next. Called only while there are some. */
    struct raddle_policy_thread *(*pick)(void *state, uint64_t now_ns);

    /* Nanoseconds that the thread that was just picked may compute while others wait; 0 for what
     * --quantum says. May be null. */
    uint64_t (*quantum)(void *state, struct raddle_policy_thread *running);

    /* The state is no longer used: the policy has failed. Not called when another policy is chosen
     * by `raddle ctl`, nor after a call that did not return. May be null. */
    void (*destroy)(void *state);
};

extern const struct raddle_policy raddle_policy;

#ifdef __cplusplus
}
#endif

#endif
