/* Signals that end or stop the process: whichever thread takes them, the one that sends them
 * executes nothing more. */
#include "check.h"
#include "one_signal.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define ROUNDS 20

/* The values that a child gives its parent. */
static struct {
    atomic_int went_on;
    atomic_int ready;
} *shared;

static pthread_t idle_thread, main_thread;

static void *wait_for_ever(void *argument)
{
    if (shared) {
        atomic_fetch_add(&shared->ready, 1);
    }
    for (;;) {
        pause();
    }
    return argument;
}

/* libc blocks all signals in a thread that makes one, and in the new one, for a moment. */
static void *send_and_go_on(void *send)
{
    while (atomic_load(&shared->ready) != 2) {
        sched_yield();
    }
    ((void (*)(void))send)();
    atomic_store(&shared->went_on, 1);
    for (volatile int i = 0; i < 40000000; i++) {
    }
    return NULL;
}

static void share(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
}

static void end_without_core(void)
{
    struct rlimit none = {0, 0};
    OK(setrlimit(RLIMIT_CORE, &none));
}

/* A child with a thread that sends a signal: how it ends, and whether the thread went on. */
static int status_of_sender(void (*send)(void))
{
    int status;
    atomic_store(&shared->went_on, 0);
    atomic_store(&shared->ready, 0);
    pid_t child = GET(fork());
    if (child == 0) {
        setpgid(0, 0);
        end_without_core();
        main_thread = pthread_self();
        idle_thread = start(wait_for_ever, NULL);
        pthread_t sender = start(send_and_go_on, (void *)send);
        atomic_fetch_add(&shared->ready, 1);
        join(sender);
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    return status;
}

static void ends_at_once(void (*send)(void), int signal)
{
    share();
    for (int i = 0; i < ROUNDS; i++) {
        IS(status_of_sender(send), signal);
        IS(shared->went_on, 0);
    }
}

static void send_by_kill(void)
{
    GET(kill(getpid(), SIGUSR1));
}

static void send_by_sigqueue(void)
{
    GET(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = 5}));
}

static void send_to_idle(void)
{
    OK(pthread_kill(idle_thread, SIGTERM));
}

static void send_to_main(void)
{
    OK(pthread_kill(main_thread, SIGRTMAX));
}

static void kill_idle(void)
{
    OK(pthread_kill(idle_thread, SIGKILL));
}

static void send_to_group(void)
{
    GET(kill(0, SIGHUP));
}

static void send_to_group_by_id(void)
{
    GET(kill(-getpgrp(), SIGVTALRM));
}

static void send_by_pidfd(void)
{
    int self = GET(syscall(SYS_pidfd_open, getpid(), 0));
    GET(syscall(SYS_pidfd_send_signal, self, SIGALRM, NULL, 0));
}

CASE(kill_of_the_own_process_does_not_return)
{
    ends_at_once(send_by_kill, SIGUSR1);
    ends_at_once(send_by_sigqueue, SIGRTMIN + 3);
}

CASE(a_signal_to_another_thread_does_not_return)
{
    ends_at_once(send_to_idle, SIGTERM);
    ends_at_once(send_to_main, SIGRTMAX);
    ends_at_once(kill_idle, SIGKILL);
}

CASE(a_signal_to_the_own_group_does_not_return)
{
    ends_at_once(send_to_group, SIGHUP);
    ends_at_once(send_to_group_by_id, SIGVTALRM);
}

CASE(a_signal_to_the_own_descriptor_does_not_return)
{
    ends_at_once(send_by_pidfd, SIGALRM);
}

static void abort_idle(void)
{
    OK(pthread_kill(idle_thread, SIGABRT));
}

static void quit(void)
{
    GET(kill(getpid(), SIGQUIT));
}

/* Other threads may go on for a moment; but the process ends by the signal, not by its main
 * thread's return a while later. */
CASE(a_signal_that_dumps_core_ends_the_process)
{
    share();
    for (int i = 0; i < ROUNDS; i++) {
        IS(status_of_sender(abort_idle) & 0x7f, SIGABRT);
        IS(status_of_sender(quit) & 0x7f, SIGQUIT);
    }
}

static void *block_it_and_wait(void *signal)
{
    block((int)(long)signal);
    atomic_store(&shared->ready, 1);
    return wait_for_ever(NULL);
}

/* A signal that its thread blocks pends; so does one of the process that all threads block. */
CASE(a_signal_that_is_blocked_ends_nothing)
{
    share();
    block(SIGUSR1);
    pthread_t thread = start(block_it_and_wait, number(SIGUSR2));
    while (!atomic_load(&shared->ready)) {
        sleep_ms(1);
    }
    OK(pthread_kill(thread, SIGUSR2));
    GET(kill(getpid(), SIGUSR1));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    sleep_ms(20);
}

static void *take_it(void *signal)
{
    int taken;
    sigset_t set = set_of((int)(long)signal);
    OK(sigwait(&set, &taken));
    IS(taken, (long)signal);
    return NULL;
}

/* sigwait takes what all threads block, whatever its action. */
CASE(a_signal_that_is_waited_for_ends_nothing)
{
    block(SIGTERM);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread = start(take_it, number(SIGTERM));
        GET(kill(getpid(), SIGTERM));
        join(thread);
        thread = start(take_it, number(SIGTERM));
        OK(pthread_kill(thread, SIGTERM));
        join(thread);
    }
}

static void *wait_for_it_and_fail(void *signal)
{
    take_it(signal);
    _exit(3);
}

/* The main thread comes first: it doesn't block the signal, which ends the process. */
CASE(a_signal_that_only_another_thread_waits_for_ends_the_process)
{
    share();
    for (int i = 0; i < 5; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            block(SIGTERM);
            start(wait_for_it_and_fail, number(SIGTERM));
            let_others_block();
            unblock(SIGTERM);
            GET(kill(getpid(), SIGTERM));
            _exit(4);
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(status, SIGTERM);
    }
}

static void *stop_process(void *how)
{
    atomic_store(&shared->ready, 1);
    switch ((long)how) {
    case 0:
        OK(raise(SIGSTOP));
        break;
    case 1:
        OK(raise(SIGTSTP));
        break;
    default:
        GET(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGTTIN));
    }
    atomic_fetch_add(&shared->went_on, 1);
    return NULL;
}

CASE(a_thread_that_stops_itself_goes_on_after_the_continuation)
{
    share();
    for (long how = 0; how < 3; how++) {
        int status;
        atomic_store(&shared->went_on, 0);
        pid_t child = GET(fork());
        if (child == 0) {
            setpgid(0, 0);
            start(wait_for_ever, NULL);
            join(start(stop_process, number(how)));
            _exit(7);
        }
        setpgid(child, child);
        IS(waitpid(child, &status, WUNTRACED), child);
        CHECK(WIFSTOPPED(status));
        sleep_ms(5);
        IS(shared->went_on, 0);
        GET(kill(child, SIGCONT));
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), 7);
        IS(shared->went_on, 1);
    }
}

static void note(int signal)
{
    (void)signal;
    atomic_fetch_add(&shared->went_on, 1);
}

static void *send_to_group_in_turn(void *argument)
{
    unblock(SIGUSR1);
    for (int i = 0; i < 50; i++) {
        GET(kill(i % 2 ? 0 : -getpgrp(), SIGUSR1));
        IS(shared->went_on, i + 1); /* only this thread takes it */
    }
    return argument;
}

CASE(a_handler_for_a_signal_to_the_own_group_runs_before_kill_returns)
{
    share();
    pid_t child = GET(fork());
    if (child == 0) {
        setpgid(0, 0);
        signal(SIGUSR1, note);
        block(SIGUSR1);
        start(wait_for_ever, NULL);
        join(start(send_to_group_in_turn, NULL));
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

/* Prints which thread handles a signal to a descriptor of the own process, and its details. */
static volatile int handlers, code, handler_thread;

static void describe(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    handlers++;
    code = info->si_code;
    handler_thread = syscall(SYS_gettid);
}

static void send_through(const char *name, int fd, siginfo_t *info, unsigned flags, int signal)
{
    handlers = code = handler_thread = 0;
    long result = syscall(SYS_pidfd_send_signal, fd, signal, info, flags);
    int error = result == -1 ? errno : 0;
    const char *by = handler_thread == 0                     ? "no thread"
                      : handler_thread == syscall(SYS_gettid) ? "the caller"
                                                              : "another thread";
    printf("%s, flags %u: error %d, %d handled by %s, code %d\n", name, flags, error, handlers,
           by, code);
}

static void *send_through_all(void *process)
{
    enum { THREAD = 0200, SELF_THREAD = -10000, SELF_PROCESS = -10001 };
    unblock(SIGUSR1);
    int fd = (int)(long)process, main_fd = syscall(SYS_pidfd_open, getpid(), THREAD);
    for (unsigned flags = 0; flags < 5; flags++) {
        send_through("process", fd, NULL, flags, SIGUSR1);
        send_through("main thread", main_fd, NULL, flags, SIGUSR1);
        send_through("own thread", SELF_THREAD, NULL, flags, SIGUSR1);
        send_through("own process", SELF_PROCESS, NULL, flags, SIGUSR1);
    }
    siginfo_t info = {.si_signo = SIGUSR2, .si_code = SI_QUEUE};
    send_through("another number", fd, &info, 0, SIGUSR1);
    info.si_signo = SIGUSR1;
    send_through("queued", fd, &info, 0, SIGUSR1);
    info.si_code = SI_USER;
    send_through("as by kill", fd, &info, 0, SIGUSR1);
    info.si_code = SI_TKILL;
    send_through("as by tkill", fd, &info, 0, SIGUSR1);
    send_through("bad details", fd, (siginfo_t *)16, 0, SIGUSR1);
    send_through("no signal", fd, NULL, 0, 0);
    send_through("no such signal", fd, NULL, 0, 65);
    send_through("not one", 1, NULL, 0, SIGUSR1);
    send_through("none", 1000, NULL, 0, SIGUSR1);
    return NULL;
}

CASE(a_descriptor_of_the_own_process_names_its_threads)
{
    struct sigaction action = {.sa_sigaction = describe, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGUSR1, &action, NULL));
    int fd = GET(syscall(SYS_pidfd_open, getpid(), 0));
    setpgid(0, 0);
    block(SIGUSR1);
    start(wait_for_ever, NULL);
    send_through_all(number(fd));
    block(SIGUSR1);
    join(start(send_through_all, number(fd)));
}
