/* Sleeps: their length on each clock, their order, what interrupts them, what they refuse. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>

CASE(nanosleep_lasts)
{
    int64_t started_ns = now_ns();
    struct timespec time = timespec_of(50 * MS);
    GET(nanosleep(&time, NULL));
    check_took(started_ns, 50);
    started_ns = now_ns();
    GET(usleep(20000));
    check_took(started_ns, 20);
    struct timespec zero = {0, 0};
    GET(nanosleep(&zero, NULL));
}

static void check_clock(clockid_t clock, int flags)
{
    int64_t started_ns = now_ns();
    struct timespec time = flags ? from_now(clock, 40 * MS) : timespec_of(40 * MS);
    OK(clock_nanosleep(clock, flags, &time, NULL));
    check_took(started_ns, clock == CLOCK_MONOTONIC ? 40 : 35);
}

CASE(clock_nanosleep_relative_and_absolute_on_both_clocks)
{
    check_clock(CLOCK_MONOTONIC, 0);
    check_clock(CLOCK_MONOTONIC, TIMER_ABSTIME);
    check_clock(CLOCK_REALTIME, 0);
    check_clock(CLOCK_REALTIME, TIMER_ABSTIME);
}

CASE(an_absolute_time_in_the_past_returns_at_once)
{
    struct timespec past = {1, 0};
    int64_t started_ns = now_ns();
    OK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &past, NULL));
    OK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &past, NULL));
    CHECK(now_ns() - started_ns < 5 * SECOND);
}

CASE(invalid_times_are_refused)
{
    struct timespec large = {0, 1000000000}, small = {0, -1}, negative = {-1, 0}, good = {0, 1};
    FAILS(nanosleep(&large, NULL), EINVAL);
    FAILS(nanosleep(&small, NULL), EINVAL);
    FAILS(nanosleep(&negative, NULL), EINVAL);
    IS(clock_nanosleep(CLOCK_MONOTONIC, 0, &large, NULL), EINVAL);
    IS(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &negative, NULL), EINVAL);
    CHECK(clock_nanosleep(99, 0, &good, NULL) != 0);
}

static atomic_int order;

static void *sleep_in_order(void *me)
{
    sleep_ms(100 + 15 * (int)(long)me);
    return number(atomic_fetch_add(&order, 1));
}

/* Twenty sleepers 15 ms apart, started in reverse. Neighbours may change places on a loaded
 * machine, far ones may not. */
CASE(sleepers_wake_in_order)
{
    pthread_t threads[20];
    for (long i = 19; i >= 0; i--) {
        threads[i] = start(sleep_in_order, number(i));
    }
    for (int i = 0; i < 20; i++) {
        long place = (long)join(threads[i]);
        CHECK(labs(place - i) <= 10);
    }
}

static void *sleep_a_little(void *me)
{
    int64_t started_ns = now_ns();
    int ms = 50 + (int)(long)me % 50;
    sleep_ms(ms);
    check_took(started_ns, ms);
    return NULL;
}

CASE(a_thousand_sleepers_sleep_together)
{
    static pthread_t threads[1000];
    int64_t started_ns = now_ns();
    for (long i = 0; i < 1000; i++) {
        threads[i] = start_small(sleep_a_little, number(i));
    }
    join_all(threads, 1000);
    CHECK(now_ns() - started_ns < 20 * SECOND);
}

static void *many_short_sleeps(void *argument)
{
    for (int i = 0; i < 50; i++) {
        struct timespec time = {0, 1000 * (i % 20)};
        GET(nanosleep(&time, NULL));
    }
    return argument;
}

CASE(many_short_sleeps_end)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(many_short_sleeps, NULL);
    }
    join_all(threads, 50);
}

static void ignore(int signal)
{
    (void)signal;
}

static atomic_int sleeping;
static struct timespec left;
static int64_t slept_ns;

static void *sleep_long(void *argument)
{
    struct timespec time = {30, 0};
    int64_t started_ns = now_ns();
    atomic_store(&sleeping, 1);
    int result = nanosleep(&time, &left);
    slept_ns = now_ns() - started_ns;
    atomic_store(&sleeping, 2);
    IS(result, -1);
    IS(errno, EINTR);
    return argument;
}

CASE(a_signal_interrupts_and_tells_the_remaining_time)
{
    struct sigaction action = {.sa_handler = ignore};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(sleep_long, NULL);
    sleep_ms(50);
    while (atomic_load(&sleeping) < 2) {
        pthread_kill(thread, SIGUSR1);
        sleep_ms(10);
    }
    join(thread);
    int64_t left_ns = left.tv_sec * SECOND + left.tv_nsec;
    int64_t error_ns = left_ns + slept_ns - 30 * SECOND;
    CHECK(error_ns > -100 * MS && error_ns < 5 * SECOND);
    CHECK(left_ns < 30 * SECOND);
}

static void *restarted(void *argument)
{
    int64_t started_ns = now_ns();
    struct timespec time = timespec_of(200 * MS), rest = {0, 0};
    int result = nanosleep(&time, &rest);
    if (result == -1) {
        IS(errno, EINTR);
        IS(nanosleep(&rest, NULL), 0);
    }
    check_took(started_ns, 200);
    return argument;
}

/* nanosleep is never restarted after a handler, whatever SA_RESTART says. */
CASE(sa_restart_does_not_restart_a_sleep)
{
    struct sigaction action = {.sa_handler = ignore, .sa_flags = SA_RESTART};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(restarted, NULL);
    sleep_ms(40);
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

CASE(clocks_do_not_go_back)
{
    int64_t last_ns = 0;
    for (int i = 0; i < 100000; i++) {
        int64_t now = now_ns();
        CHECK(now >= last_ns);
        last_ns = now;
    }
}

static void *burn(void *argument)
{
    int64_t limit_ns = now_ns() + 100 * MS;
    while (now_ns() < limit_ns) {
    }
    return argument;
}

static void *idle_clock(void *argument)
{
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    sleep_ms(150);
    return number(clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
}

/* The clock of a thread counts its own time, not that of those it shares a carrier with. */
CASE(a_threads_cpu_clock_counts_its_own_time)
{
    pthread_t idler = start(idle_clock, NULL);
    pthread_t burner = start(burn, NULL);
    CHECK((long)join(idler) < 50 * MS);
    join(burner);
    int64_t before_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t own_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < own_ns + 10 * MS) {
    }
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before_ns > 5 * MS);
}

static void *wait_for_timer(void *argument)
{
    int fd = (int)(long)argument;
    uint64_t expirations = 0, total = 0;
    while (total < 5) {
        IS(read(fd, &expirations, sizeof expirations), sizeof expirations);
        CHECK(expirations >= 1);
        total += expirations;
    }
    return NULL;
}

CASE(timerfd_fires_repeatedly)
{
    int fd = GET(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    struct itimerspec spec = {{0, 10 * MS}, {0, 20 * MS}};
    int64_t started_ns = now_ns();
    GET(timerfd_settime(fd, 0, &spec, NULL));
    join(start(wait_for_timer, number(fd)));
    check_took(started_ns, 60);
    struct itimerspec off = {{0, 0}, {0, 0}}, old;
    GET(timerfd_settime(fd, 0, &off, &old));
    IS(old.it_interval.tv_nsec, 10 * MS);
    GET(fcntl(fd, F_SETFL, O_NONBLOCK));
    uint64_t rest;
    if (read(fd, &rest, sizeof rest) < 0) {
        IS(errno, EAGAIN);
    }
    close(fd);
}

CASE(timerfd_absolute)
{
    int fd = GET(timerfd_create(CLOCK_MONOTONIC, 0));
    int64_t started_ns = now_ns();
    struct itimerspec spec = {{0, 0}, from_now(CLOCK_MONOTONIC, 40 * MS)};
    uint64_t expirations;
    GET(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL));
    IS(read(fd, &expirations, 8), 8);
    IS(expirations, 1);
    check_took(started_ns, 40);
}

static volatile int ended, signals_of_others;

static void *burn_until_ended(void *unused)
{
    while (!ended) {
    }
    return unused;
}

static void count_signal(int signal)
{
    (void)signal;
    signals_of_others++;
}

/* A process that sends signals, which another thread than the sleeping one takes. */
static pid_t start_sender(void)
{
    pid_t child = GET(fork());
    if (child == 0) {
        while (kill(getppid(), SIGUSR1) == 0) {
            usleep(500);
        }
        _exit(0);
    }
    return child;
}

static long sleep_on(clockid_t clock, int flags, int64_t ns)
{
    struct timespec time = timespec_of(ns);
    return syscall(SYS_clock_nanosleep, clock, flags, &time, NULL);
}

static void sleep_on_cpu_time(clockid_t clock)
{
    for (int i = 0; i < 10; i++) {
        int64_t before_ns = clock_ns(clock);
        OK(sleep_on(clock, 0, 5 * MS));
        CHECK(clock_ns(clock) >= before_ns + 5 * MS);
        OK(sleep_on(clock, TIMER_ABSTIME, clock_ns(clock) + 5 * MS));
        CHECK(clock_ns(clock) >= before_ns + 10 * MS);
        OK(sleep_on(clock, TIMER_ABSTIME, before_ns)); /* has passed */
    }
}

CASE(a_sleep_on_cpu_time_is_not_interrupted_by_what_others_get)
{
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGUSR1, count_signal);
    pthread_t burner = start(burn_until_ended, NULL);
    OK(pthread_sigmask(SIG_BLOCK, &usr1, NULL));
    clockid_t anothers;
    OK(pthread_getcpuclockid(burner, &anothers));
    pid_t sender = start_sender();
    while (signals_of_others < 3) {
        sched_yield();
    }
    sleep_on_cpu_time(CLOCK_PROCESS_CPUTIME_ID);
    sleep_on_cpu_time(anothers);
    GET(kill(sender, SIGKILL));
    IS(waitpid(sender, NULL, 0), sender);
    ended = 1;
    join(burner);
}

static pthread_t sleeper;

static void *interrupt_sleeper(void *unused)
{
    let_others_block();
    OK(pthread_kill(sleeper, SIGUSR1));
    return unused;
}

CASE(a_signal_interrupts_a_sleep_on_cpu_time)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    sleeper = pthread_self();
    pthread_t other = start(interrupt_sleeper, NULL);
    struct timespec time = {1000, 0}, left = {0};
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &time, &left), EINTR);
    CHECK(left.tv_sec >= 900 && left.tv_sec < 1000);
    join(other);
    other = start(interrupt_sleeper, NULL);
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &time, (void *)64), EFAULT);
    join(other);
    IS(signals_of_others, 2);
}

CASE(clocks_that_nobody_can_sleep_on)
{
    start(burn_until_ended, NULL);
    clockid_t own;
    OK(pthread_getcpuclockid(pthread_self(), &own));
    FAILS(sleep_on(own, 0, MS), EINVAL);
    FAILS(sleep_on(own, TIMER_ABSTIME, 0), EINVAL);
    FAILS(sleep_on(CLOCK_THREAD_CPUTIME_ID, 0, MS), EOPNOTSUPP);
    FAILS(sleep_on(CLOCK_MONOTONIC_RAW, 0, MS), EOPNOTSUPP);
    FAILS(sleep_on(12345, 0, MS), EINVAL);
    FAILS(syscall(SYS_clock_nanosleep, 12345, 0, 64, NULL), EINVAL);
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, 64, NULL), EFAULT);
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, NULL, NULL), EFAULT);
    FAILS(syscall(SYS_nanosleep, NULL, NULL), EFAULT);
    FAILS(sleep_on(CLOCK_PROCESS_CPUTIME_ID, 0, -SECOND), EINVAL);
    OK(sleep_on(CLOCK_TAI, 0, MS));
    ended = 1;
}

static void *report_slack(void *unused)
{
    (void)unused;
    long slack = GET(syscall(SYS_prctl, PR_GET_TIMERSLACK));
    GET(prctl(PR_SET_TIMERSLACK, 70000));
    IS(prctl(PR_GET_TIMERSLACK), 70000);
    GET(prctl(PR_SET_TIMERSLACK, 0));
    IS(syscall(SYS_prctl, PR_GET_TIMERSLACK), slack);
    return number(slack);
}

/* Its waits may be late by hours. */
static void *be_lax(void *unused)
{
    long hours = 36000 * SECOND;
    GET(prctl(PR_SET_TIMERSLACK, hours));
    IS(syscall(SYS_prctl, PR_GET_TIMERSLACK), hours);
    IS(join(start(report_slack, NULL)), hours);
    ended = 1;
    sleep_ms(2000);
    return unused;
}

CASE(one_threads_slack_delays_no_others)
{
    ended = 0;
    long slack = GET(syscall(SYS_prctl, PR_GET_TIMERSLACK));
    start(be_lax, NULL);
    while (!ended) {
        sleep_ms(1);
    }
    for (int i = 0; i < 20; i++) {
        int64_t started_ns = now_ns();
        sleep_ms(10);
        check_took(started_ns, 10);
    }
    IS(syscall(SYS_prctl, PR_GET_TIMERSLACK), slack);
}

/* Linux ends such a sleep when the timer slack is over. */
CASE(sleeps_of_no_time_take_some)
{
    enum { SLEEPS = 200 };
    struct timespec none = {0, 0};
    int64_t started_ns = now_ns();
    for (int i = 0; i < SLEEPS; i++) {
        OK(nanosleep(&none, NULL));
    }
    CHECK(now_ns() - started_ns >= SLEEPS * 10000L);
    started_ns = now_ns();
    for (int i = 0; i < SLEEPS; i++) {
        OK(sleep_on(CLOCK_MONOTONIC, 0, 1));
    }
    CHECK(now_ns() - started_ns >= SLEEPS * 10000L);
}
