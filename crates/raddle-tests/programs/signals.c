/* Signals: to a thread, to the process, to a fault; masks; waiting for them; what they interrupt.
 */
#include "check.h"
#include "one_signal.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/time.h>

static atomic_int handled, handled_by, handled_value, ready;
static int ends[2];

static void note(int signal)
{
    (void)signal;
    atomic_store(&handled_by, gettid());
    atomic_fetch_add(&handled, 1);
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    GET(sigaction(signal, &action, NULL));
}

static void *read_interrupted(void *argument)
{
    char byte;
    atomic_store(&ready, gettid());
    FAILS(read(ends[0], &byte, 1), EINTR);
    IS(atomic_load(&handled_by), gettid());
    atomic_store(&ready, -1);
    return argument;
}

CASE(a_signal_to_a_blocked_thread_interrupts_its_read)
{
    GET(pipe(ends));
    handle(SIGUSR1, note, 0);
    pthread_t thread = start(read_interrupted, NULL);
    while (atomic_load(&ready) >= 0) {
        if (atomic_load(&ready) > 0) {
            pthread_kill(thread, SIGUSR1);
        }
        sleep_ms(10);
    }
    join(thread);
}

static void *read_restarted(void *argument)
{
    char byte;
    atomic_store(&ready, gettid());
    IS(read(ends[0], &byte, 1), 1);
    return argument;
}

CASE(sa_restart_restarts_a_read)
{
    GET(pipe(ends));
    handle(SIGUSR1, note, SA_RESTART);
    pthread_t thread = start(read_restarted, NULL);
    let_others_block();
    for (int i = 1; i <= 5; i++) {
        OK(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&handled) < i) {
            sched_yield();
        }
        IS(atomic_load(&handled_by), atomic_load(&ready));
    }
    IS(write(ends[1], "x", 1), 1);
    join(thread);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *lock_and_unlock(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

CASE(a_handler_runs_while_its_thread_waits_for_a_mutex)
{
    handle(SIGUSR1, note, 0);
    OK(pthread_mutex_lock(&mutex));
    pthread_t thread = start(lock_and_unlock, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    while (!atomic_load(&handled)) {
        sched_yield();
    }
    CHECK(handled_by != gettid());
    OK(pthread_mutex_unlock(&mutex));
    join(thread);
}

static void *compute_until_handled(void *argument)
{
    atomic_store(&ready, gettid());
    while (!atomic_load(&handled)) {
    }
    IS(atomic_load(&handled_by), gettid());
    return argument;
}

CASE(a_signal_reaches_a_compute_loop)
{
    handle(SIGUSR1, note, 0);
    pthread_t thread = start(compute_until_handled, NULL);
    while (!atomic_load(&ready)) {
        sched_yield();
    }
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

CASE(kill_reaches_a_thread_that_does_not_block_it)
{
    handle(SIGUSR1, note, 0);
    pthread_t thread = start(compute_until_handled, NULL);
    while (!atomic_load(&ready)) {
        sched_yield();
    }
    block(SIGUSR1);
    GET(kill(getpid(), SIGUSR1));
    join(thread);
    IS(handled_by, ready);
    IS(handled, 1);
}

CASE(raise_runs_the_handler_before_it_returns)
{
    handle(SIGUSR1, note, 0);
    for (int i = 1; i <= 100; i++) {
        IS(raise(SIGUSR1), 0);
        IS(handled, i);
        IS(handled_by, gettid());
    }
    GET(kill(getpid(), SIGUSR1));
    IS(handled, 101);
}

static void *check_mask(void *expected)
{
    sigset_t mask;
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    IS(sigismember(&mask, SIGUSR1), (long)expected & 1);
    IS(sigismember(&mask, SIGUSR2), (long)expected >> 1);
    sched_yield();
    unblock(SIGUSR1);
    block(SIGUSR2);
    sched_yield();
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    IS(sigismember(&mask, SIGUSR1), 0);
    IS(sigismember(&mask, SIGUSR2), 1);
    return NULL;
}

CASE(each_thread_has_its_mask_and_inherits_its_creators)
{
    block(SIGUSR1);
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(check_mask, number(1));
    }
    join_all(threads, 10);
    sigset_t mask;
    OK(pthread_sigmask(SIG_SETMASK, NULL, &mask));
    IS(sigismember(&mask, SIGUSR1), 1);
    IS(sigismember(&mask, SIGUSR2), 0);
    join(start(check_mask, number(1)));
}

static void *compute_until_ready(void *argument)
{
    while (!atomic_load(&ready)) {
    }
    return argument;
}

CASE(a_signal_to_itself_is_delivered_before_kill_returns)
{
    handle(SIGUSR1, note, 0);
    handle(SIGUSR2, note, 0);
    pthread_t others[3];
    for (int i = 0; i < 3; i++) {
        others[i] = start(compute_until_ready, NULL);
    }
    for (int i = 0; i < 200; i += 2) {
        usleep(200); /* on whichever carrier comes */
        GET(kill(getpid(), SIGUSR1));
        IS(atomic_load(&handled), i + 1);
        GET(sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = i}));
        IS(atomic_load(&handled), i + 2);
    }
    atomic_store(&ready, 1);
    for (int i = 0; i < 3; i++) {
        join(others[i]);
    }
}

static atomic_long tokens[2];
static sem_t token[2];

static void give_token(int signal)
{
    sem_post(&token[signal == SIGUSR2]);
}

static void *send_for_tokens(void *which)
{
    int i = (int)(long)which;
    block(SIGUSR1);
    block(SIGUSR2);
    while (!atomic_load(&ready)) {
        GET(sem_wait(&token[i]));
        atomic_fetch_add(&tokens[i], 1);
        GET(kill(getpid(), i ? SIGUSR2 : SIGUSR1));
    }
    return which;
}

static void *take_signals(void *argument)
{
    unblock(SIGUSR1);
    unblock(SIGUSR2);
    while (!atomic_load(&ready)) {
        OK(pthread_kill(pthread_self(), SIGURG));
    }
    return argument;
}

/* The only thread that accepts them is preempted wherever it is, and ends. */
CASE(no_signal_is_lost_to_a_thread_that_gives_way)
{
    handle(SIGUSR1, give_token, 0);
    handle(SIGUSR2, give_token, 0);
    handle(SIGURG, SIG_DFL, 0);
    block(SIGUSR1);
    block(SIGUSR2);
    for (int round = 0; round < 8; round++) {
        atomic_store(&ready, 0);
        for (int i = 0; i < 2; i++) {
            OK(sem_init(&token[i], 0, 1));
        }
        pthread_t taker = start(take_signals, NULL);
        pthread_t senders[2];
        for (int i = 0; i < 2; i++) {
            senders[i] = start(send_for_tokens, number(i));
        }
        usleep(50000);
        atomic_store(&ready, 1);
        IS(join(senders[0]), 0);
        IS(join(senders[1]), 1);
        join(taker);
    }
    CHECK(atomic_load(&tokens[0]) > 8 && atomic_load(&tokens[1]) > 8);
}

static void *own_pending(void *expected)
{
    sigset_t pending;
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 0);
    IS(sigismember(&pending, SIGUSR2), 1);
    return expected;
}

CASE(what_pends_for_main_before_the_first_thread_stays_mains)
{
    sigset_t pending;
    handle(SIGUSR1, note, 0);
    block(SIGUSR1);
    block(SIGUSR2);
    OK(raise(SIGUSR1));
    GET(kill(getpid(), SIGUSR2));
    IS(join(start(own_pending, (void *)3)), 3);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 1);
    IS(sigismember(&pending, SIGUSR2), 1);
    unblock(SIGUSR1);
    IS(atomic_load(&handled_by), gettid());
}

CASE(a_blocked_signal_is_pending_until_unblocked)
{
    sigset_t pending;
    handle(SIGUSR1, note, 0);
    block(SIGUSR1);
    OK(pthread_kill(pthread_self(), SIGUSR1));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    IS(handled, 0);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 1);
    unblock(SIGUSR1);
    IS(handled, 1);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 0);
}

static void *wait_for_signal(void *argument)
{
    sigset_t set = set_of(SIGUSR1);
    int signal;
    OK(sigwait(&set, &signal));
    return number(signal);
}

CASE(sigwait_takes_a_signal_to_the_process)
{
    block(SIGUSR1);
    pthread_t thread = start(wait_for_signal, NULL);
    let_others_block();
    GET(kill(getpid(), SIGUSR1));
    IS(join(thread), SIGUSR1);
    thread = start(wait_for_signal, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    IS(join(thread), SIGUSR1);
    raise(SIGUSR1);
    IS(wait_for_signal(NULL), SIGUSR1);
}

CASE(sigtimedwait_times_out)
{
    sigset_t set = set_of(SIGUSR1);
    struct timespec limit = timespec_of(40 * MS);
    siginfo_t info;
    block(SIGUSR1);
    int64_t started_ns = now_ns();
    FAILS(sigtimedwait(&set, &info, &limit), EAGAIN);
    check_took(started_ns, 40);
    GET(kill(getpid(), SIGUSR1));
    IS(sigtimedwait(&set, &info, &limit), SIGUSR1);
    IS(info.si_code, SI_USER);
    IS(info.si_pid, getpid());
}

static void *suspend_until_signal(void *argument)
{
    sigset_t empty;
    sigemptyset(&empty);
    atomic_store(&ready, 1);
    FAILS(sigsuspend(&empty), EINTR);
    IS(handled, 1);
    return check_mask(number(1));
}

CASE(sigsuspend_opens_its_mask_only_while_it_waits)
{
    handle(SIGUSR1, note, 0);
    block(SIGUSR1);
    pthread_t thread = start(suspend_until_signal, NULL);
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
    handled = 0;
    thread = start(suspend_until_signal, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

static void *pause_once(void *argument)
{
    FAILS(pause(), EINTR);
    atomic_store(&ready, 2);
    return argument;
}

CASE(pause_ends_after_a_handler)
{
    handle(SIGUSR1, note, SA_RESTART);
    pthread_t thread = start(pause_once, NULL);
    while (atomic_load(&ready) != 2) {
        pthread_kill(thread, SIGUSR1);
        sleep_ms(5);
    }
    join(thread);
}

CASE(alarm_and_interval_timer)
{
    handle(SIGALRM, note, 0);
    struct itimerval often = {{0, 10000}, {0, 10000}}, off = {{0, 0}, {0, 0}};
    GET(setitimer(ITIMER_REAL, &often, NULL));
    while (atomic_load(&handled) < 5) {
        pause();
    }
    GET(setitimer(ITIMER_REAL, &off, NULL));
    handled = 0;
    int64_t started_ns = now_ns();
    alarm(1);
    while (!atomic_load(&handled)) {
        sleep_ms(10);
    }
    check_took(started_ns, 990);
}

static void note_value(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    IS(info->si_code, SI_QUEUE);
    CHECK(context != NULL);
    atomic_store(&handled_value, info->si_value.sival_int);
    atomic_fetch_add(&handled, 1);
}

CASE(sigqueue_carries_values_in_order)
{
    struct sigaction action = {.sa_sigaction = note_value, .sa_flags = SA_SIGINFO};
    GET(sigaction(SIGRTMIN, &action, NULL));
    union sigval value = {.sival_int = 17};
    GET(sigqueue(getpid(), SIGRTMIN, value));
    IS(handled_value, 17);
    value.sival_int = 18;
    OK(pthread_sigqueue(pthread_self(), SIGRTMIN, value));
    IS(handled_value, 18);
    block(SIGRTMIN);
    for (int i = 0; i < 20; i++) {
        value.sival_int = i;
        GET(sigqueue(getpid(), SIGRTMIN, value));
    }
    sigset_t set = set_of(SIGRTMIN);
    for (int i = 0; i < 10; i++) {
        siginfo_t info;
        IS(sigwaitinfo(&set, &info), SIGRTMIN);
        IS(info.si_value.sival_int, i);
    }
    unblock(SIGRTMIN);
    IS(handled, 12);
}

CASE(sigchld_comes_and_a_child_is_waited_for)
{
    handle(SIGCHLD, note, SA_RESTART);
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(1);
    }
    while (!atomic_load(&handled)) {
        sleep_ms(5);
    }
    int status;
    IS(waitpid(child, &status, WNOHANG), child);
}

CASE(sigpipe_goes_to_the_writing_thread)
{
    handle(SIGPIPE, note, 0);
    GET(pipe(ends));
    close(ends[0]);
    FAILS(write(ends[1], "x", 1), EPIPE);
    IS(handled, 1);
    IS(handled_by, gettid());
}

static void nested(int signal)
{
    if (signal == SIGUSR1) {
        raise(SIGUSR2);
        IS(handled, 1);
    }
    atomic_fetch_add(&handled, 1);
}

CASE(handlers_nest)
{
    handle(SIGUSR1, nested, 0);
    handle(SIGUSR2, nested, 0);
    raise(SIGUSR1);
    IS(handled, 2);
}

static void raise_itself(int signal)
{
    int before = handled;
    if (before < 3) {
        raise(signal);
        IS(handled, before);
    }
    atomic_fetch_add(&handled, 1);
}

CASE(a_signal_is_blocked_in_its_own_handler)
{
    handle(SIGUSR1, raise_itself, 0);
    raise(SIGUSR1);
    IS(handled, 4);
}

CASE(sa_resethand_and_sa_nodefer)
{
    struct sigaction now;
    handle(SIGUSR1, note, SA_RESETHAND);
    raise(SIGUSR1);
    GET(sigaction(SIGUSR1, NULL, &now));
    CHECK(now.sa_handler == SIG_DFL);
    IS(handled, 1);
    FAILS(sigaction(SIGKILL, &now, NULL), EINVAL);
    IS(pthread_kill(pthread_self(), 0), 0);
    IS(pthread_kill(pthread_self(), 999), EINVAL);
    FAILS(kill(getpid(), 999), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), 0x3fffffff, SIGUSR1), ESRCH);
}

static void blocking_handler(int signal)
{
    (void)signal;
    sleep_ms(5);
    sched_yield();
    atomic_fetch_add(&handled, 1);
}

static void *counting_yields(void *argument)
{
    while (atomic_load(&handled) < 20) {
        sched_yield();
    }
    return argument;
}

CASE(a_handler_may_sleep_and_yield)
{
    handle(SIGUSR1, blocking_handler, 0);
    pthread_t thread = start(counting_yields, NULL);
    while (atomic_load(&handled) < 20) {
        if (pthread_kill(thread, SIGUSR1) != 0) {
            break;
        }
        sleep_ms(6);
    }
    join(thread);
}

static void *receive_storm(void *argument)
{
    while (!atomic_load(&ready)) {
        char byte;
        OK(pthread_mutex_lock(&mutex));
        OK(pthread_mutex_unlock(&mutex));
        free(malloc(200));
        ssize_t count = read(ends[0], &byte, 1);
        CHECK(count == -1 && (errno == EAGAIN || errno == EINTR));
        usleep(50);
    }
    return argument;
}

CASE(a_storm_of_signals_disturbs_nothing)
{
    pthread_t threads[8];
    GET(pipe2(ends, O_NONBLOCK));
    handle(SIGUSR1, note, SA_RESTART);
    handle(SIGUSR2, note, 0);
    for (int i = 0; i < 8; i++) {
        threads[i] = start(receive_storm, NULL);
    }
    for (int i = 0; i < 3000; i++) {
        OK(pthread_kill(threads[i % 8], i % 3 ? SIGUSR1 : SIGUSR2));
        if (i % 50 == 0) {
            usleep(100);
        }
    }
    atomic_store(&ready, 1);
    join_all(threads, 8);
    CHECK(handled > 0);
}
