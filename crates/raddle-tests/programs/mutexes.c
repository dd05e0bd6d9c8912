/* Mutexes of every kind: exclusion, ownership, trylock, time limits on both clocks. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void initialise(pthread_mutex_t *target, int kind)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_settype(&attributes, kind));
    OK(pthread_mutex_init(target, &attributes));
    OK(pthread_mutexattr_destroy(&attributes));
}

static void *add_with_lock(void *times)
{
    for (long i = 0; i < (long)times; i++) {
        OK(pthread_mutex_lock(&mutex));
        counter++;
        OK(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

static void count_with(int threads_count, long times)
{
    static pthread_t threads[100];
    for (int i = 0; i < threads_count; i++) {
        threads[i] = start(add_with_lock, number(times));
    }
    join_all(threads, threads_count);
    IS(counter, threads_count * times);
}

CASE(normal_excludes_100_threads)
{
    count_with(100, 5000);
}

CASE(recursive_excludes)
{
    initialise(&mutex, PTHREAD_MUTEX_RECURSIVE);
    count_with(20, 5000);
}

CASE(errorcheck_excludes)
{
    initialise(&mutex, PTHREAD_MUTEX_ERRORCHECK);
    count_with(20, 5000);
}

CASE(adaptive_excludes)
{
    initialise(&mutex, PTHREAD_MUTEX_ADAPTIVE_NP);
    count_with(20, 5000);
}

static void *yield_while_holding(void *argument)
{
    for (int i = 0; i < 200; i++) {
        OK(pthread_mutex_lock(&mutex));
        long before = counter;
        sched_yield();
        if (i % 50 == 0) {
            sleep_ms(1);
        }
        IS(counter, before);
        counter = before + 1;
        OK(pthread_mutex_unlock(&mutex));
    }
    return argument;
}

CASE(a_holder_may_yield_and_sleep)
{
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) {
        threads[i] = start(yield_while_holding, NULL);
    }
    join_all(threads, 16);
    IS(counter, 3200);
}

static void *trylock(void *argument)
{
    int result = pthread_mutex_trylock(&mutex);
    if (result == 0) {
        OK(pthread_mutex_unlock(&mutex));
    }
    return number(result);
}

CASE(trylock_says_busy)
{
    IS(join(start(trylock, NULL)), 0);
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_mutex_trylock(&mutex), EBUSY);
    IS(join(start(trylock, NULL)), EBUSY);
    OK(pthread_mutex_unlock(&mutex));
    IS(join(start(trylock, NULL)), 0);
}

CASE(recursive_counts_its_locks)
{
    initialise(&mutex, PTHREAD_MUTEX_RECURSIVE);
    for (int i = 0; i < 10; i++) {
        OK(pthread_mutex_lock(&mutex));
        OK(pthread_mutex_trylock(&mutex));
    }
    for (int i = 0; i < 20; i++) {
        IS(join(start(trylock, NULL)), EBUSY);
        OK(pthread_mutex_unlock(&mutex));
    }
    IS(join(start(trylock, NULL)), 0);
    IS(pthread_mutex_unlock(&mutex), EPERM);
}

static void *unlock_foreign(void *argument)
{
    return number(pthread_mutex_unlock(&mutex));
}

CASE(errorcheck_knows_its_owner)
{
    initialise(&mutex, PTHREAD_MUTEX_ERRORCHECK);
    IS(pthread_mutex_unlock(&mutex), EPERM);
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_mutex_lock(&mutex), EDEADLK);
    IS(join(start(unlock_foreign, NULL)), EPERM);
    OK(pthread_mutex_unlock(&mutex));
}

static void *timed_lock(void *clock)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now((clockid_t)(long)clock, 50 * MS);
    int result = pthread_mutex_clocklock(&mutex, (clockid_t)(long)clock, &limit);
    if (result == ETIMEDOUT) {
        check_took(started_ns, 45);
    }
    return number(result);
}

CASE(clocklock_times_out_on_both_clocks)
{
    OK(pthread_mutex_lock(&mutex));
    IS(join(start(timed_lock, number(CLOCK_REALTIME))), ETIMEDOUT);
    IS(join(start(timed_lock, number(CLOCK_MONOTONIC))), ETIMEDOUT);
    OK(pthread_mutex_unlock(&mutex));
    IS(join(start(timed_lock, number(CLOCK_MONOTONIC))), 0);
}

CASE(timedlock_with_a_past_time_still_tries)
{
    struct timespec past = {1, 0};
    OK(pthread_mutex_timedlock(&mutex, &past));
    IS(pthread_mutex_timedlock(&mutex, &past), ETIMEDOUT);
    struct timespec invalid = {1, 1000000000};
    IS(pthread_mutex_timedlock(&mutex, &invalid), EINVAL);
    OK(pthread_mutex_unlock(&mutex));
}

static void *lock_within_20_s(void *argument)
{
    struct timespec limit = from_now(CLOCK_REALTIME, 20 * SECOND);
    OK(pthread_mutex_timedlock(&mutex, &limit));
    counter++;
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

CASE(timedlock_gets_the_lock_when_it_is_freed)
{
    pthread_t threads[10];
    int64_t started_ns = now_ns();
    OK(pthread_mutex_lock(&mutex));
    for (int i = 0; i < 10; i++) {
        threads[i] = start(lock_within_20_s, NULL);
    }
    let_others_block();
    OK(pthread_mutex_unlock(&mutex));
    join_all(threads, 10);
    IS(counter, 10);
    CHECK(now_ns() - started_ns < 10 * SECOND);
}

static void *die_with_lock(void *target)
{
    OK(pthread_mutex_lock(target));
    return NULL;
}

CASE(robust_tells_that_its_owner_died)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&mutex, &attributes));
    join(start(die_with_lock, &mutex));
    IS(pthread_mutex_lock(&mutex), EOWNERDEAD);
    OK(pthread_mutex_consistent(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    count_with(10, 1000);
}

static void *wait_for_robust(void *argument)
{
    return number(pthread_mutex_lock(&mutex));
}

static void *die_later_with_lock(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    counter = 1;
    sleep_ms(50);
    return argument;
}

CASE(robust_wakes_who_waits_when_its_owner_dies)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&mutex, &attributes));
    pthread_t owner = start(die_later_with_lock, NULL);
    while (!__atomic_load_n(&counter, __ATOMIC_SEQ_CST)) {
        sched_yield();
    }
    IS(join(start(wait_for_robust, NULL)), EOWNERDEAD);
    join(owner);
}

CASE(priority_inheritance_excludes)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&mutex, &attributes));
    count_with(8, 1000);
}

static void *inherit_all_ways(void *argument)
{
    struct timespec limit = from_now(CLOCK_REALTIME, 20 * MS);
    IS(pthread_mutex_trylock(&mutex), EBUSY);
    IS(pthread_mutex_timedlock(&mutex, &limit), ETIMEDOUT);
    limit = from_now(CLOCK_MONOTONIC, 20 * MS);
    IS(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &limit), ETIMEDOUT);
    IS(pthread_mutex_unlock(&mutex), EPERM);
    return argument;
}

CASE(priority_inheritance_of_other_kinds)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&mutex, &attributes));
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_lock(&mutex));
    join(start(inherit_all_ways, NULL));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_mutex_destroy(&mutex));
    OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutex_init(&mutex, &attributes));
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_mutex_lock(&mutex), EDEADLK);
    join(start(inherit_all_ways, NULL));
    OK(pthread_mutex_unlock(&mutex));
    count_with(8, 500);
}

static void *count_under_ceiling(void *argument)
{
    for (int i = 0; i < 200; i++) {
        OK(pthread_mutex_lock(&mutex));
        counter++;
        OK(pthread_mutex_unlock(&mutex));
    }
    return argument;
}

/* A ceiling is for threads of a real-time class: without the right to them there is no test. */
CASE(a_priority_ceiling_excludes)
{
    pthread_mutexattr_t attributes;
    pthread_attr_t real_time;
    int ceiling = 0, lowest = sched_get_priority_min(SCHED_FIFO), made = 0;
    struct sched_param parameters = {.sched_priority = lowest};
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT));
    OK(pthread_mutexattr_setprioceiling(&attributes, lowest + 1));
    OK(pthread_mutex_init(&mutex, &attributes));
    OK(pthread_mutex_getprioceiling(&mutex, &ceiling));
    IS(ceiling, lowest + 1);
    OK(pthread_attr_init(&real_time));
    OK(pthread_attr_setinheritsched(&real_time, PTHREAD_EXPLICIT_SCHED));
    OK(pthread_attr_setschedpolicy(&real_time, SCHED_FIFO));
    OK(pthread_attr_setschedparam(&real_time, &parameters));
    pthread_t threads[4];
    while (made < 4) {
        int result = pthread_create(&threads[made], &real_time, count_under_ceiling, NULL);
        if (result == EPERM) {
            break;
        }
        OK(result);
        made++;
    }
    join_all(threads, made);
    IS(counter, 200 * made);
}

CASE(shared_between_processes_excludes)
{
    struct {
        pthread_mutex_t mutex;
        long count;
    } *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK((void *)shared != MAP_FAILED);
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutex_init(&shared->mutex, &attributes));
    pid_t child = GET(fork());
    for (int i = 0; i < 20000; i++) {
        OK(pthread_mutex_lock(&shared->mutex));
        shared->count++;
        OK(pthread_mutex_unlock(&shared->mutex));
    }
    if (child == 0) {
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(shared->count, 40000);
}

static pthread_mutex_t forks[5];
static long meals;

static void *dine(void *seat)
{
    long left = (long)seat, right = (left + 1) % 5;
    pthread_mutex_t *first = &forks[left < right ? left : right];
    pthread_mutex_t *second = &forks[left < right ? right : left];
    for (int i = 0; i < 2000; i++) {
        OK(pthread_mutex_lock(first));
        if (i % 7 == 0) {
            sched_yield();
        }
        OK(pthread_mutex_lock(second));
        __atomic_add_fetch(&meals, 1, __ATOMIC_RELAXED);
        OK(pthread_mutex_unlock(second));
        OK(pthread_mutex_unlock(first));
    }
    return NULL;
}

CASE(five_philosophers_dine)
{
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) {
        OK(pthread_mutex_init(&forks[i], NULL));
    }
    for (long i = 0; i < 5; i++) {
        threads[i] = start(dine, number(i));
    }
    join_all(threads, 5);
    IS(meals, 10000);
}

static void *print_a_line(void *argument)
{
    for (int i = 0; i < 100; i++) {
        flockfile(stdout);
        fputs("one ", stdout);
        if (i % 10 == 0) {
            sched_yield();
        }
        fputs("whole ", stdout);
        puts("line");
        funlockfile(stdout);
        printf("%s %s %s\n", "one", "whole", "line");
    }
    return argument;
}

CASE(stdio_locks_keep_lines_whole)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(print_a_line, NULL);
    }
    join_all(threads, 50);
}
