/* Threads that compute while others want to run: they give way, and never notice. */
#include "check.h"
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <ucontext.h>

static atomic_int stop;

static int stopped(void)
{
    return atomic_load_explicit(&stop, memory_order_relaxed);
}

static void *burn(void *count)
{
    while (!stopped()) {
        ++*(volatile long *)count;
    }
    return NULL;
}

/* Keeps the carriers busy while a case looks at something else. */
static long burnt[100];
static pthread_t burners[100];

static void start_burners(int count)
{
    for (int i = 0; i < count; i++) {
        burners[i] = start(burn, &burnt[i]);
    }
}

static void stop_burners(int count)
{
    atomic_store(&stop, 1);
    join_all(burners, count);
}

static int all_moved(const long *before)
{
    for (int i = 0; i < 40; i++) {
        if (*(volatile long *)&burnt[i] == before[i]) {
            return 0;
        }
    }
    return 1;
}

CASE(every_one_of_forty_gets_its_turns)
{
    start_burners(40);
    for (int round = 0; round < 3; round++) {
        long before[40];
        memcpy(before, burnt, sizeof before);
        while (!all_moved(before)) {
            sleep_ms(5);
        }
    }
    stop_burners(40);
}

CASE(a_sleeper_wakes_among_burners)
{
    start_burners(20);
    for (int i = 0; i < 100; i++) {
        sleep_ms(1);
    }
    stop_burners(20);
}

CASE(data_from_another_process_is_seen_among_burners)
{
    int fds[2];
    GET(pipe(fds));
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        for (char c = 'a'; c <= 'e'; c++) {
            usleep(20000);
            IS(write(fds[1], &c, 1), 1);
        }
        _exit(0);
    }
    start_burners(6);
    for (char c = 'a'; c <= 'e'; c++) {
        char got = 0;
        IS(read(fds[0], &got, 1), 1);
        IS(got, c);
    }
    stop_burners(6);
    IS(GET(waitpid(child, NULL, 0)), child);
}

/* A coroutine near the end of its stack has no room for a signal frame: the memory below stays as
 * it was. */
enum { SMALL = 8192, LEFT = 768, GUARD = 8192 };

struct coroutine {
    unsigned char below[GUARD];
    unsigned char stack[SMALL];
    ucontext_t own, thread;
    long sum;
};

__attribute__((noinline)) static void compute_near_the_end(struct coroutine *me)
{
    volatile char fill[SMALL - LEFT];
    __asm__ volatile("" : : "r"(fill) : "memory");
    while (!stopped() || me->sum == 0) {
        me->sum++;
    }
}

static void compute_there(unsigned high, unsigned low)
{
    compute_near_the_end((void *)(((uintptr_t)high << 32) | low));
}

static void *run_coroutine(void *unused)
{
    (void)unused;
    struct coroutine *me = calloc(1, sizeof *me);
    memset(me->below, 0xa5, sizeof me->below);
    GET(getcontext(&me->own));
    me->own.uc_stack.ss_sp = me->stack;
    me->own.uc_stack.ss_size = sizeof me->stack;
    me->own.uc_link = &me->thread;
    uintptr_t address = (uintptr_t)me;
    makecontext(&me->own, (void (*)(void))compute_there, 2, (unsigned)(address >> 32),
                (unsigned)address);
    GET(swapcontext(&me->thread, &me->own));
    for (int i = 0; i < GUARD; i++) {
        IS(me->below[i], 0xa5);
    }
    CHECK(me->sum > 0);
    free(me);
    return NULL;
}

CASE(the_end_of_a_coroutine_stack_is_enough)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        threads[i] = start(run_coroutine, NULL);
    }
    sleep_ms(150);
    atomic_store(&stop, 1);
    join_all(threads, 6);
}

/* A function that calls nothing may keep data in the 128 bytes below its stack pointer. */
static long keep_red_zone(void)
{
    long wrong = 0;
    __asm__ volatile("movabsq $0x1122334455667788, %%rax\n\t"
                     "movq %%rax, -8(%%rsp)\n\t"
                     "movq %%rax, -64(%%rsp)\n\t"
                     "movq %%rax, -128(%%rsp)\n\t"
                     "1: cmpq %%rax, -8(%%rsp)\n\t"
                     "jne 2f\n\t"
                     "cmpq %%rax, -64(%%rsp)\n\t"
                     "jne 2f\n\t"
                     "cmpq %%rax, -128(%%rsp)\n\t"
                     "jne 2f\n\t"
                     "cmpl $0, %1\n\t"
                     "je 1b\n\t"
                     "jmp 3f\n\t"
                     "2: movq $1, %0\n\t"
                     "3:"
                     : "+r"(wrong)
                     : "m"(stop)
                     : "rax", "cc", "memory");
    return wrong;
}

__attribute__((noinline)) static void *red_zone(void *unused)
{
    (void)unused;
    return number(keep_red_zone());
}

CASE(the_red_zone_survives)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        threads[i] = start(red_zone, NULL);
    }
    sleep_ms(150);
    atomic_store(&stop, 1);
    for (int i = 0; i < 6; i++) {
        IS(join(threads[i]), 0);
    }
}

static __thread volatile long *own_address;
static __thread volatile long own_value;

static void *keep_thread_locals(void *me)
{
    own_address = &own_value;
    own_value = (long)me;
    errno = (int)(long)me + 1;
    while (!stopped()) {
        CHECK(own_address == &own_value);
        IS(own_value, (long)me);
        IS(errno, (int)(long)me + 1);
    }
    return NULL;
}

CASE(thread_locals_and_errno_survive)
{
    pthread_t threads[12];
    for (long i = 0; i < 12; i++) {
        threads[i] = start(keep_thread_locals, number(i));
    }
    sleep_ms(200);
    atomic_store(&stop, 1);
    join_all(threads, 12);
}

static atomic_int turn;

static void *spin_for_turns(void *me)
{
    for (int i = 0; i < 20; i++) {
        while (atomic_load(&turn) % 4 != (int)(long)me) {
        }
        atomic_fetch_add(&turn, 1);
    }
    return NULL;
}

CASE(spinning_threads_take_turns)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) {
        threads[i] = start(spin_for_turns, number(i));
    }
    join_all(threads, 4);
    IS(turn, 80);
}

static __thread volatile sig_atomic_t handled;
static atomic_int answered;

static void on_signal(int signal)
{
    (void)signal;
    /* A handler may use what it likes: the interrupted sums are in the frame. */
    volatile double x = handled;
    handled = (sig_atomic_t)(x + 1);
    atomic_fetch_add(&answered, 1);
}

static void *add_halves(void *unused)
{
    (void)unused;
    double sum = 0;
    long rounds = 0;
    while (!stopped()) {
        sum += 0.5;
        rounds++;
    }
    CHECK(sum == rounds * 0.5);
    return number(handled);
}

CASE(signals_reach_threads_that_were_preempted)
{
    enum { THREADS = 8, ROUNDS = 20 };
    struct sigaction action = {.sa_handler = on_signal};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(add_halves, NULL);
    }
    sleep_ms(20);
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&answered, 0);
        for (int i = 0; i < THREADS; i++) {
            OK(pthread_kill(threads[i], SIGUSR1));
        }
        while (atomic_load(&answered) < THREADS) {
            sleep_ms(1);
        }
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++) {
        IS(join(threads[i]), ROUNDS);
    }
}

static __thread sigjmp_buf back;

static void jump(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void *compute_until_jump(void *unused)
{
    (void)unused;
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(back, 1) == 0) {
            atomic_fetch_add(&answered, 1);
            for (;;) {
                __asm__ volatile("pause");
            }
        }
    }
    return NULL;
}

CASE(a_handler_jumps_out_of_a_loop)
{
    struct sigaction action = {.sa_handler = jump};
    GET(sigaction(SIGUSR1, &action, NULL));
    start_burners(4);
    pthread_t thread = start(compute_until_jump, NULL);
    for (int i = 1; i <= 5; i++) {
        while (atomic_load(&answered) < i) {
            sleep_ms(1);
        }
        sleep_ms(10);
        OK(pthread_kill(thread, SIGUSR1));
    }
    join(thread);
    stop_burners(4);
}

/* One CPU, and a process on it that gets nearly all of its time. */
CASE(a_sleeper_wakes_among_burners_where_the_machine_has_hardly_any_time)
{
    cpu_set_t allowed, one;
    GET(sched_getaffinity(0, sizeof allowed, &allowed));
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            CPU_SET(cpu, &one);
        }
    }
    GET(sched_setaffinity(0, sizeof one, &one));
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        alarm(100);
        for (;;) {
            ++*(volatile long *)burnt;
        }
    }
    GET(setpriority(PRIO_PROCESS, 0, 19));
    start_burners(2);
    for (int i = 0; i < 3; i++) {
        sleep_ms(1);
    }
    stop_burners(2);
    GET(kill(child, SIGKILL));
    IS(GET(waitpid(child, NULL, 0)), child);
}

static void *return_argument(void *argument)
{
    return argument;
}

CASE(fork_while_others_compute)
{
    start_burners(6);
    for (int i = 0; i < 10; i++) {
        pid_t child = (pid_t)GET(fork());
        if (child == 0) {
            atomic_store(&stop, 0);
            pthread_t spinner = start(burn, &burnt[99]);
            IS(join(start(return_argument, number(3))), 3);
            atomic_store(&stop, 1);
            join(spinner);
            _exit(7);
        }
        int status;
        IS(GET(waitpid(child, &status, 0)), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    stop_burners(6);
}

static pthread_mutex_t barged = PTHREAD_MUTEX_INITIALIZER;

static void *want_once(void *unused)
{
    (void)unused;
    OK(pthread_mutex_lock(&barged));
    atomic_store(&stop, 1);
    OK(pthread_mutex_unlock(&barged));
    return NULL;
}

/* The lock is free for an instant only, again and again: a waiter gets it some time. */
CASE(a_lock_that_is_taken_again_at_once_starves_nobody)
{
    OK(pthread_mutex_lock(&barged));
    pthread_t thread = start(want_once, NULL);
    sleep_ms(10);
    while (!stopped()) {
        OK(pthread_mutex_unlock(&barged));
        OK(pthread_mutex_lock(&barged));
    }
    OK(pthread_mutex_unlock(&barged));
    join(thread);
}
