/* New programs and new processes: what they inherit from a process with threads. */
#include "check.h"

#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;

/* The output of a child's `cat /proc/self/stat /proc/self/status`. */
static char told[8000];

static void read_all(int fd)
{
    size_t size = 0;
    ssize_t count;
    while ((count = GET(read(fd, told + size, sizeof told - 1 - size))) > 0) {
        size += count;
    }
    told[size] = 0;
}

static unsigned long told_set(const char *name)
{
    unsigned long set;
    const char *line = strstr(told, name);
    CHECK(line != NULL);
    IS(sscanf(line + strlen(name), ":%lx", &set), 1);
    return set;
}

static unsigned long bit(int signal)
{
    return 1ul << (signal - 1);
}

static sigset_t set_of(int first, int second)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    sigaddset(&set, second);
    return set;
}

static char *cat[] = {"cat", "/proc/self/stat", "/proc/self/status", NULL};

static void *spawn_with_attributes(void *unused)
{
    int ends[2], status;
    pid_t child, parent, group, session;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t blocked = set_of(SIGUSR1, SIGRTMAX), reset = set_of(SIGUSR2, SIGTERM);
    GET(pipe2(ends, O_CLOEXEC));
    OK(posix_spawnattr_init(&attributes));
    OK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                 POSIX_SPAWN_SETSID));
    OK(posix_spawnattr_setsigmask(&attributes, &blocked));
    OK(posix_spawnattr_setsigdefault(&attributes, &reset));
    OK(posix_spawn_file_actions_init(&actions));
    OK(posix_spawn_file_actions_adddup2(&actions, ends[1], 1));
    OK(posix_spawnp(&child, "cat", &actions, &attributes, cat, environ));
    close(ends[1]);
    read_all(ends[0]);
    close(ends[0]);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    const char *after_name = strstr(told, "(cat)");
    CHECK(after_name != NULL);
    IS(sscanf(after_name, "(cat) %*c %d %d %d", &parent, &group, &session), 3);
    IS(parent, getpid());
    IS(session, child);
    IS(group, child);
    IS(told_set("SigBlk"), bit(SIGUSR1) | bit(SIGRTMAX));
    IS(told_set("SigIgn") & (bit(SIGUSR2) | bit(SIGHUP) | bit(SIGTERM)), bit(SIGHUP));
    return unused;
}

CASE(spawn_attributes_are_honoured)
{
    sigset_t set = set_of(SIGUSR2, SIGWINCH);
    signal(SIGUSR2, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    spawn_with_attributes(NULL);
    join(start(spawn_with_attributes, NULL));
    spawn_with_attributes(NULL);
}

static void *wait_for_ever(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

static void *compute_for_ever(void *unused)
{
    for (volatile long i = 0;; i++) {
    }
    return unused;
}

static void *execute_with_pending(void *unused)
{
    union sigval value = {.sival_int = 5};
    OK(pthread_kill(pthread_self(), SIGUSR1));
    GET(kill(getpid(), SIGUSR2));
    GET(sigqueue(getpid(), SIGRTMIN, value));
    GET(sigqueue(getpid(), SIGRTMIN, value));
    execvp("cat", cat);
    return unused;
}

static void check_execution(thread_function execute)
{
    int ends[2], status;
    GET(pipe2(ends, O_CLOEXEC));
    pid_t child = GET(fork());
    if (child == 0) {
        sigset_t set = set_of(SIGUSR1, SIGUSR2);
        sigaddset(&set, SIGRTMIN);
        OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
        GET(dup2(ends[1], 1));
        start(wait_for_ever, NULL);
        start(compute_for_ever, NULL);
        execute(NULL);
        _exit(1);
    }
    close(ends[1]);
    read_all(ends[0]);
    close(ends[0]);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    unsigned long all = bit(SIGUSR1) | bit(SIGUSR2) | bit(SIGRTMIN);
    IS(told_set("SigBlk"), all);
    IS(told_set("SigPnd") | told_set("ShdPnd"), all);
}

static void *execute_in_a_thread(void *unused)
{
    join(start(execute_with_pending, NULL));
    return unused;
}

CASE(a_new_program_inherits_what_pends)
{
    check_execution(execute_with_pending);
    check_execution(execute_in_a_thread);
}

/* Long enough for a scheduler to grow impatient: the kernel copies megabytes of arguments. */
static void *execute_with_much(void *unused)
{
    enum { STRINGS = 12, SIZE = 120 * 1024 };
    char **arguments = calloc(STRINGS + 2, sizeof *arguments);
    arguments[0] = "true";
    for (int i = 1; i <= STRINGS; i++) {
        arguments[i] = memset(calloc(1, SIZE), 'x', SIZE - 1);
    }
    execvp("true", arguments);
    return unused;
}

CASE(a_new_program_gets_no_signal_that_was_meant_for_the_old)
{
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            start(compute_for_ever, NULL);
            if (i % 2 != 0) {
                join(start(execute_with_much, NULL));
            }
            execute_with_much(NULL);
            _exit(1);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}

static void *fail_with_pending(void *unused)
{
    enum { MANY = 60 };
    struct timespec now = {0, 0};
    siginfo_t info;
    sigset_t set = set_of(SIGUSR1, SIGRTMIN);
    for (int i = 0; i < MANY; i++) {
        union sigval value = {.sival_int = i};
        GET(sigqueue(getpid(), SIGRTMIN, value));
    }
    OK(pthread_kill(pthread_self(), SIGUSR1));
    for (int i = 0; i < 3; i++) {
        FAILS(execl("/nonexistent/program", "program", NULL), ENOENT);
    }
    IS(sigtimedwait(&set, &info, &now), SIGUSR1);
    for (int i = 0; i < MANY; i++) {
        IS(sigtimedwait(&set, &info, &now), SIGRTMIN);
        IS(info.si_code, SI_QUEUE);
        IS(info.si_value.sival_int, i);
    }
    FAILS(sigtimedwait(&set, &info, &now), EAGAIN);
    return unused;
}

CASE(what_pends_survives_a_failed_execution)
{
    sigset_t set = set_of(SIGUSR1, SIGRTMIN);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    fail_with_pending(NULL);
    join(start(fail_with_pending, NULL));
    fail_with_pending(NULL);
}

static void *add_one(void *count)
{
    atomic_fetch_add((atomic_int *)count, 1);
    return NULL;
}

static void *wait_long(void *unused)
{
    sleep(60);
    return unused;
}

/* A daemon's start: its parent's parent hears of it by a pipe alone. */
static void become_daemon(int to)
{
    pid_t middle = GET(fork());
    if (middle != 0) {
        int status;
        IS(waitpid(middle, &status, 0), middle);
        IS(status, 0);
        return;
    }
    pid_t session = GET(setsid());
    if (GET(fork()) != 0) {
        _exit(0);
    }
    pthread_t threads[20];
    atomic_int count = 0;
    for (int i = 0; i < 20; i++) {
        threads[i] = start(add_one, &count);
    }
    join_all(threads, 20);
    IS(getsid(0), session);
    CHECK(getpid() != session);
    IS(write(to, "d", count == 20), 1);
    _exit(0);
}

static void *start_daemon(void *unused)
{
    char got[2];
    int ends[2];
    GET(pipe(ends));
    become_daemon(ends[1]);
    close(ends[1]);
    IS(read(ends[0], got, 2), 1);
    IS(got[0], 'd');
    IS(read(ends[0], got, 2), 0);
    close(ends[0]);
    return unused;
}

CASE(a_daemon_starts_and_uses_threads)
{
    start_daemon(NULL);
    start(wait_long, NULL);
    start_daemon(NULL);
    join(start(start_daemon, NULL));
}

static atomic_int stop;

static void *allocate(void *unused)
{
    for (unsigned i = 0; !stop; i++) {
        void *small = malloc(i % 3000 + 1), *large = malloc(200000);
        CHECK(small != NULL && large != NULL);
        free(large);
        free(small);
        FILE *file = i % 64 == 0 ? fopen("/dev/null", "w") : NULL;
        if (file) {
            fprintf(file, "%u", i);
            fclose(file);
        }
    }
    return unused;
}

static void *fork_and_allocate(void *unused)
{
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            stop = 1;
            join(start(allocate, NULL));
            free(malloc(1 << 20));
            _exit(i);
        }
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), i);
    }
    return unused;
}

CASE(children_allocate_whatever_other_threads_were_doing)
{
    pthread_t others[4];
    for (int i = 0; i < 4; i++) {
        others[i] = start(allocate, NULL);
    }
    join(start(fork_and_allocate, NULL));
    fork_and_allocate(NULL);
    stop = 1;
    join_all(others, 4);
}

static void *leave_a_thread(void *left)
{
    if ((long)left > 0) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            join(start(leave_a_thread, number((long)left - 1)));
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
    return NULL;
}

CASE(forty_generations_use_threads) { join(start(leave_a_thread, number(40))); }

/* Affinity, niceness, class and slack of a thread are those of the programs that it starts. */
static int has_chosen(int nice_value)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) == 1 &&
           getpriority(PRIO_PROCESS, 0) == nice_value && sched_getscheduler(0) == SCHED_BATCH &&
           prctl(PR_GET_TIMERSLACK) == 123456;
}

static int choose(void)
{
    cpu_set_t cpus, one;
    struct sched_param parameter = {0};
    int nice_value = getpriority(PRIO_PROCESS, 0) + 3;
    GET(sched_getaffinity(0, sizeof cpus, &cpus));
    CPU_ZERO(&one);
    for (int cpu = CPU_SETSIZE; cpu-- > 0 && CPU_COUNT(&one) == 0;) {
        if (CPU_ISSET(cpu, &cpus)) {
            CPU_SET(cpu, &one);
        }
    }
    GET(sched_setaffinity(0, sizeof one, &one));
    GET(sched_setscheduler(0, SCHED_BATCH, &parameter));
    GET(setpriority(PRIO_PROCESS, 0, nice_value));
    GET(prctl(PR_SET_TIMERSLACK, 123456));
    return nice_value;
}

static void *start_programs(void *unused)
{
    int nice_value = choose();
    int status;
    pid_t child = GET(vfork());
    if (child == 0) {
        _exit(has_chosen(nice_value) ? 7 : 1);
    }
    IS(waitpid(child, &status, 0), child);
    IS(WEXITSTATUS(status), 7);
    IS(WEXITSTATUS(system("exit $(nice)")), nice_value);
    CHECK(has_chosen(nice_value));
    return unused;
}

static void *become_a_program(void *unused)
{
    choose();
    execl("/bin/sh", "sh", "-c", "exit $(nice)", NULL);
    _exit(1);
    return unused;
}

CASE(programs_have_what_their_thread_chose)
{
    int own = getpriority(PRIO_PROCESS, 0);
    int status;
    join(start(start_programs, NULL));
    pid_t child = GET(fork());
    if (child == 0) {
        join(start(become_a_program, NULL));
    }
    IS(waitpid(child, &status, 0), child);
    IS(WEXITSTATUS(status), own + 3);
    IS(getpriority(PRIO_PROCESS, 0), own);
    start_programs(NULL);
}

/* A slack for programs that a thread starts is on no kernel thread afterwards: those that it made
 * would inherit it. What can't be read isn't checked. */
static void *start_with_slack(void *unused)
{
    char *nothing[] = {"/no/such/program", NULL};
    GET(prctl(PR_SET_TIMERSLACK, 4000000000ul));
    IS(system("true"), 0);
    IS(execv(nothing[0], nothing), -1);
    GET(prctl(PR_SET_TIMERSLACK, 50000ul));
    IS(system("for task in /proc/$PPID/task/*; do "
              "case $(cat /proc/${task##*/}/timerslack_ns 2>/dev/null) in "
              "50000 | '') ;; *) exit 1 ;; esac; done"),
       0);
    return unused;
}

CASE(slack_for_a_program_is_taken_back) { join(start(start_with_slack, NULL)); }

/* A program and a process that shares memory inherit also attributes that the runtime's kernel
 * threads mustn't inherit from a bound one; and no flag of the runtime's. */
static int has_class(int policy, int nice_value)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t times[3];
    } attributes;
    return syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 &&
           attributes.flags == 0 && attributes.policy == (uint32_t)policy &&
           (policy != SCHED_OTHER || attributes.nice == nice_value);
}

static void check_class_of_child(int policy, int nice_value)
{
    int status;
    pid_t child = GET(vfork());
    if (child == 0) {
        _exit(has_class(policy, nice_value) ? 7 : 1);
    }
    IS(waitpid(child, &status, 0), child);
    IS(WEXITSTATUS(status), 7);
}

static void *start_with_classes(void *unused)
{
    struct sched_param parameter = {.sched_priority = 1};
    int own = getpriority(PRIO_PROCESS, 0);
    GET(setpriority(PRIO_PROCESS, 0, own + 2));
    check_class_of_child(SCHED_OTHER, own + 2);
    IS(WEXITSTATUS(system("exit $(nice)")), own + 2);
    if (setpriority(PRIO_PROCESS, 0, -3) == 0) {
        check_class_of_child(SCHED_OTHER, -3);
        IS(WEXITSTATUS(system("exit $((20 + $(nice)))")), 17);
    }
    if (sched_setscheduler(0, SCHED_FIFO, &parameter) == 0) {
        check_class_of_child(SCHED_FIFO, 0);
        check_class_of_child(SCHED_FIFO, 0);
    }
    return unused;
}

CASE(programs_inherit_the_class_of_a_bound_thread) { join(start(start_with_classes, NULL)); }
