/* Bad addresses: the calls return EFAULT, as the kernel's would, and no process dies. */
#include "check.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>

enum { BAD = 5 };

extern char **environ;
static void *bad[BAD];
static unsigned word;
static struct timespec soon = {0, 1000};

static void find_bad_addresses(void)
{
    bad[0] = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bad[0] != MAP_FAILED);
    bad[1] = (void *)64;
    bad[2] = (void *)0xffff800000000000;
    bad[3] = (void *)0x1234567800000000; /* not canonical */
    int file = GET(memfd_create("empty", 0)); /* the kernel raises SIGBUS behind its end */
    bad[4] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(bad[4] != MAP_FAILED);
    close(file);
}

static long futex(void *address, int operation, long value, void *fourth, void *second, int third)
{
    operation |= FUTEX_PRIVATE_FLAG;
    return syscall(SYS_futex, address, operation, value, fourth, second, third);
}

static void *futexes(void *at)
{
    FAILS(futex(at, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(at, FUTEX_WAIT_BITSET, 0, NULL, NULL, -1), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT, 0, at, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT_BITSET, 0, at, NULL, -1), EFAULT);
    FAILS(futex(at, FUTEX_CMP_REQUEUE, 1, (void *)1, &word, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAKE_OP, 1, (void *)1, at, FUTEX_OP(FUTEX_OP_ADD, 1, 0, 0)), EFAULT);
    FAILS(futex(at, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(at, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(at, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EFAULT);
    FAILS(syscall(449, at, 1, 0, NULL, 0), EFAULT);
    FAILS(syscall(SYS_futex, at, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    return NULL;
}

static void *times(void *at)
{
    FAILS(syscall(SYS_nanosleep, at, NULL), EFAULT);
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, at, NULL), EFAULT);
    FAILS(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, at, NULL), EFAULT);
    OK(syscall(SYS_nanosleep, &soon, at)); /* nothing is left to tell */
    return NULL;
}

static void *signals(void *at)
{
    sigset_t set;
    sigemptyset(&set);
    FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, at, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, at, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigpending, at, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, SIGUSR2, at, NULL, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigaction, SIGUSR2, NULL, at, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigsuspend, at, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigtimedwait, at, NULL, &soon, 8), EFAULT);
    FAILS(syscall(SYS_rt_sigtimedwait, &set, NULL, at, 8), EFAULT);
    FAILS(syscall(SYS_sigaltstack, at, NULL), EFAULT);
    FAILS(syscall(SYS_sigaltstack, NULL, at), EFAULT);
    return NULL;
}

static void *threads(void *at)
{
    FAILS(syscall(SYS_prctl, PR_SET_NAME, at, 0, 0, 0), EFAULT);
    FAILS(syscall(SYS_prctl, PR_GET_NAME, at, 0, 0, 0), EFAULT);
    FAILS(syscall(SYS_get_robust_list, 0, at, at), EFAULT);
    FAILS(syscall(SYS_clone3, at, 88), EFAULT);
    return NULL;
}

static void on_a_thread_and_on_main(thread_function calls)
{
    find_bad_addresses();
    for (int i = 0; i < BAD; i++) {
        calls(bad[i]); /* with one thread */
    }
    for (int i = 0; i < BAD; i++) {
        join(start(calls, bad[i]));
        calls(bad[i]);
    }
}

CASE(futex_words_and_times)
{
    on_a_thread_and_on_main(futexes);
}

CASE(sleeps)
{
    on_a_thread_and_on_main(times);
}

CASE(signal_sets_and_actions)
{
    on_a_thread_and_on_main(signals);
}

CASE(names_lists_and_clones)
{
    on_a_thread_and_on_main(threads);
}

static void *readiness(void *at)
{
    struct timeval time = {0, 1000};
    struct pollfd entry = {0, POLLIN, 0};
    FAILS(syscall(SYS_poll, at, 1, 1), EFAULT);
    FAILS(syscall(SYS_ppoll, &entry, 1, at, NULL, 8), EFAULT);
    FAILS(syscall(SYS_ppoll, &entry, 1, &soon, at, 8), EFAULT);
    FAILS(syscall(SYS_select, 1, at, NULL, NULL, &time), EFAULT);
    FAILS(syscall(SYS_select, 0, NULL, NULL, NULL, at), EFAULT);
    FAILS(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, at), EFAULT);
    return NULL;
}

CASE(sets_of_descriptors)
{
    on_a_thread_and_on_main(readiness);
}

static void *touch(void *at)
{
    return number(*(volatile char *)at);
}

/* The program's own bad accesses still kill it, or reach its handler. */
CASE(a_fault_of_the_programs_own_still_kills)
{
    find_bad_addresses();
    pid_t child = GET(fork());
    if (child == 0) {
        join(start(futexes, bad[0]));
        join(start(touch, bad[0]));
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(signal == SIGSEGV && info->si_addr == bad[0]);
    GET(mprotect(bad[0], 4096, PROT_READ));
}

CASE(a_fault_of_the_programs_own_reaches_its_handler)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    GET(sigaction(SIGSEGV, &action, NULL));
    find_bad_addresses();
    join(start(futexes, bad[0]));
    join(start(touch, bad[0]));
}

static void *everything(void *at)
{
    futexes(at);
    times(at);
    signals(at);
    threads(at);
    return readiness(at);
}

static void block_everything(void)
{
    sigset_t all;
    sigfillset(&all);
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
}

CASE(addresses_are_bad_while_faults_are_blocked)
{
    block_everything();
    on_a_thread_and_on_main(everything);
}

CASE(addresses_are_bad_while_a_descriptor_reads_faults)
{
    sigset_t all;
    sigfillset(&all);
    block_everything();
    join(start(touch, "x"));
    close(GET(signalfd(-1, &all, 0)));
    on_a_thread_and_on_main(everything);
}

CASE(addresses_are_bad_while_faults_are_ignored)
{
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    on_a_thread_and_on_main(everything);
    IS(kill(getpid(), SIGSEGV), 0);
    struct sigaction action;
    GET(sigaction(SIGSEGV, NULL, &action));
    CHECK(action.sa_handler == SIG_IGN);
}

static void must_not_run(int signal)
{
    (void)signal;
    CHECK(!"a handler of the program's ran");
}

CASE(handlers_of_faults_hear_nothing_of_bad_addresses)
{
    signal(SIGSEGV, must_not_run);
    signal(SIGBUS, must_not_run);
    on_a_thread_and_on_main(everything);
}

static void in_handler(int signal)
{
    (void)signal;
    for (int i = 0; i < BAD; i++) {
        times(bad[i]);
        threads(bad[i]);
        futexes(bad[i]);
    }
}

static void *raise_here(void *unused)
{
    OK(pthread_kill(pthread_self(), SIGUSR1));
    return unused;
}

CASE(addresses_are_bad_in_a_handler)
{
    find_bad_addresses();
    signal(SIGUSR1, in_handler);
    join(start(raise_here, NULL));
    raise_here(NULL);
}

/* Calls that change one thread alone give it a kernel thread of its own. */
static void *on_own_kernel_thread(void *at)
{
    GET(prctl(PR_SET_KEEPCAPS, 0));
    return everything(at);
}

CASE(addresses_are_bad_on_a_kernel_thread_of_its_own)
{
    find_bad_addresses();
    for (int i = 0; i < BAD; i++) {
        join(start(on_own_kernel_thread, bad[i]));
    }
}

/* The signals that a program started now ignores. */
static unsigned long ignored_by_a_child(int spawns)
{
    char *line[] = {"cat", "/proc/self/status", NULL}, text[4096] = {0};
    int ends[2];
    pid_t child;
    GET(pipe2(ends, O_CLOEXEC));
    if (spawns) {
        posix_spawn_file_actions_t actions;
        OK(posix_spawn_file_actions_init(&actions));
        OK(posix_spawn_file_actions_adddup2(&actions, ends[1], 1));
        OK(posix_spawn(&child, "/bin/cat", &actions, NULL, line, environ));
    } else if ((child = GET(fork())) == 0) {
        GET(dup2(ends[1], 1));
        FAILS(execv("/nonexistent/cat", line), ENOENT);
        FAILS(syscall(SYS_nanosleep, bad[0], NULL), EFAULT);
        execv("/bin/cat", line);
        _exit(1);
    }
    close(ends[1]);
    for (int had = 0, got; (got = GET(read(ends[0], text + had, sizeof text - 1 - had))) > 0;) {
        had += got;
    }
    close(ends[0]);
    IS(waitpid(child, NULL, 0), child);
    char *set = strstr(text, "SigIgn:");
    CHECK(set != NULL);
    return strtoul(set + 7, NULL, 16);
}

CASE(ignored_faults_are_handed_down)
{
    unsigned long faults = 1ul << (SIGSEGV - 1) | 1ul << (SIGBUS - 1);
    find_bad_addresses();
    join(start(futexes, bad[0]));
    IS(ignored_by_a_child(0) & faults, 0);
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    IS(ignored_by_a_child(0) & faults, faults);
    IS(ignored_by_a_child(1) & faults, faults);
    join(start(futexes, bad[0]));
    signal(SIGBUS, SIG_DFL);
    IS(ignored_by_a_child(1) & faults, 1ul << (SIGSEGV - 1));
}

static void *hold_nothing_known(void *at)
{
    GET(syscall(SYS_set_robust_list, at, 24));
    __builtin_trap();
}

/* At the end of the process, in the handler of the signal that ends it, lists are looked at. */
CASE(a_bad_list_does_not_change_what_kills)
{
    find_bad_addresses();
    for (int i = 0; i < BAD; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            join(start(hold_nothing_known, bad[i]));
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL);
    }
}
