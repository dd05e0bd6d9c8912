/* A signal mask for the time of a call (ppoll, pselect, epoll_pwait, epoll_pwait2), in an ordinary
 * thread and in one that has a kernel thread of its own. */
#include "check.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

static atomic_int handled, waits;

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static const sigset_t none;

static int wait_by_ppoll(void)
{
    struct timespec limit = {.tv_sec = 10};
    return ppoll(NULL, 0, &limit, &none);
}

static int wait_by_pselect(void)
{
    struct timespec limit = {.tv_sec = 10};
    return pselect(0, NULL, NULL, NULL, &limit, &none);
}

static int wait_by_epoll(int (*wait)(int, struct epoll_event *))
{
    struct epoll_event event;
    int epoll = GET(epoll_create1(0)), result = wait(epoll, &event), error = errno;
    OK(close(epoll));
    errno = error;
    return result;
}

static int pwait(int epoll, struct epoll_event *event)
{
    return epoll_pwait(epoll, event, 1, 10000, &none);
}

static int pwait2(int epoll, struct epoll_event *event)
{
    struct timespec limit = {.tv_sec = 10};
    return epoll_pwait2(epoll, event, 1, &limit, &none);
}

static int wait_by_epoll_pwait(void) { return wait_by_epoll(pwait); }

static int wait_by_epoll_pwait2(void) { return wait_by_epoll(pwait2); }

static int (*const calls[])(void) = {wait_by_ppoll, wait_by_pselect, wait_by_epoll_pwait,
                                     wait_by_epoll_pwait2};

enum { CALLS = sizeof calls / sizeof *calls };

/* A timer on a thread's CPU clock gives the thread a kernel thread. */
static void have_a_kernel_thread(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    struct itimerspec later = {.it_value = {.tv_sec = 1000}};
    timer_t timer;
    OK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
    OK(timer_settime(timer, 0, &later, NULL));
}

static void *wait_in_each_call(void *has_kernel_thread)
{
    if (has_kernel_thread) {
        have_a_kernel_thread();
    }
    for (int i = 0; i < CALLS; i++) {
        int before = handled;
        OK(pthread_kill(pthread_self(), SIGUSR1)); /* pends, because it is blocked */
        IS(handled, before);
        IS(calls[i](), -1);
        IS(errno, EINTR);
        IS(handled, before + 1);
        atomic_fetch_add(&waits, 1); /* the other thread sends one during the next wait */
        IS(calls[i](), -1);
        IS(errno, EINTR);
        IS(handled, before + 2);
    }
    return NULL;
}

static void check(void *has_kernel_thread)
{
    struct sigaction action = {.sa_handler = count};
    sigset_t blocked;
    OK(sigaction(SIGUSR1, &action, NULL));
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    OK(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    pthread_t thread = start(wait_in_each_call, has_kernel_thread);
    for (int i = 1; i <= CALLS; i++) {
        while (waits < i) {
            sleep_ms(1);
        }
        sleep_ms(30);
        OK(pthread_kill(thread, SIGUSR1));
    }
    join(thread);
    IS(handled, 2 * CALLS);
}

CASE(a_mask_for_a_call_lets_signals_through) { check(NULL); }

CASE(a_mask_for_a_call_of_a_thread_with_a_kernel_thread) { check(&waits); }
