/* libunwind steps from a handler, through the frame of the signal and the call that it interrupted,
   to the function that made the call. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "check.h"

static atomic_int seen;
static atomic_int steps;
static sem_t gate;

static void look_for_the_waiter(int signal)
{
    (void)signal;
    unw_context_t context;
    unw_cursor_t cursor;
    unw_getcontext(&context);
    IS(unw_init_local(&cursor, &context), 0);
    char name[256];
    unw_word_t offset;
    int count = 0;
    while (unw_step(&cursor) > 0 && count < 64) {
        count++;
        if (unw_get_proc_name(&cursor, name, sizeof name, &offset) == 0 &&
            strncmp(name, "waits_", 6) == 0) {
            atomic_store(&seen, 1);
        }
    }
    atomic_store(&steps, count);
}

__attribute__((noinline)) void *waits_in_read(void *argument)
{
    char byte;
    while (read(*(int *)argument, &byte, 1) < 0) {
        IS(errno, EINTR);
    }
    return NULL;
}

__attribute__((noinline)) void *waits_in_semaphore(void *argument)
{
    while (sem_wait(&gate) != 0) {
        IS(errno, EINTR);
    }
    return argument;
}

__attribute__((noinline)) void *waits_in_turn(void *argument)
{
    while (!atomic_load((atomic_int *)argument)) {
        sched_yield();
    }
    return argument;
}

static void interrupt_until_seen(pthread_t thread)
{
    struct sigaction action = {.sa_handler = look_for_the_waiter};
    GET(sigaction(SIGUSR1, &action, NULL));
    atomic_store(&seen, 0);
    int64_t limit_ns = now_ns() + 10 * SECOND;
    while (!atomic_load(&seen)) {
        CHECK(now_ns() < limit_ns);
        OK(pthread_kill(thread, SIGUSR1));
        sleep_ms(5);
    }
    CHECK(atomic_load(&steps) >= 3 && atomic_load(&steps) < 40);
}

CASE(libunwind_steps_over_a_read)
{
    int ends[2];
    GET(pipe(ends));
    pthread_t thread = start(waits_in_read, &ends[0]);
    interrupt_until_seen(thread);
    IS(write(ends[1], "x", 1), 1);
    join(thread);
}

CASE(libunwind_steps_over_a_semaphore)
{
    OK(sem_init(&gate, 0, 0));
    pthread_t thread = start(waits_in_semaphore, NULL);
    interrupt_until_seen(thread);
    OK(sem_post(&gate));
    join(thread);
}

CASE(libunwind_steps_over_a_yield)
{
    atomic_int stop = 0;
    pthread_t thread = start(waits_in_turn, &stop);
    interrupt_until_seen(thread);
    atomic_store(&stop, 1);
    join(thread);
}
