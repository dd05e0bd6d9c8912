// Opens libraries, has a thread run their code, and closes them again.
//
// plugins SECONDS COMPUTE_US REST_US PAUSE_US LIBRARY...
//
// The libraries take turns for so many seconds, with a pause outside of them after each. With 0
// seconds each has one turn. At the end the program prints the times that it has measured.

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static char **arguments;

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void compute_outside(int us) {
    double end = now(CLOCK_THREAD_CPUTIME_ID) + us / 1e6;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end) {
    }
}

static void turn(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void (*run)(int, int) = (void (*)(int, int))dlsym(handle, "run");
    double cpu = now(CLOCK_THREAD_CPUTIME_ID);
    run(atoi(arguments[1]), 0);
    double computed = now(CLOCK_THREAD_CPUTIME_ID);
    double rested = now(CLOCK_MONOTONIC);
    run(0, atoi(arguments[2]));
    printf("part compute %f\npart rest %f\n", computed - cpu, now(CLOCK_MONOTONIC) - rested);
    dlclose(handle);
    compute_outside(atoi(arguments[3]));
}

static void *take_turns(void *unused) {
    double end = now(CLOCK_MONOTONIC) + atof(arguments[0]);
    do {
        for (char **library = arguments + 4; *library; library++) {
            turn(*library);
        }
    } while (now(CLOCK_MONOTONIC) < end);
    return unused;
}

int main(int count, char **words) {
    if (count < 6) {
        return 2;
    }
    arguments = words + 1;
    pthread_t thread;
    pthread_create(&thread, 0, take_turns, 0);
    pthread_join(thread, 0);
    return 0;
}
