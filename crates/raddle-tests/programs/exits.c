/* Ends of a process: from main, from a thread, with threads that wait, with threads that run. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

static pthread_mutex_t never = PTHREAD_MUTEX_INITIALIZER;

static void *block_for_ever(void *argument)
{
    OK(pthread_mutex_lock(&never));
    return argument;
}

static void *sleep_for_ever(void *argument)
{
    for (;;) {
        pause();
    }
    return argument;
}

static void *finish_later(void *argument)
{
    sleep_ms(100);
    say_ok();
    return argument;
}

CASE(main_exits_by_pthread_exit_and_the_last_thread_ends_with_0)
{
    start(finish_later, NULL);
    pthread_exit(number(9));
}

static void *join_main(void *main_thread)
{
    IS(join(*(pthread_t *)main_thread), 33);
    say_ok();
    exit(0);
}

CASE(main_can_be_joined)
{
    static pthread_t main_thread;
    main_thread = pthread_self();
    start(join_main, &main_thread);
    pthread_exit(number(33));
}

static void *exit_later(void *argument)
{
    sleep_ms(20);
    say_ok();
    exit((int)(long)argument);
}

CASE(exit_from_a_thread_while_main_joins)
{
    join(start(exit_later, number(7)));
    CHECK(!"reached");
}

CASE(exit_from_a_thread_while_main_sleeps)
{
    start(exit_later, number(8));
    sleep_for_ever(NULL);
}

static void *underscore_exit(void *argument)
{
    say_ok();
    _exit((int)(long)argument);
}

CASE(underscore_exit_from_a_thread)
{
    join(start(underscore_exit, number(9)));
    CHECK(!"reached");
}

CASE(return_from_main_with_1000_blocked_threads)
{
    OK(pthread_mutex_lock(&never));
    for (int i = 0; i < 1000; i++) {
        start_small(i % 2 ? block_for_ever : sleep_for_ever, NULL);
    }
    let_others_block();
}

static void *compute_for_ever(void *argument)
{
    for (volatile long i = 0;; i++) {
    }
    return argument;
}

CASE(return_from_main_with_threads_that_compute)
{
    for (int i = 0; i < 8; i++) {
        start(compute_for_ever, NULL);
    }
    let_others_block();
}

static long now_us(void)
{
    struct timespec now;
    GET(clock_gettime(CLOCK_MONOTONIC, &now));
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Computes until `at_us`, or until others have had a turn; returns when that began, or 0. */
static long compute_until(long at_us)
{
    enum { TURN_OF_OTHERS_US = 2000 };
    for (long last_us = now_us(), us; last_us < at_us; last_us = us) {
        us = now_us();
        if (us - last_us > TURN_OF_OTHERS_US) {
            return last_us;
        }
    }
    return 0;
}

/* A thread that ends the process just as its turn is over is not made to wait for the others. */
CASE(an_exit_at_the_end_of_a_turn_ends_the_process)
{
    enum { CHILDREN = 25, WAITING = 500, COMPUTING = 4, MOST_US = 200000, STEP_US = 10 };
    for (long i = 0; i < CHILDREN; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            for (int k = 0; k < WAITING; k++) {
                start_small(sleep_for_ever, NULL);
            }
            for (int k = 0; k < COMPUTING; k++) {
                start(compute_for_ever, NULL);
            }
            long until_us = now_us() + MOST_US;
            compute_until(until_us);
            long began_us = now_us(), over_us = compute_until(until_us);
            long turn_us = over_us ? over_us - began_us : 0;
            compute_until(now_us() + turn_us - i % 10 * STEP_US);
            _exit(3);
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), 3);
    }
}

static void *read_for_ever(void *argument)
{
    int ends[2];
    char byte;
    GET(pipe(ends));
    IS(read(ends[0], &byte, 1), 1);
    return argument;
}

CASE(exit_with_threads_in_read)
{
    for (int i = 0; i < 50; i++) {
        start(read_for_ever, NULL);
    }
    let_others_block();
    say_ok();
    exit(5);
}

static atomic_int handlers_run;

static void first_registered(void)
{
    IS(atomic_fetch_add(&handlers_run, 1), 1);
    say_ok();
}

static void second_registered(void)
{
    IS(atomic_fetch_add(&handlers_run, 1), 0);
    sleep_ms(10);
}

static void *exit_silently(void *argument)
{
    exit((int)(long)argument);
}

CASE(exit_handlers_run_in_reverse_order_and_may_sleep)
{
    IS(atexit(first_registered), 0);
    IS(atexit(second_registered), 0);
    join(start(exit_silently, number(4)));
}

CASE(exit_status_is_the_low_byte)
{
    say_ok();
    exit(0x1234);
}

CASE(abort_ends_with_its_signal)
{
    start(sleep_for_ever, NULL);
    say_ok();
    abort();
}

static void *kill_process(void *argument)
{
    say_ok();
    GET(kill(getpid(), (int)(long)argument));
    return sleep_for_ever(NULL);
}

CASE(an_unhandled_signal_ends_the_process)
{
    join(start(kill_process, number(SIGTERM)));
}

CASE(sigkill_ends_the_process)
{
    join(start(kill_process, number(SIGKILL)));
}

static void *fault(void *argument)
{
    say_ok();
    *(volatile int *)argument = 1;
    return NULL;
}

CASE(an_unhandled_fault_ends_the_process)
{
    start(sleep_for_ever, NULL);
    join(start(fault, number(16)));
}

static void *end_soon(void *argument)
{
    sleep_ms(1);
    return argument;
}

CASE(threads_end_while_the_process_exits)
{
    for (int i = 0; i < 500; i++) {
        start_small(end_soon, NULL);
    }
    say_ok();
    exit(3);
}

static void *stdio_text_is_flushed(void *argument)
{
    printf("buffered by a thread\nok %s\n", case_name);
    exit(0);
}

CASE(exit_flushes_what_another_thread_printed)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    printf("buffered by main\n");
    join(start(stdio_text_is_flushed, NULL));
}
