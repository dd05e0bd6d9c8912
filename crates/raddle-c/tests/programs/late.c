/* Loads the library by hand, before or after other threads exist; everything works. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *waits(void *argument) {
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return argument;
}

static void *twice(void *argument) { return number(2 * (intptr_t)argument); }

static void works(const char *path, int expected) {
    void *library = dlopen(path, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    int (*status)(void);
    int (*join)(raddle_thread, void **);
    int (*spawn)(raddle_thread *, const raddle_thread_options *, raddle_function, void *);
    *(void **)&status = dlsym(library, "raddle_status");
    *(void **)&join = dlsym(library, "raddle_join");
    *(void **)&spawn = dlsym(library, "raddle_spawn");
    IS(status(), expected);
    for (int i = 0; i < 40; i++) {
        raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
        raddle_thread thread;
        void *result;
        options.flags = i % 2 ? RADDLE_LIGHT : 0;
        OK(spawn(&thread, &options, twice, number(i)));
        OK(join(thread, &result));
        IS((intptr_t)result, 2 * i);
    }
    OK(dlclose(library)); /* it stays */
    IS(status(), expected);
}

/* late PATH STATUS [threads] */
int main(int count, char **arguments) {
    pthread_t thread;
    pthread_mutex_lock(&gate);
    if (count > 3) OK(pthread_create(&thread, NULL, waits, NULL));
    works(arguments[1], atoi(arguments[2]));
    pthread_mutex_unlock(&gate);
    if (count > 3) OK(pthread_join(thread, NULL));
    puts("ok late");
    return 0;
}
