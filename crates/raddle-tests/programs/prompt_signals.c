/* How soon a handler begins: beside a thread that computes, by how much that one does meanwhile.
 * Other programs' use of the CPUs doesn't count so. */
#include "check.h"
#include "one_signal.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define SIGNALS 60

/* Memory that the processes share. `work` grows by one a step of the thread that computes. */
static struct {
    volatile long work;
    volatile long work_when_sent;
    volatile long steps[SIGNALS];
    atomic_int handled;
    atomic_int ready;
    atomic_int is_over;
} *shared;

static void share(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
}

static void note(int signal)
{
    (void)signal;
    int index = atomic_load(&shared->handled);
    if (index < SIGNALS) {
        shared->steps[index] = shared->work - shared->work_when_sent;
    }
    atomic_store(&shared->handled, index + 1);
}

static void *compute(void *argument)
{
    while (!atomic_load(&shared->is_over)) {
        shared->work++;
    }
    return argument;
}

/* Steps in a millisecond in which nothing else had the CPU. */
static long steps_in_a_millisecond(void)
{
    long most = 0;
    for (int i = 0; i < 20; i++) {
        long before = shared->work;
        int64_t began = now_ns();
        while (now_ns() - began < MS) {
            sched_yield();
        }
        long steps = (shared->work - before) * MS / (now_ns() - began);
        most = steps > most ? steps : most;
    }
    CHECK(most > 1000);
    return most;
}

static int by_size(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

/* A machine that is busy may let the thread that computes go on while another wakes up, natively
 * too; but not most of the time. */
static void check_steps(long in_a_millisecond)
{
    long steps[SIGNALS];
    memcpy(steps, (const void *)shared->steps, sizeof steps);
    qsort(steps, SIGNALS, sizeof *steps, by_size);
    CHECK(steps[SIGNALS / 4] < in_a_millisecond * 7 / 10);
}

static void send_when_handled(pid_t target)
{
    for (int i = 0; i < SIGNALS; i++) {
        shared->work_when_sent = shared->work;
        GET(kill(target, SIGQUIT));
        while (atomic_load(&shared->handled) <= i) {
            usleep(200);
        }
    }
}

static void *wait_for_signals(void *argument)
{
    unblock(SIGQUIT);
    atomic_store(&shared->ready, 1);
    while (atomic_load(&shared->handled) < SIGNALS) {
        pause();
    }
    return argument;
}

static void *take_signals(void *argument)
{
    sigset_t set = set_of(SIGQUIT);
    atomic_store(&shared->ready, 1);
    while (atomic_load(&shared->handled) < SIGNALS) {
        int signal;
        OK(sigwait(&set, &signal));
        note(signal);
    }
    return argument;
}

static void another_process_sends_to(thread_function receive)
{
    share();
    signal(SIGQUIT, note);
    block(SIGQUIT);
    pid_t self = getpid();
    pid_t child = GET(fork());
    if (child == 0) {
        while (!atomic_load(&shared->ready)) {
            usleep(1000);
        }
        send_when_handled(self);
        _exit(0);
    }
    pthread_t computes = start(compute, NULL);
    long in_a_millisecond = steps_in_a_millisecond();
    join(start(receive, NULL));
    atomic_store(&shared->is_over, 1);
    join(computes);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    check_steps(in_a_millisecond);
}

CASE(a_signal_from_outside_does_not_wait_for_one_that_computes)
{
    another_process_sends_to(wait_for_signals);
}

CASE(sigwait_does_not_wait_for_one_that_computes)
{
    another_process_sends_to(take_signals);
}

static pthread_t receiver;

static void *send_and_compute(void *argument)
{
    long in_a_millisecond = (long)argument;
    for (int i = 0; i < SIGNALS; i++) {
        shared->work_when_sent = shared->work;
        OK(pthread_kill(receiver, SIGQUIT));
        long goal = shared->work + 2 * in_a_millisecond;
        while (shared->work < goal || atomic_load(&shared->handled) <= i) {
            shared->work++;
        }
    }
    return NULL;
}

CASE(a_signal_does_not_wait_for_its_sender_to_wait)
{
    share();
    signal(SIGQUIT, note);
    pthread_t computes = start(compute, NULL);
    long in_a_millisecond = steps_in_a_millisecond();
    atomic_store(&shared->is_over, 1);
    join(computes);
    block(SIGQUIT);
    receiver = start(wait_for_signals, NULL);
    while (!atomic_load(&shared->ready)) {
        usleep(1000);
    }
    join(start(send_and_compute, number(in_a_millisecond)));
    OK(pthread_kill(receiver, SIGQUIT)); /* it may have looked before the last one */
    join(receiver);
    check_steps(in_a_millisecond);
}
