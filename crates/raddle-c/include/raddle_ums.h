/* User-mode scheduling: threads that are run by a policy of the program's own.
 *
 * A worker is a thread in all respects, but it runs only while a scheduler executes it. When it
 * blocks or yields, the scheduler's procedure starts anew, and is told why. The Rust documentation
 * of `raddle::ums` says what is blocking, and what schedulers must not do.
 *
 * Errors are as in raddle.h: 0, or a negative errno value, -EFAULT for a null pointer among them.
 * What else a null pointer, or one to something that was deleted, does is undefined.
 */
#ifndef RADDLE_UMS_H
#define RADDLE_UMS_H

#include <pthread.h>
#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where workers are put that can be executed: new ones, ones that were blocked, ended ones. */
typedef struct raddle_ums_list raddle_ums_list;
/* A worker, by name. */
typedef struct raddle_ums_context raddle_ums_context;

/* Why a scheduler's procedure is called. */
enum {
    RADDLE_UMS_STARTUP = 0, /* payload 0; parameter: that of raddle_ums_enter */
    RADDLE_UMS_BLOCKED = 1, /* payload: a RADDLE_UMS_BY_ value; parameter NULL */
    RADDLE_UMS_YIELD = 2,   /* payload: the context; parameter: that of raddle_ums_yield */
    RADDLE_UMS_LOCKED = 3   /* in place only; payload: the context that was answered and can't be
                               executed yet, still claimed: try again; parameter NULL */
};

enum {
    RADDLE_UMS_BY_CALL = 1,   /* a call that waits */
    RADDLE_UMS_BY_KERNEL = 2, /* a page fault, or a call that the runtime doesn't know */
    RADDLE_UMS_BY_END = 4     /* the thread has ended */
};

typedef void raddle_ums_procedure(int reason, uintptr_t payload, void *parameter);
/* The same for raddle_ums_enter_in_place, which passes own on. It answers with a context that it
 * has claimed, which is executed, or with NULL to leave scheduling mode. */
typedef raddle_ums_context *raddle_ums_decision(void *own, int reason, uintptr_t payload,
                                                void *parameter);

/* What raddle_ums_query and raddle_ums_set are about. */
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
/* Of the last two: -ESRCH while the worker has no thread, after its end, and of a light one.
 * Nothing suspends a POSIX thread, so that isn't asked for: a worker rests while nobody executes
 * it. */

/* Makes a list with its event. -ENOSYS without an engine. */
RADDLE_API int raddle_ums_list_create(raddle_ums_list **list);
/* Contexts that were made with the list may outlive it. Nobody may wait for it. Null is nothing. */
RADDLE_API void raddle_ums_list_delete(raddle_ums_list *list);
/* An eventfd that becomes readable when the list isn't empty any more. The list's own: who waits
 * reads it, and then takes everything that is listed. */
RADDLE_API int raddle_ums_list_event(const raddle_ums_list *list);

/* Takes all that is listed, oldest first; waits for at most timeout_ms, or for ever if that is
 * negative. -ETIMEDOUT, and *first is left alone. */
RADDLE_API int raddle_ums_dequeue(raddle_ums_list *list, int timeout_ms,
                                  raddle_ums_context **first);
/* The next item of what was taken, or NULL. Ask before the item is executed or deleted. */
RADDLE_API raddle_ums_context *raddle_ums_next_item(raddle_ums_context *item);

/* Makes a context whose worker will go to the list whenever it can be executed. */
RADDLE_API int raddle_ums_context_create(raddle_ums_list *list, raddle_ums_context **context);
/* -EBUSY unless it has no thread, or its thread has ended and was taken from the list. */
RADDLE_API int raddle_ums_context_delete(raddle_ums_context *context);

/* As pthread_create(3), but the thread becomes the context's worker. -EBUSY if it has one. */
RADDLE_API int raddle_ums_thread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                        raddle_ums_context *context, void *(*start)(void *),
                                        void *argument);

/* Makes a light worker: one without a thread of its own, on a stack of at least so many bytes. It
 * has the thread-locals of a thread that light workers share: between two yields they stay the
 * same, after one it may find others. So it must hold nothing of a thread over a yield, and not
 * call pthread_exit(3). It takes a stack and no more, and among light workers whose scheduler has
 * entered in place yields are the quickest. -EBUSY if the context has a worker, -ENOMEM. */
RADDLE_API int raddle_ums_light_create(raddle_ums_context *context, size_t stack_bytes,
                                       void (*run)(void *), void *argument);

/* Makes the calling thread a scheduler until its procedure returns. -EPERM on a worker, a scheduler
 * or a light thread. */
RADDLE_API int raddle_ums_enter(raddle_ums_procedure *procedure, void *parameter);
/* Executes a worker. Returns only if it can't be: -EAGAIN (its registers are still being saved: try
 * again), -EBUSY (it runs or is blocked), -EINVAL (listed, ended or new), -EPERM (the caller is no
 * scheduler). Else the procedure starts anew when the worker gives the carrier back; everything
 * between that start and this call is abandoned, as by longjmp(3). */
RADDLE_API int raddle_ums_execute(raddle_ums_context *context);

/* As raddle_ums_enter, but a worker that yields calls the function itself, in the scheduler's
 * place, which is quicker. So the function is called by one thread or another, one call at a time,
 * and sees that one's thread-locals. It returns, in every case: it must not end its thread, fork,
 * or wait for what one of its workers is to do, and raddle_ums_execute is -EPERM there.
 * A context that has yielded (the payload) is claimed already. -EINVAL if the function answered
 * with a context that isn't claimed: the thread is no scheduler any more then, either. */
RADDLE_API int raddle_ums_enter_in_place(raddle_ums_decision *decide, void *own);
/* Makes a worker that was taken from its list the caller's alone to execute, in place. -EBUSY: it
 * runs, is blocked, or is claimed; -EINVAL: it is listed, ended or new. */
RADDLE_API int raddle_ums_claim(raddle_ums_context *context);
/* Lets anybody execute a worker that the caller has claimed and doesn't answer with. */
RADDLE_API int raddle_ums_release(raddle_ums_context *context);

/* On a worker: lets the scheduler go on. -EPERM elsewhere. */
RADDLE_API int raddle_ums_yield(void *parameter);
/* The calling worker, or NULL. */
RADDLE_API raddle_ums_context *raddle_ums_current(void);

/* -EINVAL for other classes than those above, or those that can't be set. */
RADDLE_API int raddle_ums_query(raddle_ums_context *context, int what, uintptr_t *value);
RADDLE_API int raddle_ums_set(raddle_ums_context *context, int what, uintptr_t value);

#ifdef __cplusplus
}
#endif

#endif
