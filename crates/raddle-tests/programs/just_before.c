/* Signals that come just before a call that would wait for ever: its handler jumps out of it. */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct shared {
    atomic_int round; /* how often the child was about to wait */
    atomic_int stop;
};

static sigjmp_buf before;

static void jump_out(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

/* A jump out of rand() may leave its lock behind. */
static uint32_t draw(void)
{
    static uint32_t state = 2463534242;
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

static void wait_for_signals(struct shared *shared)
{
    static uint32_t word;
    struct sigaction action = {.sa_handler = jump_out};
    GET(prctl(PR_SET_PDEATHSIG, SIGKILL));
    GET(sigaction(SIGUSR1, &action, NULL));
    while (!shared->stop) {
        if (sigsetjmp(before, 1) != 0) {
            continue;
        }
        int round = atomic_fetch_add(&shared->round, 1);
        for (uint32_t spins = draw() % 40000; spins > 0; spins--) {
            atomic_signal_fence(memory_order_seq_cst); /* as long as a signal may take to come */
        }
        if (round % 2 == 0) {
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        } else {
            pause();
        }
        CHECK(!"nothing ends these calls");
    }
}

/* One signal each time that the child is about to wait, at about the moment at which it does. */
static void send_signals(pid_t child, struct shared *shared, int64_t until_ns)
{
    for (int seen = 0; !shared->stop; seen++) {
        int64_t deadline_ns = now_ns() + 10 * SECOND;
        for (int spins = 1; shared->round == seen; spins++) {
            if (spins % 1000 == 0) {
                CHECK(now_ns() < deadline_ns);
                sched_yield();
            }
        }
        shared->stop = now_ns() > until_ns;
        GET(kill(child, SIGUSR1));
    }
}

static void *nothing(void *unused)
{
    return unused;
}

static void make_a_thread(void)
{
    join(start(nothing, NULL));
}

static void none_is_slept_over(void (*in_parent)(void), void (*in_child)(void))
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    in_parent();
    pid_t child = GET(fork());
    if (child == 0) {
        in_child();
        wait_for_signals(shared);
        _exit(0);
    }
    send_signals(child, shared, now_ns() + 2 * SECOND);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    CHECK(shared->round > 100);
}

static void make_none(void) {}

CASE(the_only_thread_sleeps_over_no_signal)
{
    none_is_slept_over(make_none, make_none);
}

CASE(a_thread_that_had_others_sleeps_over_no_signal)
{
    none_is_slept_over(make_none, make_a_thread);
}

CASE(the_child_of_one_that_had_others_sleeps_over_no_signal)
{
    none_is_slept_over(make_a_thread, make_none);
}

static volatile sig_atomic_t handled;

static void note(int signal)
{
    (void)signal;
    handled = 1;
}

/* Waits for the signal without a moment at which it could come unseen. */
static void wait_until_handled(void)
{
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    GET(sigprocmask(SIG_SETMASK, &all, NULL));
    while (!handled) {
        sigsuspend(&none);
    }
}

/* Sends a signal to each child at once: most come while the child comes into being. */
static void *signal_children(void *signal_number)
{
    int signal = (int)(intptr_t)signal_number;
    int64_t until_ns = now_ns() + SECOND;
    for (int rounds = 0; rounds < 100 || now_ns() < until_ns; rounds++) {
        pid_t child = GET(rounds % 4 == 0 ? (pid_t)syscall(SYS_fork) : fork());
        if (child == 0) {
            wait_until_handled();
            _exit(0);
        }
        for (uint32_t spins = draw() % 10000; spins > 0; spins--) {
            atomic_signal_fence(memory_order_seq_cst);
        }
        GET(kill(child, signal));
        int status, left = 10000;
        pid_t ended;
        while ((ended = GET(waitpid(child, &status, WNOHANG))) == 0 && left-- > 0) {
            sleep_ms(1);
        }
        if (ended == 0) {
            kill(child, SIGKILL);
            CHECK(!"the signal was lost");
        }
        IS(status, signal == SIGUSR1 ? 0 : signal);
    }
    return NULL;
}

static void signal_children_by_two_threads(int signal)
{
    struct sigaction action = {.sa_handler = note};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t other = start(signal_children, (void *)(intptr_t)signal);
    signal_children((void *)(intptr_t)signal);
    join(other);
}

CASE(a_signal_right_after_a_fork_is_handled)
{
    signal_children_by_two_threads(SIGUSR1);
}

CASE(a_signal_right_after_a_fork_ends_the_child)
{
    signal_children_by_two_threads(SIGTERM);
}
