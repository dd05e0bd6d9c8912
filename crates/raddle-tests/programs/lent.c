/* A thread that computes holds a mutex nearly all of its time, so it is preempted while it holds
 * the mutex, and nineteen others compute beside it. A thread that mostly sleeps locks the mutex now
 * and then. Prints for how long it waits, the median, in percent of the time in which each of the
 * others has a turn. With an argument the mutex inherits priorities. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>

enum { OTHERS = 19, LOCKS = 100, GAP_NS = 100000 };

static atomic_int stop;
static pthread_mutex_t mutex;
/* Written by the first of the others. */
static long turns;
static int64_t turns_ns;

static void compute_for(int64_t ns)
{
    int64_t until = now_ns() + ns;
    while (now_ns() < until) {
    }
}

static void *hold_often(void *unused)
{
    while (!atomic_load(&stop)) {
        OK(pthread_mutex_lock(&mutex));
        compute_for(190000);
        OK(pthread_mutex_unlock(&mutex));
        compute_for(10000);
    }
    return unused;
}

/* A jump of the time is a turn of the others. */
static void *compute(void *first)
{
    int64_t last = now_ns();
    while (!atomic_load(&stop)) {
        int64_t now = now_ns();
        if (first && now - last > GAP_NS) {
            turns++;
            turns_ns += now - last;
        }
        last = now;
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void make_mutex(int inherits)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setprotocol(&attributes,
                                     inherits ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE));
    OK(pthread_mutex_init(&mutex, &attributes));
}

int main(int count, char **unused)
{
    (void)unused;
    make_mutex(count > 1);
    case_name = cases[case_count++].name = "lent";
    pthread_t threads[OTHERS + 1];
    int64_t waits_ns[LOCKS];
    threads[0] = start(hold_often, NULL);
    for (int i = 1; i <= OTHERS; i++) {
        threads[i] = start(compute, i == 1 ? &turns : NULL);
    }
    sleep_ms(100);
    for (int i = 0; i < LOCKS; i++) {
        int64_t before = now_ns();
        OK(pthread_mutex_lock(&mutex));
        waits_ns[i] = now_ns() - before;
        OK(pthread_mutex_unlock(&mutex));
        sleep_ms(7);
    }
    atomic_store(&stop, 1);
    join_all(threads, OTHERS + 1);
    CHECK(turns > 10);
    qsort(waits_ns, LOCKS, sizeof *waits_ns, by_size);
    double wait_ms = waits_ns[LOCKS / 2] / 1e6, turn_ms = turns_ns / 1e6 / turns;
    printf("%.0f percent, %.1f of %.1f ms\n", 100 * wait_ms / turn_ms, wait_ms, turn_ms);
    say_ok();
    return 0;
}
