/* Threads that wait for the ends of children: SIGCHLD is handled, ignored, blocked, or read. */
#include "check.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/time.h>

enum { MANY = 100 };

static pid_t child_that_sleeps_ms(int ms)
{
    pid_t child = GET(fork());
    if (child == 0) {
        sleep_ms(ms);
        _exit(7);
    }
    return child;
}

/* A child that ends when the descriptor's other end is closed. */
static pid_t child_until(int ends[2])
{
    GET(pipe(ends));
    pid_t child = GET(fork());
    if (child == 0) {
        char byte;
        close(ends[1]);
        IS(read(ends[0], &byte, 1), 0);
        _exit(7);
    }
    close(ends[0]);
    return child;
}

static void *wait_for(void *child)
{
    int status;
    errno = 0;
    if (waitpid((pid_t)(intptr_t)child, &status, 0) < 0) {
        return number(-errno);
    }
    CHECK(WIFEXITED(status));
    return number(WEXITSTATUS(status));
}

static pthread_t start_waiting(pid_t child)
{
    pthread_t thread = start(wait_for, (void *)(intptr_t)child);
    let_others_block();
    return thread;
}

/* More than wait for one signal at once. */
CASE(many_threads_wait_each_for_its_child)
{
    static pthread_t threads[MANY];
    for (int i = 0; i < MANY; i++) {
        threads[i] = start_small(wait_for, (void *)(intptr_t)child_that_sleeps_ms(i % 7 * 10));
    }
    for (int i = 0; i < MANY; i++) {
        IS((intptr_t)join(threads[i]), 7);
    }
    FAILS(wait(NULL), ECHILD);
}

static void *make_and_wait(void *rounds)
{
    for (intptr_t left = (intptr_t)rounds; left > 0; left--) {
        IS((intptr_t)wait_for((void *)(intptr_t)child_that_sleeps_ms(0)), 7);
    }
    return NULL;
}

/* Ends come while others fork, wait and are woken for nothing. */
CASE(no_end_is_missed)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = start(make_and_wait, (void *)100);
    }
    join_all(threads, 8);
}

CASE(children_that_nobody_announces_end)
{
    int ends[2];
    pid_t child = child_until(ends);
    signal(SIGCHLD, SIG_IGN);
    pthread_t waiter = start_waiting(child);
    close(ends[1]);
    IS((intptr_t)join(waiter), -ECHILD);
}

CASE(who_waits_learns_that_ends_are_ignored_now)
{
    int ends[2];
    pid_t child = child_until(ends);
    pthread_t waiter = start_waiting(child);
    signal(SIGCHLD, SIG_IGN);
    let_others_block();
    close(ends[1]);
    IS((intptr_t)join(waiter), -ECHILD);
}

CASE(who_waits_learns_that_nothing_is_left_of_ends)
{
    int ends[2];
    pid_t child = child_until(ends);
    pthread_t waiter = start_waiting(child);
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    GET(sigaction(SIGCHLD, &action, NULL));
    close(ends[1]);
    IS((intptr_t)join(waiter), -ECHILD);
}

static void block(int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
}

/* The kernel keeps the signal for the descriptor. */
CASE(a_descriptor_reads_ends_that_are_waited_for)
{
    block(SIGCHLD);
    int ends[2], others[2];
    pid_t child = child_until(ends);
    pid_t other = child_until(others);
    pthread_t waiter = start_waiting(child);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    int reader = GET(signalfd(-1, &set, 0));
    pthread_t second = start_waiting(other);
    for (int i = 0; i < 2; i++) {
        struct signalfd_siginfo info;
        close(i == 0 ? others[1] : ends[1]); /* which the second child inherited */
        IS(read(reader, &info, sizeof info), sizeof info);
        IS(info.ssi_signo, SIGCHLD);
        IS(info.ssi_pid, i == 0 ? other : child);
    }
    IS((intptr_t)join(waiter), 7);
    IS((intptr_t)join(second), 7);
}

CASE(one_takes_the_signal_and_another_the_child)
{
    block(SIGCHLD);
    int ends[2];
    pid_t child = child_until(ends);
    pthread_t waiter = start_waiting(child);
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    close(ends[1]);
    IS(sigwaitinfo(&set, &info), SIGCHLD);
    IS(info.si_pid, child);
    IS((intptr_t)join(waiter), 7);
}

static volatile sig_atomic_t handled;

static void note(int signal)
{
    (void)signal;
    handled++;
}

static void *wait_interrupted(void *child)
{
    int status;
    FAILS(waitpid((pid_t)(intptr_t)child, &status, 0), EINTR);
    return wait_for(child);
}

CASE(handlers_interrupt_and_restart_the_wait)
{
    struct sigaction action = {.sa_handler = note};
    GET(sigaction(SIGUSR1, &action, NULL));
    action.sa_flags = SA_RESTART;
    GET(sigaction(SIGUSR2, &action, NULL));
    int ends[2];
    pid_t child = child_until(ends);
    pthread_t waiter = start(wait_interrupted, (void *)(intptr_t)child);
    let_others_block();
    OK(pthread_kill(waiter, SIGUSR2));
    let_others_block();
    IS(handled, 1);
    OK(pthread_kill(waiter, SIGUSR1));
    let_others_block();
    IS(handled, 2);
    close(ends[1]);
    IS((intptr_t)join(waiter), 7);
}

/* The end of another child doesn't end the wait, but its handler runs. */
CASE(the_handler_of_another_end_interrupts_the_wait)
{
    struct sigaction action = {.sa_handler = note};
    GET(sigaction(SIGCHLD, &action, NULL));
    int ends[2];
    pid_t child = child_until(ends);
    block(SIGUSR1);
    int status;
    pid_t other = child_that_sleeps_ms(50);
    join(start(wait_for, number(0x3fffffff))); /* threads exist */
    FAILS(waitpid(child, &status, 0), EINTR);
    IS(waitpid(other, &status, 0), other);
    close(ends[1]);
    int ended;
    while ((ended = waitpid(child, &status, 0)) < 0) {
        IS(errno, EINTR);
    }
    IS(ended, child);
}

CASE(a_wait_is_cancelled)
{
    for (int i = 0; i < 100; i++) {
        int ends[2];
        pid_t child = child_until(ends);
        pthread_t waiter = start(wait_for, (void *)(intptr_t)child);
        if (i % 2) {
            sched_yield();
        }
        OK(pthread_cancel(waiter));
        CHECK(join(waiter) == PTHREAD_CANCELED);
        close(ends[1]);
        IS((intptr_t)wait_for((void *)(intptr_t)child), 7);
    }
}

static void *stop_itself(void *unused)
{
    pid_t child = GET(fork());
    if (child == 0) {
        raise(SIGSTOP);
        _exit(7);
    }
    int status;
    IS(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
    GET(kill(child, SIGCONT));
    IS((intptr_t)wait_for((void *)(intptr_t)child), 7);
    return unused;
}

CASE(stops_are_waited_for)
{
    join(start(stop_itself, NULL));
    stop_itself(NULL);
}

static void *wait_for_group(void *group)
{
    int status;
    IS(waitpid((pid_t)(intptr_t)group, &status, 0) > 0, 1);
    return number(WEXITSTATUS(status));
}

CASE(groups_and_any_children_are_waited_for)
{
    int ends[2], others[2];
    pid_t child = child_until(ends);
    pid_t other = child_until(others);
    GET(setpgid(other, other));
    pthread_t by_group = start(wait_for_group, number(-other));
    let_others_block();
    pthread_t of_own_group = start(wait_for_group, number(0));
    let_others_block();
    close(others[1]);
    IS((intptr_t)join(by_group), 7);
    CHECK(kill(child, 0) == 0);
    pthread_t any = start(wait_for_group, number(-1));
    let_others_block();
    pthread_cancel(of_own_group);
    join(of_own_group);
    close(ends[1]);
    IS((intptr_t)join(any), 7);
}

/* The child's own children: it doesn't wait for those that the parent's threads wait for. */
CASE(a_child_waits_for_its_own)
{
    int ends[2];
    pid_t child = child_until(ends);
    pthread_t waiter = start_waiting(child);
    pid_t second = GET(fork());
    if (second == 0) {
        FAILS(waitpid(child, NULL, 0), ECHILD);
        for (int i = 0; i < 20; i++) {
            make_and_wait((void *)1);
            join(start(make_and_wait, (void *)1));
        }
        _exit(7);
    }
    IS((intptr_t)wait_for((void *)(intptr_t)second), 7);
    close(ends[1]);
    IS((intptr_t)join(waiter), 7);
}

static volatile int goes_on = 1;

static void *compute(void *unused)
{
    while (goes_on) {
    }
    return unused;
}

CASE(ends_are_seen_while_others_compute)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        threads[i] = start(compute, NULL);
    }
    make_and_wait((void *)20);
    join(start(make_and_wait, (void *)20));
    goes_on = 0;
    join_all(threads, 2);
}

static volatile pthread_t handler_ran_on;

static void note_thread(int signal)
{
    (void)signal;
    handler_ran_on = pthread_self();
    handled++;
}

static void sleep_until_handled(int count)
{
    for (int left = 200; handled < count && left > 0; left--) {
        usleep(10000);
    }
    IS(handled, count);
}

/* Makes a child, opens or closes its mask, and lives on or ends. */
struct maker {
    int signal; /* 0 for SIGCHLD */
    int blocks;
    int ends;
    int child_end[2];
    pid_t child;
    pthread_barrier_t made, done;
};

static void *make_child(void *argument)
{
    struct maker *maker = argument;
    if (maker->signal == 0) {
        maker->child = child_until(maker->child_end);
    } else {
        GET(pipe(maker->child_end));
        maker->child = GET(syscall(SYS_clone, maker->signal, 0, 0, 0, 0));
        if (maker->child == 0) {
            char byte;
            close(maker->child_end[1]);
            _exit(read(maker->child_end[0], &byte, 1) == 0 ? 7 : 1);
        }
        close(maker->child_end[0]);
    }
    if (maker->blocks) {
        block(SIGCHLD);
    }
    pthread_barrier_wait(&maker->made);
    if (!maker->ends) {
        pthread_barrier_wait(&maker->done);
    }
    return number(syscall(SYS_gettid));
}

/* True if the maker's thread ran the handler of its child's end. */
static int maker_hears(struct maker *maker)
{
    OK(pthread_barrier_init(&maker->made, NULL, 2));
    OK(pthread_barrier_init(&maker->done, NULL, 2));
    int before = handled;
    pthread_t thread = start(make_child, maker);
    pthread_barrier_wait(&maker->made);
    if (maker->ends) {
        join(thread);
    }
    close(maker->child_end[1]);
    sleep_until_handled(before + 1);
    int hears = pthread_equal(handler_ran_on, thread);
    if (!maker->ends) {
        pthread_barrier_wait(&maker->done);
        join(thread);
        CHECK(hears || pthread_equal(handler_ran_on, pthread_self()));
    }
    int status;
    IS(waitpid(maker->child, &status, __WALL), maker->child);
    IS(WEXITSTATUS(status), 7);
    return hears;
}

CASE(the_thread_that_made_a_child_hears_of_its_end)
{
    signal(SIGCHLD, note_thread);
    signal(SIGUSR2, note_thread);
    IS(maker_hears(&(struct maker){0}), 1);
    IS(maker_hears(&(struct maker){.signal = SIGUSR2}), 1);
    IS(maker_hears(&(struct maker){.blocks = 1}), 0);
    IS(maker_hears(&(struct maker){.ends = 1}), 0);
}

static void *do_nothing(void *argument)
{
    return argument;
}

static void set_handler(int signal, int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
}

/* A blocked signal interrupts nothing, nor does a handler with SA_RESTART. */
CASE(handlers_interrupt_the_wait_of_the_only_thread)
{
    join(start(do_nothing, NULL));
    set_handler(SIGUSR1, 0);
    set_handler(SIGHUP, 0);
    set_handler(SIGUSR2, SA_RESTART);
    block(SIGHUP);
    pid_t child = GET(fork());
    if (child == 0) {
        static const int signals[] = {SIGUSR2, SIGHUP, SIGWINCH, SIGUSR2, SIGUSR1};
        for (int i = 0; i < 5; i++) {
            sleep_ms(20);
            OK(kill(getppid(), signals[i]));
        }
        sleep_ms(50);
        _exit(7);
    }
    int status;
    FAILS(waitpid(child, &status, 0), EINTR);
    IS(handled, 3);
    IS((intptr_t)wait_for((void *)(intptr_t)child), 7);
    IS(handled, 3);
}

CASE(the_only_thread_waits_without_using_time)
{
    join(start(do_nothing, NULL));
    pid_t child = child_that_sleeps_ms(500);
    struct rusage before, after;
    OK(getrusage(RUSAGE_SELF, &before));
    int status;
    IS(waitpid(child, &status, 0), child);
    OK(getrusage(RUSAGE_SELF, &after));
    const char *chaos = getenv("RADDLE_CHAOS");
    CHECK(chaos || after.ru_nvcsw - before.ru_nvcsw < 100);
}

/* Whenever the signal comes: the runtime may be about to leave its last call. */
CASE(the_only_thread_takes_signals_while_it_computes)
{
    enum { ROUNDS = 1000 };
    join(start(do_nothing, NULL));
    set_handler(SIGUSR1, SA_RESTART);
    volatile int *round =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t parent = getpid(), child = GET(fork());
    if (child == 0) {
        for (int i = 1; i <= ROUNDS; i++) {
            while (*round < i) {
                sched_yield();
            }
            OK(kill(parent, SIGUSR1));
        }
        _exit(7);
    }
    for (int i = 1; i <= ROUNDS; i++) {
        *round = i;
        for (int call = 0; call < i % 50; call++) {
            sched_yield();
        }
        while (handled < i) {
        }
    }
    IS((intptr_t)wait_for((void *)(intptr_t)child), 7);
}

static void *fork_and_use_the_child(void *argument)
{
    pid_t child = GET(fork());
    if (child == 0) {
        struct itimerval soon = {.it_value = {.tv_usec = 2000}};
        set_handler(SIGALRM, SA_RESTART);
        OK(setitimer(ITIMER_REAL, &soon, NULL));
        while (!handled) {
        }
        OK(setitimer(ITIMER_REAL, &soon, NULL));
        while (handled < 2) {
            sleep_ms(1);
        }
        IS((intptr_t)join(start(do_nothing, number(4))), 4);
        OK(raise(SIGALRM));
        IS(handled, 3);
        _exit(7);
    }
    IS((intptr_t)wait_for((void *)(intptr_t)child), 7);
    return argument;
}

/* The children were made on any kernel threads. */
CASE(children_of_busy_threads_handle_signals)
{
    pthread_t threads[8];
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < 8; i++) {
            threads[i] = start(fork_and_use_the_child, NULL);
        }
        for (int i = 0; i < 8; i++) {
            join(threads[i]);
        }
    }
}

/* The signal is sent before the child can be taken; and a call that finds a child returns it,
 * whatever has interrupted its wait. */
static void *hear_at_each_wait(void *unused)
{
    for (int i = 0; i < 300; i++) {
        int before = handled, status;
        siginfo_t info;
        pid_t child = GET(fork());
        if (child == 0) {
            if (i % 2) {
                sched_yield();
            }
            _exit(7);
        }
        switch (i % 4) {
        case 0:
        case 1:
            IS(waitpid(child, &status, 0), child);
            IS(WEXITSTATUS(status), 7);
            break;
        case 2:
            IS(waitid(P_PID, child, &info, WEXITED), 0);
            IS(info.si_signo, SIGCHLD);
            IS(info.si_pid, child);
            IS(info.si_status, 7);
            break;
        default:
            while (GET(waitpid(child, &status, WNOHANG)) == 0) {
                sched_yield();
            }
        }
        /* The kernel thread that got the signal may not have had a CPU yet. */
        for (int ms = 0; handled == before && ms < 1000; ms++) {
            sleep_ms(1);
        }
        IS(handled, before + 1);
    }
    return unused;
}

CASE(a_wait_returns_the_child_whose_signal_interrupts_it)
{
    struct sigaction action = {.sa_handler = note};
    GET(sigaction(SIGCHLD, &action, NULL));
    join(start(hear_at_each_wait, NULL));
    hear_at_each_wait(NULL);
}
