/*
 * Raddle: threads that are scheduled in user space.
 *
 * Link with -lraddle, or `pkg-config --cflags --libs raddle`; C99 and C++17 are enough. The guide
 * is docs/api.md of the sources; this header is the reference.
 *
 * A GREEN THREAD is a thread in every respect: it has thread-locals, an id, a name and a stack, and
 * pthread functions, locks, sockets, files and sleeping work in it as elsewhere. A call that blocks
 * in libc parks the green thread, and its kernel thread, the CARRIER, runs others. A LIGHT THREAD
 * is a stack and nothing else, for programs with a million of them; see RADDLE_LIGHT. Threads made
 * in other ways (pthread_create, std::thread) stay kernel threads; all kinds may share locks.
 *
 * HANDLES. Threads, completions, pools and tables are named by handles: structs that are copied
 * freely, in which id 0 is none. Each use checks the handle. A handle that was freed, joined or
 * detached, or was never given out, does no harm: the function returns -EBADF.
 *
 * ERRORS. A function that returns int returns 0 or more on success, and a negative errno value
 * otherwise; it never sets errno on purpose. Any function may return these errors:
 *
 *   -EFAULT           a null pointer where a function or a place for a result is needed
 *   -EBADF            a handle that names nothing
 *   -E2BIG            a struct with a size member above 4096: the member was never set
 *   -ENOTRECOVERABLE  a bug in this library, which is reported on the standard error
 *
 * The pointer to a result may be null where the function's comment says so. On an error no result
 * is stored, except where the comment names one.
 *
 * CALLBACKS must return: an exception that leaves a callback ends the process, and a callback must
 * not leave by longjmp, pthread_exit or cancellation of its thread. Callbacks run on other threads
 * than the one that passed them, except where the comment names the thread.
 *
 * All functions may be called on any thread, none in a signal handler, and none in the child of a
 * fork before it calls exec, if the parent had threads.
 */
#ifndef RADDLE_H
#define RADDLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function, as in `RADDLE_API int raddle_yield(void);`. */
#define RADDLE_API extern

/* ---- The library --------------------------------------------------------------------------- */

/* The version of this header: major, minor and patch take a byte each. */
#define RADDLE_VERSION 0x000100

/* The version of the library, as RADDLE_VERSION. A later version only adds functions. */
RADDLE_API uint32_t raddle_version(void);

/* Threads are kernel threads: this system can't carry the runtime. `raddle doctor` says why. */
#define RADDLE_KERNEL_THREADS 0
/* Threads that are asked to be green are green. */
#define RADDLE_GREEN 1
/* Threads are kernel threads: the process had threads already when the library was loaded. */
#define RADDLE_LOADED_LATE 2

/*
 * Returns whether threads are green in this process: one of the above. Where threads aren't green,
 * all functions work the same, and each green thread costs a kernel thread.
 */
RADDLE_API int raddle_status(void);

/* Returns how many carriers may run green threads at a time; 0 before the first thread if no number
 * was set. */
RADDLE_API int raddle_carriers(void);

/*
 * Changes how many carriers may run green threads at a time. 0, the initial value, means as many as
 * the CPUs that the process may use. More than 1024 means 1024. -EINVAL: less than 0.
 */
RADDLE_API int raddle_set_carriers(int count);

/*
 * Changes which runnable thread of the default engine runs next: "fifo" (the initial value),
 * "lifo", "priority", "fair" or "deadline". See raddle_engine.h. Without green threads the call has
 * no effect. -EINVAL: the name isn't one of these.
 */
RADDLE_API int raddle_set_policy(const char *policy);

/*
 * Returns the policy of the default engine; null for a plug-in, and where threads are kernel
 * threads.
 */
RADDLE_API const char *raddle_policy_name(void);

/* ---- Threads ------------------------------------------------------------------------------- */

/* An engine: raddle_engine.h. */
typedef struct raddle_engine {
    uint64_t id;
} raddle_engine;

/* A thread that was neither joined nor detached. */
typedef struct raddle_thread {
    uint64_t id;
} raddle_thread;

/* The function of a thread. */
typedef void *(*raddle_function)(void *argument);

/* The smallest stack that can be asked for, in bytes. */
#define RADDLE_STACK_MIN 16384

/*
 * raddle_thread_options.flags: a light thread. Its stack has 64 KiB unless the options say
 * otherwise, the size is rounded up to a power of two, and its name is shown nowhere. Between two
 * calls of this library it stays on one host, a green thread; a call that waits or yields may move
 * it to another host, and so to other thread-locals: errno, owners of recursive locks and
 * pthread_self() are the host's. A call that blocks in libc keeps the host, and another host takes
 * its place.
 */
#define RADDLE_LIGHT 1u
/* raddle_thread_options.flags: a thread without a handle, which can't be joined. */
#define RADDLE_DETACHED 2u
/* raddle_thread_options.flags: sets the niceness to `nice`; for green threads only. */
#define RADDLE_NICE 4u
/*
 * raddle_thread_options.flags: a kernel thread of its own, for code that blocks where libc doesn't
 * see it. Under `raddle run`, where every thread is green, this one is green, too.
 */
#define RADDLE_KERNEL_THREAD 8u

/* Options of a new thread. Start from RADDLE_THREAD_OPTIONS_INIT, which asks for nothing. */
typedef struct raddle_thread_options {
    size_t size;       /* sizeof(raddle_thread_options): later versions append members */
    size_t stack_size; /* in bytes, at least RADDLE_STACK_MIN; 0 for the usual one */
    const char *name;  /* null for none; the kernel's interfaces show its first 15 bytes */
    uint32_t flags;    /* RADDLE_LIGHT and so on */
    int32_t nice;      /* with RADDLE_NICE, -20, most urgent, to 19; otherwise 0 */
    /* These four are for green threads only. */
    raddle_engine engine; /* {0} for the first */
    uint64_t deadline_ns; /* for deadline: from becoming runnable, in nanoseconds; 0 for none */
    uint32_t priority;    /* for priority: 1 to 99, the most important; 0 is below all */
    uint32_t reserved;    /* 0 */
} raddle_thread_options;

#define RADDLE_THREAD_OPTIONS_INIT {sizeof(raddle_thread_options), 0, NULL, 0, 0, {0}, 0, 0, 0}

/*
 * Starts a thread that runs function(argument), and stores its handle before the thread runs;
 * stores {0} if the thread can't be made. options may be null. thread may be null for a detached
 * thread, for which {0} is stored.
 *
 *   -EINVAL  options.size or stack_size is too small, a flag isn't known or contradicts another,
 *            nice is no niceness, priority is none, or something is asked for that isn't for
 *            threads of this kind
 *   -EBADF   options.engine is no engine's handle
 *   -ESHUTDOWN  that engine was shut down
 *   -EACCES  this process may not have threads of that niceness
 *   -E2BIG   options has members that this version doesn't know and that aren't 0
 *   -ENOMEM, -EAGAIN, -ENOSPC  no memory, thread or handle is left
 */
RADDLE_API int raddle_spawn(raddle_thread *thread, const raddle_thread_options *options,
                            raddle_function function, void *argument);

/*
 * Waits for a thread's end and stores what its function returned; result may be null. The handle is
 * freed. A green thread has run the destructors of its thread-locals by then.
 *
 *   -EDEADLK  the thread is the calling one (two threads that join each other wait for ever)
 *   -EBUSY    another thread joins it
 */
RADDLE_API int raddle_join(raddle_thread thread, void **result);

/* Detaches a thread, which goes on, and frees the handle. -EBUSY: another thread joins it. */
RADDLE_API int raddle_detach(raddle_thread thread);

/* Returns 1 if raddle_join() would return at once, else 0. -EBUSY: another thread joins it. */
RADDLE_API int raddle_is_finished(raddle_thread thread);

/* Returns the calling thread; {0} if it has no handle or wasn't made by raddle_spawn(). */
RADDLE_API raddle_thread raddle_self(void);

/*
 * Waits until raddle_unpark() is called for this thread, or takes the permission that such a call
 * has left since the last wait; at most one permission is left. There are no spurious returns. A
 * light thread lets others run meanwhile, a green thread parks, a kernel thread blocks.
 *
 *   -EPERM  the thread has no handle (raddle_self() returns {0}), so that no raddle_unpark() can
 *           name it; or the thread is detached during the wait
 */
RADDLE_API int raddle_park(void);

/* As raddle_park(), for timeout_ns at most. -ETIMEDOUT: the time is over. -EINVAL: less than 0. */
RADDLE_API int raddle_park_for(int64_t timeout_ns);

/* Lets a thread go on from raddle_park(), now or at its next call. No effect after its end. */
RADDLE_API int raddle_unpark(raddle_thread thread);

/* Lets other threads run: on a light thread other light threads, else as sched_yield(). */
RADDLE_API int raddle_yield(void);

/*
 * Waits for time_ns nanoseconds; other threads run meanwhile. Libc's functions do the same, but on
 * a light thread they keep the host.
 */
RADDLE_API int raddle_sleep(uint64_t time_ns);

/* Returns 1 on a green thread and on a light thread of a green host; 0 on a kernel thread. */
RADDLE_API int raddle_is_green(void);

/* Returns 1 on a light thread, else 0. */
RADDLE_API int raddle_is_light(void);

/*
 * Runs function(argument) on a kernel thread of its own and waits for it; result may be null. For
 * code that needs much stack, or blocks where libc doesn't see it. stack_size as in
 * raddle_thread_options, 0 for 2 MiB. Under `raddle run`, where every thread is green, that thread
 * is green, too.
 *
 *   -EINVAL  stack_size is less than RADDLE_STACK_MIN, and not 0
 *   -ENOMEM, -EAGAIN  no memory or thread is left
 */
RADDLE_API int raddle_on_kernel_thread(size_t stack_size, raddle_function function, void *argument,
                                       void **result);

/* ---- Completions --------------------------------------------------------------------------- */

/* A value that is set once, and waited for by any number of threads. */
typedef struct raddle_completion {
    uint64_t id;
} raddle_completion;

/* Called at an end: status is 0, or a negative errno value and then value is null. */
typedef void (*raddle_listener)(void *argument, int status, void *value);

/* Makes a completion that has not ended. -ENOMEM, -ENOSPC: no memory or handle is left. */
RADDLE_API int raddle_completion_create(raddle_completion *completion);

/*
 * Ends a completion with a value, which all waits return. Never blocks; listeners run here.
 * -EALREADY: the completion has ended before, and keeps its first value.
 */
RADDLE_API int raddle_completion_set(raddle_completion completion, void *value);

/*
 * Ends a completion without a value: waiting returns -error. As raddle_completion_set() otherwise.
 * -EINVAL: error is not an errno value from 1 to 4095.
 */
RADDLE_API int raddle_completion_fail(raddle_completion completion, int error);

/*
 * Waits for the value and stores it; value may be null. May be called any number of times, also
 * after the end. A light thread lets others run meanwhile, a green thread parks, a kernel thread
 * blocks.
 *
 *   -ECANCELED  the completion was freed during the wait
 *   the error of raddle_completion_fail(), with a null value
 */
RADDLE_API int raddle_completion_wait(raddle_completion completion, void **value);

/* As raddle_completion_wait(), for timeout_ns at most: -ETIMEDOUT. -EINVAL: less than 0. */
RADDLE_API int raddle_completion_wait_for(raddle_completion completion, int64_t timeout_ns,
                                          void **value);

/* As raddle_completion_wait(), without waiting. -EAGAIN: the completion hasn't ended. */
RADDLE_API int raddle_completion_poll(raddle_completion completion, void **value);

/*
 * Has listener(argument, status, value) called once: by the thread that ends the completion, here
 * if it has ended, or with -ECANCELED by the thread that frees it. The listener should not block.
 */
RADDLE_API int raddle_completion_then(raddle_completion completion, raddle_listener listener,
                                      void *argument);

/* Frees a completion. If it hasn't ended, waits for it return -ECANCELED. */
RADDLE_API int raddle_completion_free(raddle_completion completion);

/*
 * Runs function(argument) on a thread of its own, without a handle, and ends a new completion with
 * what the function returns. The caller frees the completion. options may be null; errors as of
 * raddle_spawn().
 */
RADDLE_API int raddle_run(raddle_completion *completion, const raddle_thread_options *options,
                          raddle_function function, void *argument);

/* ---- Cancellation --------------------------------------------------------------------------- */

/* A request to stop, made once, for any number of tasks, listeners and waiting threads. */
typedef struct raddle_cancel {
    uint64_t id;
} raddle_cancel;

/* Makes a handle for a request that is not made yet. -ENOMEM, -ENOSPC: no memory or handle is left.
 * */
RADDLE_API int raddle_cancel_create(raddle_cancel *cancel);

/*
 * Makes the request: tasks of raddle_pool_submit() that haven't started won't start, and listeners
 * run here. -EALREADY: the request was made before.
 */
RADDLE_API int raddle_cancel_request(raddle_cancel cancel);

/* Returns 1 if the request was made, else 0. For work that checks now and then. */
RADDLE_API int raddle_cancel_is_requested(raddle_cancel cancel);

/*
 * Waits for the request, for timeout_ns nanoseconds at most: a sleep that can be cut short. A light
 * thread keeps its host meanwhile. -ETIMEDOUT: no request was made. -EINVAL: less than 0.
 */
RADDLE_API int raddle_cancel_wait_for(raddle_cancel cancel, int64_t timeout_ns);

/*
 * Has listener(argument, -ECANCELED, NULL) called by the thread that makes the request, or here if
 * the request was made before. Without a request the listener is never called.
 */
RADDLE_API int raddle_cancel_then(raddle_cancel cancel, raddle_listener listener, void *argument);

/* Frees the handle: the request can't be made any more. */
RADDLE_API int raddle_cancel_free(raddle_cancel cancel);

/* ---- Thread pools ---------------------------------------------------------------------------- */

/* A pool: workers, which are green threads, and the work that is queued for them. */
typedef struct raddle_pool {
    uint64_t id;
} raddle_pool;

/* Queued work with a result. */
typedef struct raddle_task {
    uint64_t id;
} raddle_task;

/* raddle_pool_options.overflow: what happens to new work when the queue is full: -ENOBUFS; */
#define RADDLE_REJECT 0
/* the caller runs it; */
#define RADDLE_CALLER_RUNS 1
/* the oldest work of the lowest priority is dropped for it, and its waiter gets -ECANCELED; */
#define RADDLE_DISCARD_OLDEST 2
/* the caller waits for room, or, on a worker of the pool, runs it. */
#define RADDLE_BLOCK 3

/* Called at a worker's start or end, on the worker. */
typedef void (*raddle_worker_hook)(void *argument, size_t worker);

/* Called before or after work, on the worker that runs it. */
typedef void (*raddle_work_hook)(void *argument);

/* raddle_pool_options.flags: raddle_task_wait() never runs a task: tasks run on workers only. */
#define RADDLE_WAITS_ONLY 1u

/* Options of a new pool. Start from RADDLE_POOL_OPTIONS_INIT, which asks for nothing. */
typedef struct raddle_pool_options {
    size_t size;        /* sizeof(raddle_pool_options): later versions append members */
    size_t workers;     /* how many run at once if none blocks; 0 for one for each CPU */
    size_t max_workers; /* the most, with blocked ones; 0 for 64 more than workers */
    size_t capacity;    /* how much work may wait; 0 for no bound */
    size_t stack_size;  /* of a worker, as in raddle_thread_options */
    const char *name;   /* null for "pool"; threads are named by it and a number */
    int overflow;       /* RADDLE_REJECT and so on, if there is a capacity */
    int reserved;       /* 0 */
    uint64_t keep_alive_ns;      /* how long surplus workers stay idle; 0 for 20 seconds */
    raddle_worker_hook on_start; /* before a worker's first work; may be null */
    raddle_worker_hook on_stop;  /* after its last work; may be null */
    void *hook_argument;
    raddle_engine engine; /* its workers'; {0} for the first. Dispose before waiting for it */
    raddle_work_hook before_work; /* before each work of a worker; may be null */
    raddle_work_hook after_work;  /* after each work; may be null */
    uint64_t tick_ns; /* how often a busy pool looks for stuck work; 0 for 100 ms */
    uint32_t memory_reserve; /* no worker is added with less memory free; in percent, 0 for 5 */
    uint32_t flags;          /* RADDLE_WAITS_ONLY */
} raddle_pool_options;

#define RADDLE_POOL_OPTIONS_INIT \
    {sizeof(raddle_pool_options), 0, 0, 0, 0, NULL, 0, 0, 0, NULL, NULL, NULL, {0}, \
     NULL, NULL, 0, 0, 0}

/*
 * Makes a pool; its workers start when there is work. options may be null.
 *
 *   -EINVAL  options.size or stack_size is too small, workers is more than max_workers or than a
 *            pool can have, or another member isn't known
 *   -EBADF   options.engine is no engine's handle
 *   -E2BIG   options has members that this version doesn't know and that aren't 0
 *   -ENOMEM, -ENOSPC  no memory or handle is left
 */
RADDLE_API int raddle_pool_create(raddle_pool *pool, const raddle_pool_options *options);

/*
 * Queues function(argument); its result is lost.
 *
 *   -ENOBUFS    the queue is full
 *   -ESHUTDOWN  the pool is disposed of
 *   -EAGAIN     no thread can be made for the work now; it runs when there is one
 *   -ECHILD     the pool belongs to the process that this one was forked from
 */
RADDLE_API int raddle_pool_queue(raddle_pool pool, raddle_function function, void *argument);

/* Priorities of work: before all other; as raddle_pool_queue(); when there is little other. */
#define RADDLE_HIGH 1
#define RADDLE_USUAL 0
#define RADDLE_LOW (-1)

/* Returns the pool that the calling worker belongs to; {0} on other threads. */
RADDLE_API raddle_pool raddle_pool_self(void);

/* raddle_pool_queue() with a priority. -EINVAL: priority isn't one of these. */
RADDLE_API int raddle_pool_queue_at(raddle_pool pool, int priority, raddle_function function,
                                    void *argument);

/*
 * Queues function(argument) as a task, and stores its handle before it runs; stores {0} if it isn't
 * queued. Errors as of raddle_pool_queue(); after -EAGAIN the task runs without a handle. -ENOMEM,
 * -ENOSPC: no memory or handle is left.
 */
RADDLE_API int raddle_pool_task(raddle_pool pool, raddle_task *task, raddle_function function,
                                void *argument);

/* raddle_pool_task() with a priority. -EINVAL: priority isn't one of these. */
RADDLE_API int raddle_pool_task_at(raddle_pool pool, int priority, raddle_task *task,
                                   raddle_function function, void *argument);

/* Options of work. Start from RADDLE_WORK_OPTIONS_INIT, which asks for nothing. */
typedef struct raddle_work_options {
    size_t size;       /* sizeof(raddle_work_options): later versions append members */
    int priority;      /* RADDLE_HIGH and so on */
    uint32_t reserved; /* 0 */
    raddle_cancel cancel; /* its request keeps the work from starting; {0} for none */
} raddle_work_options;

#define RADDLE_WORK_OPTIONS_INIT {sizeof(raddle_work_options), RADDLE_USUAL, 0, {0}}

/*
 * raddle_pool_queue(), if task is null, else raddle_pool_task(), with options, which may be null.
 *
 *   -EINVAL     options.size is too small, or a member is out of range
 *   -E2BIG      options has members that this version doesn't know and that aren't 0
 *   -ECANCELED  options.cancel was requested before
 */
RADDLE_API int raddle_pool_submit(raddle_pool pool, const raddle_work_options *options,
                                  raddle_task *task, raddle_function function, void *argument);

/*
 * Waits for a task and stores what it returned; result may be null. A task that has not started
 * runs here and now, unless the pool has RADDLE_WAITS_ONLY. The handle is freed, also after
 * -ECANCELED.
 *
 *   -ECANCELED  the task was cancelled, or dropped with its pool, before it started
 *   -ECHILD     its pool belongs to the process that this one was forked from
 *   -EDEADLK    the calling thread is running the task, which goes on
 *   -EBUSY      another thread waits for it
 *
 * After -EDEADLK the handle is freed, too, unless the calling thread is still in the call that
 * queues the task and runs it there (RADDLE_CALLER_RUNS, RADDLE_BLOCK).
 */
RADDLE_API int raddle_task_wait(raddle_task task, void **result);

/*
 * As raddle_task_wait(), but for timeout_ns nanoseconds at most; never runs the task. -ETIMEDOUT:
 * the time is over, and the handle remains. -EINVAL: less than 0.
 */
RADDLE_API int raddle_task_wait_for(raddle_task task, int64_t timeout_ns, void **result);

/* Returns 1 if raddle_task_wait() would return at once, else 0. -EBUSY: another thread waits. */
RADDLE_API int raddle_task_is_done(raddle_task task);

/*
 * Has listener(argument, status, value) called once, as work of the pool, when the task has ended;
 * or with -ECANCELED where the pool drops that work. The handle is freed.
 * -EBUSY: another thread waits for the task.
 */
RADDLE_API int raddle_task_then(raddle_task task, raddle_listener listener, void *argument);

/* Cancels a task: it won't start. A task that runs goes on, unless it checks for cancellation. */
RADDLE_API int raddle_task_cancel(raddle_task task);

/* Returns 1 if the task was cancelled, else 0. */
RADDLE_API int raddle_task_is_cancelled(raddle_task task);

/*
 * Frees the handle of a task, which runs all the same. -EBUSY: another thread waits for it.
 * -EDEADLK, here and for the two functions before: the calling thread is still in the call that
 * queues the task, and runs it there.
 */
RADDLE_API int raddle_task_free(raddle_task task);

/* Work that is queued at a time or when a descriptor is ready. */
typedef struct raddle_watch {
    uint64_t id;
} raddle_watch;

/*
 * Queues function(argument) after delay_ns nanoseconds, to the millisecond and not before. Stores a
 * handle that is to be given to raddle_watch_cancel(). watch may be null, for no handle; {0} is
 * stored if there is no memory for one.
 *
 *   -ESHUTDOWN, -EAGAIN, -ECHILD  as of raddle_pool_queue()
 */
RADDLE_API int raddle_pool_after(raddle_pool pool, uint64_t delay_ns, raddle_function function,
                                 void *argument, raddle_watch *watch);

/*
 * Queues function(argument) every period_ns nanoseconds, the first time after one period. A period
 * in which the last call has not returned is left out. -EINVAL: period_ns is 0.
 */
RADDLE_API int raddle_pool_every(raddle_pool pool, uint64_t period_ns, raddle_function function,
                                 void *argument, raddle_watch *watch);

/* Events of a descriptor: data or an end; room for data. */
#define RADDLE_READABLE 1
#define RADDLE_WRITABLE 2

/*
 * Queues function(argument) once, when the descriptor is ready. The descriptor is duplicated, and
 * may be closed meanwhile.
 *
 *   -EINVAL  interest is not one of the above
 *   -EPERM   the descriptor is always ready, like a file's
 *   -EMFILE and others  no descriptor is left
 */
RADDLE_API int raddle_pool_when_ready(raddle_pool pool, int descriptor, int interest,
                                      raddle_function function, void *argument,
                                      raddle_watch *watch);

/* Frees a watch. Returns 1 if its function will not be called (again), 0 if it was called or runs.
 * */
RADDLE_API int raddle_watch_cancel(raddle_watch watch);

/*
 * Calls part(argument, begin, end) on the pool's workers with disjoint parts of the range from
 * begin to before end until all of it is covered, and waits for them. A part has at most grain
 * elements; 0 for an eighth of a worker's share. A calling worker of the pool runs parts itself.
 * Errors as of raddle_pool_queue().
 */
RADDLE_API int raddle_pool_for(raddle_pool pool, size_t begin, size_t end, size_t grain,
                               void (*part)(void *argument, size_t begin, size_t end),
                               void *argument);

/*
 * Calls first(first_argument) and second(second_argument), the second on another worker if one is
 * free, and waits for both; either result pointer may be null. For work that divides itself: a
 * calling worker of the pool runs a part itself, and does other work of the pool while it waits.
 * Errors as of raddle_pool_queue(), after which neither was called.
 */
RADDLE_API int raddle_pool_join(raddle_pool pool, raddle_function first, void *first_argument,
                                void **first_result, raddle_function second,
                                void *second_argument, void **second_result);

/* A pool's counters at about one moment. Start from RADDLE_POOL_COUNTERS_INIT. */
typedef struct raddle_pool_counters {
    size_t size;           /* sizeof(raddle_pool_counters): later versions append members */
    uint64_t queued;       /* work so far */
    uint64_t executed;     /* work that has run so far */
    uint64_t stolen;       /* work that a worker took from another */
    uint64_t rejected;     /* work that was dropped before it ran */
    uint64_t discarded;    /* work that was dropped before it ran */
    uint64_t inlined;      /* tasks that ran where they were waited for */
    uint64_t caller_ran;   /* work that ran where it was queued */
    uint64_t injected;     /* how often a worker was added because work was stuck, or to try */
    uint64_t pending;      /* work that waits now */
    uint64_t workers;      /* workers now */
    uint64_t idle;         /* those without work */
    uint64_t blocked;      /* those in raddle_pool_blocking() or waiting for a task */
    uint64_t peak_workers; /* the most at once */
    uint64_t target;       /* how many should run at once now */
} raddle_pool_counters;

#define RADDLE_POOL_COUNTERS_INIT \
    {sizeof(raddle_pool_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/*
 * Stores a pool's counters, as many as the struct has room for. Members that this version of the
 * library doesn't know become 0. -EINVAL: size has room for none.
 */
RADDLE_API int raddle_pool_count(raddle_pool pool, raddle_pool_counters *counters);

/*
 * Runs function(argument) here, and lets the calling worker's pool use another worker meanwhile,
 * because the function blocks. result may be null.
 */
RADDLE_API int raddle_pool_blocking(raddle_function function, void *argument, void **result);

/* raddle_pool_dispose(): waiting work is dropped, not run. The caller keeps its arguments. */
#define RADDLE_DROP_PENDING 1u

/*
 * Ends a pool. Refuses work from other threads; runs the waiting work and what that queues, or
 * drops it; waits for the workers' ends for timeout_ns nanoseconds, or for ever if that is
 * negative. At the end of the time the work that still waits is dropped. Returns how many workers
 * still run something; they end after it. On a worker of this pool the call doesn't wait, and the
 * waiting work runs after it, whatever the time. The handle is freed.
 *
 *   -EINVAL  a flag isn't known
 *   -EBUSY   another thread disposes of it
 */
RADDLE_API int raddle_pool_dispose(raddle_pool pool, uint32_t flags, int64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#include <raddle_table.h>
#include <raddle_trace.h>
#endif
