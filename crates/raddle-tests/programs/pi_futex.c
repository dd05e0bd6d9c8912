/* PI futexes as the system call serves them: the word names its owner.
 *
 * Expected results are those of the manual page futex(2).
 */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static atomic_uint word, condition;
static atomic_int step;

static int flags = FUTEX_PRIVATE_FLAG;

static long futex(atomic_uint *address, int operation, long value, const void *fourth,
                  atomic_uint *second, int third)
{
    operation |= flags;
    return syscall(SYS_futex, address, operation, value, fourth, second, third);
}

static unsigned own_id(void)
{
    return (unsigned)syscall(SYS_gettid);
}

static void wait_for_step(int wanted)
{
    while (atomic_load(&step) < wanted) {
        sched_yield();
    }
}

static void *lock_and_unlock(void *argument)
{
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    IS(word & FUTEX_TID_MASK, own_id());
    atomic_fetch_add(&step, 1);
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    return argument;
}

static void *try_all_errors(void *argument)
{
    struct timespec limit = from_now(CLOCK_REALTIME, 30 * MS);
    int64_t started_ns = now_ns();
    FAILS(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EAGAIN);
    CHECK(word & FUTEX_WAITERS);
    FAILS(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    FAILS(futex(&word, FUTEX_LOCK_PI, 0, &limit, NULL, 0), ETIMEDOUT);
    check_took(started_ns, 25);
    limit = from_now(CLOCK_MONOTONIC, 30 * MS);
    FAILS(futex(&word, FUTEX_LOCK_PI2, 0, &limit, NULL, 0), ETIMEDOUT);
    limit = from_now(CLOCK_REALTIME, 30 * MS);
    FAILS(futex(&word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &limit, NULL, 0), ETIMEDOUT);
    CHECK(word & FUTEX_WAITERS);
    return argument;
}

CASE(errors_are_told)
{
    pthread_t thread = start(lock_and_unlock, NULL);
    join(thread);
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    IS(word, own_id());
    FAILS(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    FAILS(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EDEADLK);
    join(start(try_all_errors, NULL));
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    IS(word, 0);
    FAILS(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
    word = FUTEX_TID_MASK; /* no thread's id */
    FAILS(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0), ESRCH);
    word = 0;
    OK(futex(&word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    struct timespec past = {1, 0};
    OK(futex(&word, FUTEX_LOCK_PI, 0, &past, NULL, 0));
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
}

CASE(unlock_hands_over_to_who_waits)
{
    pthread_t threads[5];
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    for (int i = 0; i < 5; i++) {
        threads[i] = start(lock_and_unlock, NULL);
    }
    while (!(atomic_load(&word) & FUTEX_WAITERS)) {
        sched_yield();
    }
    let_others_block();
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    CHECK((word & FUTEX_TID_MASK) != own_id());
    join_all(threads, 5);
    IS(step, 5);
    IS(word & FUTEX_TID_MASK, 0);
}

static void *die_as_owner(void *argument)
{
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    atomic_store(&step, 1);
    while (!(atomic_load(&word) & FUTEX_WAITERS)) {
        sched_yield();
    }
    let_others_block();
    return argument;
}

CASE(who_waits_inherits_from_the_dead)
{
    pthread_t thread = start(die_as_owner, NULL);
    wait_for_step(1);
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    IS(word & FUTEX_TID_MASK, own_id());
    CHECK(word & FUTEX_OWNER_DIED);
    join(thread);
}

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&step, 1);
}

CASE(a_signal_does_not_end_the_wait)
{
    struct sigaction action = {.sa_handler = on_signal};
    GET(sigaction(SIGUSR1, &action, NULL));
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    pthread_t thread = start(lock_and_unlock, NULL);
    while (!(atomic_load(&word) & FUTEX_WAITERS)) {
        sched_yield();
    }
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    wait_for_step(1);
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    join(thread);
    IS(step, 2);
}

static long counter;

static void *count(void *argument)
{
    unsigned me = own_id();
    for (int i = 0; i < 2000; i++) {
        unsigned expected = 0;
        if (!atomic_compare_exchange_strong(&word, &expected, me)) {
            OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
        }
        long before = counter;
        if (i % 16 == 0) {
            sched_yield();
        }
        counter = before + 1;
        expected = me;
        if (!atomic_compare_exchange_strong(&word, &expected, 0)) {
            OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
        }
    }
    return argument;
}

CASE(twenty_threads_exclude_each_other)
{
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(count, NULL);
    }
    join_all(threads, 20);
    IS(counter, 40000);
    IS(word & FUTEX_TID_MASK, 0);
}

static void *wait_requeue(void *argument)
{
    atomic_fetch_add(&step, 1);
    OK(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &word, 0));
    IS(word & FUTEX_TID_MASK, own_id());
    counter++;
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    return argument;
}

static void requeue_all(int waiters)
{
    pthread_t threads[10];
    for (int i = 0; i < waiters; i++) {
        threads[i] = start(wait_requeue, NULL);
    }
    wait_for_step(waiters);
    for (int done = 0; done < waiters; sched_yield()) {
        FAILS(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, number(100), &word, 1), EAGAIN);
        done += (int)GET(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, number(100), &word, 0));
    }
    if ((word & FUTEX_TID_MASK) == own_id()) {
        OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    }
    join_all(threads, waiters);
    IS(counter, waiters);
    IS(word & FUTEX_TID_MASK, 0);
}

CASE(requeue_to_a_lock_that_is_held)
{
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    requeue_all(10);
}

CASE(requeue_to_a_lock_that_is_free)
{
    requeue_all(10);
}

static void *wait_requeue_briefly(void *argument)
{
    struct timespec limit = from_now(CLOCK_MONOTONIC, 60 * MS);
    FAILS(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 1, NULL, &word, 0), EAGAIN);
    atomic_fetch_add(&step, 1);
    FAILS(futex(&condition, FUTEX_WAIT_REQUEUE_PI, 0, &limit, &word, 0), ETIMEDOUT);
    return argument;
}

static void requeued_waits_time_out(void)
{
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    pthread_t threads[2] = {start(wait_requeue_briefly, NULL), start(wait_requeue_briefly, NULL)};
    wait_for_step(2);
    FAILS(futex(&condition, FUTEX_CMP_REQUEUE_PI, 2, number(100), &word, 0), EINVAL);
    GET(futex(&condition, FUTEX_CMP_REQUEUE_PI, 1, number(0), &word, 0));
    join_all(threads, 2);
    OK(futex(&word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
    IS(word & FUTEX_TID_MASK, 0);
}

CASE(a_requeued_wait_times_out)
{
    requeued_waits_time_out();
}

CASE(shared_words_are_requeued_to_a_lock_that_is_held)
{
    flags = 0;
    OK(futex(&word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
    requeue_all(10);
}

CASE(shared_words_are_requeued_to_a_lock_that_is_free)
{
    flags = 0;
    requeue_all(10);
}

CASE(a_requeued_wait_on_a_shared_word_times_out)
{
    flags = 0;
    requeued_waits_time_out();
}
