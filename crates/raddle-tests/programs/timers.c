/* POSIX timers: their receivers, their values, their counts. */
#include "check.h"

#include <stdatomic.h>
#include <sys/msg.h>
#include <sys/utsname.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static atomic_int fired, fired_by, value_seen, code_seen, ids[8], stop;

static struct itimerspec every_ms(long ms)
{
    struct itimerspec often = {{0, ms * MS}, {0, ms * MS}};
    return often;
}

static struct itimerspec once_after_ms(long ms)
{
    struct itimerspec once = {{0, 0}, {0, ms * MS}};
    return once;
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    atomic_store(&value_seen, info->si_value.sival_int);
    atomic_store(&code_seen, info->si_code);
    atomic_store(&fired_by, gettid());
    atomic_fetch_add(&fired, 1);
}

static void handle(int signal)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    GET(sigaction(signal, &action, NULL));
}

static void *sleep_until_stopped(void *me)
{
    atomic_store(&ids[(long)me], gettid());
    while (!atomic_load(&stop)) {
        usleep(1000);
    }
    return NULL;
}

CASE(a_timer_signals_the_thread_that_is_named)
{
    handle(SIGRTMIN + 2);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) {
        threads[i] = start(sleep_until_stopped, number(i));
        while (!atomic_load(&ids[i])) {
            usleep(500);
        }
    }
    for (int i = 3; i >= 0; i--) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
                                 .sigev_signo = SIGRTMIN + 2,
                                 .sigev_value.sival_int = 40 + i,
                                 .sigev_notify_thread_id = ids[i]};
        timer_t timer;
        GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
        atomic_store(&fired, 0);
        struct itimerspec often = every_ms(2);
        GET(timer_settime(timer, 0, &often, NULL));
        while (atomic_load(&fired) < 3) {
            usleep(500);
        }
        IS(fired_by, ids[i]);
        IS(value_seen, 40 + i);
        IS(code_seen, SI_TIMER);
        GET(timer_delete(timer));
        FAILS(timer_delete(timer), EINVAL);
    }
    atomic_store(&stop, 1);
    join_all(threads, 4);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = SIGRTMIN + 2,
                             .sigev_notify_thread_id = 0x3ffffffe};
    timer_t timer;
    FAILS(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
}

/* One that signals the caller. */
static timer_t own_timer(clockid_t clock, void *value)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = SIGRTMIN + 3,
                             .sigev_value.sival_ptr = value,
                             .sigev_notify_thread_id = gettid()};
    timer_t timer;
    GET(timer_create(clock, &event, &timer));
    return timer;
}

static void *wait_for_own_timer(void *argument)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    timer_t timer = own_timer(CLOCK_REALTIME, argument);
    struct itimerspec often = every_ms(1 + (long)argument);
    GET(timer_settime(timer, 0, &often, NULL));
    for (int i = 0; i < 20; i++) {
        IS(GET(sigwaitinfo(&set, &info)), SIGRTMIN + 3);
        IS(info.si_code, SI_TIMER);
        CHECK(info.si_value.sival_ptr == argument);
    }
    GET(timer_delete(timer));
    return NULL;
}

CASE(threads_wait_for_timers_of_their_own)
{
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(wait_for_own_timer, number(i));
    }
    join_all(threads, 8);
}

static void *make_and_delete_timers(void *argument)
{
    sigset_t set;
    siginfo_t info;
    int64_t until_ns = now_ns() + SECOND;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 3);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    while (now_ns() < until_ns) {
        struct itimerspec often = {.it_value = timespec_of(MS / 5),
                                   .it_interval = timespec_of(MS / 5)};
        timer_t timer = own_timer(CLOCK_MONOTONIC, argument);
        GET(timer_settime(timer, 0, &often, NULL));
        IS(GET(sigwaitinfo(&set, &info)), SIGRTMIN + 3);
        CHECK(info.si_value.sival_ptr == argument);
        GET(timer_delete(timer));
    }
    return NULL;
}

/* An expiry may be on its way when its timer is deleted, and others wait for the same signal. */
CASE(an_expiry_of_a_deleted_timer_reaches_no_other_thread)
{
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(make_and_delete_timers, number(i));
    }
    join_all(threads, 8);
}

static void *count_overruns(void *argument)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 4};
    timer_t timer;
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec often = every_ms(2);
    GET(timer_settime(timer, 0, &often, NULL));
    sleep_ms(60);
    IS(GET(sigwaitinfo(&set, &info)), SIGRTMIN + 4);
    CHECK(info.si_overrun >= 10);
    IS(GET(timer_getoverrun(timer)), info.si_overrun);
    int64_t before_ns = now_ns();
    for (int i = 0; i < 10; i++) {
        GET(sigwaitinfo(&set, &info));
    }
    CHECK(now_ns() - before_ns >= 15 * MS);
    GET(timer_delete(timer));
    FAILS(timer_getoverrun(timer), EINVAL);
    return argument;
}

CASE(expiries_that_nobody_took_are_counted)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    join(start(count_overruns, NULL));
}

static void on_timer(union sigval value)
{
    atomic_fetch_add(&value_seen, value.sival_int);
    CHECK(gettid() != getpid());
    atomic_fetch_add(&fired, 1);
}

CASE(functions_run_in_threads_of_their_own)
{
    timer_t timers[5];
    for (int i = 0; i < 5; i++) {
        struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                                 .sigev_notify_function = on_timer,
                                 .sigev_value.sival_int = 1};
        GET(timer_create(i % 2 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &event, &timers[i]));
        struct itimerspec often = every_ms(3 + i);
        GET(timer_settime(timers[i], 0, &often, NULL));
    }
    while (atomic_load(&fired) < 50) {
        sleep_ms(2);
    }
    for (int i = 0; i < 5; i++) {
        GET(timer_delete(timers[i]));
    }
    CHECK(value_seen >= 50);
    sleep_ms(20);
}

CASE(a_timer_may_tell_nobody)
{
    pthread_t thread = start(sleep_until_stopped, number(0));
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    struct itimerspec left, once = once_after_ms(30);
    timer_t timer;
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    GET(timer_settime(timer, 0, &once, NULL));
    GET(timer_gettime(timer, &left));
    CHECK(left.it_value.tv_nsec > 0);
    sleep_ms(40);
    GET(timer_gettime(timer, &left));
    IS(left.it_value.tv_nsec, 0);
    IS(timer_getoverrun(timer), 0);
    GET(timer_delete(timer));
    atomic_store(&stop, 1);
    join(thread);
}

static void *use_cpu_until_told(void *argument)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
                             .sigev_signo = SIGRTMIN + 2,
                             .sigev_notify_thread_id = gettid()};
    struct itimerspec often = every_ms(5);
    timer_t timer;
    int id = gettid();
    GET(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
    GET(timer_settime(timer, 0, &often, NULL));
    int64_t limit_ns = now_ns() + 10 * SECOND;
    while (atomic_load(&fired) < 3) {
        CHECK(now_ns() < limit_ns);
    }
    IS(fired_by, id);
    GET(timer_delete(timer));
    return argument;
}

CASE(a_timer_counts_a_threads_cpu_time)
{
    handle(SIGRTMIN + 2);
    join(start(use_cpu_until_told, NULL));
}

CASE(a_default_timer_sends_sigalrm)
{
    handle(SIGALRM);
    pthread_t thread = start(sleep_until_stopped, number(0));
    struct itimerspec once = once_after_ms(10);
    timer_t timer;
    GET(timer_create(CLOCK_MONOTONIC, NULL, &timer));
    GET(timer_settime(timer, 0, &once, NULL));
    while (!atomic_load(&fired)) {
        usleep(1000);
    }
    IS(code_seen, SI_TIMER);
    GET(timer_delete(timer));
    atomic_store(&stop, 1);
    join(thread);
}

/* From Linux 6.4 on the thread that runs is asked first. */
static int prefers_running(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    GET(uname(&name));
    IS(sscanf(name.release, "%d.%d", &major, &minor), 2);
    return major > 6 || (major == 6 && minor >= 4);
}

static void *set_timers_that_are_due(void *unused)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 2};
    struct itimerspec past = {{0, 0}, {1, 0}};
    timer_t timer;
    int own = 0;
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    for (int i = 0; i < 10; i++) {
        atomic_store(&fired_by, 0);
        GET(timer_settime(timer, TIMER_ABSTIME, &past, NULL));
        while (fired_by == 0) {
        }
        own += fired_by == gettid();
    }
    /* On a busy machine another may run when the interrupt comes. */
    CHECK(own >= 5 || !prefers_running());
    GET(timer_delete(timer));
    return unused;
}

CASE(a_timer_that_is_due_signals_who_sets_it)
{
    handle(SIGRTMIN + 2);
    join(start(set_timers_that_are_due, NULL));
    set_timers_that_are_due(NULL);
}

enum { ROUNDS = 1000 };

static int queue;

/* Passes a message to another one, by calls that block in the kernel. */
static void *pass_messages(void *number)
{
    struct {
        long type;
    } message;
    long own = 1 + (long)number, other = 3 - own;
    while (!atomic_load(&stop)) {
        message.type = other;
        IS(msgsnd(queue, &message, 0, 0), 0);
        IS(msgrcv(queue, &message, 0, own, 0), 0);
    }
    message.type = other;
    IS(msgsnd(queue, &message, 0, 0), 0); /* the other one may wait */
    return NULL;
}

/* The kernel gives a timer's signal to the kernel thread that runs, whatever its work is. */
CASE(no_expiry_is_lost_beside_calls_that_block)
{
    pthread_t threads[2];
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
    struct itimerspec once = {{0, 0}, {0, MS / 5}};
    timer_t timer;
    queue = (int)GET(msgget(IPC_PRIVATE, 0600));
    for (int i = 0; i < 2; i++) {
        threads[i] = start(pass_messages, number(i));
    }
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    for (int i = 0; i < ROUNDS; i++) {
        GET(timer_settime(timer, 0, &once, NULL));
        while (atomic_load(&fired) <= i) {
            usleep(100);
        }
    }
    GET(timer_delete(timer));
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        join(threads[i]);
    }
    GET(msgctl(queue, IPC_RMID, NULL));
}

/* More than a carrier has room for while a thread is in the runtime. */
CASE(no_expiry_of_many_at_once_is_lost)
{
    enum { COUNT = 300 };
    static timer_t timers[COUNT];
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = on_timer,
                             .sigev_value.sival_int = 2};
    for (int round = 1; round <= 3; round++) {
        struct itimerspec once = {{0, 0}, {0, 0}};
        for (int i = 0; i < COUNT; i++) {
            GET(timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
        }
        GET(clock_gettime(CLOCK_MONOTONIC, &once.it_value));
        once.it_value.tv_sec++;
        for (int i = 0; i < COUNT; i++) {
            GET(timer_settime(timers[i], TIMER_ABSTIME, &once, NULL));
        }
        while (atomic_load(&fired) < round * COUNT) {
            sleep_ms(10);
        }
        for (int i = 0; i < COUNT; i++) {
            GET(timer_delete(timers[i]));
        }
    }
    sleep_ms(20);
    IS(atomic_load(&fired), 3 * COUNT);
    IS(atomic_load(&value_seen), 2 * 3 * COUNT);
}
