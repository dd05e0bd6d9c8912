/* Signals to threads that are just getting kernel threads of their own: for file systems, CPU
 * clocks, disks and classes. */
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define SIGNALS 5

static atomic_int handled, is_about_to, is_over;

static void count(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static long of_file_system(void)
{
    return unshare(CLONE_FS);
}

static long of_clock(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    return timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
}

static long of_disk(void)
{
    return syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3);
}

static long (*binds)(void);

static void *bind_and_wait(void *argument)
{
    atomic_store(&is_about_to, 1);
    GET(binds());
    while (!atomic_load(&is_over)) {
        sleep_ms(1);
    }
    return argument;
}

static void send_while(long (*way)(void))
{
    CHECK(signal(SIGRTMIN, count) != SIG_ERR);
    binds = way;
    for (int round = 0; round < 10; round++) {
        atomic_store(&handled, 0);
        atomic_store(&is_about_to, 0);
        atomic_store(&is_over, 0);
        pthread_t thread = start(bind_and_wait, NULL);
        while (!atomic_load(&is_about_to)) {
            sched_yield();
        }
        for (volatile int i = 0; i < round * 2000; i++) {
        }
        for (int i = 0; i < SIGNALS; i++) {
            OK(pthread_kill(thread, SIGRTMIN));
        }
        while (atomic_load(&handled) < SIGNALS) {
            sleep_ms(1);
        }
        atomic_store(&is_over, 1);
        join(thread);
        IS(atomic_load(&handled), SIGNALS);
    }
}

CASE(a_file_system_of_its_own) { send_while(of_file_system); }

CASE(a_cpu_clock) { send_while(of_clock); }

CASE(a_priority_for_disks) { send_while(of_disk); }
