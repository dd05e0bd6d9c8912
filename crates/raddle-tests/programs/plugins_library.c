// A library that plugins.c opens and closes while it is recorded.

#include <time.h>

#ifndef NAMED
#define NAMED(name) plugin_##name
#endif

static long long cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

__attribute__((noinline)) void NAMED(compute)(int us) {
    long long end = cpu_us() + us;
    while (cpu_us() < end) {
        for (volatile int i = 0; i < 2000; i++) {
        }
    }
}

__attribute__((noinline)) void NAMED(rest)(int us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, 0);
    __asm__ volatile("");
}

void run(int compute_us, int rest_us) {
    if (compute_us) {
        NAMED(compute)(compute_us);
    }
    if (rest_us) {
        NAMED(rest)(rest_us);
    }
    __asm__ volatile("");
}
