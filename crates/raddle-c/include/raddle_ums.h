/* User-mode scheduling: threads that are run by a policy of the program's own.
 *
 * A worker is a thread in all respects, but it runs only while a scheduler executes it. When the
 * worker blocks or yields, the scheduler's procedure is called again, with the reason. The Rust
 * documentation of `raddle::ums` defines blocking, and says what schedulers must not do.
 *
 * Errors are as in raddle.h: 0, or a negative errno value, -EFAULT for a null pointer among them.
 * Any other use of a null pointer, or of one to a deleted object, is undefined.
 */
#ifndef RADDLE_UMS_H
#define RADDLE_UMS_H

#include <pthread.h>
#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A list of workers that can be executed or have ended: new, unblocked and ended ones. */
typedef struct raddle_ums_list raddle_ums_list;
/* The name of a worker. */
typedef struct raddle_ums_context raddle_ums_context;

/* Reasons for a call of a scheduler's procedure. */
enum {
    RADDLE_UMS_STARTUP = 0, /* payload 0; parameter: that of raddle_ums_enter */
    RADDLE_UMS_BLOCKED = 1, /* payload: a RADDLE_UMS_BY_ value; parameter NULL */
    RADDLE_UMS_YIELD = 2,   /* payload: the context; parameter: that of raddle_ums_yield */
    RADDLE_UMS_LOCKED = 3   /* in place only; payload: the returned context, which can't be executed
                               yet and is still claimed: try again; parameter NULL */
};

enum {
    RADDLE_UMS_BY_CALL = 1,   /* a call that waits */
    RADDLE_UMS_BY_KERNEL = 2, /* a page fault, or a call that the runtime doesn't know */
    RADDLE_UMS_BY_END = 4     /* the thread has ended */
};

typedef void raddle_ums_procedure(int reason, uintptr_t payload, void *parameter);
/* The same for raddle_ums_enter_in_place, which passes `own` on. It returns a context that it has
 * claimed, which is executed, or NULL to leave scheduling mode. */
typedef raddle_ums_context *raddle_ums_decision(void *own, int reason, uintptr_t payload,
                                                void *parameter);

/* The classes of raddle_ums_query and raddle_ums_set. */
enum {
    RADDLE_UMS_USER_CONTEXT = 0, /* a word of the program's; can be set */
    RADDLE_UMS_THREAD_ID = 1,    /* gettid(2) of the worker; 0 without a thread, or if light */
    RADDLE_UMS_HAS_ENDED = 2,    /* 0 or 1 */
    RADDLE_UMS_STATE = 3,        /* 0 new, 1 listed, 2 ready, 3 executed, blocked or claimed,
                                    4 ended */
    RADDLE_UMS_PTHREAD = 4,      /* pthread_t of the worker, as RADDLE_UMS_THREAD_ID */
    RADDLE_UMS_NICENESS = 5,     /* -20 to 19, cast; can be set */
    RADDLE_UMS_AFFINITY = 6      /* a bit for each of the first 64 CPUs; can be set */
};
/* The last two give -ESRCH while the worker has no thread, after its end, and for a light one.
 * There is no suspended state, since POSIX threads have none: a worker rests between executions. */

/* Makes a list with its event. -ENOSYS without an engine. */
RADDLE_API int raddle_ums_list_create(raddle_ums_list **list);
/* Deletes a list. Its contexts may outlive it; no thread may wait for it. Null has no effect. */
RADDLE_API void raddle_ums_list_delete(raddle_ums_list *list);
/* Returns an eventfd that becomes readable when the list becomes non-empty. The list owns it. A
 * waiter reads it, and then takes all that is listed. */
RADDLE_API int raddle_ums_list_event(const raddle_ums_list *list);

/* Takes all that is listed, oldest first; waits for at most timeout_ms, or for ever if that is
 * negative. After -ETIMEDOUT *first is unchanged. */
RADDLE_API int raddle_ums_dequeue(raddle_ums_list *list, int timeout_ms,
                                  raddle_ums_context **first);
/* Returns the item after this one, or NULL. Call it before the item is executed or deleted. */
RADDLE_API raddle_ums_context *raddle_ums_next_item(raddle_ums_context *item);

/* Makes a context for a worker, which is listed whenever it can be executed. */
RADDLE_API int raddle_ums_context_create(raddle_ums_list *list, raddle_ums_context **context);
/* Deletes a context. -EBUSY if its thread hasn't ended, or wasn't taken from the list since. */
RADDLE_API int raddle_ums_context_delete(raddle_ums_context *context);

/* As pthread_create(3), but the thread becomes the context's worker. -EBUSY if there is one. */
RADDLE_API int raddle_ums_thread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                        raddle_ums_context *context, void *(*start)(void *),
                                        void *argument);

/* Makes a light worker: one without a thread of its own, on a stack of at least stack_bytes bytes.
 * It has the thread-locals of a thread that light workers share: between two yields they stay the
 * same, a yield may change them. So a light worker must hold nothing of a thread over a yield, and
 * not call pthread_exit(3). It costs only a stack, and yields among light workers are the quickest
 * if their scheduler has entered in place. -EBUSY if the context has a worker, -ENOMEM. */
RADDLE_API int raddle_ums_light_create(raddle_ums_context *context, size_t stack_bytes,
                                       void (*run)(void *), void *argument);

/* Makes the calling thread a scheduler until its procedure returns. -EPERM on a worker, a scheduler
 * or a light thread. */
RADDLE_API int raddle_ums_enter(raddle_ums_procedure *procedure, void *parameter);
/* Executes a worker. Returns only on an error: -EAGAIN (the worker's registers are still being
 * saved: try again), -EBUSY (it runs or is blocked), -EINVAL (it is listed, ended or new), -EPERM
 * (the caller is no scheduler). Otherwise the procedure starts anew when the worker gives the
 * carrier back; everything between that start and this call is abandoned, as by longjmp(3). */
RADDLE_API int raddle_ums_execute(raddle_ums_context *context);

/* As raddle_ums_enter, but a worker that yields calls the function itself, in the scheduler's
 * place, which is quicker. So the function is called on different threads, one call at a time, and
 * sees the calling thread's thread-locals. The function must return in every case: it must not end
 * its thread, fork, or wait for one of its workers, and raddle_ums_execute returns -EPERM there. A
 * context that has yielded (the payload) is claimed already. -EINVAL if the function returned a
 * context that isn't claimed: the thread is no scheduler any more then, either. */
RADDLE_API int raddle_ums_enter_in_place(raddle_ums_decision *decide, void *own);
/* Claims a worker that was taken from its list: only the caller may execute it, in place. -EBUSY:
 * it runs, is blocked, or is claimed; -EINVAL: it is listed, ended or new. */
RADDLE_API int raddle_ums_claim(raddle_ums_context *context);
/* Releases a claimed worker that the caller doesn't return: any scheduler may execute it. */
RADDLE_API int raddle_ums_release(raddle_ums_context *context);

/* On a worker: lets the scheduler go on. -EPERM on other threads. */
RADDLE_API int raddle_ums_yield(void *parameter);
/* Returns the calling worker, or NULL. */
RADDLE_API raddle_ums_context *raddle_ums_current(void);

/* Reads or sets an attribute. -EINVAL for another class, or one that can't be set. */
RADDLE_API int raddle_ums_query(raddle_ums_context *context, int what, uintptr_t *value);
RADDLE_API int raddle_ums_set(raddle_ums_context *context, int what, uintptr_t value);

#ifdef __cplusplus
}
#endif

#endif
