/* Signals for CPU time that was used. */
#include "check.h"

#include <sys/time.h>

static pthread_t computing;
static volatile int hits_there, hits_elsewhere;

static void on_cpu_time(int signal)
{
    (void)signal;
    if (pthread_equal(pthread_self(), computing)) {
        hits_there++;
    } else {
        hits_elsewhere++;
    }
}

static void *compute_until_hit(void *argument)
{
    computing = pthread_self();
    while (hits_there < 5 && hits_elsewhere < 50) {
        __asm__ volatile("");
    }
    return argument;
}

CASE(a_profiling_timers_signal_goes_to_the_thread_that_computes)
{
    int timers[] = {ITIMER_PROF, ITIMER_VIRTUAL};
    for (int i = 0; i < 2; i++) {
        struct itimerval often = {{0, 4000}, {0, 4000}}, never = {{0, 0}, {0, 0}};
        struct sigaction action = {.sa_handler = on_cpu_time, .sa_flags = SA_RESTART};
        pthread_t thread;
        OK(sigaction(i == 0 ? SIGPROF : SIGVTALRM, &action, NULL));
        hits_there = hits_elsewhere = 0;
        OK(pthread_create(&thread, NULL, compute_until_hit, NULL));
        OK(setitimer(timers[i], &often, NULL));
        OK(pthread_join(thread, NULL));
        OK(setitimer(timers[i], &never, NULL));
        CHECK(hits_there >= 5);
        CHECK(hits_elsewhere < 3);
    }
}
