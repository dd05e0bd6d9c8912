/* signalfd: signals read from a descriptor, whatever threads block them, however they are sent. */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

static atomic_int stop, handled;

static sigset_t set_of(int first, int second)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second) {
        sigaddset(&set, second);
    }
    return set;
}

static int blocked_descriptor(int first, int second, int flags)
{
    sigset_t set = set_of(first, second);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    return GET(signalfd(-1, &set, flags | SFD_CLOEXEC));
}

static void *sleep_until_stopped(void *argument)
{
    while (!atomic_load(&stop)) {
        usleep(1000);
    }
    return argument;
}

static struct signalfd_siginfo read_one(int fd)
{
    struct signalfd_siginfo info;
    IS(GET(read(fd, &info, sizeof info)), sizeof info);
    return info;
}

static void *send_after_a_while(void *argument)
{
    sleep_ms(20);
    GET(kill(getpid(), (int)(long)argument));
    return NULL;
}

CASE(a_descriptor_from_before_the_first_thread_is_read)
{
    int fd = blocked_descriptor(SIGUSR1, SIGTERM, 0);
    pthread_t idle = start(sleep_until_stopped, NULL);
    for (int i = 0; i < 10; i++) {
        pthread_t sender = start(send_after_a_while, number(i % 2 ? SIGUSR1 : SIGTERM));
        struct signalfd_siginfo info = read_one(fd);
        IS(info.ssi_signo, i % 2 ? SIGUSR1 : SIGTERM);
        IS(info.ssi_pid, getpid());
        IS(info.ssi_code, SI_USER);
        join(sender);
    }
    atomic_store(&stop, 1);
    join(idle);
}

static void *read_in_a_thread(void *argument)
{
    int fd = blocked_descriptor(SIGRTMIN + 1, 0, 0);
    pthread_t sender = start(send_after_a_while, number(SIGRTMIN + 1));
    IS(read_one(fd).ssi_signo, SIGRTMIN + 1);
    join(sender);
    union sigval value = {.sival_int = 1};
    for (; value.sival_int <= 5; value.sival_int++) {
        GET(sigqueue(getpid(), SIGRTMIN + 1, value));
    }
    for (int i = 1; i <= 5; i++) {
        struct signalfd_siginfo info = read_one(fd);
        IS(info.ssi_int, i);
        IS(info.ssi_code, SI_QUEUE);
    }
    close(fd);
    return argument;
}

CASE(a_descriptor_is_made_and_read_in_a_thread)
{
    sigset_t set = set_of(SIGRTMIN + 1, 0);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    join(start(read_in_a_thread, NULL));
}

CASE(epoll_and_poll_see_signals)
{
    int fd = blocked_descriptor(SIGUSR2, SIGALRM, SFD_NONBLOCK);
    pthread_t idle = start(sleep_until_stopped, NULL);
    int epoll = GET(epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd}, got;
    GET(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    struct signalfd_siginfo info;
    FAILS(read(fd, &info, sizeof info), EAGAIN);
    IS(epoll_wait(epoll, &got, 1, 10), 0);
    for (int i = 0; i < 5; i++) {
        pthread_t sender = start(send_after_a_while, number(SIGUSR2));
        IS(epoll_wait(epoll, &got, 1, 5000), 1);
        IS(got.data.fd, fd);
        IS(read_one(fd).ssi_signo, SIGUSR2);
        IS(epoll_wait(epoll, &got, 1, 0), 0);
        join(sender);
        sender = start(send_after_a_while, number(SIGALRM));
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        IS(poll(&wait, 1, 5000), 1);
        IS(read_one(fd).ssi_signo, SIGALRM);
        join(sender);
    }
    atomic_store(&stop, 1);
    join(idle);
}

CASE(what_is_pending_already_is_read)
{
    sigset_t set = set_of(SIGUSR1, SIGUSR2), pending;
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t idle = start(sleep_until_stopped, NULL);
    GET(kill(getpid(), SIGUSR1));
    OK(pthread_kill(pthread_self(), SIGUSR2));
    int fd = GET(signalfd(-1, &set, SFD_NONBLOCK));
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 1);
    IS(sigismember(&pending, SIGUSR2), 1);
    int first = read_one(fd).ssi_signo, second = read_one(fd).ssi_signo;
    IS(first + second, SIGUSR1 + SIGUSR2);
    GET(sigpending(&pending));
    IS(sigismember(&pending, SIGUSR1), 0);
    GET(raise(SIGUSR1));
    IS(read_one(fd).ssi_signo, SIGUSR1);
    atomic_store(&stop, 1);
    join(idle);
}

static void *send_to_itself_and_read(void *argument)
{
    int fd = (int)(long)argument;
    for (int i = 0; i < 60; i++) {
        OK(pthread_kill(pthread_self(), SIGUSR1));
        IS(read_one(fd).ssi_signo, SIGUSR1);
        if (i % 10 == 0) {
            usleep(100);
        }
    }
    atomic_store(&stop, 1);
    return NULL;
}

/* On whichever kernel thread it is: another thread has the first one. */
CASE(what_a_thread_sends_to_itself_is_there_at_once)
{
    int fd = blocked_descriptor(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
    pthread_t sender = start(send_to_itself_and_read, number(fd));
    while (!atomic_load(&stop)) {
    }
    join(sender);
}

static atomic_int sits, sends;
static int gate[2];

/* The calling kernel thread stays in the kernel until the gate is opened. */
static void sit_in_the_kernel(void)
{
    pid_t child = GET(vfork());
    if (child == 0) {
        char byte;
        atomic_store(&sits, 1);
        _exit(read(gate[0], &byte, 1) != 1);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static void *send_and_read_at_once(void *argument)
{
    while (!atomic_load(&sits)) {
        usleep(100);
    }
    atomic_store(&sends, 1);
    OK(pthread_kill(pthread_self(), SIGUSR1));
    struct signalfd_siginfo info = read_one((int)(long)argument);
    IS(info.ssi_signo, SIGUSR1);
    IS(info.ssi_code, SI_TKILL);
    IS(info.ssi_pid, getpid());
    return NULL;
}

static void *send_read_and_open(void *fd)
{
    send_and_read_at_once(fd);
    IS(write(gate[1], "x", 1), 1);
    return NULL;
}

static void *open_while_one_sends(void *unused)
{
    while (!atomic_load(&sends)) {
        sched_yield();
    }
    IS(write(gate[1], "x", 1), 1);
    return unused;
}

/* A kernel lets a thread send itself, for its whole process, what `kill` sends (Linux 6.15). */
static int kernel_has_own_threads(void)
{
    enum { SELF_THREAD = -10000, TO_PROCESS = 2 };
    return syscall(SYS_pidfd_send_signal, SELF_THREAD, 0, NULL, TO_PROCESS) == 0;
}

CASE(what_is_sent_while_the_first_thread_sits_in_the_kernel_is_there)
{
    if (!kernel_has_own_threads()) {
        return;
    }
    int fd = blocked_descriptor(SIGUSR1, 0, SFD_NONBLOCK);
    GET(pipe(gate));
    pthread_t sender = start(send_read_and_open, number(fd));
    sit_in_the_kernel();
    join(sender);
}

static void install_a_filter_that_allows_all(void)
{
    struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {.len = 1, .filter = &allow};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    GET(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Under a filter, and with an older kernel, only the first kernel thread can make it readable. */
CASE(others_run_while_a_sender_waits_for_the_first_thread)
{
    install_a_filter_that_allows_all();
    int fd = blocked_descriptor(SIGUSR1, 0, SFD_NONBLOCK);
    GET(pipe(gate));
    pthread_t threads[] = {
        start(send_and_read_at_once, number(fd)),
        start(open_while_one_sends, NULL),
    };
    sit_in_the_kernel();
    join_all(threads, 2);
}

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

CASE(a_signal_that_is_unblocked_goes_to_its_handler)
{
    signal(SIGUSR1, on_signal);
    int fd = blocked_descriptor(SIGUSR1, 0, SFD_NONBLOCK);
    sigset_t set = set_of(SIGUSR1, 0);
    pthread_t idle = start(sleep_until_stopped, NULL);
    for (int i = 1; i <= 5; i++) {
        GET(kill(getpid(), SIGUSR1));
        IS(handled, i - 1);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        IS(poll(&wait, 1, 5000), 1);
        OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
        while (atomic_load(&handled) < i) {
            usleep(100);
        }
        OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
        IS(poll(&wait, 1, 0), 0);
    }
    atomic_store(&stop, 1);
    join(idle);
}

static void *send_blocked(void *argument)
{
    sigset_t set = set_of(SIGUSR1, 0);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    sleep_ms(20);
    GET(kill(getpid(), SIGUSR1));
    return argument;
}

/* The signal comes while the only thread that takes it blocks it for a call. */
CASE(a_signal_that_a_call_has_blocked_goes_to_its_handler_after_the_call)
{
    signal(SIGUSR1, on_signal);
    sigset_t set = set_of(SIGUSR1, 0);
    int fd = GET(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    struct timespec limit = {.tv_nsec = 60000000};
    for (int i = 1; i <= 3; i++) {
        pthread_t sender = start(send_blocked, NULL);
        IS(ppoll(NULL, 0, &limit, &set), 0);
        join(sender);
        while (atomic_load(&handled) < i) {
            usleep(100); /* it may be on its way between carriers: a busy machine makes it late */
        }
        IS(handled, i);
    }
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    IS(poll(&wait, 1, 0), 0);
}

CASE(sigwait_takes_what_a_descriptor_could_read)
{
    int fd = blocked_descriptor(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
    sigset_t set = set_of(SIGUSR1, 0);
    pthread_t idle = start(sleep_until_stopped, NULL);
    for (int i = 0; i < 5; i++) {
        GET(kill(getpid(), SIGUSR2));
        GET(kill(getpid(), SIGUSR1));
        int signal;
        OK(sigwait(&set, &signal));
        IS(signal, SIGUSR1);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        IS(poll(&wait, 1, 5000), 1);
        IS(read_one(fd).ssi_signo, SIGUSR2);
        pthread_t sender = start(send_after_a_while, number(SIGUSR1));
        OK(sigwait(&set, &signal));
        join(sender);
    }
    atomic_store(&stop, 1);
    join(idle);
}

CASE(children_that_end_are_read)
{
    int fd = blocked_descriptor(SIGCHLD, 0, 0);
    pthread_t idle = start(sleep_until_stopped, NULL);
    for (int i = 0; i < 5; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            _exit(i);
        }
        struct signalfd_siginfo info = read_one(fd);
        IS(info.ssi_signo, SIGCHLD);
        IS(info.ssi_pid, child);
        IS(info.ssi_status, i);
        IS(waitpid(child, NULL, 0), child);
    }
    atomic_store(&stop, 1);
    join(idle);
}

static void *read_many(void *argument)
{
    int fd = *(int *)argument;
    long count = 0;
    struct signalfd_siginfo infos[4];
    while (!atomic_load(&stop)) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 5) == 1) {
            ssize_t got = read(fd, infos, sizeof infos);
            CHECK(got > 0 || errno == EAGAIN);
            count += got > 0 ? got / (ssize_t)sizeof *infos : 0;
        }
    }
    return number(count);
}

CASE(several_readers_share_a_stream_of_signals)
{
    enum { SIGNALS = 400, READERS = 4 };
    int fd = blocked_descriptor(SIGRTMIN + 2, 0, SFD_NONBLOCK);
    pthread_t readers[READERS];
    for (int i = 0; i < READERS; i++) {
        readers[i] = start(read_many, &fd);
    }
    union sigval value = {.sival_int = 0};
    for (int i = 0; i < SIGNALS; i++) {
        while (sigqueue(getpid(), SIGRTMIN + 2, value) == -1) {
            IS(errno, EAGAIN);
            sleep_ms(1);
        }
        if (i % 50 == 0) {
            sleep_ms(1);
        }
    }
    sleep_ms(50);
    atomic_store(&stop, 1);
    long count = 0;
    for (int i = 0; i < READERS; i++) {
        count += (long)join(readers[i]);
    }
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof info) == sizeof info) {
        count++;
    }
    IS(count, SIGNALS);
}

static atomic_int group_signals;

static void note_group_signal(int signal)
{
    (void)signal;
    group_signals++;
}

static void *yield_until_stopped(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        sched_yield();
    }
    return NULL;
}

/* A descriptor reads the signal if it is blocked, but no thread blocks it. */
CASE(a_signal_to_the_own_group_runs_its_handler_before_kill_returns)
{
    static atomic_int stop;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    GET(setpgid(0, 0));
    signal(SIGUSR1, note_group_signal);
    GET(signalfd(-1, &set, SFD_CLOEXEC));
    pthread_t other = start(yield_until_stopped, &stop);
    for (int i = 0; i < 500; i++) {
        GET(kill(0, SIGUSR1));
        IS(group_signals, i + 1);
        if (i % 50 == 0) {
            let_others_block();
        }
    }
    stop = 1;
    join(other);
}
