/* Read-write locks, barriers, spin locks, semaphores, and the threads of C11. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <threads.h>

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long first, second;
static atomic_int readers;

static void *read_or_write(void *me)
{
    for (int i = 0; i < 500; i++) {
        if (((long)me + i) % 8 == 0) {
            OK(pthread_rwlock_wrlock(&rwlock));
            first++;
            sched_yield();
            second++;
        } else {
            OK(pthread_rwlock_rdlock(&rwlock));
            IS(first, second);
            sched_yield();
            IS(first, second);
        }
        OK(pthread_rwlock_unlock(&rwlock));
    }
    return NULL;
}

CASE(rwlock_writers_exclude_readers)
{
    pthread_t threads[24];
    for (long i = 0; i < 24; i++) {
        threads[i] = start(read_or_write, number(i));
    }
    join_all(threads, 24);
    IS(first, 24 * 500 / 8);
}

static void *read_together(void *argument)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    atomic_fetch_add(&readers, 1);
    while (atomic_load(&readers) < 10) {
        sched_yield();
    }
    OK(pthread_rwlock_unlock(&rwlock));
    return argument;
}

CASE(rwlock_readers_share)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(read_together, NULL);
    }
    join_all(threads, 10);
}

static void *try_both(void *argument)
{
    int reads = pthread_rwlock_tryrdlock(&rwlock);
    if (reads == 0) {
        OK(pthread_rwlock_unlock(&rwlock));
    }
    int writes = pthread_rwlock_trywrlock(&rwlock);
    if (writes == 0) {
        OK(pthread_rwlock_unlock(&rwlock));
    }
    return number((reads == EBUSY) * 2 + (writes == EBUSY));
}

CASE(rwlock_try)
{
    IS(join(start(try_both, NULL)), 0);
    OK(pthread_rwlock_rdlock(&rwlock));
    IS(join(start(try_both, NULL)), 1);
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_rwlock_wrlock(&rwlock));
    IS(join(start(try_both, NULL)), 3);
    IS(pthread_rwlock_wrlock(&rwlock), EDEADLK);
    OK(pthread_rwlock_unlock(&rwlock));
}

static void *timed_both(void *argument)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_REALTIME, 40 * MS);
    IS(pthread_rwlock_timedrdlock(&rwlock, &limit), ETIMEDOUT);
    check_took(started_ns, 35);
    started_ns = now_ns();
    limit = from_now(CLOCK_MONOTONIC, 40 * MS);
    IS(pthread_rwlock_clockwrlock(&rwlock, CLOCK_MONOTONIC, &limit), ETIMEDOUT);
    check_took(started_ns, 40);
    return argument;
}

CASE(rwlock_time_limits)
{
    OK(pthread_rwlock_wrlock(&rwlock));
    join(start(timed_both, NULL));
    OK(pthread_rwlock_unlock(&rwlock));
    IS(join(start(try_both, NULL)), 0);
}

static void *write_when_possible(void *argument)
{
    OK(pthread_rwlock_wrlock(&rwlock));
    first++;
    OK(pthread_rwlock_unlock(&rwlock));
    return argument;
}

static void *read_once(void *argument)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    return argument;
}

CASE(rwlock_that_prefers_writers)
{
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    OK(pthread_rwlock_init(&rwlock, &attributes));
    OK(pthread_rwlock_rdlock(&rwlock));
    pthread_t writer = start(write_when_possible, NULL);
    while (pthread_rwlock_tryrdlock(&rwlock) == 0) {
        OK(pthread_rwlock_unlock(&rwlock));
        sched_yield();
    }
    IS(first, 0);
    OK(pthread_rwlock_unlock(&rwlock));
    join(writer);
    IS(first, 1);
}

/* A reader may lock once more for reading, and so may others, while a writer waits. */
CASE(rwlock_that_prefers_readers)
{
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_READER_NP));
    OK(pthread_rwlock_init(&rwlock, &attributes));
    OK(pthread_rwlock_rdlock(&rwlock));
    pthread_t writer = start(write_when_possible, NULL);
    let_others_block();
    OK(pthread_rwlock_rdlock(&rwlock));
    struct timespec limit = from_now(CLOCK_REALTIME, 10 * MS);
    IS(pthread_rwlock_timedwrlock(&rwlock, &limit), ETIMEDOUT);
    for (int i = 0; i < 5; i++) {
        join(start(read_once, NULL));
    }
    OK(pthread_rwlock_unlock(&rwlock));
    IS(first, 0);
    OK(pthread_rwlock_unlock(&rwlock));
    join(writer);
    IS(first, 1);
}

static pthread_barrier_t barrier;
static atomic_int serial, phase_count;

static void *pass_barrier(void *argument)
{
    for (int phase = 0; phase < 100; phase++) {
        atomic_fetch_add(&phase_count, 1);
        int result = pthread_barrier_wait(&barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        atomic_fetch_add(&serial, result == PTHREAD_BARRIER_SERIAL_THREAD);
        CHECK(atomic_load(&phase_count) >= 16 * (phase + 1));
        pthread_barrier_wait(&barrier);
        CHECK(atomic_load(&phase_count) <= 16 * (phase + 2));
    }
    return argument;
}

CASE(barrier_lets_16_pass_together)
{
    pthread_t threads[16];
    OK(pthread_barrier_init(&barrier, NULL, 16));
    for (int i = 0; i < 16; i++) {
        threads[i] = start(pass_barrier, NULL);
    }
    join_all(threads, 16);
    IS(serial, 100);
    OK(pthread_barrier_destroy(&barrier));
}

static pthread_spinlock_t spinlock;

static void *add_spinning(void *argument)
{
    for (int i = 0; i < 5000; i++) {
        OK(pthread_spin_lock(&spinlock));
        first++;
        OK(pthread_spin_unlock(&spinlock));
    }
    return argument;
}

CASE(spin_lock_excludes)
{
    pthread_t threads[8];
    OK(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    for (int i = 0; i < 8; i++) {
        threads[i] = start(add_spinning, NULL);
    }
    join_all(threads, 8);
    IS(first, 40000);
    OK(pthread_spin_lock(&spinlock));
    IS(pthread_spin_trylock(&spinlock), EBUSY);
}

/* The holder loses its processor while others spin without a system call. */
static void *hold_and_yield(void *argument)
{
    for (int i = 0; i < 20; i++) {
        OK(pthread_spin_lock(&spinlock));
        sched_yield();
        first++;
        OK(pthread_spin_unlock(&spinlock));
    }
    return argument;
}

CASE(spinners_do_not_starve_the_holder)
{
    pthread_t threads[6];
    OK(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE));
    for (int i = 0; i < 6; i++) {
        threads[i] = start(hold_and_yield, NULL);
    }
    join_all(threads, 6);
    IS(first, 120);
}

static sem_t semaphore, other_semaphore;

static int sem_value(sem_t *which)
{
    int value;
    GET(sem_getvalue(which, &value));
    return value;
}

CASE(semaphore_counts)
{
    GET(sem_init(&semaphore, 0, 2));
    GET(sem_wait(&semaphore));
    GET(sem_trywait(&semaphore));
    FAILS(sem_trywait(&semaphore), EAGAIN);
    IS(sem_value(&semaphore), 0);
    GET(sem_post(&semaphore));
    GET(sem_post(&semaphore));
    IS(sem_value(&semaphore), 2);
    GET(sem_destroy(&semaphore));
}

static void *sem_ping(void *me)
{
    for (int i = 0; i < 20000; i++) {
        GET(sem_wait((long)me ? &semaphore : &other_semaphore));
        GET(sem_post((long)me ? &other_semaphore : &semaphore));
    }
    return NULL;
}

CASE(semaphores_take_turns)
{
    GET(sem_init(&semaphore, 0, 1));
    GET(sem_init(&other_semaphore, 0, 0));
    pthread_t threads[2] = {start(sem_ping, number(0)), start(sem_ping, number(1))};
    join_all(threads, 2);
    IS(sem_value(&semaphore), 1);
}

static void *sem_take(void *argument)
{
    GET(sem_wait(&semaphore));
    atomic_fetch_add(&readers, 1);
    return argument;
}

CASE(main_posts_to_500_waiters)
{
    static pthread_t threads[500];
    GET(sem_init(&semaphore, 0, 0));
    for (int i = 0; i < 500; i++) {
        threads[i] = start_small(sem_take, NULL);
    }
    let_others_block();
    IS(readers, 0);
    for (int i = 0; i < 500; i++) {
        GET(sem_post(&semaphore));
    }
    join_all(threads, 500);
    IS(sem_value(&semaphore), 0);
}

CASE(semaphore_time_limits)
{
    GET(sem_init(&semaphore, 0, 0));
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_REALTIME, 40 * MS);
    FAILS(sem_timedwait(&semaphore, &limit), ETIMEDOUT);
    check_took(started_ns, 35);
    started_ns = now_ns();
    limit = from_now(CLOCK_MONOTONIC, 40 * MS);
    FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &limit), ETIMEDOUT);
    check_took(started_ns, 40);
    limit.tv_nsec = 1000000000;
    FAILS(sem_timedwait(&semaphore, &limit), EINVAL);
    GET(sem_post(&semaphore));
    limit = timespec_of(1);
    GET(sem_timedwait(&semaphore, &limit));
    FAILS(sem_timedwait(&semaphore, &limit), ETIMEDOUT);
}

static once_flag c11_once = ONCE_FLAG_INIT;
static mtx_t c11_mutex;
static cnd_t c11_condition;
static tss_t c11_key;

static void c11_initialise(void)
{
    IS(mtx_init(&c11_mutex, mtx_timed | mtx_recursive), thrd_success);
    IS(cnd_init(&c11_condition), thrd_success);
    IS(tss_create(&c11_key, NULL), thrd_success);
    first++;
}

static int c11_thread(void *argument)
{
    call_once(&c11_once, c11_initialise);
    IS(tss_set(c11_key, argument), thrd_success);
    IS(mtx_lock(&c11_mutex), thrd_success);
    second++;
    while (second < 10) {
        IS(cnd_wait(&c11_condition, &c11_mutex), thrd_success);
    }
    IS(cnd_broadcast(&c11_condition), thrd_success);
    IS(mtx_unlock(&c11_mutex), thrd_success);
    thrd_yield();
    CHECK(tss_get(c11_key) == argument);
    if ((long)argument % 2) {
        thrd_exit((int)(long)argument);
    }
    return (int)(long)argument;
}

CASE(c11_threads)
{
    thrd_t threads[10];
    for (long i = 0; i < 10; i++) {
        IS(thrd_create(&threads[i], c11_thread, number(i)), thrd_success);
    }
    for (int i = 0; i < 10; i++) {
        int value;
        IS(thrd_join(threads[i], &value), thrd_success);
        IS(value, i);
    }
    IS(first, 1);
    struct timespec past = {1, 0}, short_time = timespec_of(5 * MS);
    IS(mtx_lock(&c11_mutex), thrd_success);
    IS(cnd_timedwait(&c11_condition, &c11_mutex, &past), thrd_timedout);
    IS(thrd_sleep(&short_time, NULL), 0);
}
