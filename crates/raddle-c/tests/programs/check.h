/* Parts that test programs share: checks that print where they failed, and sleeping. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <raddle.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IS(got, expected)                                                                      \
    do {                                                                                       \
        long long got_ = (long long)(got), expected_ = (long long)(expected);                  \
        if (got_ != expected_) {                                                               \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_,   \
                    expected_);                                                                \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define OK(call) IS(call, 0)

static inline uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0) {
    }
}

static inline void *number(long n) { return (void *)(intptr_t)n; }

/* One behaviour, named by the program's first argument. */
struct test_case {
    const char *name;
    void (*run)(void);
};

static inline int run_case(const struct test_case *cases, int count, char **arguments) {
    for (int i = 0; i < count; i++) {
        if (arguments[1] != NULL && strcmp(cases[i].name, arguments[1]) == 0) {
            cases[i].run();
            printf("ok %s\n", cases[i].name);
            return 0;
        }
    }
    fprintf(stderr, "there is no such case\n");
    return 2;
}

#define RUN_CASES(cases, arguments) \
    run_case(cases, (int)(sizeof(cases) / sizeof *(cases)), arguments)

#endif
