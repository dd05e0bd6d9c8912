/* Job control: stops and continuations as a shell sees them, keys of a terminal, background I/O.
 *
 * The parent plays the shell; the child is a process with threads, and leads a session with a
 * terminal of its own where a case says so. */
#include "check.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>

enum { THREADS = 6 };

static struct shared {
    atomic_int ready, interrupts, stops, continues, ticks, finish;
} * shared;

static void make_shared(void)
{
    int kinds = MAP_SHARED | MAP_ANONYMOUS;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, kinds, -1, 0);
    CHECK((void *)shared != MAP_FAILED);
}

static void wait_until(atomic_int *word, int wanted)
{
    int64_t deadline_ns = now_ns() + 20 * SECOND;
    while (atomic_load(word) < wanted) {
        CHECK(now_ns() < deadline_ns);
        usleep(1000);
    }
}

static void *tick(void *argument)
{
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->finish)) {
        atomic_fetch_add(&shared->ticks, 1);
        usleep(1000);
    }
    return argument;
}

static void count(int signal)
{
    atomic_fetch_add(signal == SIGINT    ? &shared->interrupts
                     : signal == SIGTSTP ? &shared->stops
                                         : &shared->continues,
                     1);
}

/* A handler for SIGTSTP that does as the manual says: takes the default action in the end. */
static void stop_after_all(int number)
{
    sigset_t only;
    count(number);
    sigemptyset(&only);
    sigaddset(&only, SIGTSTP);
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* stops here */
    pthread_sigmask(SIG_BLOCK, &only, NULL);
    signal(SIGTSTP, stop_after_all);
    atomic_fetch_add(&shared->continues, 1);
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(tick, NULL);
    }
    join_all(threads, THREADS);
}

static void expect_stop(pid_t child, int signal)
{
    int status;
    IS(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status));
    IS(WSTOPSIG(status), signal);
    int before = atomic_load(&shared->ticks);
    usleep(50000);
    IS(atomic_load(&shared->ticks), before); /* all of its threads stand still */
}

static void expect_continue(pid_t child)
{
    int status, before = atomic_load(&shared->ticks);
    GET(kill(child, SIGCONT));
    IS(waitpid(child, &status, WCONTINUED), child);
    CHECK(WIFCONTINUED(status));
    wait_until(&shared->ticks, before + 3);
}

static void expect_end(pid_t child)
{
    int status;
    atomic_store(&shared->finish, 1);
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    IS(WEXITSTATUS(status), 0);
}

static pid_t fork_with_threads(void (*first)(void))
{
    make_shared();
    pid_t child = GET(fork());
    if (child == 0) {
        first();
        run_threads();
        _exit(0);
    }
    wait_until(&shared->ready, THREADS);
    return child;
}

static void own_group(void)
{
    GET(setpgid(0, 0));
}

CASE(a_stop_signal_stops_all_threads)
{
    pid_t child = fork_with_threads(own_group);
    for (int i = 0; i < 5; i++) {
        int signals[] = {SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSTOP};
        /* An orphaned group ignores all but SIGSTOP: this one has its parent in the session. */
        GET(kill(child, signals[i]));
        expect_stop(child, signals[i]);
        expect_continue(child);
    }
    expect_end(child);
}

static void handle_continue(void)
{
    own_group();
    signal(SIGCONT, count);
}

CASE(a_continuation_runs_its_handler)
{
    pid_t child = fork_with_threads(handle_continue);
    for (int i = 0; i < 5; i++) {
        GET(kill(child, SIGSTOP));
        expect_stop(child, SIGSTOP);
        expect_continue(child);
        wait_until(&shared->continues, i + 1);
    }
    expect_end(child);
    IS(shared->continues, 5);
}

static void handle_stop(void)
{
    own_group();
    signal(SIGTSTP, stop_after_all);
}

CASE(a_handler_stops_its_process_after_all)
{
    pid_t child = fork_with_threads(handle_stop);
    for (int i = 0; i < 5; i++) {
        GET(kill(child, SIGTSTP));
        expect_stop(child, SIGTSTP);
        expect_continue(child);
        wait_until(&shared->continues, i + 1);
    }
    expect_end(child);
    IS(shared->stops, 5);
}

static void *stop_itself(void *argument)
{
    OK(pthread_kill(pthread_self(), SIGTSTP));
    atomic_fetch_add(&shared->continues, 1);
    return argument;
}

static void start_stopper(void)
{
    own_group();
    start(stop_itself, NULL);
}

CASE(a_thread_that_stops_itself_stops_all)
{
    make_shared();
    pid_t child = GET(fork());
    if (child == 0) {
        start_stopper();
        run_threads();
        _exit(0);
    }
    expect_stop(child, SIGTSTP);
    expect_continue(child);
    wait_until(&shared->continues, 1);
    expect_end(child);
}

static int is_pending(int signal)
{
    sigset_t set;
    GET(sigpending(&set));
    return sigismember(&set, signal);
}

static void send_to_itself(int signal)
{
    GET(kill(getpid(), signal));
    int64_t deadline_ns = now_ns() + 20 * SECOND;
    while (!is_pending(signal)) {
        CHECK(now_ns() < deadline_ns);
        usleep(100);
    }
}

CASE(stops_and_continuations_discard_each_other)
{
    static const int stops[] = {SIGTSTP, SIGTTIN, SIGTTOU};
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, SIGCONT);
    for (int i = 0; i < 3; i++) {
        sigaddset(&all, stops[i]);
    }
    OK(pthread_sigmask(SIG_BLOCK, &all, NULL));
    make_shared();
    pthread_t ticker = start(tick, NULL);
    for (int i = 0; i < 10; i++) {
        send_to_itself(stops[i % 3]);
        IS(is_pending(SIGCONT), 0);
        OK(pthread_kill(pthread_self(), stops[(i + 1) % 3]));
        OK(pthread_kill(ticker, stops[(i + 2) % 3]));
        send_to_itself(SIGCONT);
        for (int stop = 0; stop < 3; stop++) {
            IS(is_pending(stops[stop]), 0);
        }
    }
    OK(pthread_sigmask(SIG_UNBLOCK, &all, NULL)); /* nothing stops here */
    atomic_store(&shared->finish, 1);
    join(ticker);
}

static int terminal;

/* A shell with a terminal of its own, in a child process that runs `body` and exits. */
static void in_a_session(void (*body)(void))
{
    terminal = (int)GET(posix_openpt(O_RDWR | O_NOCTTY));
    GET(grantpt(terminal));
    GET(unlockpt(terminal));
    pid_t shell = GET(fork());
    if (shell == 0) {
        GET(setsid());
        int tty = (int)GET(open(ptsname(terminal), O_RDWR));
        GET(ioctl(tty, TIOCSCTTY, 0));
        struct termios settings;
        GET(tcgetattr(tty, &settings));
        settings.c_lflag &= ~(tcflag_t)ECHO;
        GET(tcsetattr(tty, TCSANOW, &settings));
        dup2(tty, 0);
        signal(SIGTTOU, SIG_IGN); /* as shells do */
        body();
        _exit(0);
    }
    int status;
    IS(waitpid(shell, &status, 0), shell);
    IS(status, 0);
}

static void foreground(pid_t group)
{
    GET(tcsetpgrp(0, group));
}

static void handle_interrupt(void)
{
    own_group();
    signal(SIGTTOU, SIG_DFL);
    signal(SIGINT, count);
}

static void key(char byte)
{
    IS(write(terminal, &byte, 1), 1);
}

static void interrupts_and_stops(void)
{
    pid_t child = fork_with_threads(handle_interrupt);
    foreground(child);
    for (int i = 0; i < 3; i++) {
        key(3); /* ^C */
        wait_until(&shared->interrupts, i + 1);
        key(26); /* ^Z */
        expect_stop(child, SIGTSTP);
        foreground(getpgrp());
        foreground(child);
        expect_continue(child);
    }
    foreground(getpgrp());
    expect_end(child);
}

CASE(keys_of_a_terminal_interrupt_and_stop)
{
    in_a_session(interrupts_and_stops);
}

static void interrupt_kills(void)
{
    pid_t child = fork_with_threads(own_group);
    int status;
    foreground(child);
    key(3);
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    IS(WTERMSIG(status), SIGINT);
}

CASE(an_interrupt_without_a_handler_ends_the_process)
{
    in_a_session(interrupt_kills);
}

static void *read_a_line(void *argument)
{
    char line[10] = {0};
    IS(read(0, line, sizeof line), 3);
    IS(strcmp(line, "hi\n"), 0);
    atomic_fetch_add(&shared->interrupts, 1);
    return argument;
}

static void *write_a_line(void *argument)
{
    IS(write(0, "x", 1), 1);
    atomic_fetch_add(&shared->stops, 1);
    return argument;
}

static void reader(void)
{
    own_group();
    start(read_a_line, NULL);
}

static void writer(void)
{
    own_group();
    signal(SIGTTOU, SIG_DFL);
    start(write_a_line, NULL);
}

static void background_reads(void)
{
    make_shared();
    pid_t child = GET(fork());
    if (child == 0) {
        reader();
        run_threads();
        _exit(0);
    }
    expect_stop(child, SIGTTIN);
    foreground(child);
    expect_continue(child);
    IS(write(terminal, "hi\n", 3), 3);
    wait_until(&shared->interrupts, 1);
    foreground(getpgrp());
    expect_end(child);
}

CASE(a_background_read_stops_until_it_is_in_the_foreground)
{
    in_a_session(background_reads);
}

static void background_writes(void)
{
    struct termios settings;
    GET(tcgetattr(0, &settings));
    settings.c_lflag |= TOSTOP;
    GET(tcsetattr(0, TCSANOW, &settings));
    make_shared();
    pid_t child = GET(fork());
    if (child == 0) {
        writer();
        run_threads();
        _exit(0);
    }
    expect_stop(child, SIGTTOU);
    IS(shared->stops, 0);
    foreground(child);
    expect_continue(child);
    wait_until(&shared->stops, 1);
    foreground(getpgrp());
    expect_end(child);
}

CASE(a_background_write_stops_where_the_terminal_says_so)
{
    in_a_session(background_writes);
}
