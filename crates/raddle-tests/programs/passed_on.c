/* Signals for the process: the thread that is chosen first ends or blocks them. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

static atomic_int handled;
static atomic_int stop;

static sigset_t set_of(int first, int second)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    sigaddset(&set, second);
    return set;
}

static void mask(int how, int first, int second)
{
    sigset_t set = set_of(first, second);
    OK(pthread_sigmask(how, &set, NULL));
}

static void handle(int signal, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    GET(sigaction(signal, &action, NULL));
}

static int64_t deadline_ns;

/* Until a count is reached; a signal that is lost ends the case. */
static void wait_for(atomic_int *count, int value)
{
    deadline_ns = now_ns() + 10 * SECOND;
    while (*count < value) {
        CHECK(now_ns() < deadline_ns);
        sched_yield();
    }
    IS(*count, value);
}

/* True for so many rounds, or fewer on a machine so busy that each waits for a CPU. */
static int goes_on(int round, int most)
{
    static int64_t until_ns;
    if (until_ns == 0) {
        until_ns = now_ns() + 10 * SECOND;
    }
    return round <= most && (round <= 100 || now_ns() < until_ns);
}

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *open_and_end(void *unused)
{
    mask(SIG_UNBLOCK, SIGUSR1, SIGUSR1);
    return unused;
}

static void *open_and_wait(void *unused)
{
    mask(SIG_UNBLOCK, SIGUSR1, SIGUSR1);
    while (!stop) {
        sched_yield();
    }
    return unused;
}

CASE(no_signal_is_lost_to_threads_that_end)
{
    handle(SIGUSR1, count);
    mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
    pthread_t early = start(open_and_end, NULL);
    pthread_t receiver = start(open_and_wait, NULL);
    join(early);
    for (int i = 1; goes_on(i, 3000); i++) {
        pthread_t thread = start(open_and_end, NULL);
        for (int j = 0; j < i % 4; j++) {
            sched_yield();
        }
        GET(kill(getpid(), SIGUSR1));
        join(thread);
        wait_for(&handled, i);
    }
    stop = 1;
    join(receiver);
}

static void *open_and_close(void *unused)
{
    while (!stop) {
        for (int i = 0; i < 20; i++) {
            mask(SIG_UNBLOCK, SIGUSR1, SIGUSR1);
            mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
        }
        sched_yield();
    }
    return unused;
}

CASE(no_signal_is_lost_to_masks_that_close)
{
    pthread_t threads[4];
    handle(SIGUSR1, count);
    mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
    for (int i = 0; i < 4; i++) {
        threads[i] = start(i < 3 ? open_and_close : open_and_wait, NULL);
    }
    for (int i = 1; goes_on(i, 3000); i++) {
        GET(kill(getpid(), SIGUSR1));
        wait_for(&handled, i);
    }
    stop = 1;
    join_all(threads, 4);
}

static atomic_int ready, sent;

static void *compute_and_close(void *unused)
{
    for (int i = 1; !stop; i++) {
        mask(SIG_UNBLOCK, SIGUSR1, SIGUSR1);
        atomic_store(&ready, i);
        while (atomic_load(&sent) < i) {
            sched_yield();
        }
        int64_t until_ns = now_ns() + MS / 5;
        while (now_ns() < until_ns) {}
        mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
        IS(handled, i);
    }
    return unused;
}

/* It was sent long before, and the thread has called nothing since. */
CASE(a_signal_that_has_come_is_handled_before_the_mask_closes)
{
    handle(SIGUSR1, count);
    mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
    pthread_t thread = start(compute_and_close, NULL);
    for (int i = 1; !stop; i++) {
        wait_for(&ready, i);
        GET(kill(getpid(), SIGUSR1));
        stop = !goes_on(i + 1, 2000);
        atomic_store(&sent, i);
    }
    join(thread);
}

static sem_t go;

static atomic_int taken;

static void *wait_for_one_of_two(void *unused)
{
    sigset_t set = set_of(SIGUSR1, SIGUSR2);
    int signal;
    OK(sigwait(&set, &signal));
    atomic_store(&taken, signal);
    OK(sem_wait(&go));
    return unused;
}

CASE(what_a_waiter_leaves_pends_for_the_process)
{
    struct timespec soon = {5, 0};
    OK(sem_init(&go, 0, 0));
    mask(SIG_BLOCK, SIGUSR1, SIGUSR2);
    pthread_t thread = start(wait_for_one_of_two, NULL);
    let_others_block();
    GET(kill(getpid(), SIGUSR1));
    GET(kill(getpid(), SIGUSR2));
    wait_for(&taken, SIGUSR1);
    sigset_t pending, other = set_of(SIGUSR2, SIGUSR2);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR2), 1);
    IS(sigismember(&pending, SIGUSR1), 0);
    IS(sigtimedwait(&other, NULL, &soon), SIGUSR2);
    OK(sem_post(&go));
    join(thread);
}

static void wait_for_the_other(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
    wait_for(&handled, 2);
}

static void *pause_until_handled(void *unused)
{
    mask(SIG_UNBLOCK, SIGRTMIN, SIGRTMIN);
    OK(sem_post(&go));
    while (handled < 2) {
        sleep_ms(1);
    }
    return unused;
}

CASE(a_handler_leaves_the_next_signal_to_another_thread)
{
    pthread_t threads[2];
    union sigval value = {0};
    OK(sem_init(&go, 0, 0));
    handle(SIGRTMIN, wait_for_the_other);
    mask(SIG_BLOCK, SIGRTMIN, SIGRTMIN);
    for (int i = 0; i < 2; i++) {
        threads[i] = start(pause_until_handled, NULL);
        OK(sem_wait(&go));
    }
    GET(sigqueue(getpid(), SIGRTMIN, value));
    GET(sigqueue(getpid(), SIGRTMIN, value));
    join_all(threads, 2);
}

static void end_the_thread(int signal)
{
    (void)signal;
    pthread_exit(NULL);
}

static void *wait_for_the_end(void *unused)
{
    mask(SIG_UNBLOCK, SIGRTMIN, SIGRTMIN);
    OK(sem_post(&go));
    for (;;) {
        pause();
    }
    return unused;
}

CASE(what_a_thread_had_not_taken_pends_after_its_end)
{
    struct timespec soon = {5, 0};
    siginfo_t info;
    OK(sem_init(&go, 0, 0));
    handle(SIGRTMIN, end_the_thread);
    mask(SIG_BLOCK, SIGRTMIN, SIGRTMIN);
    pthread_t thread = start(wait_for_the_end, NULL);
    OK(sem_wait(&go));
    let_others_block();
    for (int i = 1; i <= 3; i++) {
        union sigval value = {.sival_int = i};
        GET(sigqueue(getpid(), SIGRTMIN, value));
    }
    join(thread);
    sigset_t set = set_of(SIGRTMIN, SIGRTMIN);
    for (int i = 2; i <= 3; i++) {
        IS(sigtimedwait(&set, &info, &soon), SIGRTMIN);
        IS(info.si_value.sival_int, i);
    }
}

static void *wait_and_end(void *unused)
{
    OK(sem_wait(&go));
    return unused;
}

CASE(what_was_sent_to_one_thread_ends_with_it)
{
    struct timespec now = {0, 0};
    sigset_t pending, set = set_of(SIGUSR1, SIGUSR1);
    OK(sem_init(&go, 0, 0));
    mask(SIG_BLOCK, SIGUSR1, SIGUSR1);
    pthread_t thread = start(wait_and_end, NULL);
    OK(pthread_kill(thread, SIGUSR1));
    OK(sem_post(&go));
    join(thread);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 0);
    FAILS(sigtimedwait(&set, NULL, &now), EAGAIN);
}

/* What the thread waits for: for `ms` at most, with the signal blocked by its mask or not. */
struct wait {
    int blocks, signal, ms;
};

static void *wait_a_while(void *argument)
{
    struct wait *wait = argument;
    sigset_t set = set_of(wait->signal, wait->signal);
    struct timespec limit = timespec_of(wait->ms * MS);
    mask(wait->blocks ? SIG_BLOCK : SIG_UNBLOCK, wait->signal, wait->signal);
    atomic_fetch_add(&ready, 1);
    return number(sigtimedwait(&set, NULL, &limit));
}

static long wait_while_sent(int blocks, int signal, int to_thread)
{
    struct wait wait = {blocks, signal, blocks ? 10000 : 200};
    pthread_t thread = start(wait_a_while, &wait);
    let_others_block();
    if (to_thread) {
        OK(pthread_kill(thread, signal));
    } else {
        GET(kill(getpid(), signal));
    }
    return (intptr_t)join(thread);
}

/* Only a mask keeps what is ignored: that of the thread that the signal is sent to, which for one
 * to the process is the main thread's. */
CASE(what_is_ignored_is_not_waited_for_unless_it_is_blocked)
{
    handle(SIGUSR1, SIG_IGN);
    int signals[] = {SIGUSR1, SIGWINCH};
    for (int i = 0; i < 2; i++) {
        IS(wait_while_sent(0, signals[i], 1), -1);
        IS(wait_while_sent(1, signals[i], 1), signals[i]);
        IS(wait_while_sent(0, signals[i], 0), -1);
        mask(SIG_BLOCK, signals[i], signals[i]);
        IS(wait_while_sent(1, signals[i], 0), signals[i]);
    }
}
