/* Engines: carriers, a policy and perhaps a share of the CPUs for some of the process's threads.
 *
 * A thread belongs to the engine that raddle_thread_options.engine names, a pool's workers to that
 * of raddle_pool_options.engine, and all others to the first one, which needs no handle. Threads of
 * all engines share locks and completions, and join each other.
 *
 * Errors are as in raddle.h: 0, or a negative errno value, among them -EFAULT for a null pointer
 * and -EBADF for a handle that names nothing.
 */
#ifndef RADDLE_ENGINE_H
#define RADDLE_ENGINE_H

#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

struct raddle_policy; /* raddle_policy.h */

/* Options of a new engine. Start from RADDLE_ENGINE_OPTIONS_INIT, which asks for nothing. */
typedef struct raddle_engine_options {
    size_t size;      /* sizeof(raddle_engine_options): later versions append members */
    const char *name; /* for messages about the engine; may be null */
    /*
     * Which runnable thread of the engine runs next: "fifo", the one that came first; "lifo", the
     * newest; "priority", by raddle_thread_options.priority, then niceness; "fair", CPU time by
     * weight, which follows niceness; "deadline", the earliest. Null for fifo.
     */
    const char *policy;
    /*
     * Instead of `policy` a policy of the program's own: the functions of raddle_policy.h, which
     * are called on threads of the engine. Here they may call libc, allocate and lock, but must not
     * wait for the engine's own threads. Calls don't overlap. `create` is called once for each
     * engine, on the thread that creates it. ran_ns is how long a thread has had a carrier. A
     * policy has failed if it picks something other than a thread it has, picks nothing while it
     * has threads, or is in one call for a second. A failed policy isn't called again: threads run
     * first come, first served from then on, a line on the standard error reports the failure, and
     * raddle_engine_failure() returns it. `destroy` is called in the end, unless a call never
     * returns. The table is copied; the functions must stay.
     */
    const struct raddle_policy *policy_table;
    uint32_t carriers;  /* 1 to 64; 0 for as many as its share is worth, or as CPUs may be used */
    uint32_t cpu_share; /* the most that it uses, in percent of one CPU, 1 to 102400; 0 for all */
} raddle_engine_options;

#define RADDLE_ENGINE_OPTIONS_INIT {sizeof(raddle_engine_options), NULL, NULL, NULL, 0, 0}

/*
 * Makes an engine. Its carriers are made with its first thread. options may be null.
 *
 *   -EINVAL  options.size is too small, a member is out of range, the policy's name isn't known,
 *            there are both a name and a table, or the table is of another version, too small, or
 *            without enqueue or pick
 *   -E2BIG   options has members that this version doesn't know and that aren't 0
 *   -ENOSYS  threads are kernel threads here: raddle_status()
 *   -ENOSPC  the process has 48 engines, or no handle is left
 *   -ENOMEM, -EAGAIN  no memory is left, or no thread for a policy of one's own
 */
RADDLE_API int raddle_engine_create(raddle_engine *engine, const raddle_engine_options *options);

/* Refuses further threads of the engine (-ESHUTDOWN). Its threads go on. */
RADDLE_API int raddle_engine_shut_down(raddle_engine engine);

/*
 * Waits until the engine has no threads, for timeout_ns nanoseconds, or for ever if that is
 * negative. -ETIMEDOUT: it still has some. -EDEADLK: the calling thread is one of them.
 */
RADDLE_API int raddle_engine_wait(raddle_engine engine, int64_t timeout_ns);

/* Changes the share, as in raddle_engine_options; 0 for all. -EINVAL: it is out of range. */
RADDLE_API int raddle_engine_set_share(raddle_engine engine, uint32_t percent);

/* raddle_engine_failure(): the policy picked something that is none of its threads, */
#define RADDLE_PICKED_GARBAGE 1
/* nothing while it had threads, */
#define RADDLE_PICKED_NOTHING 2
/* or was in one call for a second. */
#define RADDLE_STUCK 3

/* Returns what the engine's own policy did wrong: one of the above, or 0. */
RADDLE_API int raddle_engine_failure(raddle_engine engine);

/* An engine's counters at about one moment. Start from RADDLE_ENGINE_COUNTERS_INIT. */
typedef struct raddle_engine_counters {
    size_t size;      /* sizeof(raddle_engine_counters): later versions append members */
    uint64_t threads; /* threads now */
    uint64_t started; /* threads so far */
    uint64_t cpu_ns;  /* CPU time that its carriers have used so far */
} raddle_engine_counters;

#define RADDLE_ENGINE_COUNTERS_INIT {sizeof(raddle_engine_counters), 0, 0, 0}

/* Stores an engine's counters, as raddle_pool_count(). -EINVAL: size has room for none. */
RADDLE_API int raddle_engine_count(raddle_engine engine, raddle_engine_counters *counters);

/* Frees the handle. The engine ends when its last thread has. */
RADDLE_API int raddle_engine_free(raddle_engine engine);

#ifdef __cplusplus
}
#endif

#endif
