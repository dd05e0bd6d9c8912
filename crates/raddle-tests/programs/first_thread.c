/* A program's actions before its first thread, and the ways to one. */
#include "check.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/time.h>

static volatile int ran;

static void *run(void *unused)
{
    ran++;
    return unused;
}

static void make_thread(void)
{
    join(start(run, NULL));
    CHECK(ran > 0);
}

/* Bytes of libc's text that are this process's own. */
static long changed_text(void)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512], path[256], access[8];
    long kilobytes, sum = 0;
    int in_text = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%*x-%*x %7s %*x %*s %*u %255s", access, path) == 2) {
            in_text = access[2] == 'x' && strstr(path, "/libc.so.6") != NULL;
        } else if (in_text && sscanf(line, "Private_Dirty: %ld", &kilobytes) == 1) {
            sum += kilobytes * 1024;
        }
    }
    fclose(maps);
    return sum;
}

CASE(without_threads_libc_stays_as_it_is)
{
    CHECK(changed_text() <= 4 * 4096);
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(changed_text() <= 4 * 4096 ? 0 : 1);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

CASE(made_by_its_usual_name)
{
    make_thread();
}

CASE(made_by_libcs_own_function)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(libc != NULL);
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(libc, "pthread_create");
    CHECK(create != NULL);
    pthread_t thread;
    OK(create(&thread, NULL, run, NULL));
    join(thread);
}

static void expire(union sigval unused)
{
    (void)unused;
    ran++;
}

CASE(made_by_libc_for_a_timer)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expire};
    timer_t timer;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    OK(timer_settime(timer, 0, &soon, NULL));
    while (!ran) {
        usleep(1000);
    }
}

CASE(made_by_the_child_of_a_fork)
{
    for (int i = 0; i < 3; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            make_thread();
            _exit(0);
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
    make_thread();
}

CASE(made_after_children_of_other_kinds)
{
    IS(system("exit 3"), 3 << 8);
    pid_t child = vfork();
    if (child == 0) {
        syscall(SYS_prctl, PR_SET_NAME, "child");
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    make_thread();
    IS(system("exit 4"), 4 << 8);
}

static void count(int signal)
{
    (void)signal;
    ran++;
}

/* Handlers run libc's text all the while. */
CASE(made_while_signals_come)
{
    for (int i = 0; i < 20; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
            OK(sigaction(SIGALRM, &action, NULL));
            struct itimerval often = {{0, 50}, {0, 50}};
            OK(setitimer(ITIMER_REAL, &often, NULL));
            usleep(100 * i);
            make_thread();
            _exit(0);
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
    make_thread();
}

extern char **environ;

/* Overwrites the environment, as programs with a title of their own do. */
CASE(made_after_the_environment_was_overwritten)
{
    for (char **variable = environ; *variable != NULL; variable++) {
        memset(*variable, 'x', strlen(*variable));
    }
    make_thread();
}

CASE(made_without_the_files_that_were_there)
{
    char folder[] = "first-thread-XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    if (chroot(folder) == 0) {
        OK(chdir("/"));
    }
    make_thread();
}

/* A filter that ends the process for making memory executable, as patching does. */
CASE(made_behind_a_filter)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    make_thread();
}

/* Blocked signals that a descriptor from before the first thread reads. */
CASE(made_after_a_descriptor_for_signals)
{
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    OK(pthread_sigmask(SIG_BLOCK, &usr1, NULL));
    int fd = GET(signalfd(-1, &usr1, SFD_CLOEXEC));
    make_thread();
    OK(kill(getpid(), SIGUSR1));
    struct signalfd_siginfo info;
    IS(read(fd, &info, sizeof info), sizeof info);
    IS(info.ssi_signo, SIGUSR1);
}

static volatile int stop;

static void *yield_until_stop(void *unused)
{
    while (!stop) {
        sched_yield();
    }
    return unused;
}

/* Forks, and traces the child, from one thread beside others. */
static void *trace(void *unused)
{
    pid_t child = GET(fork());
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) {
            raise(SIGSTOP);
        }
        _exit(7);
    }
    int status;
    usleep(2000);
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    for (int i = 0; i < 100; i++) {
        sched_yield();
    }
    GET(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL));
    usleep(2000);
    GET(ptrace(PTRACE_CONT, child, NULL, NULL));
    IS(waitpid(child, &status, 0), child);
    IS(status, 7 << 8);
    return unused;
}

CASE(a_thread_traces_what_it_forked)
{
    pthread_t others[4], tracers[2];
    for (int i = 0; i < 4; i++) {
        others[i] = start(yield_until_stop, NULL);
    }
    for (int i = 0; i < 2; i++) {
        tracers[i] = start(trace, NULL);
    }
    trace(NULL);
    for (int i = 0; i < 2; i++) {
        join(tracers[i]);
    }
    stop = 1;
    for (int i = 0; i < 4; i++) {
        join(others[i]);
    }
}

CASE(a_tracer_makes_a_thread)
{
    trace(NULL);
    make_thread();
    trace(NULL);
}
