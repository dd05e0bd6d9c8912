/* Signals that are due at the same time: Linux prepares the frames of all of them, the lowest
 * number's first, so the last one's handler runs first, on top of the others. */
#include "check.h"

#include <ucontext.h>

static volatile int order[8], count;
static sigset_t saved[8];
static volatile uintptr_t interrupted[8];
static volatile sig_atomic_t on_stack;
static char *stack;
static const size_t STACK = 64 << 10;

static void note(int signal, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    char here;
    IS(info->si_signo, signal);
    on_stack += stack != NULL && &here >= stack && &here < stack + STACK;
    order[count] = signal;
    saved[count] = at->uc_sigmask;
    interrupted[count++] = at->uc_mcontext.gregs[REG_RIP];
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    GET(sigaction(signal, &action, NULL));
}

static sigset_t set_of(int first, int second)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second != 0) {
        sigaddset(&set, second);
    }
    return set;
}

/* Leaves both signals pending for the calling thread, the higher first. */
static sigset_t leave_both(void)
{
    sigset_t both = set_of(SIGUSR1, SIGUSR2), before;
    count = on_stack = 0;
    OK(pthread_sigmask(SIG_BLOCK, &both, &before));
    OK(pthread_kill(pthread_self(), SIGUSR2));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    IS(count, 0);
    return before;
}

static void check_nested(void)
{
    IS(count, 2);
    IS(order[0], SIGUSR2);
    IS(order[1], SIGUSR1);
    IS(interrupted[0], (uintptr_t)note);
    CHECK(sigismember(&saved[0], SIGUSR1) && !sigismember(&saved[0], SIGUSR2));
}

static void *open_mask(void *unused)
{
    double before = 1.5;
    sigset_t mask = leave_both();
    OK(pthread_sigmask(SIG_SETMASK, &mask, NULL));
    check_nested();
    CHECK(!sigismember(&saved[1], SIGUSR1) && !sigismember(&saved[1], SIGUSR2));
    CHECK(before == 1.5);
    return unused;
}

CASE(the_last_of_two_handlers_runs_first)
{
    handle(SIGUSR1, 0);
    handle(SIGUSR2, 0);
    for (int i = 0; i < 100; i++) {
        join(start(open_mask, NULL));
    }
    open_mask(NULL);
}

static void *open_mask_on_a_stack(void *unused)
{
    stack = malloc(STACK);
    stack_t alternate = {.ss_sp = stack, .ss_size = STACK};
    GET(sigaltstack(&alternate, NULL));
    open_mask(NULL);
    IS(on_stack, 2);
    alternate.ss_flags = SS_DISABLE;
    GET(sigaltstack(&alternate, NULL));
    free(stack);
    stack = NULL;
    return unused;
}

CASE(nested_handlers_share_the_alternate_stack)
{
    handle(SIGUSR1, SA_ONSTACK);
    handle(SIGUSR2, SA_ONSTACK);
    join(start(open_mask_on_a_stack, NULL));
    open_mask_on_a_stack(NULL);
}

/* The mask from before comes back when the first handler has returned: what the mask of the call
 * opened has been handled by then. */
static void *suspend(void *unused)
{
    leave_both();
    sigset_t mask;
    OK(pthread_sigmask(SIG_BLOCK, NULL, &mask));
    sigdelset(&mask, SIGUSR1);
    sigdelset(&mask, SIGUSR2);
    FAILS(sigsuspend(&mask), EINTR);
    check_nested();
    CHECK(sigismember(&saved[1], SIGUSR1) && sigismember(&saved[1], SIGUSR2));
    return unused;
}

CASE(sigsuspend_handles_all_that_its_mask_opens)
{
    handle(SIGUSR1, 0);
    handle(SIGUSR2, 0);
    join(start(suspend, NULL));
    suspend(NULL);
}

/* One for the thread, one for the process; the thread's is taken first. */
static void *open_for_two_of_a_kind(void *unused)
{
    sigset_t one = set_of(SIGUSR1, 0);
    count = 0;
    OK(pthread_sigmask(SIG_BLOCK, &one, NULL));
    GET(sigqueue(getpid(), SIGUSR1, (union sigval){0}));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    OK(pthread_sigmask(SIG_UNBLOCK, &one, NULL));
    IS(count, 2);
    IS(interrupted[0], (uintptr_t)note);
    return unused;
}

CASE(signals_of_one_number_nest_with_sa_nodefer)
{
    sigset_t one = set_of(SIGUSR1, 0);
    handle(SIGUSR1, SA_NODEFER);
    OK(pthread_sigmask(SIG_BLOCK, &one, NULL));
    join(start(open_for_two_of_a_kind, NULL));
}
