/* Signals that a computing thread does not take write nothing to its stack, and each handler is on
 * the stack that it asks for. */
#include "check.h"

#include <sys/time.h>
#include <ucontext.h>

#define STACK 2048
#define BELOW 16384
#define LASTS (500 * MS)
#define EVERY_NS 300000

struct computing {
    ucontext_t thread, own;
    unsigned char below[BELOW];
    unsigned char stack[STACK];
};

static volatile int is_over, has_begun;
static volatile uint64_t sink;
static volatile sig_atomic_t handled;

static void count(int signal)
{
    (void)signal;
    handled = handled + 1;
}

static void count_value(union sigval value)
{
    (void)value;
    handled = handled + 1;
}

static void compute(void)
{
    has_begun = 1;
    while (!is_over) {
        sink = sink * 6364136223846793005u + 1442695040888963407u;
    }
}

static struct computing me;
static int damaged;

/* The look comes before the call that ends the context: that may need more than the stack has. */
static void compute_and_look(void)
{
    compute();
    for (int i = 0; i < BELOW; i++) {
        damaged += ((volatile unsigned char *)me.below)[i] != 0xa5;
    }
}

/* Computes on a stack that has no room for a signal's frame, with every signal blocked. */
static void *compute_on_a_small_stack(void *unused)
{
    sigset_t all;
    OK(sigfillset(&all));
    OK(pthread_sigmask(SIG_SETMASK, &all, NULL));
    memset(me.below, 0xa5, BELOW);
    GET(getcontext(&me.own));
    me.own.uc_stack.ss_sp = me.stack;
    me.own.uc_stack.ss_size = STACK;
    me.own.uc_link = &me.thread;
    makecontext(&me.own, compute_and_look, 0);
    GET(swapcontext(&me.thread, &me.own));
    IS(damaged, 0);
    return unused;
}

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
}

static void beside_a_small_stack(void (*begin)(void), void (*wait)(void))
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, compute_on_a_small_stack, NULL));
    while (!has_begun) {
        usleep(1000);
    }
    begin();
    int64_t end_ns = now_ns() + LASTS;
    while (now_ns() < end_ns || handled < 20) {
        wait();
    }
    is_over = 1;
    OK(pthread_join(thread, NULL));
}

static void nap(void)
{
    usleep(2000);
}

static void start_interval_timer(void)
{
    struct itimerval time = {{0, EVERY_NS / 1000}, {0, EVERY_NS / 1000}};
    handle(SIGALRM, count, SA_RESTART);
    OK(setitimer(ITIMER_REAL, &time, NULL));
}

CASE(an_interval_timers_signal_writes_nothing_to_a_thread_that_blocks_it)
{
    beside_a_small_stack(start_interval_timer, nap);
}

static void start_timer(struct sigevent event)
{
    timer_t timer;
    struct itimerspec time = {{0, EVERY_NS}, {0, EVERY_NS}};
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_settime(timer, 0, &time, NULL));
}

static void start_thread_timer(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = count_value};
    start_timer(event);
}

CASE(a_timer_with_a_thread_writes_nothing_to_another)
{
    beside_a_small_stack(start_thread_timer, nap);
}

static void start_awaited_timer(void)
{
    sigset_t set;
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGRTMIN));
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    start_timer(event);
}

static void await(void)
{
    sigset_t set;
    struct timespec limit = timespec_of(2 * MS);
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGRTMIN));
    handled += sigtimedwait(&set, NULL, &limit) == SIGRTMIN;
}

CASE(a_signal_that_another_thread_awaits_writes_nothing)
{
    beside_a_small_stack(start_awaited_timer, await);
}

static void start_children(void)
{
    handle(SIGCHLD, count, SA_RESTART);
}

static void end_a_child(void)
{
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(0);
    }
    IS(waitpid(child, NULL, 0), child);
}

CASE(the_end_of_a_child_writes_nothing_to_a_thread_that_blocks_it)
{
    beside_a_small_stack(start_children, end_a_child);
}

static char *alternate;
static size_t alternate_size;
static volatile sig_atomic_t on_the_alternate, on_the_normal;

static int is_on_the_alternate(void)
{
    char *here = __builtin_frame_address(0);
    return here >= alternate && here < alternate + alternate_size;
}

static void wants_the_alternate(int signal)
{
    (void)signal;
    CHECK(is_on_the_alternate());
    on_the_alternate = on_the_alternate + 1;
}

static void wants_the_normal(int signal)
{
    (void)signal;
    CHECK(!is_on_the_alternate());
    on_the_normal = on_the_normal + 1;
}

static void use_an_alternate_stack(void)
{
    alternate_size = 64 * 1024;
    alternate = malloc(alternate_size);
    stack_t stack = {.ss_sp = alternate, .ss_size = alternate_size};
    OK(sigaltstack(&stack, NULL));
}

/* SIGUSR2 is blocked in a handler of SIGUSR1, and the other way round: a handler on the alternate
 * stack that the other one interrupts would keep it there. */
static void handle_on_each_stack(void)
{
    struct sigaction action = {.sa_handler = wants_the_alternate,
                               .sa_flags = SA_ONSTACK | SA_RESTART};
    OK(sigaddset(&action.sa_mask, SIGUSR2));
    OK(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = wants_the_normal;
    action.sa_flags = SA_RESTART;
    OK(sigemptyset(&action.sa_mask));
    OK(sigaddset(&action.sa_mask, SIGUSR1));
    OK(sigaction(SIGUSR2, &action, NULL));
}

static void *computes_with_an_alternate_stack(void *unused)
{
    use_an_alternate_stack();
    compute();
    return unused;
}

CASE(each_handler_is_on_its_stack_while_a_timer_expires)
{
    pthread_t thread;
    handle_on_each_stack();
    OK(pthread_create(&thread, NULL, computes_with_an_alternate_stack, NULL));
    while (!has_begun) {
        usleep(1000);
    }
    start_thread_timer();
    int64_t end_ns = now_ns() + LASTS;
    for (int i = 0; now_ns() < end_ns || on_the_alternate < 20 || on_the_normal < 20; i++) {
        OK(pthread_kill(thread, i % 3 ? SIGUSR1 : SIGUSR2));
        if (i % 5 == 0) {
            OK(pthread_kill(thread, i % 3 ? SIGUSR2 : SIGUSR1));
        }
        usleep(i % 7 ? 0 : 300);
    }
    is_over = 1;
    OK(pthread_join(thread, NULL));
}

static volatile int step;

/* The other signal comes while this one's handler runs, which blocks it. */
static void wants_the_alternate_then_the_other(int signal)
{
    wants_the_alternate(signal);
    if (step++ == 0) {
        raise(SIGUSR2);
        IS(on_the_normal, 0);
    }
}

static void wants_the_normal_then_the_other(int signal)
{
    wants_the_normal(signal);
    if (step++ == 0) {
        raise(SIGUSR1);
        IS(on_the_alternate, 0);
    }
}

static void *raises(void *first)
{
    use_an_alternate_stack();
    OK(raise(*(int *)first));
    IS(step, 2);
    IS(on_the_alternate, 1);
    IS(on_the_normal, 1);
    return NULL;
}

static void one_after_the_other(int first)
{
    pthread_t thread;
    handle_on_each_stack();
    struct sigaction action;
    OK(sigaction(SIGUSR1, NULL, &action));
    action.sa_handler = wants_the_alternate_then_the_other;
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(sigaction(SIGUSR2, NULL, &action));
    action.sa_handler = wants_the_normal_then_the_other;
    OK(sigaction(SIGUSR2, &action, NULL));
    OK(pthread_create(&thread, NULL, raises, &first));
    OK(pthread_join(thread, NULL));
}

CASE(a_handler_on_the_normal_stack_follows_one_on_the_alternate)
{
    one_after_the_other(SIGUSR1);
}

CASE(a_handler_on_the_alternate_stack_follows_one_on_the_normal)
{
    one_after_the_other(SIGUSR2);
}
