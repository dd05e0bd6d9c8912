/* Condition variables while signals come: handlers don't end a wait, and no wake-up is lost to
 * them. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#define WAITERS 6

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_cond_t other_condition = PTHREAD_COND_INITIALIZER;
static sem_t entered, leave;
static atomic_int handled, waiting, returns, go, tokens;

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
}

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

/* Waits in its handler until the case lets it go. */
static void stay(int signal)
{
    (void)signal;
    OK(sem_post(&entered));
    while (sem_wait(&leave) == -1) {
        IS(errno, EINTR);
    }
}

static void signal_own_condition(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
    OK(pthread_cond_signal(&condition));
}

enum kind { PLAIN, TIMED, CLOCK };

static int wait_once(enum kind kind, int64_t ns)
{
    struct timespec until =
        from_now(kind == CLOCK ? CLOCK_MONOTONIC : CLOCK_REALTIME, ns);
    switch (kind) {
    case PLAIN:
        return pthread_cond_wait(&condition, &mutex);
    case TIMED:
        return pthread_cond_timedwait(&condition, &mutex, &until);
    default:
        return pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until);
    }
}

/* Waits until it may go; counts the ends of its waits. */
static void *wait_to_go(void *kind)
{
    OK(pthread_mutex_lock(&mutex));
    atomic_fetch_add(&waiting, 1);
    while (!go) {
        OK(wait_once((enum kind)(long)kind, 1000 * SECOND));
        atomic_fetch_add(&returns, 1);
    }
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* Starts `count` threads; all of them wait when this returns. */
static void start_waiting(pthread_t *threads, int count, enum kind kind)
{
    atomic_store(&waiting, 0);
    atomic_store(&returns, 0);
    go = 0;
    for (int i = 0; i < count; i++) {
        threads[i] = start(wait_to_go, number(kind));
    }
    while (atomic_load(&waiting) != count) {
        sleep_ms(1);
    }
    OK(pthread_mutex_lock(&mutex)); /* the last one has given it up */
    OK(pthread_mutex_unlock(&mutex));
}

static void let_go(int (*wake)(pthread_cond_t *))
{
    OK(pthread_mutex_lock(&mutex));
    go = 1;
    OK(wake(&condition));
    OK(pthread_mutex_unlock(&mutex));
}

static void handlers_do_not_end(enum kind kind, int flags)
{
    pthread_t thread;
    handle(SIGUSR1, count, flags);
    start_waiting(&thread, 1, kind);
    for (int i = 0; i < 100; i++) {
        int before = atomic_load(&handled);
        OK(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&handled) == before) {
            sleep_ms(1);
        }
    }
    IS(returns, 0);
    let_go(pthread_cond_signal);
    join(thread);
    IS(returns, 1);
}

CASE(a_handler_does_not_end_a_wait)
{
    handlers_do_not_end(PLAIN, 0);
    handlers_do_not_end(PLAIN, SA_RESTART);
}

CASE(a_handler_does_not_end_a_wait_with_a_time_limit)
{
    handlers_do_not_end(TIMED, 0);
    handlers_do_not_end(CLOCK, SA_RESTART);
}

CASE(a_wake_up_during_a_handler_ends_the_wait)
{
    OK(sem_init(&entered, 0, 0));
    OK(sem_init(&leave, 0, 0));
    handle(SIGUSR1, stay, 0);
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        start_waiting(&thread, 1, round % 3);
        OK(pthread_kill(thread, SIGUSR1));
        OK(sem_wait(&entered));
        let_go(pthread_cond_signal);
        OK(sem_post(&leave));
        join(thread);
        IS(returns, 1);
    }
}

CASE(a_broadcast_during_handlers_ends_all_waits)
{
    OK(sem_init(&entered, 0, 0));
    OK(sem_init(&leave, 0, 0));
    handle(SIGUSR1, stay, 0);
    pthread_t threads[WAITERS];
    start_waiting(threads, WAITERS, PLAIN);
    for (int i = 0; i < WAITERS / 2; i++) {
        OK(pthread_kill(threads[i], SIGUSR1));
        OK(sem_wait(&entered));
    }
    let_go(pthread_cond_broadcast);
    for (int i = WAITERS / 2; i < WAITERS; i++) {
        join(threads[i]);
    }
    for (int i = 0; i < WAITERS / 2; i++) {
        OK(sem_post(&leave));
    }
    join_all(threads, WAITERS / 2);
    IS(returns, WAITERS);
}

CASE(a_handler_that_signals_its_own_condition_ends_the_wait)
{
    handle(SIGUSR1, signal_own_condition, 0);
    pthread_t thread;
    start_waiting(&thread, 1, PLAIN);
    for (int i = 0; i < 50; i++) {
        OK(pthread_mutex_lock(&mutex)); /* it waits */
        OK(pthread_mutex_unlock(&mutex));
        OK(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&returns) != i + 1) {
            sleep_ms(1);
        }
    }
    let_go(pthread_cond_signal);
    join(thread);
    IS(returns, 51);
}

static void *time_out(void *kind)
{
    OK(pthread_mutex_lock(&mutex));
    atomic_fetch_add(&waiting, 1);
    int64_t began = now_ns();
    IS(wait_once((enum kind)(long)kind, 60 * MS), ETIMEDOUT);
    check_took(began, 60);
    OK(pthread_mutex_unlock(&mutex));
    return NULL;
}

/* In a handler, or while handlers run one after the other. */
CASE(a_time_limit_is_kept_while_signals_come)
{
    OK(sem_init(&entered, 0, 0));
    OK(sem_init(&leave, 0, 0));
    handle(SIGUSR1, stay, 0);
    handle(SIGUSR2, count, 0);
    for (int round = 0; round < 4; round++) {
        atomic_store(&waiting, 0);
        pthread_t thread = start(time_out, number(round % 2 ? TIMED : CLOCK));
        while (!atomic_load(&waiting)) {
            sleep_ms(1);
        }
        if (round < 2) {
            OK(pthread_kill(thread, SIGUSR1));
            OK(sem_wait(&entered));
            sleep_ms(80);
            OK(sem_post(&leave));
        } else {
            for (int i = 0; i < 40; i++) {
                OK(pthread_kill(thread, SIGUSR2));
                sleep_ms(1);
            }
        }
        join(thread);
    }
}

static void wait_elsewhere(int signal)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    struct timespec until = from_now(CLOCK_REALTIME, 2 * MS);
    (void)signal;
    OK(pthread_mutex_lock(&own));
    IS(pthread_cond_timedwait(&other_condition, &own, &until), ETIMEDOUT);
    atomic_fetch_add(&handled, 1);
}

CASE(a_handler_may_wait_for_another_condition)
{
    handle(SIGUSR1, wait_elsewhere, SA_RESTART);
    pthread_t thread;
    start_waiting(&thread, 1, PLAIN);
    for (int i = 0; i < 10; i++) {
        OK(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&handled) != i + 1) {
            sleep_ms(1);
        }
    }
    IS(returns, 0);
    let_go(pthread_cond_signal);
    join(thread);
    IS(returns, 1);
}

static atomic_int holder;

static void release(void *argument)
{
    (void)argument;
    IS(atomic_exchange(&holder, 1), 0); /* no other thread holds the mutex */
    atomic_store(&holder, 0);
    OK(pthread_mutex_unlock(&mutex));
}

static void *wait_for_cancellation(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    atomic_fetch_add(&waiting, 1);
    pthread_cleanup_push(release, NULL);
    for (;;) {
        OK(pthread_cond_wait(&condition, &mutex));
    }
    pthread_cleanup_pop(0);
    return argument;
}

CASE(a_cancellation_during_a_handler_ends_the_wait_with_its_mutex)
{
    OK(sem_init(&entered, 0, 0));
    OK(sem_init(&leave, 0, 0));
    handle(SIGUSR1, stay, SA_RESTART);
    for (int round = 0; round < 10; round++) {
        atomic_store(&waiting, 0);
        pthread_t thread = start(wait_for_cancellation, NULL);
        while (!atomic_load(&waiting)) {
            sleep_ms(1);
        }
        OK(pthread_mutex_lock(&mutex));
        OK(pthread_mutex_unlock(&mutex));
        OK(pthread_kill(thread, SIGUSR1));
        OK(sem_wait(&entered));
        OK(pthread_mutex_lock(&mutex));
        atomic_store(&holder, 1);
        OK(pthread_cancel(thread));
        OK(sem_post(&leave));
        sleep_ms(2);
        atomic_store(&holder, 0);
        OK(pthread_mutex_unlock(&mutex));
        CHECK(join(thread) == PTHREAD_CANCELED);
    }
}

static void *take_tokens(void *kind)
{
    long taken = 0;
    OK(pthread_mutex_lock(&mutex));
    while (!go || tokens) {
        if (tokens) {
            tokens--;
            taken++;
            OK(pthread_cond_signal(&other_condition));
        } else {
            int result = wait_once((enum kind)(long)kind, kind ? 3 * MS : 0);
            CHECK(result == 0 || (kind && result == ETIMEDOUT));
        }
    }
    OK(pthread_mutex_unlock(&mutex));
    return number(taken);
}

static void *disturb(void *threads)
{
    unsigned random = 12345;
    while (!go) {
        random = random * 1664525 + 1013904223;
        int signal = random >> 20 & 1 ? SIGUSR1 : SIGUSR2;
        OK(pthread_kill(((pthread_t *)threads)[random >> 24 & 3], signal));
        if ((random >> 16 & 7) == 0) {
            sched_yield();
        }
    }
    return NULL;
}

/* Each token is waited for: one that no thread hears of stops everything. */
CASE(no_token_is_lost_in_a_storm_of_signals)
{
    enum { TOKENS = 3000, TAKERS = 4 };
    handle(SIGUSR1, count, 0);
    handle(SIGUSR2, count, SA_RESTART);
    pthread_t takers[TAKERS];
    for (long i = 0; i < TAKERS; i++) {
        takers[i] = start(take_tokens, number(i % 3));
    }
    pthread_t storm = start(disturb, takers);
    for (int i = 0; i < TOKENS; i++) {
        OK(pthread_mutex_lock(&mutex));
        tokens++;
        OK(pthread_cond_signal(&condition));
        while (tokens) {
            OK(pthread_cond_wait(&other_condition, &mutex));
        }
        OK(pthread_mutex_unlock(&mutex));
    }
    OK(pthread_mutex_lock(&mutex));
    go = 1;
    OK(pthread_cond_broadcast(&condition));
    OK(pthread_mutex_unlock(&mutex));
    join(storm);
    long taken = 0;
    for (int i = 0; i < TAKERS; i++) {
        taken += (long)join(takers[i]);
    }
    IS(taken, TOKENS);
}
