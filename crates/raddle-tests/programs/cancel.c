/* Cancellation: deferred in every kind of wait, asynchronous, disabled, with clean-up handlers. */
#include "check.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static atomic_int cleaned, ready;
static int ends[2];

static void clean(void *amount)
{
    atomic_fetch_add(&cleaned, (int)(long)amount);
}

/* Runs `wait` in a thread, cancels it when it may be waiting, and before it could. */
static void check_cancelled(thread_function wait)
{
    for (int delay_ms = 0; delay_ms < 30; delay_ms += 10) {
        atomic_store(&cleaned, 0);
        pthread_t thread = start(wait, NULL);
        sleep_ms(delay_ms);
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED);
        IS(cleaned, 11);
    }
}

#define WAITER(name, wait)                                                               \
    static void *name(void *argument)                                                    \
    {                                                                                    \
        pthread_cleanup_push(clean, number(1));                                          \
        pthread_cleanup_push(clean, number(10));                                         \
        wait;                                                                            \
        CHECK(!"reached");                                                               \
        pthread_cleanup_pop(0);                                                          \
        pthread_cleanup_pop(0);                                                          \
        return argument;                                                                 \
    }

static char byte;
WAITER(in_read, (void)!read(ends[0], &byte, 1))
WAITER(in_recv, recv(ends[0], &byte, 1, 0))
WAITER(in_poll, poll(NULL, 0, -1))
WAITER(in_sleep, sleep(1000))
WAITER(in_pause, pause())
WAITER(in_sem_wait, sem_wait(&semaphore))
WAITER(in_test, for (;;) { pthread_testcancel(); sched_yield(); })

CASE(cancels_a_read)
{
    GET(pipe(ends));
    check_cancelled(in_read);
    IS(write(ends[1], "x", 1), 1);
    IS(read(ends[0], &byte, 1), 1);
}

CASE(cancels_a_recv_and_a_poll)
{
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    check_cancelled(in_recv);
    check_cancelled(in_poll);
}

CASE(cancels_a_sleep_and_a_pause)
{
    check_cancelled(in_sleep);
    check_cancelled(in_pause);
}

CASE(cancels_a_semaphore_wait_and_leaves_its_value)
{
    int value;
    GET(sem_init(&semaphore, 0, 0));
    check_cancelled(in_sem_wait);
    GET(sem_post(&semaphore));
    GET(sem_getvalue(&semaphore, &value));
    IS(value, 1);
    GET(sem_wait(&semaphore));
}

CASE(pthread_testcancel_is_a_cancellation_point)
{
    check_cancelled(in_test);
}

static void unlock(void *argument)
{
    /* Owned: an error-checking mutex returns EPERM to any other thread. */
    OK(pthread_mutex_unlock(argument));
    atomic_fetch_add(&cleaned, 11);
}

static void *in_condition(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    atomic_store(&ready, 1);
    for (;;) {
        OK(pthread_cond_wait(&condition, &mutex));
    }
    pthread_cleanup_pop(0);
    return argument;
}

CASE(a_cancelled_condition_wait_holds_its_mutex_in_clean_up)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutex_init(&mutex, &attributes));
    check_cancelled(in_condition);
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
}

static void *in_timed_condition(void *argument)
{
    struct timespec limit = from_now(CLOCK_REALTIME, 1000 * SECOND);
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    for (;;) {
        OK(pthread_cond_timedwait(&condition, &mutex, &limit));
    }
    pthread_cleanup_pop(0);
    return argument;
}

CASE(cancels_a_timed_condition_wait)
{
    check_cancelled(in_timed_condition);
}

static void *take_signal(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    while (!atomic_load(&ready)) {
        OK(pthread_cond_wait(&condition, &mutex));
    }
    atomic_fetch_sub(&ready, 1);
    pthread_cleanup_pop(1);
    return argument;
}

/* A cancelled waiter must not swallow the signal that another needs. */
CASE(a_cancelled_wait_does_not_lose_a_signal)
{
    for (int i = 0; i < 100; i++) {
        pthread_t victim = start(take_signal, NULL), survivor = start(take_signal, NULL);
        if (i % 2) {
            sched_yield();
        }
        OK(pthread_cancel(victim));
        OK(pthread_mutex_lock(&mutex));
        atomic_fetch_add(&ready, 1);
        OK(pthread_cond_signal(&condition));
        OK(pthread_mutex_unlock(&mutex));
        if (join(victim) != PTHREAD_CANCELED) {
            OK(pthread_mutex_lock(&mutex));
            atomic_fetch_add(&ready, 1);
            OK(pthread_cond_signal(&condition));
            OK(pthread_mutex_unlock(&mutex));
        }
        join(survivor);
        IS(ready, 0);
    }
}

static void *join_target(void *target)
{
    return join(*(pthread_t *)target);
}

static void *wait_for_ready(void *argument)
{
    while (atomic_load(&ready) != 9) {
        sleep_ms(1);
    }
    return argument;
}

CASE(cancels_a_join_and_the_target_can_still_be_joined)
{
    pthread_t target = start(wait_for_ready, number(4));
    pthread_t joiner = start(join_target, &target);
    let_others_block();
    OK(pthread_cancel(joiner));
    CHECK(join(joiner) == PTHREAD_CANCELED);
    atomic_store(&ready, 9);
    IS(join(target), 4);
}

static void *compute_for_ever(void *argument)
{
    OK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL));
    pthread_cleanup_push(clean, number(11));
    atomic_store(&ready, 1);
    for (volatile long i = 0;; i++) {
    }
    pthread_cleanup_pop(0);
    return argument;
}

CASE(asynchronous_cancellation_ends_a_compute_loop)
{
    for (int i = 0; i < 5; i++) {
        atomic_store(&ready, 0);
        atomic_store(&cleaned, 0);
        pthread_t thread = start(compute_for_ever, NULL);
        while (!atomic_load(&ready)) {
            sched_yield();
        }
        OK(pthread_cancel(thread));
        CHECK(join(thread) == PTHREAD_CANCELED);
        IS(cleaned, 11);
    }
}

static void *disabled_for_a_while(void *argument)
{
    int old;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old));
    IS(old, PTHREAD_CANCEL_ENABLE);
    atomic_store(&ready, 1);
    while (atomic_load(&ready) != 2) {
        sleep_ms(1);
    }
    pthread_testcancel();
    atomic_store(&ready, 3);
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL));
    pthread_testcancel();
    CHECK(!"reached");
    return argument;
}

CASE(a_disabled_cancellation_waits_until_enabled)
{
    pthread_t thread = start(disabled_for_a_while, NULL);
    while (!atomic_load(&ready)) {
        sched_yield();
    }
    OK(pthread_cancel(thread));
    atomic_store(&ready, 2);
    CHECK(join(thread) == PTHREAD_CANCELED);
    IS(ready, 3);
}

static pthread_key_t key;

static void *exit_with_handlers(void *argument)
{
    OK(pthread_setspecific(key, number(100)));
    pthread_cleanup_push(clean, number(1));
    pthread_cleanup_push(clean, number(10));
    pthread_exit(argument);
    pthread_cleanup_pop(0);
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(pthread_exit_runs_handlers_then_destructors)
{
    OK(pthread_key_create(&key, clean));
    IS(join(start(exit_with_handlers, number(8))), 8);
    IS(cleaned, 111);
}

static void *cancel_itself(void *argument)
{
    OK(pthread_cancel(pthread_self()));
    pthread_testcancel();
    CHECK(!"reached");
    return argument;
}

CASE(a_thread_cancels_itself)
{
    CHECK(join(start(cancel_itself, NULL)) == PTHREAD_CANCELED);
}

static void *cancel_main(void *main_thread)
{
    sleep_ms(20);
    OK(pthread_cancel(*(pthread_t *)main_thread));
    CHECK(join(*(pthread_t *)main_thread) == PTHREAD_CANCELED);
    say_ok();
    exit(6);
}

CASE(main_is_cancelled)
{
    static pthread_t main_thread;
    main_thread = pthread_self();
    start(cancel_main, &main_thread);
    for (;;) {
        sleep(100);
    }
}

static void *some_wait(void *kind)
{
    pthread_cleanup_push(clean, number(1));
    switch ((long)kind % 4) {
    case 0:
        in_read(NULL);
        break;
    case 1:
        in_sem_wait(NULL);
        break;
    case 2:
        in_sleep(NULL);
        break;
    default:
        in_poll(NULL);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(two_hundred_waits_are_cancelled_together)
{
    pthread_t threads[200];
    GET(pipe(ends));
    GET(sem_init(&semaphore, 0, 0));
    for (long i = 0; i < 200; i++) {
        threads[i] = start(some_wait, number(i));
    }
    for (int i = 0; i < 200; i++) {
        OK(pthread_cancel(threads[i]));
    }
    for (int i = 0; i < 200; i++) {
        CHECK(join(threads[i]) == PTHREAD_CANCELED);
    }
    CHECK(cleaned <= 200 * 12);
}

/* Waits as soon as it is told to; no cancellation point comes between. */
static void *wait_when_told(void *in_semaphore)
{
    OK(pthread_mutex_lock(&mutex));
    pthread_cleanup_push(unlock, &mutex);
    atomic_store(&ready, 1);
    while (atomic_load(&ready) == 1) {
        sched_yield();
    }
    for (;;) {
        if (in_semaphore != NULL) {
            sem_wait(&semaphore);
        } else {
            pthread_cond_wait(&condition, &mutex);
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

CASE(a_cancellation_at_the_start_of_a_wait_is_not_slept_over)
{
    OK(sem_init(&semaphore, 0, 0));
    /* Fewer rounds on a machine so busy that each yield waits for others. */
    int64_t limit_ns = now_ns() + 10 * SECOND;
    for (long round = 0; round < 400 && now_ns() < limit_ns; round++) {
        atomic_store(&ready, 0);
        pthread_t waiter = start(wait_when_told, number(round % 2));
        /* The waiter has a CPU of its own by the end of this, if there is one. */
        int64_t until_ns = now_ns() + 2 * MS;
        for (int i = 0; (i < 200 && now_ns() < until_ns) || atomic_load(&ready) == 0; i++) {
            sched_yield();
        }
        atomic_store(&ready, 2);
        for (volatile long delay = round * 7 % 300; delay > 0; delay--) {
        }
        OK(pthread_cancel(waiter));
        CHECK(join(waiter) == PTHREAD_CANCELED);
    }
}
