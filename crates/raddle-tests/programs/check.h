/* Base of every program here: cases by name, checks that print where, time, threads.
 *
 * `CASE(name) { ... }` defines a case; `program name` runs it and prints `ok name`, `program
 * --list` prints all names. A check that fails prints one line and exits with 1, in whatever
 * thread or forked child it happens. A program defines CHECK_OWN_MAIN to have no main of ours.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

static struct test_case cases[100] __attribute__((unused));
static int case_count __attribute__((unused));
static const char *case_name;
static int argument_count __attribute__((unused));
static char **arguments __attribute__((unused));

#define CASE(function)                                                                   \
    static void function(void);                                                          \
    __attribute__((constructor)) static void register_##function(void)                   \
    {                                                                                    \
        cases[case_count].name = #function;                                              \
        cases[case_count++].run = function;                                              \
    }                                                                                    \
    static void function(void)

__attribute__((unused, noreturn)) static void check_failed(const char *file, int line,
                                                           const char *what, long value)
{
    char text[400];
    int saved = errno;
    const char *base = strrchr(file, '/');
    int length = snprintf(text, sizeof text, "FAIL %s: %s:%d: %s (value %ld, errno %d)\n",
                          case_name, base ? base + 1 : file, line, what, value, saved);
    if (write(1, text, length) < 0) {
        _exit(2);
    }
    _exit(1);
}

/* The condition holds. */
#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition, 0);               \
    } while (0)

/* A pthread function returns 0. */
#define OK(call) IS(call, 0)

/* An integer expression has this value. */
#define IS(expression, expected)                                                         \
    do {                                                                                 \
        long got_ = (long)(expression);                                                  \
        if (got_ != (long)(expected))                                                    \
            check_failed(__FILE__, __LINE__, #expression " is " #expected, got_);        \
    } while (0)

/* A system call's wrapper fails with this errno. */
#define FAILS(call, code)                                                                \
    do {                                                                                 \
        errno = 0;                                                                       \
        long got_ = (long)(call);                                                        \
        if (got_ != -1 || errno != (code))                                               \
            check_failed(__FILE__, __LINE__, #call " fails with " #code, got_);          \
    } while (0)

/* A system call's wrapper does not fail; gives its value. */
#define GET(call)                                                                        \
    (__extension__({                                                                     \
        long got_ = (long)(call);                                                        \
        if (got_ == -1) check_failed(__FILE__, __LINE__, #call, got_);                   \
        got_;                                                                            \
    }))

static const int64_t MS = 1000000;
static const int64_t SECOND = 1000000000;

__attribute__((unused)) static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

__attribute__((unused)) static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

__attribute__((unused)) static struct timespec timespec_of(int64_t ns)
{
    struct timespec time = {ns / SECOND, ns % SECOND};
    return time;
}

/* This clock's time `ns` from now. */
__attribute__((unused)) static struct timespec from_now(clockid_t clock, int64_t ns)
{
    return timespec_of(clock_ns(clock) + ns);
}

__attribute__((unused)) static void sleep_ms(int ms)
{
    struct timespec left = timespec_of(ms * MS);
    while (nanosleep(&left, &left) == -1) {
        CHECK(errno == EINTR);
    }
}

/* A wait that began at `started_ns` and should take `ms` did not end early, nor absurdly late. */
__attribute__((unused)) static void check_took(int64_t started_ns, int64_t ms)
{
    int64_t took_ns = now_ns() - started_ns;
    CHECK(took_ns >= ms * MS);
    CHECK(took_ns < ms * MS + 10 * SECOND);
}

/* Long enough for another thread to block, if it is going to: no case may depend on it. */
__attribute__((unused)) static void let_others_block(void)
{
    sleep_ms(30);
}

typedef void *(*thread_function)(void *);

__attribute__((unused)) static pthread_t start(thread_function run, void *argument)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, run, argument));
    return thread;
}

/* Starts a thread with the smallest stack that is comfortable: for cases with many. */
__attribute__((unused)) static pthread_t start_small(thread_function run, void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setstacksize(&attributes, 64 * 1024));
    OK(pthread_create(&thread, &attributes, run, argument));
    OK(pthread_attr_destroy(&attributes));
    return thread;
}

__attribute__((unused)) static void *join(pthread_t thread)
{
    void *value;
    OK(pthread_join(thread, &value));
    return value;
}

__attribute__((unused)) static void *number(long value)
{
    return (void *)value;
}

__attribute__((unused)) static void *join_all(pthread_t *threads, int count)
{
    for (int i = 0; i < count; i++) {
        join(threads[i]);
    }
    return NULL;
}

/* Prints that the case passed, if it does not end by returning. */
__attribute__((unused)) static void say_ok(void)
{
    printf("ok %s\n", case_name);
    fflush(stdout);
}

#ifndef CHECK_OWN_MAIN
int main(int argc, char **argv)
{
    argument_count = argc;
    arguments = argv;
    for (int i = 0; i < case_count; i++) {
        if (argc > 1 && strcmp(argv[1], "--list") == 0) {
            puts(cases[i].name);
        } else if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            case_name = cases[i].name;
            cases[i].run();
            say_ok();
            return 0;
        }
    }
    return argc > 1 && strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
#endif

#endif
