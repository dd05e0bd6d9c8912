/* The errors of calls about signals, and their order; flags of alternate stacks. */
#include "check.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

enum { SIZE = 32 * 1024 };

static void *idle(void *unused)
{
    pause();
    return unused;
}

static void *run(void *function)
{
    ((void (*)(void))function)();
    return NULL;
}

static void on_a_thread_and_on_main(void (*calls)(void))
{
    start(idle, NULL);
    calls();
    join(start(run, (void *)calls));
}

static char *stacks[2];

static long alternate(char *at, unsigned flags, size_t size, stack_t *old)
{
    stack_t stack = {.ss_sp = at, .ss_flags = (int)flags, .ss_size = size};
    return syscall(SYS_sigaltstack, at == (char *)-1 ? NULL : &stack, old);
}

static void is_now(char *at, unsigned flags, size_t size)
{
    stack_t now = {0};
    GET(alternate((char *)-1, 0, 0, &now));
    CHECK(now.ss_sp == at);
    IS(now.ss_flags, (int)flags);
    IS(now.ss_size, size);
}

static void make_stacks(void)
{
    for (int i = 0; i < 2; i++) {
        stacks[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stacks[i] != MAP_FAILED);
    }
}

static void set_and_read(void)
{
    stack_t old;
    make_stacks();
    is_now(NULL, SS_DISABLE, 0);
    FAILS(alternate(stacks[0], 4, SIZE, NULL), EINVAL);
    FAILS(alternate(stacks[0], SS_ONSTACK | SS_DISABLE, SIZE, NULL), EINVAL);
    FAILS(alternate(stacks[0], 4, 1, NULL), EINVAL); /* comes before its size */
    FAILS(alternate(stacks[0], 0, 2047, NULL), ENOMEM);
    FAILS(alternate(stacks[0], SS_ONSTACK, 2047, NULL), ENOMEM);
    is_now(NULL, SS_DISABLE, 0);
    OK(alternate(stacks[0], SS_ONSTACK, SIZE, &old));
    IS(old.ss_flags, SS_DISABLE);
    is_now(stacks[0], 0, SIZE);
    OK(alternate(stacks[1], SS_AUTODISARM, SIZE, NULL));
    is_now(stacks[1], SS_AUTODISARM, SIZE);
    OK(alternate(stacks[1], SS_DISABLE | SS_AUTODISARM, SIZE, NULL));
    is_now(NULL, SS_DISABLE | SS_AUTODISARM, 0);
    OK(alternate(stacks[1], SS_DISABLE, 0, NULL));
    is_now(NULL, SS_DISABLE, 0);
}

CASE(flags_of_alternate_stacks)
{
    on_a_thread_and_on_main(set_and_read);
}

/* Volatile: raise is said to change nothing here. */
static __thread volatile int depth, handled;

static int is_on(char *stack)
{
    char here;
    return &here > stack && &here < stack + SIZE;
}

static void when_armed(int signal)
{
    CHECK(is_on(stacks[0]));
    is_now(stacks[0], SS_ONSTACK, SIZE);
    FAILS(alternate(stacks[1], 0, SIZE, NULL), EPERM);
    FAILS(alternate(stacks[1], 4, 1, NULL), EPERM);
    if (++depth < 3) {
        GET(raise(signal)); /* goes on where it is */
    }
    handled++;
}

static void handle(void (*handler)(int), unsigned flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_NODEFER};
    depth = handled = 0;
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(alternate(stacks[0], flags, SIZE, NULL));
    GET(raise(SIGUSR1));
    is_now(stacks[0], flags & SS_AUTODISARM, SIZE);
}

static void keep_armed(void)
{
    make_stacks();
    handle(when_armed, 0);
    IS(handled, 3);
}

CASE(a_stack_is_kept_while_its_handler_runs)
{
    on_a_thread_and_on_main(keep_armed);
}

static void when_disarmed(int signal)
{
    CHECK(is_on(stacks[depth]));
    is_now(NULL, SS_DISABLE, 0);
    if (++depth == 1) {
        OK(alternate(stacks[1], SS_AUTODISARM, SIZE, NULL));
        GET(raise(signal)); /* runs on the other one */
        is_now(stacks[1], SS_AUTODISARM, SIZE);
    }
    handled++;
}

static void disarm(void)
{
    make_stacks();
    handle(when_disarmed, SS_AUTODISARM);
    IS(handled, 2);
    handle(when_disarmed, SS_AUTODISARM);
    IS(handled, 2);
}

CASE(a_stack_disarms_itself)
{
    on_a_thread_and_on_main(disarm);
}

static void set_another(int signal)
{
    (void)signal;
    OK(alternate(stacks[1], 0, SIZE, NULL));
    is_now(stacks[1], 0, SIZE);
    handled++;
}

static void set_in_a_handler(void)
{
    struct sigaction action = {.sa_handler = set_another};
    make_stacks();
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(alternate(stacks[0], 0, SIZE, NULL));
    handled = 0;
    GET(raise(SIGUSR1));
    IS(handled, 1);
    is_now(stacks[0], 0, SIZE);
}

CASE(what_a_handler_sets_ends_with_it)
{
    on_a_thread_and_on_main(set_in_a_handler);
}

static void *bad = (void *)64;

static void name_sizes(void)
{
    unsigned long set = 0, other = -1ul;
    struct timespec soon = {0, 1000};
    struct pollfd none = {-1, 0, 0};
    struct epoll_event event;
    struct {
        void *set;
        size_t size;
    } argument = {&set, 4};
    int epoll = GET(epoll_create1(0));
    FAILS(syscall(SYS_rt_sigaction, SIGUSR2, bad, NULL, 4), EINVAL);
    FAILS(syscall(SYS_rt_sigaction, SIGKILL, bad, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, 65, bad, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, 65, NULL, bad, 8), EINVAL);
    FAILS(syscall(SYS_rt_sigprocmask, 77, bad, NULL, 16), EINVAL);
    FAILS(syscall(SYS_rt_sigprocmask, 77, bad, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigprocmask, 77, &set, bad, 8), EINVAL);
    FAILS(syscall(SYS_rt_sigsuspend, bad, 9), EINVAL);
    FAILS(syscall(SYS_rt_sigtimedwait, bad, NULL, bad, 0), EINVAL);
    FAILS(syscall(SYS_rt_sigpending, bad, 9), EINVAL);
    OK(syscall(SYS_rt_sigpending, bad, 0));
    OK(syscall(SYS_rt_sigpending, &other, 3));
    IS(other, 0xffffffffff000000);
    FAILS(syscall(SYS_signalfd4, -1, bad, 4, 0), EINVAL);
    FAILS(syscall(SYS_signalfd4, -1, bad, 8, 0), EFAULT);
    FAILS(syscall(SYS_ppoll, &none, 1, &soon, bad, 4), EINVAL);
    FAILS(syscall(SYS_ppoll, &none, 1, bad, bad, 4), EFAULT);
    OK(syscall(SYS_ppoll, &none, 1, &soon, NULL, 4));
    FAILS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, &argument), EINVAL);
    FAILS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, bad, bad), EFAULT);
    argument.set = NULL;
    OK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, &argument));
    FAILS(syscall(SYS_epoll_pwait, epoll, &event, 1, 1, bad, 4), EINVAL);
    FAILS(syscall(SYS_epoll_pwait, epoll, &event, 0, 1, bad, 8), EFAULT);
    FAILS(syscall(SYS_epoll_pwait2, epoll, &event, 1, &soon, bad, 4), EINVAL);
    OK(syscall(SYS_epoll_pwait, epoll, &event, 1, 1, NULL, 4));
    close(epoll);
}

CASE(sizes_of_sets)
{
    on_a_thread_and_on_main(name_sizes);
}

static void drop_flags(void)
{
    struct {
        void *handler;
        unsigned long flags;
        void *restorer;
        unsigned long mask;
    } action = {SIG_IGN, 0xfffffffffbfff7f8, NULL, -1ul}, old;
    OK(syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, 8));
    OK(syscall(SYS_rt_sigaction, SIGUSR2, NULL, &old, 8));
    IS(old.flags, 0xd8000000);
    CHECK((old.mask & (1ul << (SIGKILL - 1))) == 0);
}

CASE(flags_of_actions_that_do_not_exist)
{
    on_a_thread_and_on_main(drop_flags);
}

static siginfo_t received;

static void receive(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    received = *info;
}

static long queue(int is_directed, pid_t id, int signal, int code, int rest)
{
    union {
        siginfo_t info;
        char bytes[128];
    } said = {0};
    said.info.si_signo = 77; /* is ignored */
    said.info.si_code = code;
    said.info.si_value.sival_int = 5;
    said.bytes[127] = rest;
    received.si_value.sival_int = 0;
    memset((char *)&received + 48, 1, 80);
    return is_directed ? syscall(SYS_rt_tgsigqueueinfo, getpid(), id, signal, &said)
                       : syscall(SYS_rt_sigqueueinfo, id, signal, &said);
}

static void is_received(int code)
{
    IS(received.si_value.sival_int, 5);
    IS(received.si_signo, SIGUSR1);
    IS(received.si_code, code);
    for (int i = 48; i < 128; i++) {
        IS(((char *)&received)[i], 0);
    }
}

static void queue_to(int is_directed, pid_t id)
{
    int is_own = id == gettid();
    static const int free_codes[] = {SI_QUEUE, SI_TIMER, SI_MESGQ, SI_ASYNCIO, SI_SIGIO, -7, -60};
    for (int i = 0; i < 7; i++) {
        OK(queue(is_directed, id, SIGUSR1, free_codes[i], 1));
        is_received(free_codes[i]);
    }
    static const int restricted[] = {SI_USER, SI_TKILL, 1, SI_KERNEL};
    for (int i = 0; i < 4; i++) {
        if (is_own) {
            OK(queue(is_directed, id, SIGUSR1, restricted[i], 1));
            is_received(restricted[i]);
        } else {
            FAILS(queue(is_directed, id, SIGUSR1, restricted[i], 1), EPERM);
        }
    }
    OK(queue(is_directed, id, SIGUSR1, -8, 0));
    is_received(-8);
    FAILS(queue(is_directed, id, SIGUSR1, -8, 1), E2BIG);
    FAILS(queue(is_directed, id, 65, SI_QUEUE, 0), EINVAL);
    OK(queue(is_directed, id, 0, SI_QUEUE, 0));
    FAILS(queue(is_directed, 0x3fffffff, 65, SI_QUEUE, 0), ESRCH);
    FAILS(queue(is_directed, 0x3fffffff, SIGUSR1, SI_USER, 0), EPERM);
}

static void queue_to_all(void)
{
    struct sigaction action = {.sa_sigaction = receive, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &action, NULL));
    queue_to(1, gettid());
    FAILS(queue(1, 0, SIGUSR1, SI_QUEUE, 0), EINVAL);
    FAILS(queue(1, -1, SIGUSR1, SI_USER, 0), EINVAL);
    if (gettid() == getpid()) {
        queue_to(0, getpid());
    } else {
        FAILS(queue(0, getpid(), SIGUSR1, SI_USER, 1), EPERM);
        FAILS(queue(0, getpid(), SIGUSR1, -8, 1), E2BIG);
        FAILS(queue(1, getpid(), SIGUSR1, SI_TKILL, 1), EPERM);
    }
}

CASE(what_may_be_said_of_a_queued_signal)
{
    on_a_thread_and_on_main(queue_to_all);
}
