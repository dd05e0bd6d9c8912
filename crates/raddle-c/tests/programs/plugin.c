/* A library that uses the API in its own constructor. */
#include "check.h"

static raddle_thread thread;

static void *seven(void *argument) {
    (void)argument;
    return number(7);
}

/* In dlopen: to wait for a thread here would be to wait for one that waits for dlopen's end. */
__attribute__((constructor)) static void start(void) {
    OK(raddle_spawn(&thread, NULL, seven, NULL));
}

void finish(void);

void finish(void) {
    void *result;
    OK(raddle_join(thread, &result));
    IS((intptr_t)result, 7);
    printf("ok plugin %d\n", raddle_status());
}
