/* Fibers: stacks that one thread switches between by name.
 *
 * A thread becomes a fiber, makes others, and switches to them; to libc all of them are the same
 * thread, with the same thread-locals. When a fiber blocks, its thread blocks. Fibers stay on the
 * thread that made them: only that thread may use and delete them, before its end. A thread that
 * ends leaves its suspended fibers as they are: other threads must not use thread-locals that such
 * a fiber has given them.
 *
 * Errors are as in raddle.h: 0, or a negative errno value, -EFAULT for a null pointer among them,
 * and -EPERM for the fiber of another thread.
 */
#ifndef RADDLE_FIBER_H
#define RADDLE_FIBER_H

#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct raddle_fiber raddle_fiber;

/* A fiber's function. It returns the fiber that continues at its end, which is neither the
 * returning fiber nor one that has ended: else the process aborts. */
typedef raddle_fiber *raddle_fiber_function(void *argument);

/* Makes the calling thread its first fiber. -EBUSY if it is a fiber already, -EPERM on a light
 * thread. */
RADDLE_API int raddle_fiber_convert(void *data, raddle_fiber **fiber);
/* Makes the calling thread an ordinary one, and deletes its first fiber, which must be the calling
 * one (-EPERM). Its other fibers wait until the thread is converted anew. */
RADDLE_API int raddle_fiber_convert_back(void);

/* Makes a fiber that runs function(argument) at the first switch to it, on a stack with room for
 * stack_size bytes, at least 16 KiB. -ENOMEM. */
RADDLE_API int raddle_fiber_create(size_t stack_size, raddle_fiber_function *function,
                                   void *argument, raddle_fiber **fiber);
/* Continues a fiber in the place of the calling one; returns at a switch back to the caller. -EPERM
 * on a thread that is no fiber, -EBUSY for the calling fiber, -ESRCH for a fiber that has ended. */
RADDLE_API int raddle_fiber_switch(raddle_fiber *fiber);
/* Frees a fiber, whether it has ended or not; nothing may refer to its stack. -EBUSY for the
 * calling fiber and for a thread's first one. */
RADDLE_API int raddle_fiber_delete(raddle_fiber *fiber);

/* Returns the calling fiber, or NULL. */
RADDLE_API raddle_fiber *raddle_fiber_current(void);
/* Returns the pointer that raddle_fiber_convert or raddle_fiber_create got; NULL for a null
 * pointer. */
RADDLE_API void *raddle_fiber_data(const raddle_fiber *fiber);
/* Returns 1 if the fiber's function has returned, else 0. */
RADDLE_API int raddle_fiber_has_ended(const raddle_fiber *fiber);

/* The key of a word that each fiber of the process has, NULL at first. */
typedef struct raddle_fls_key { uint64_t id; } raddle_fls_key;

/* Makes a key. The callback, if not NULL, gets each word that isn't NULL when its fiber ends or is
 * deleted, on that fiber's thread. -ENOSPC after 1024 keys. */
RADDLE_API int raddle_fls_alloc(void (*callback)(void *value), raddle_fls_key *key);
/* Frees a key; the callback gets the words of the calling thread's fibers, and those of others are
 * forgotten. -EBADF for a key that names nothing. */
RADDLE_API int raddle_fls_free(raddle_fls_key key);
/* Gets or sets the calling fiber's word. -EPERM on a thread that is no fiber, -EBADF. */
RADDLE_API int raddle_fls_get(raddle_fls_key key, void **value);
RADDLE_API int raddle_fls_set(raddle_fls_key key, void *value);

#ifdef __cplusplus
}
#endif

#endif
