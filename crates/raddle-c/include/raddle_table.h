/* Tables of handles: checked names of the caller's values, which tell when a value is gone.
 *
 * raddle.h includes this header, and says what handles and errors are.
 */
#ifndef RADDLE_TABLE_H
#define RADDLE_TABLE_H

#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lock-free table of handles for the caller's values, which are addresses. */
typedef struct raddle_table {
    uint64_t id;
} raddle_table;

/* A handle in a table: a number, for a kernel's user data or for the wire. */
typedef struct raddle_handle {
    uint64_t id;
} raddle_handle;

/* An owner of weak handles; each table has its own owners, at most 256 at a time. */
typedef struct raddle_owner {
    uint32_t id;
} raddle_owner;

/* Keeps the value until it is freed. */
#define RADDLE_NORMAL 0
/* As RADDLE_NORMAL; and the address may be used until the handle is freed, without another lookup.
 * */
#define RADDLE_PINNED 1
/* Refers to another handle's value; expires with it, or with its owner: -ESTALE. */
#define RADDLE_WEAK 2

/*
 * Makes a table. release(value), if it isn't null, is called when no handle and no lookup keeps a
 * value any more, on the thread that lets it go. -ENOMEM, -ENOSPC: no memory or handle is left.
 */
RADDLE_API int raddle_table_create(raddle_table *table, void (*release)(void *value));

/* Frees a table with all its handles, when the last call that uses it returns. */
RADDLE_API int raddle_table_free(raddle_table table);

/* Returns how many handles aren't freed. Looks at every slot of the table. */
RADDLE_API int raddle_table_count(raddle_table table);

/*
 * Makes a handle for a value. kind is RADDLE_NORMAL or RADDLE_PINNED, else -EINVAL. On an error,
 * which may be -ENOMEM or -ENOSPC (there are 2^28 handles), release isn't called.
 */
RADDLE_API int raddle_handle_create(raddle_table table, int kind, void *value,
                                    raddle_handle *handle);

/*
 * Makes a weak handle for the value of another handle. The owner {0} is none, and never ends.
 * -ESTALE: the value or the owner is gone. -ENOMEM, -ENOSPC: as of raddle_handle_create().
 */
RADDLE_API int raddle_handle_weak(raddle_table table, raddle_handle of, raddle_owner owner,
                                  raddle_handle *handle);

/*
 * Calls look(value, argument) here and stores what it returns; result may be null. The value lives
 * until look returns, even if the handle is freed meanwhile. -ESTALE: a weak handle has expired.
 */
RADDLE_API int raddle_handle_with(raddle_table table, raddle_handle handle,
                                  void *(*look)(void *value, void *argument), void *argument,
                                  void **result);

/*
 * Keeps a value for longer than a lookup: stores a new normal handle for it, and the value, if
 * value isn't null. -ESTALE: a weak handle has expired.
 */
RADDLE_API int raddle_handle_keep(raddle_table table, raddle_handle handle, raddle_handle *kept,
                                  void **value);

/* Stores the value of a pinned handle; -EINVAL for another kind. */
RADDLE_API int raddle_handle_address(raddle_table table, raddle_handle handle, void **value);

/* Returns the handle's kind; -ESTALE if it is known to have expired. */
RADDLE_API int raddle_handle_kind(raddle_table table, raddle_handle handle);

/* Frees a handle. An expired handle has to be freed, too. */
RADDLE_API int raddle_handle_free(raddle_table table, raddle_handle handle);

/* Makes an owner of weak handles. -ENOSPC: the table has 256. */
RADDLE_API int raddle_owner_create(raddle_table table, raddle_owner *owner);

/* Ends an owner: all its weak handles expire at one moment. -ESTALE: it has ended before. */
RADDLE_API int raddle_owner_end(raddle_table table, raddle_owner owner);

#ifdef __cplusplus
}
#endif

#endif
