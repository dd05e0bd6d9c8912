/*
 * Threads that annotate what they do: spans, moments and a counter for `raddle trace`.
 *
 *   cc trace.c $(pkg-config --cflags --libs raddle) -lpthread -o trace
 *   raddle run --flight-recorder -- ./trace       # with "crash": ends by abort()
 *   raddle trace --from raddle-PID.events -o trace.pftrace
 */
#include <pthread.h>
#include <raddle.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, REQUESTS = 5 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t handled;

static void *handle_requests(void *argument) {
    for (int i = 0; i < REQUESTS; i++) {
        raddle_trace_begin("handle request");
        pthread_mutex_lock(&lock);
        raddle_trace_begin("count it");
        raddle_trace_counter("requests handled", ++handled);
        raddle_trace_end();
        pthread_mutex_unlock(&lock);
        raddle_trace_instant("answered");
        raddle_trace_end();
    }
    return argument;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    raddle_trace_begin(NULL); /* no event */
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, handle_requests, NULL) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%d requests\n", (int)handled);
    fflush(stdout);
    if (count > 1 && strcmp(arguments[1], "crash") == 0) {
        abort();
    }
    return 0;
}
