/* Processes: fork from any thread, vfork, spawn, exec, waiting, handlers, pipes to children. */
#include "check.h"

#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/time.h>

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static atomic_long progress;

static int wait_for(pid_t child)
{
    int status;
    IS(waitpid(child, &status, 0), child);
    return status;
}

static void *return_argument(void *argument)
{
    sched_yield();
    return argument;
}

/* A child of fork can use threads, locks, sleeps, pipes. */
static void use_threads_and_exit(int status)
{
    pthread_t threads[10];
    int ends[2];
    char byte;
    IS(gettid(), getpid());
    for (long i = 0; i < 10; i++) {
        threads[i] = start(return_argument, number(i));
    }
    for (long i = 0; i < 10; i++) {
        IS(join(threads[i]), i);
    }
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_mutex_unlock(&mutex));
    sleep_ms(2);
    GET(pipe(ends));
    IS(write(ends[1], "x", 1), 1);
    IS(read(ends[0], &byte, 1), 1);
    _exit(status);
}

static void *fork_child(void *status)
{
    pid_t child = GET(fork());
    if (child == 0) {
        use_threads_and_exit((int)(long)status);
    }
    return number(WEXITSTATUS(wait_for(child)));
}

CASE(a_child_of_main_uses_threads)
{
    IS(fork_child(number(42)), 42);
}

CASE(a_child_of_a_thread_uses_threads)
{
    for (int i = 0; i < 20; i++) {
        IS(join(start(fork_child, number(i))), i);
    }
}

static void *work(void *argument)
{
    while (!atomic_load(&stop)) {
        OK(pthread_mutex_lock(&mutex));
        atomic_fetch_add(&progress, 1);
        OK(pthread_mutex_unlock(&mutex));
        free(malloc(100));
        if (progress % 16 == 0) {
            usleep(100);
        }
    }
    return argument;
}

static void lock_before(void)
{
    OK(pthread_mutex_lock(&mutex));
}

static void unlock_after(void)
{
    OK(pthread_mutex_unlock(&mutex));
}

CASE(fork_while_other_threads_run)
{
    pthread_t threads[8];
    OK(pthread_atfork(lock_before, unlock_after, unlock_after));
    for (int i = 0; i < 8; i++) {
        threads[i] = start(work, NULL);
    }
    for (int i = 0; i < 30; i++) {
        IS(fork_child(number(i)), i);
    }
    atomic_store(&stop, 1);
    join_all(threads, 8);
}

static void *fork_some(void *me)
{
    for (int i = 0; i < 5; i++) {
        IS(fork_child(number((long)me * 5 + i)), (long)me * 5 + i);
    }
    return NULL;
}

CASE(eight_threads_fork_at_once)
{
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(fork_some, number(i));
    }
    join_all(threads, 8);
}

CASE(a_child_forks_a_child)
{
    pid_t child = GET(fork());
    if (child == 0) {
        IS(join(start(fork_child, number(3))), 3);
        use_threads_and_exit(4);
    }
    IS(WEXITSTATUS(wait_for(child)), 4);
}

static _Thread_local int local = 5;

static void ignore_alarm(int signal) { (void)signal; }

static void ring_in_ms(int ms)
{
    struct itimerval once = {.it_value.tv_usec = ms * 1000};
    GET(setitimer(ITIMER_REAL, &once, NULL));
}

/* Waits for alarms, in each way in which a thread can. */
static void wait_for_alarms_and_exit(void)
{
    sigset_t alarm, none;
    siginfo_t info;
    struct timespec while_nothing_comes = timespec_of(200 * MS);
    struct sigaction action = {.sa_handler = ignore_alarm};
    sigemptyset(&none);
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    GET(sigaction(SIGALRM, &action, NULL));
    int64_t used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    ring_in_ms(200);
    FAILS(pause(), EINTR);
    GET(sigprocmask(SIG_BLOCK, &alarm, NULL));
    ring_in_ms(200);
    FAILS(sigsuspend(&none), EINTR);
    FAILS(sigtimedwait(&alarm, &info, &while_nothing_comes), EAGAIN);
    ring_in_ms(200);
    IS(sigwaitinfo(&alarm, &info), SIGALRM);
    used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used_ns;
    CHECK(used_ns < 20 * MS);
    _exit(3);
}

CASE(a_child_that_waits_for_signals_uses_no_time)
{
    IS(join(start(return_argument, number(3))), 3);
    pid_t child = GET(fork());
    if (child == 0) {
        wait_for_alarms_and_exit();
    }
    IS(WEXITSTATUS(wait_for(child)), 3);
}

static void *fork_with_locals(void *argument)
{
    local = 6;
    errno = 99;
    pthread_t self = pthread_self();
    pid_t child = GET(fork());
    if (child == 0) {
        IS(local, 6);
        CHECK(pthread_equal(self, pthread_self()));
        IS(gettid(), getpid());
        _exit(local);
    }
    IS(WEXITSTATUS(wait_for(child)), 6);
    return argument;
}

CASE(the_forking_thread_keeps_its_locals_in_the_child)
{
    join(start(fork_with_locals, NULL));
    IS(local, 5);
}

static int handler_order;
static void prepare_a(void) { handler_order = handler_order * 10 + 1; }
static void prepare_b(void) { handler_order = handler_order * 10 + 2; }
static void parent_a(void) { handler_order = handler_order * 10 + 3; }
static void parent_b(void) { handler_order = handler_order * 10 + 4; }
static void child_a(void) { handler_order = handler_order * 10 + 5; }
static void child_b(void) { handler_order = handler_order * 10 + 6; }

CASE(atfork_handlers_run_in_order)
{
    OK(pthread_atfork(prepare_a, parent_a, child_a));
    OK(pthread_atfork(prepare_b, parent_b, child_b));
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(handler_order == 2156 ? 0 : 1);
    }
    IS(handler_order, 2134);
    IS(wait_for(child), 0);
}

CASE(vfork_and_exec)
{
    for (int i = 0; i < 20; i++) {
        pid_t child = GET(vfork());
        if (child == 0) {
            execl("/bin/sh", "sh", "-c", "exit 5", NULL);
            _exit(127);
        }
        IS(WEXITSTATUS(wait_for(child)), 5);
    }
}

CASE(a_vfork_child_makes_calls_by_number)
{
    char entries[1024];
    for (int threads = 0; threads < 2; threads++) {
        pid_t child = GET(vfork());
        if (child == 0) {
            int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
            long size = syscall(SYS_getdents64, folder, entries, sizeof entries);
            int closes = syscall(SYS_close, folder) == 0;
            _exit(size > 0 && closes ? 9 : 1);
        }
        IS(WEXITSTATUS(wait_for(child)), 9);
        IS(join(start(return_argument, number(3))), 3);
    }
}

static void *vfork_and_exit(void *status)
{
    pid_t child = GET(vfork());
    if (child == 0) {
        _exit((int)(long)status);
    }
    return number(WEXITSTATUS(wait_for(child)));
}

CASE(vfork_from_threads)
{
    pthread_t threads[10];
    for (long i = 0; i < 10; i++) {
        threads[i] = start(vfork_and_exit, number(i));
    }
    for (long i = 0; i < 10; i++) {
        IS(join(threads[i]), i);
    }
}

static void *spawn_shell(void *status)
{
    char script[40], *words[] = {"sh", "-c", script, NULL};
    snprintf(script, sizeof script, "exit %ld", (long)status);
    pid_t child;
    OK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ));
    return number(WEXITSTATUS(wait_for(child)));
}

static void *set_stop(void *unused)
{
    stop = 1;
    return unused;
}

CASE(a_thread_that_computes_after_a_spawn_is_preempted)
{
    IS(join(start(spawn_shell, number(5))), 5);
    IS((long)spawn_shell(number(6)), 6);
    pthread_t setter = start(set_stop, NULL);
    while (!stop) {
    }
    join(setter);
}

CASE(a_child_of_vfork_forks)
{
    IS(join(start(return_argument, number(1))), 1);
    pid_t child = GET(vfork());
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            _exit(7);
        }
        int status = 0;
        waitpid(grandchild, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    IS(WEXITSTATUS(wait_for(child)), 7);
    IS(join(start(return_argument, number(2))), 2);
}

CASE(posix_spawn_from_ten_threads)
{
    pthread_t threads[10];
    pid_t child;
    for (long i = 0; i < 10; i++) {
        threads[i] = start(spawn_shell, number(i));
    }
    for (long i = 0; i < 10; i++) {
        IS(join(threads[i]), i);
    }
    char *words[] = {"x", NULL};
    IS(posix_spawn(&child, "/nonexistent", NULL, NULL, words, environ), ENOENT);
}

static void *run_system(void *argument)
{
    return number(WEXITSTATUS(system("exit 6")));
}

CASE(system_in_main_and_threads)
{
    IS(run_system(NULL), 6);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(run_system, NULL);
    }
    for (int i = 0; i < 4; i++) {
        IS(join(threads[i]), 6);
    }
}

static void *run_popen(void *argument)
{
    char line[100] = "";
    FILE *output = popen("echo one; sleep 0.05; echo two", "r");
    CHECK(output && fgets(line, sizeof line, output));
    IS(strcmp(line, "one\n"), 0);
    CHECK(fgets(line, sizeof line, output));
    IS(strcmp(line, "two\n"), 0);
    CHECK(!fgets(line, sizeof line, output));
    IS(pclose(output), 0);
    return argument;
}

CASE(popen_from_threads)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(run_popen, NULL);
    }
    join_all(threads, 4);
}

static void *count_progress(void *argument)
{
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&progress, 1);
        usleep(500);
    }
    return argument;
}

CASE(others_run_while_one_waits_for_a_child)
{
    pthread_t counters[2] = {start(count_progress, NULL), start(count_progress, NULL)};
    pid_t child = GET(fork());
    if (child == 0) {
        usleep(150000);
        _exit(0);
    }
    long before = progress;
    IS(wait_for(child), 0);
    CHECK(progress - before > 10);
    siginfo_t info;
    child = GET(fork());
    if (child == 0) {
        usleep(100000);
        _exit(9);
    }
    before = progress;
    GET(waitid(P_PID, child, &info, WEXITED));
    IS(info.si_status, 9);
    IS(info.si_code, CLD_EXITED);
    CHECK(progress - before > 10);
    atomic_store(&stop, 1);
    join_all(counters, 2);
}

CASE(waiting_tells_what_happened)
{
    int status;
    FAILS(waitpid(-1, &status, 0), ECHILD);
    FAILS(waitpid(getpid(), &status, WNOHANG), ECHILD);
    pid_t child = GET(fork());
    if (child == 0) {
        for (;;) {
            pause();
        }
    }
    IS(waitpid(child, &status, WNOHANG), 0);
    GET(kill(child, SIGSTOP));
    IS(waitpid(child, &status, WUNTRACED), child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    GET(kill(child, SIGCONT));
    IS(waitpid(child, &status, WCONTINUED), child);
    CHECK(WIFCONTINUED(status));
    GET(kill(child, SIGTERM));
    IS(waitpid(-1, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void *wait_any(void *argument)
{
    int status;
    pid_t child = GET(waitpid(-1, &status, 0));
    CHECK(child > 0);
    return number(WEXITSTATUS(status));
}

CASE(several_threads_wait_for_any_child)
{
    pthread_t threads[5];
    long sum = 0;
    for (int i = 0; i < 5; i++) {
        if (GET(fork()) == 0) {
            usleep(20000 + 5000 * i);
            _exit(1 << i);
        }
    }
    for (int i = 0; i < 5; i++) {
        threads[i] = start(wait_any, NULL);
    }
    for (int i = 0; i < 5; i++) {
        sum += (long)join(threads[i]);
    }
    IS(sum, 31);
}

CASE(pipes_between_parent_and_child)
{
    int down[2], up[2];
    GET(pipe(down));
    GET(pipe(up));
    pid_t child = GET(fork());
    if (child == 0) {
        int value;
        close(down[1]);
        close(up[0]);
        while (read(down[0], &value, sizeof value) == sizeof value) {
            value *= 2;
            IS(write(up[1], &value, sizeof value), sizeof value);
        }
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    for (int i = 0; i < 500; i++) {
        int value;
        IS(write(down[1], &i, sizeof i), sizeof i);
        IS(read(up[0], &value, sizeof value), sizeof value);
        IS(value, 2 * i);
    }
    close(down[1]);
    IS(wait_for(child), 0);
}

static void *exec_shell(void *argument)
{
    char script[100];
    snprintf(script, sizeof script, "test $$ = %d && echo ok %s && exit 7", getpid(), case_name);
    execl("/bin/sh", "sh", "-c", script, NULL);
    return argument;
}

CASE(exec_from_main_keeps_the_process_id)
{
    start(count_progress, NULL);
    exec_shell(NULL);
    CHECK(!"reached");
}

CASE(exec_from_a_thread_keeps_the_process_id)
{
    start(count_progress, NULL);
    join(start(exec_shell, NULL));
    CHECK(!"reached");
}

CASE(exec_that_fails_returns)
{
    char *words[] = {"x", NULL};
    FAILS(execv("/nonexistent", words), ENOENT);
    IS(join(start(return_argument, number(3))), 3);
}

CASE(exec_of_itself_with_threads)
{
    if (argument_count > 2 && strcmp(arguments[2], "again") == 0) {
        use_threads_and_exit((say_ok(), 11));
    }
    start(count_progress, NULL);
    execl("/proc/self/exe", "self", case_name, "again", NULL);
    CHECK(!"reached");
}

CASE(many_children_at_once)
{
    pid_t children[30];
    for (int i = 0; i < 30; i++) {
        children[i] = GET(fork());
        if (children[i] == 0) {
            use_threads_and_exit(i);
        }
    }
    for (int i = 0; i < 30; i++) {
        IS(WEXITSTATUS(wait_for(children[i])), i);
    }
}
