/* Annotations for `raddle trace`: what the program's threads work on.
 *
 * raddle.h includes this header.
 */
#ifndef RADDLE_TRACE_H
#define RADDLE_TRACE_H

#include <raddle.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Spans and moments on the track of the calling thread, and
 * counters of the process. Names live as long as the process does, as string literals do; of more
 * than 255 bytes the rest is left out. The latest span that has begun ends first, on the same
 * thread. Without `raddle trace` or a flight recorder, and on kernel threads, nothing is recorded,
 * which costs a few instructions. A name that is null is no event.
 */
RADDLE_API void raddle_trace_begin(const char *name);
RADDLE_API void raddle_trace_end(void);
RADDLE_API void raddle_trace_instant(const char *name);
RADDLE_API void raddle_trace_counter(const char *name, int64_t value);

/* Returns 1 while something records, else 0. */
RADDLE_API int raddle_trace_is_on(void);

#ifdef __cplusplus
}
#endif

#endif
