/* Real-time signals for the process, many of them: in order, and none is lost. */
#include "check.h"
#include "one_signal.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int handled;

enum { IN_ORDER = 1500 };

static void *queue_in_order(void *argument)
{
    union sigval value = {.sival_int = 0};
    for (; value.sival_int < IN_ORDER; value.sival_int++) {
        GET(sigqueue(getpid(), SIGRTMIN, value));
        if (value.sival_int % 8 == 0) {
            sched_yield();
        }
    }
    return argument;
}

CASE(sigwaitinfo_takes_values_in_order_while_more_come)
{
    block(SIGRTMIN);
    sigset_t set = set_of(SIGRTMIN);
    pthread_t sender = start(queue_in_order, NULL);
    for (int i = 0; i < IN_ORDER; i++) {
        siginfo_t info;
        IS(sigwaitinfo(&set, &info), SIGRTMIN);
        IS(info.si_value.sival_int, i);
    }
    join(sender);
}

enum { AT_ONCE = 400 };

/* Queues values for its parent, which stands still: they come when it goes on. */
static void queue_for_who_stands_still(pid_t parent)
{
    union sigval value = {.sival_int = 0};
    GET(kill(parent, SIGSTOP));
    while (value.sival_int < AT_ONCE && sigqueue(parent, SIGRTMIN, value) == 0) {
        value.sival_int++;
    }
    GET(kill(parent, SIGCONT));
    _exit(0);
}

static void *return_argument(void *argument)
{
    return argument;
}

CASE(no_signal_is_lost_of_many_that_come_at_once)
{
    char seen[AT_ONCE] = {0};
    struct timespec soon = {20, 0};
    sigset_t set = set_of(SIGRTMIN);
    pid_t parent = getpid();
    block(SIGRTMIN);
    join(start(return_argument, NULL));
    pid_t child = GET(fork());
    if (child == 0) {
        queue_for_who_stands_still(parent);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        siginfo_t info;
        int taken;
        while ((taken = sigtimedwait(&set, &info, &soon)) == -1 && errno == EINTR) {
        }
        IS(taken, SIGRTMIN);
        IS(seen[info.si_value.sival_int]++, 0);
    }
    IS(waitpid(child, NULL, 0), child);
}

static void note_value_in_order(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    IS(info->si_value.sival_int, atomic_fetch_add(&handled, 1));
}

CASE(a_handler_gets_values_in_order_while_more_come)
{
    struct sigaction action = {.sa_sigaction = note_value_in_order, .sa_flags = SA_SIGINFO};
    GET(sigaction(SIGRTMIN, &action, NULL));
    block(SIGRTMIN);
    pthread_t sender = start(queue_in_order, NULL);
    while (atomic_load(&handled) < IN_ORDER) {
        unblock(SIGRTMIN);
        block(SIGRTMIN);
    }
    join(sender);
}

static void make_a_thread(void)
{
    join(start(return_argument, NULL));
}

/* Queues values for this process until there are so many, or one is refused. */
static int queue_up_to(int most)
{
    union sigval value = {.sival_int = 0};
    while (value.sival_int < most && sigqueue(getpid(), SIGRTMIN, value) == 0) {
        value.sival_int++;
    }
    return value.sival_int;
}

static void take_in_order(int count)
{
    struct timespec now = {0, 0};
    sigset_t set = set_of(SIGRTMIN);
    siginfo_t info;
    for (int i = 0; i < count; i++) {
        IS(sigtimedwait(&set, &info, &now), SIGRTMIN);
        IS(info.si_value.sival_int, i);
    }
    FAILS(sigtimedwait(&set, &info, &now), EAGAIN);
}

CASE(ten_thousand_signals_pend)
{
    struct rlimit limit;
    make_a_thread();
    block(SIGRTMIN);
    OK(getrlimit(RLIMIT_SIGPENDING, &limit));
    if (limit.rlim_cur > 11000) {
        IS(queue_up_to(10000), 10000);
        take_in_order(10000);
    }
}

CASE(no_more_signals_pend_than_the_limit_allows)
{
    struct rlimit limit;
    make_a_thread();
    block(SIGRTMIN);
    OK(getrlimit(RLIMIT_SIGPENDING, &limit));
    limit.rlim_cur = limit.rlim_cur < 100 ? limit.rlim_cur : 100;
    OK(setrlimit(RLIMIT_SIGPENDING, &limit));
    int count = queue_up_to(1000);
    CHECK(count <= 100);
    IS(errno, EAGAIN);
    take_in_order(count);
}

enum { BURSTS = 100, IN_BURST = 100 };

static void on_burst(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static atomic_int is_over;

/* Makes children that share its memory: the kernel gives the signals to the parent after that. */
static void *make_children(void *argument)
{
    while (!atomic_load(&is_over)) {
        pid_t child = vfork();
        if (child == 0) {
            _exit(0);
        }
        CHECK(child > 0);
        while (waitpid(child, NULL, 0) < 0) {
            IS(errno, EINTR);
        }
    }
    return argument;
}

CASE(no_burst_is_lost_while_a_thread_makes_children_that_share_memory)
{
    struct sigaction action = {.sa_handler = on_burst, .sa_flags = SA_RESTART};
    GET(sigaction(SIGRTMIN, &action, NULL));
    int asks[2];
    char byte = 0;
    GET(pipe(asks));
    pid_t parent = getpid(), sender = GET(fork());
    if (sender == 0) {
        close(asks[1]);
        while (read(asks[0], &byte, 1) == 1) {
            for (int i = 0; i < IN_BURST; i++) {
                while (sigqueue(parent, SIGRTMIN, (union sigval){.sival_int = i}) != 0) {
                    usleep(100);
                }
            }
        }
        _exit(0);
    }
    close(asks[0]);
    pthread_t maker = start(make_children, NULL);
    for (int burst = 1; burst <= BURSTS; burst++) {
        IS(write(asks[1], &byte, 1), 1);
        while (atomic_load(&handled) < burst * IN_BURST) {
            usleep(200);
        }
    }
    atomic_store(&is_over, 1);
    join(maker);
    close(asks[1]);
    IS(waitpid(sender, NULL, 0), sender);
    IS(atomic_load(&handled), BURSTS * IN_BURST);
}
