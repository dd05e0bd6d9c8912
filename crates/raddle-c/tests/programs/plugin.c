/* A library that uses the API in its own constructor. */
#include "check.h"

static raddle_thread thread;

static void *seven(void *argument) {
    (void)argument;
    return number(7);
}

static void spawn_and_join(uint32_t flags) {
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    void *result;
    options.flags = flags;
    OK(raddle_spawn(&thread, &options, seven, NULL));
    OK(raddle_join(thread, &result));
    IS((intptr_t)result, 7);
}

/* In dlopen, which holds a lock of the loader's meanwhile. */
__attribute__((constructor)) static void start(void) {
    spawn_and_join(0);
    spawn_and_join(RADDLE_LIGHT);
    OK(raddle_spawn(&thread, NULL, seven, NULL));
}

void finish(void);

void finish(void) {
    void *result;
    OK(raddle_join(thread, &result));
    IS((intptr_t)result, 7);
    printf("ok plugin %d\n", raddle_status());
}
