/* Condition variables: signal, broadcast, time limits, destruction, bounded buffers. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_cond_t other_condition = PTHREAD_COND_INITIALIZER;
static int turn, waiting, go, woken;

static void *ping_pong(void *me)
{
    pthread_cond_t *conditions[] = {&condition, &other_condition};
    for (int i = 0; i < 20000; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (turn != (long)me) {
            OK(pthread_cond_wait(conditions[(long)me], &mutex));
        }
        turn = !turn;
        OK(pthread_cond_signal(conditions[turn]));
        OK(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

CASE(two_threads_take_turns)
{
    pthread_t threads[2] = {start(ping_pong, number(0)), start(ping_pong, number(1))};
    join_all(threads, 2);
    IS(turn, 0);
}

static void *take_ring_turn(void *me)
{
    for (int i = 0; i < 100; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (turn != (long)me) {
            OK(pthread_cond_wait(&condition, &mutex));
        }
        turn = (turn + 1) % 20;
        OK(pthread_cond_broadcast(&condition));
        OK(pthread_mutex_unlock(&mutex));
    }
    return NULL;
}

CASE(twenty_threads_take_turns_by_broadcast)
{
    pthread_t threads[20];
    for (long i = 0; i < 20; i++) {
        threads[i] = start(take_ring_turn, number(i));
    }
    join_all(threads, 20);
    IS(turn, 0);
}

static void *wait_for_go(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    waiting++;
    OK(pthread_cond_signal(&other_condition));
    while (!go) {
        OK(pthread_cond_wait(&condition, &mutex));
    }
    go--;
    woken++;
    OK(pthread_cond_signal(&other_condition));
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

static void lock_when_waiting(int count)
{
    OK(pthread_mutex_lock(&mutex));
    while (waiting != count) {
        OK(pthread_cond_wait(&other_condition, &mutex));
    }
}

CASE(each_signal_lets_one_go)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(wait_for_go, NULL);
    }
    lock_when_waiting(50);
    for (int i = 1; i <= 50; i++) {
        go = 1;
        OK(pthread_cond_signal(&condition));
        while (woken != i) {
            OK(pthread_cond_wait(&other_condition, &mutex));
        }
        IS(go, 0);
    }
    OK(pthread_mutex_unlock(&mutex));
    join_all(threads, 50);
}

CASE(broadcast_wakes_1000)
{
    static pthread_t threads[1000];
    for (int i = 0; i < 1000; i++) {
        threads[i] = start_small(wait_for_go, NULL);
    }
    lock_when_waiting(1000);
    go = 1000;
    OK(pthread_cond_broadcast(&condition));
    OK(pthread_mutex_unlock(&mutex));
    join_all(threads, 1000);
    IS(woken, 1000);
}

static void check_timeout(clockid_t clock)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(clock, 60 * MS);
    OK(pthread_mutex_lock(&mutex));
    int result;
    do {
        result = pthread_cond_clockwait(&condition, &mutex, clock, &limit);
    } while (result == 0);
    IS(result, ETIMEDOUT);
    check_took(started_ns, 55);
    IS(pthread_mutex_trylock(&mutex), EBUSY);
    OK(pthread_mutex_unlock(&mutex));
}

CASE(clockwait_times_out_on_both_clocks_and_holds_the_mutex)
{
    check_timeout(CLOCK_REALTIME);
    check_timeout(CLOCK_MONOTONIC);
}

CASE(timedwait_uses_the_clock_of_its_attributes)
{
    pthread_condattr_t attributes;
    OK(pthread_condattr_init(&attributes));
    OK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&condition, &attributes));
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_MONOTONIC, 60 * MS);
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_cond_timedwait(&condition, &mutex, &limit), ETIMEDOUT);
    check_took(started_ns, 60);
    OK(pthread_mutex_unlock(&mutex));
}

static void *timed_waits(void *me)
{
    int64_t started_ns = now_ns();
    int ms = 10 + 2 * (int)(long)me;
    struct timespec limit = from_now(CLOCK_MONOTONIC, ms * MS);
    OK(pthread_mutex_lock(&mutex));
    while (pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &limit) != ETIMEDOUT) {
    }
    OK(pthread_mutex_unlock(&mutex));
    check_took(started_ns, ms);
    return NULL;
}

CASE(a_hundred_timed_waits_on_one_condition_all_end)
{
    pthread_t threads[100];
    for (long i = 0; i < 100; i++) {
        threads[i] = start(timed_waits, number(i));
    }
    join_all(threads, 100);
}

static void *signal_later(void *argument)
{
    sleep_ms(30);
    OK(pthread_mutex_lock(&mutex));
    go = 1;
    OK(pthread_cond_signal(&condition));
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

CASE(a_timed_wait_that_is_signalled_does_not_time_out)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_REALTIME, 30 * SECOND);
    OK(pthread_mutex_lock(&mutex));
    pthread_t thread = start(signal_later, NULL);
    while (!go) {
        OK(pthread_cond_timedwait(&condition, &mutex, &limit));
    }
    OK(pthread_mutex_unlock(&mutex));
    join(thread);
    CHECK(now_ns() - started_ns < 15 * SECOND);
}

CASE(an_invalid_or_past_time_is_told)
{
    struct timespec invalid = {0, 1000000000}, past = {1, 0};
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_cond_timedwait(&condition, &mutex, &invalid), EINVAL);
    IS(pthread_cond_timedwait(&condition, &mutex, &past), ETIMEDOUT);
    OK(pthread_mutex_unlock(&mutex));
}

struct rendezvous {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int waiting, go;
};

static void *wait_in_rendezvous(void *argument)
{
    struct rendezvous *meeting = argument;
    OK(pthread_mutex_lock(&meeting->mutex));
    meeting->waiting++;
    while (!meeting->go) {
        OK(pthread_cond_wait(&meeting->condition, &meeting->mutex));
    }
    meeting->waiting--;
    OK(pthread_mutex_unlock(&meeting->mutex));
    return NULL;
}

/* POSIX lets a condition be destroyed as soon as all waiters are woken: destroy waits for them. */
CASE(destroy_after_broadcast)
{
    for (int round = 0; round < 100; round++) {
        struct rendezvous *meeting = calloc(1, sizeof *meeting);
        pthread_t threads[4];
        OK(pthread_mutex_init(&meeting->mutex, NULL));
        OK(pthread_cond_init(&meeting->condition, NULL));
        for (int i = 0; i < 4; i++) {
            threads[i] = start(wait_in_rendezvous, meeting);
        }
        OK(pthread_mutex_lock(&meeting->mutex));
        while (meeting->waiting != 4) {
            OK(pthread_mutex_unlock(&meeting->mutex));
            sched_yield();
            OK(pthread_mutex_lock(&meeting->mutex));
        }
        meeting->go = 1;
        OK(pthread_cond_broadcast(&meeting->condition));
        OK(pthread_mutex_unlock(&meeting->mutex));
        OK(pthread_cond_destroy(&meeting->condition));
        memset(&meeting->condition, 0x5a, sizeof meeting->condition);
        join_all(threads, 4);
        free(meeting);
    }
}

enum { SLOTS = 8, ITEMS = 4000 };
static long buffer[SLOTS];
static int head, used;
static atomic_long sum;

static void *produce(void *argument)
{
    for (long i = 1; i <= ITEMS; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (used == SLOTS) {
            OK(pthread_cond_wait(&other_condition, &mutex));
        }
        buffer[(head + used++) % SLOTS] = i;
        OK(pthread_cond_signal(&condition));
        OK(pthread_mutex_unlock(&mutex));
    }
    return argument;
}

static void *consume(void *argument)
{
    for (long i = 1; i <= ITEMS; i++) {
        OK(pthread_mutex_lock(&mutex));
        while (used == 0) {
            OK(pthread_cond_wait(&condition, &mutex));
        }
        atomic_fetch_add(&sum, buffer[head]);
        head = (head + 1) % SLOTS;
        used--;
        OK(pthread_cond_signal(&other_condition));
        OK(pthread_mutex_unlock(&mutex));
    }
    return argument;
}

CASE(producers_and_consumers_lose_nothing)
{
    pthread_t threads[16];
    for (int i = 0; i < 16; i++) {
        threads[i] = start(i % 2 ? consume : produce, NULL);
    }
    join_all(threads, 16);
    IS(sum, 8L * ITEMS * (ITEMS + 1) / 2);
}

static void *wait_recursively(void *target)
{
    OK(pthread_mutex_lock(target));
    waiting = 1;
    while (!go) {
        OK(pthread_cond_wait(&condition, target));
    }
    OK(pthread_mutex_unlock(target));
    return NULL;
}

CASE(a_wait_releases_an_errorcheck_mutex)
{
    static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    pthread_t thread = start(wait_recursively, &checked);
    for (int seen = 0; !seen;) {
        OK(pthread_mutex_lock(&checked));
        seen = waiting;
        OK(pthread_mutex_unlock(&checked));
        sched_yield();
    }
    OK(pthread_mutex_lock(&checked));
    go = 1;
    OK(pthread_cond_signal(&condition));
    OK(pthread_mutex_unlock(&checked));
    join(thread);
}
