/* The checks of functions with a time limit, and their order: nanoseconds, clocks, values, times
 * before the clock's beginning, cancellations. */
#include "check.h"

#include <limits.h>
#include <semaphore.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static const struct timespec negative = {-2, 0}, second = {5, 1000000000}, less = {5, -1},
                             negative_and_less = {-2, -1};

static void *nothing(void *argument)
{
    return argument;
}

/* There has been a second thread. */
static void begin(int value)
{
    join(start(nothing, NULL));
    OK(sem_init(&semaphore, 0, value));
}

CASE(a_condition_wait_until_a_negative_time_has_timed_out)
{
    begin(0);
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_cond_timedwait(&condition, &mutex, &negative), ETIMEDOUT);
    IS(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &negative), ETIMEDOUT);
    IS(pthread_cond_clockwait(&condition, &mutex, CLOCK_REALTIME, &negative), ETIMEDOUT);
    IS(pthread_mutex_trylock(&mutex), EBUSY);
    OK(pthread_mutex_unlock(&mutex));
}

CASE(a_condition_wait_checks_nanoseconds_and_clocks)
{
    begin(0);
    OK(pthread_mutex_lock(&mutex));
    IS(pthread_cond_timedwait(&condition, &mutex, &second), EINVAL);
    IS(pthread_cond_timedwait(&condition, &mutex, &less), EINVAL);
    IS(pthread_cond_timedwait(&condition, &mutex, &negative_and_less), EINVAL);
    IS(pthread_cond_clockwait(&condition, &mutex, CLOCK_BOOTTIME, &negative), EINVAL);
    IS(pthread_cond_clockwait(&condition, &mutex, 4711, &second), EINVAL);
    IS(pthread_mutex_trylock(&mutex), EBUSY);
    OK(pthread_mutex_unlock(&mutex));
}

CASE(a_condition_wait_needs_the_mutex_that_it_checks)
{
    pthread_mutexattr_t attributes;
    const struct timespec past = {1, 0};
    begin(0);
    OK(pthread_mutexattr_init(&attributes));
    for (int kind = PTHREAD_MUTEX_RECURSIVE; kind <= PTHREAD_MUTEX_ERRORCHECK; kind++) {
        pthread_mutex_t checked;
        OK(pthread_mutexattr_settype(&attributes, kind));
        OK(pthread_mutex_init(&checked, &attributes));
        IS(pthread_cond_wait(&condition, &checked), EPERM);
        IS(pthread_cond_timedwait(&condition, &checked, &past), EPERM);
        IS(pthread_cond_timedwait(&condition, &checked, &second), EINVAL);
        OK(pthread_mutex_lock(&checked));
        IS(pthread_cond_timedwait(&condition, &checked, &past), ETIMEDOUT);
        IS(pthread_cond_timedwait(&condition, &checked, &negative), ETIMEDOUT);
        OK(pthread_mutex_unlock(&checked));
        IS(pthread_mutex_unlock(&checked), EPERM);
    }
}

static pthread_mutex_t held;

static void *hold(void *argument)
{
    OK(pthread_mutex_lock(&held));
    OK(sem_post(argument));
    sleep_ms(100);
    IS(pthread_mutex_unlock(&held), 0);
    return NULL;
}

/* The wait must not unlock what another thread has locked once. */
CASE(a_recursive_mutex_of_another_thread_is_refused)
{
    pthread_mutexattr_t attributes;
    const struct timespec past = {1, 0};
    begin(0);
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&held, &attributes));
    pthread_t thread = start(hold, &semaphore);
    OK(sem_wait(&semaphore));
    IS(pthread_cond_wait(&condition, &held), EPERM);
    IS(pthread_cond_timedwait(&condition, &held, &past), EPERM);
    IS(pthread_mutex_trylock(&held), EBUSY);
    join(thread);
}

CASE(a_semaphore_wait_checks_nanoseconds_before_it_takes)
{
    int value;
    begin(1);
    FAILS(sem_timedwait(&semaphore, &second), EINVAL);
    FAILS(sem_timedwait(&semaphore, &less), EINVAL);
    FAILS(sem_timedwait(&semaphore, &negative_and_less), EINVAL);
    FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &second), EINVAL);
    FAILS(sem_clockwait(&semaphore, CLOCK_BOOTTIME, &negative), EINVAL);
    FAILS(sem_clockwait(&semaphore, 4711, &negative), EINVAL);
    OK(sem_getvalue(&semaphore, &value));
    IS(value, 1);
}

CASE(a_semaphore_wait_until_a_negative_time_takes_or_has_timed_out)
{
    begin(2);
    OK(sem_timedwait(&semaphore, &negative));
    OK(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &negative));
    FAILS(sem_timedwait(&semaphore, &negative), ETIMEDOUT);
    FAILS(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &negative), ETIMEDOUT);
    FAILS(sem_clockwait(&semaphore, CLOCK_REALTIME, &negative), ETIMEDOUT);
}

static void *post_soon(void *argument)
{
    sleep_ms(20);
    OK(sem_post(&semaphore));
    return argument;
}

CASE(the_end_of_time_is_far_away)
{
    const struct timespec end = {LONG_MAX, 999999999};
    begin(0);
    pthread_t thread = start(post_soon, NULL);
    OK(sem_timedwait(&semaphore, &end));
    join(thread);
    thread = start(post_soon, NULL);
    OK(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &end));
    join(thread);
}

CASE(a_semaphore_holds_no_more_than_it_can)
{
    int value;
    begin(SEM_VALUE_MAX - 1);
    OK(sem_post(&semaphore));
    FAILS(sem_post(&semaphore), EOVERFLOW);
    OK(sem_getvalue(&semaphore, &value));
    IS(value, SEM_VALUE_MAX);
    OK(sem_trywait(&semaphore));
}

static pthread_barrier_t barrier;

typedef int (*semaphore_wait)(sem_t *);

static int wait_timed(sem_t *s)
{
    struct timespec until = from_now(CLOCK_REALTIME, 100 * SECOND);
    return sem_timedwait(s, &until);
}

static int wait_by_clock(sem_t *s)
{
    struct timespec until = from_now(CLOCK_MONOTONIC, 100 * SECOND);
    return sem_clockwait(s, CLOCK_MONOTONIC, &until);
}

static int wait_until_past(sem_t *s)
{
    const struct timespec past = {1, 0};
    return sem_timedwait(s, &past);
}

static int wait_until_negative(sem_t *s)
{
    return sem_timedwait(s, &negative);
}

static int wait_by_clock_until_negative(sem_t *s)
{
    return sem_clockwait(s, CLOCK_MONOTONIC, &negative);
}

static int wait_until_nonsense(sem_t *s)
{
    return sem_timedwait(s, &less);
}

static void *wait_with_cancellation(void *wait)
{
    int state;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    OK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state));
    ((semaphore_wait)wait)(&semaphore);
    return NULL;
}

/* True if a wait acts on a cancellation that has come before. */
static int is_cancelled(semaphore_wait wait, int value)
{
    int left;
    OK(sem_init(&semaphore, 0, value));
    OK(pthread_barrier_init(&barrier, NULL, 2));
    pthread_t thread = start(wait_with_cancellation, (void *)wait);
    pthread_barrier_wait(&barrier);
    OK(pthread_cancel(thread));
    pthread_barrier_wait(&barrier);
    int is_cancelled = join(thread) == PTHREAD_CANCELED;
    OK(sem_getvalue(&semaphore, &left));
    CHECK(!is_cancelled || left == value);
    return is_cancelled;
}

CASE(semaphore_waits_act_on_a_cancellation_that_has_come)
{
    IS(is_cancelled(sem_wait, 1), 1);
    IS(is_cancelled(sem_wait, 0), 1);
    IS(is_cancelled(wait_timed, 1), 1);
    IS(is_cancelled(wait_timed, 0), 1);
    IS(is_cancelled(wait_until_past, 0), 1);
    IS(is_cancelled(wait_until_negative, 0), 1);
    IS(is_cancelled(wait_until_nonsense, 0), 0);
    IS(is_cancelled(wait_by_clock, 1), 0); /* not a cancellation point while there is some */
    IS(is_cancelled(wait_by_clock, 0), 1);
    IS(is_cancelled(wait_by_clock_until_negative, 0), 0);
}

/* libc reads the time, and faults at a bad address. */
CASE(a_bad_address_of_a_time_is_a_fault)
{
    begin(1);
    for (int kind = 0; kind < 4; kind++) {
        const struct timespec *volatile bad = kind % 2 ? NULL : (struct timespec *)16;
        pid_t child = GET(fork());
        if (child == 0) {
            join(start(nothing, NULL));
            OK(pthread_mutex_lock(&mutex));
            _exit(kind / 2 ? pthread_cond_timedwait(&condition, &mutex, bad)
                           : sem_timedwait(&semaphore, bad));
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSEGV);
    }
}
