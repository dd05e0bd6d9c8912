/* Threads that could starve others. `starving create`: four threads make a short thread, wait for
 * its end and begin again. `starving yield`: a hundred threads yield. A thread computes beside
 * them; prints for how long it waits at most. `starving lend`: a thread that computes holds a
 * mutex, another one tries to lock it for 50 us, again and again, and nine compute; prints what the
 * holder gets, in percent of what each of the others gets.
 *
 * Waits are in CPU time of the process: other processes of a busy machine do not count. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <sched.h>
#include <stdatomic.h>

enum { CREATORS = 4, YIELDERS = 100, OTHERS = 9 };

static const int64_t RUN_NS = 1000000000;

static atomic_int stop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int64_t used_ns(void)
{
    return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* For some 200 us. */
static void *compute_shortly(void *unused)
{
    for (volatile int i = 0; i < 200000; i++) {
    }
    return unused;
}

static void *create_always(void *unused)
{
    while (!atomic_load(&stop)) {
        OK(pthread_join(start(compute_shortly, NULL), NULL));
    }
    return unused;
}

static void *yield_always(void *unused)
{
    while (!atomic_load(&stop)) {
        sched_yield();
    }
    return unused;
}

/* A jump of the time is a wait, perhaps for other processes. */
static void *find_longest_wait(void *argument)
{
    int64_t longest_ns = 0, last = now_ns(), last_used = used_ns();
    while (!atomic_load(&stop)) {
        for (volatile int i = 0; i < 10000; i++) {
        }
        int64_t now = now_ns(), used = used_ns();
        if (now - last > 200000 && used - last_used > longest_ns) {
            longest_ns = used - last_used;
        }
        last = now;
        last_used = used;
    }
    *(int64_t *)argument = longest_ns;
    return NULL;
}

static void *count(void *argument)
{
    long turns = 0;
    if (!argument) {
        OK(pthread_mutex_lock(&mutex));
    }
    while (!atomic_load(&stop)) {
        turns++;
    }
    if (!argument) {
        OK(pthread_mutex_unlock(&mutex));
    }
    return (void *)turns;
}

static void *lock_shortly(void *unused)
{
    while (!atomic_load(&stop)) {
        struct timespec until = from_now(CLOCK_REALTIME, 50000);
        if (pthread_mutex_timedlock(&mutex, &until) == 0) {
            OK(pthread_mutex_unlock(&mutex));
        }
    }
    return unused;
}

/* The process computes for a time. */
static void run(void)
{
    int64_t until = used_ns() + RUN_NS;
    while (used_ns() < until) {
        sleep_ms(20);
    }
}

static void measure_wait(void *(*other)(void *), int others)
{
    pthread_t threads[YIELDERS + 1];
    int64_t longest_ns = 0;
    for (int i = 0; i < others; i++) {
        threads[i] = start(other, NULL);
    }
    threads[others] = start(find_longest_wait, &longest_ns);
    run();
    atomic_store(&stop, 1);
    join_all(threads, others + 1);
    printf("%.1f ms\n", longest_ns / 1e6);
}

static void measure_lent_turns(void)
{
    pthread_t threads[OTHERS + 1];
    void *turns;
    double holder, others = 0;
    threads[OTHERS] = start(count, NULL);
    sleep_ms(20);
    for (int i = 0; i < OTHERS; i++) {
        threads[i] = start(count, &stop);
    }
    pthread_t waiter = start(lock_shortly, NULL);
    run();
    atomic_store(&stop, 1);
    for (int i = 0; i < OTHERS; i++) {
        OK(pthread_join(threads[i], &turns));
        others += (long)turns;
    }
    OK(pthread_join(threads[OTHERS], &turns));
    holder = (long)turns;
    OK(pthread_join(waiter, NULL));
    printf("%.0f percent\n", 100 * holder * OTHERS / others);
}

int main(int count, char **words)
{
    case_name = cases[case_count++].name = "starving";
    CHECK(count == 2);
    if (strcmp(words[1], "create") == 0) {
        measure_wait(create_always, CREATORS);
    } else if (strcmp(words[1], "yield") == 0) {
        measure_wait(yield_always, YIELDERS);
    } else {
        measure_lent_turns();
    }
    say_ok();
    return 0;
}
