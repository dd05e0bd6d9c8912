/* Credentials and other attributes that the kernel keeps by thread: of all threads, and of one. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { NOBODY = 65534, THREADS = 8 };

static atomic_int stage;
static atomic_int at_work;
/* A file that only root can read. */
static const char *const secret = "/etc/shadow";

static int can_read(void)
{
    int file = open(secret, O_RDONLY);
    if (file >= 0) {
        close(file);
    }
    return file >= 0;
}

/* Counts the kernel threads with a status line that differs from the expected text. */
static int kernel_threads_that_differ(const char *key, const char *expected)
{
    int differ = 0, seen = 0;
    char path[300], line[4096];
    pid_t parent = getpid(), child;
    int ends[2];
    GET(pipe(ends));
    /* Another process looks: it sees the kernel's values, not the runtime's. */
    if ((child = GET(fork())) == 0) {
        snprintf(path, sizeof path, "/proc/%d/task", parent);
        DIR *folder = opendir(path);
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            snprintf(path, sizeof path, "/proc/%d/task/%s/status", parent, entry->d_name);
            FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
            while (file && fgets(line, sizeof line, file)) {
                if (strncmp(line, key, strlen(key)) == 0) {
                    seen++;
                    differ += strncmp(line + strlen(key), expected, strlen(expected)) != 0;
                }
            }
            if (file) {
                fclose(file);
            }
        }
        CHECK(seen >= 1); /* natively the other threads may have ended */
        IS(write(ends[1], &differ, sizeof differ), sizeof differ);
        _exit(0);
    }
    close(ends[1]);
    IS(read(ends[0], &differ, sizeof differ), sizeof differ);
    IS(waitpid(child, NULL, 0), child);
    close(ends[0]);
    return differ;
}

static int is_root(void)
{
    if (geteuid() != 0) {
        printf("skipped: this case must start as root\n");
    }
    return geteuid() == 0;
}

static void *watch(void *unused)
{
    (void)unused;
    while (stage == 0) {
        CHECK(can_read());
        atomic_fetch_add(&at_work, 1);
        sched_yield();
    }
    while (stage == 1) {
        sched_yield(); /* while the ids change */
    }
    for (int i = 0; i < 50; i++) {
        IS(getuid(), NOBODY);
        IS(geteuid(), NOBODY);
        IS(getgid(), NOBODY);
        CHECK(!can_read());
        IS(errno, EACCES);
        sched_yield();
    }
    return NULL;
}

CASE(all_threads_become_nobody)
{
    if (!is_root()) {
        return;
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(watch, NULL);
    }
    while (at_work < 200) {
        sleep_ms(1);
    }
    stage = 1;
    OK(setgroups(0, NULL));
    OK(setresgid(NOBODY, NOBODY, NOBODY));
    OK(setresuid(NOBODY, NOBODY, NOBODY));
    OK(prctl(PR_SET_DUMPABLE, 1));
    IS(kernel_threads_that_differ("Uid:", "\t65534\t65534\t65534\t65534"), 0);
    IS(kernel_threads_that_differ("Gid:", "\t65534\t65534\t65534\t65534"), 0);
    IS(kernel_threads_that_differ("Groups:", "\t \n"), 0);
    stage = 2;
    join_all(threads, THREADS);
    IS(setuid(0), -1);
    IS(errno, EPERM);
}

static void *block_in_read(void *end)
{
    char byte;
    IS(read((int)(long)end, &byte, 1), 1);
    IS(getuid(), NOBODY);
    CHECK(!can_read());
    return NULL;
}

static void *hold_lock(void *lock)
{
    struct flock whole = {.l_type = F_WRLCK};
    IS(fcntl((int)(long)lock, F_OFD_SETLKW, &whole), 0);
    CHECK(!can_read());
    return NULL;
}

/* Threads that wait in user space, and in the kernel on others' behalf. */
CASE(threads_that_wait_become_nobody)
{
    if (!is_root()) {
        return;
    }
    pthread_t readers[THREADS], locker;
    int ends[2];
    char name[] = "/tmp/raddle-lock-XXXXXX";
    int lock = GET(mkstemp(name)), other = GET(open(name, O_RDWR));
    OK(unlink(name));
    struct flock whole = {.l_type = F_WRLCK};
    OK(fcntl(lock, F_OFD_SETLK, &whole));
    GET(pipe(ends));
    for (int i = 0; i < THREADS; i++) {
        readers[i] = start(block_in_read, number(ends[0]));
    }
    locker = start(hold_lock, number(other));
    sleep_ms(30);
    OK(setgid(NOBODY));
    OK(setuid(NOBODY));
    OK(prctl(PR_SET_DUMPABLE, 1));
    IS(kernel_threads_that_differ("Uid:", "\t65534\t65534\t65534\t65534"), 0);
    for (int i = 0; i < THREADS; i++) {
        IS(write(ends[1], "x", 1), 1);
    }
    whole.l_type = F_UNLCK;
    OK(fcntl(lock, F_OFD_SETLK, &whole));
    join_all(readers, THREADS);
    join(locker);
}

static void *end_at_once(void *unused)
{
    return unused;
}

static void *make_threads(void *unused)
{
    while (stage == 0) {
        join(start(end_at_once, unused));
    }
    return NULL;
}

CASE(ids_change_while_threads_begin_and_end)
{
    if (!is_root()) {
        return;
    }
    pthread_t makers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        makers[i] = start(make_threads, NULL);
    }
    for (int i = 0; i < 50; i++) {
        uid_t uid = i % 2 ? 0 : NOBODY;
        OK(setresuid(-1, uid, 0));
        IS(geteuid(), uid);
    }
    OK(setresuid(-1, NOBODY, 0));
    OK(prctl(PR_SET_DUMPABLE, 1));
    stage = 1;
    join_all(makers, THREADS);
    IS(kernel_threads_that_differ("Uid:", "\t0\t65534\t0\t65534"), 0);
}

CASE(a_change_that_is_refused_changes_nothing)
{
    if (!is_root()) {
        return;
    }
    join(start(end_at_once, NULL));
    OK(setresuid(NOBODY, NOBODY, NOBODY));
    IS(setresuid(0, 0, 0), -1);
    IS(errno, EPERM);
    IS(setgroups(1, (gid_t[]){0}), -1);
    IS(errno, EPERM);
    OK(prctl(PR_SET_DUMPABLE, 1));
    IS(kernel_threads_that_differ("Uid:", "\t65534\t65534\t65534\t65534"), 0);
}

static void exit_with_9(int signal)
{
    (void)signal;
    _exit(9);
}

static void *become_another_alone(void *unused)
{
    IS(syscall(SYS_setresuid, 2001, 2002, 2003), 0);
    stage = 1;
    while (stage == 1) {
        sched_yield();
    }
    return unused;
}

/* The end of a process if one thread can't follow the others. */
static int status_of_disagreement(void (*handler)(int), int blocks)
{
    int status;
    pid_t child = GET(fork());
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, handler);
        start(become_another_alone, NULL);
        while (stage != 1) {
            sched_yield();
        }
        if (blocks) {
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGABRT);
            OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
        }
        setresuid(1001, 1002, 1003);
        _exit(3);
    }
    IS(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

CASE(a_change_that_one_thread_cannot_follow_aborts)
{
    if (!is_root()) {
        return;
    }
    for (int round = 0; round < 5; round++) {
        IS(status_of_disagreement(SIG_DFL, 0), SIGABRT);
        IS(status_of_disagreement(SIG_IGN, 0), SIGABRT);
        IS(status_of_disagreement(exit_with_9, 0), 9);
        IS(status_of_disagreement(exit_with_9, 1), 9);
    }
}

static void *other_is_unchanged(void *unused)
{
    atomic_fetch_add(&at_work, 1);
    while (stage == 0) {
        IS(syscall(SYS_geteuid), 0);
        CHECK(can_read());
        sched_yield();
    }
    return unused;
}

static void *inherits(void *unused)
{
    CHECK(!can_read());
    return unused;
}

static void *be_nobody_alone(void *unused)
{
    for (int i = 0; i < 50; i++) {
        IS(geteuid(), NOBODY);
        CHECK(!can_read());
        sched_yield();
    }
    join(start(inherits, NULL));
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(can_read());
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    return unused;
}

static void *change_own_by_raw_call(void *unused)
{
    IS(syscall(SYS_setresuid, -1, NOBODY, -1), 0);
    return be_nobody_alone(unused);
}

static void *change_own_by_instruction(void *unused)
{
    long result = SYS_setresuid;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(-1L), "S"((long)NOBODY), "d"(-1L)
                     : "rcx", "r11", "memory");
    IS(result, 0);
    return be_nobody_alone(unused);
}

static void *change_file_ids(void *unused)
{
    setfsuid(NOBODY);
    IS(setfsuid(-1), NOBODY);
    for (int i = 0; i < 50; i++) {
        CHECK(!can_read());
        sched_yield();
    }
    return unused;
}

static void *drop_capabilities(void *unused)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    OK(syscall(SYS_capget, &header, data));
    data[0].effective &= ~(1u << CAP_SYS_CHROOT);
    OK(syscall(SYS_capset, &header, data));
    IS(chroot("/"), -1);
    IS(errno, EPERM);
    return unused;
}

static void other_thread_changes(void *(*change)(void *))
{
    if (!is_root()) {
        return;
    }
    pthread_t others[4];
    for (int i = 0; i < 4; i++) {
        others[i] = start(other_is_unchanged, NULL);
    }
    while (at_work < 4) {
        sleep_ms(1);
    }
    join(start(change, NULL));
    CHECK(can_read());
    OK(chroot("/"));
    stage = 1;
    join_all(others, 4);
}

CASE(a_raw_call_changes_one_thread) { other_thread_changes(change_own_by_raw_call); }

CASE(an_instruction_of_the_program_changes_one_thread)
{
    other_thread_changes(change_own_by_instruction);
}

CASE(file_ids_are_of_one_thread) { other_thread_changes(change_file_ids); }

CASE(capabilities_are_of_one_thread) { other_thread_changes(drop_capabilities); }

static void *filter_own_calls(void *unused)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, unused ? SECCOMP_FILTER_FLAG_TSYNC : 0,
               &program));
    for (int i = 0; i < 20; i++) {
        IS(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
        IS(syscall(SYS_getppid), -1);
        IS(errno, ENOTTY);
        sched_yield();
    }
    return NULL;
}

static void *ask_for_parent(void *unused)
{
    while (stage == 0) {
        CHECK(syscall(SYS_getppid) >= 0);
        sched_yield();
    }
    return unused;
}

CASE(a_filter_is_of_one_thread)
{
    pthread_t other = start(ask_for_parent, NULL);
    join(start(filter_own_calls, NULL));
    CHECK(syscall(SYS_getppid) >= 0);
    IS(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
    stage = 1;
    join(other);
}

static void *is_filtered(void *unused)
{
    while (stage == 0) {
        sched_yield();
    }
    IS(syscall(SYS_getppid), -1);
    IS(errno, ENOTTY);
    return unused;
}

CASE(a_filter_can_be_of_all_threads)
{
    pthread_t others[THREADS];
    for (int i = 0; i < THREADS; i++) {
        others[i] = start(is_filtered, NULL);
    }
    join(start(filter_own_calls, number(1)));
    stage = 1;
    join_all(others, THREADS);
}

/* Natively each thread has values of its own: only the thread that set them may ask. */
static void *set_values(void *unused)
{
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    OK(prctl(PR_SET_TIMERSLACK, 123456));
    for (int i = 0; i < 20; i++) {
        int signal = 0;
        OK(prctl(PR_GET_PDEATHSIG, &signal));
        IS(signal, SIGUSR1);
        IS(prctl(PR_GET_TIMERSLACK), 123456);
        sleep_ms(1);
    }
    return unused;
}

static void *yield_often(void *unused)
{
    while (stage == 0) {
        sched_yield();
    }
    return unused;
}

CASE(values_are_read_back_on_any_carrier)
{
    pthread_t others[4];
    for (int i = 0; i < 4; i++) {
        others[i] = start(yield_often, NULL);
    }
    join(start(set_values, NULL));
    stage = 1;
    join_all(others, 4);
}

static void *move_alone(void *unused)
{
    char where[100];
    OK(unshare(CLONE_FS));
    OK(chdir("/usr"));
    umask(0123);
    for (int i = 0; i < 20; i++) {
        CHECK(getcwd(where, sizeof where));
        CHECK(strcmp(where, "/usr") == 0);
        sched_yield();
    }
    return unused;
}

static void *move_with_all(void *unused)
{
    OK(chdir("/usr"));
    return unused;
}

CASE(the_folder_is_of_all_threads_but_who_left_them)
{
    char where[100];
    OK(chdir("/tmp"));
    umask(022);
    join(start(move_alone, NULL));
    CHECK(getcwd(where, sizeof where));
    CHECK(strcmp(where, "/tmp") == 0);
    IS(umask(022), 022);
    join(start(move_with_all, NULL));
    CHECK(getcwd(where, sizeof where));
    CHECK(strcmp(where, "/usr") == 0);
}

static void *leave_the_files(void *fd)
{
    OK(syscall(SYS_close_range, (int)(long)fd, (int)(long)fd, CLOSE_RANGE_UNSHARE));
    sched_yield();
    FAILS(fcntl((int)(long)fd, F_GETFD), EBADF);
    return fd;
}

CASE(files_that_a_thread_closes_for_itself_stay_open)
{
    char byte;
    int ends[2];
    OK(pipe(ends));
    GET(write(ends[1], "x", 1));
    join(start(leave_the_files, (void *)(long)ends[0]));
    IS(read(ends[0], &byte, 1), 1);
    FAILS(syscall(SYS_close_range, ends[0], ends[0], 64), EINVAL);
}

static atomic_int enough;

static void *compute(void *unused)
{
    while (!enough) {
    }
    return unused;
}

static void *ask_the_first(void *unused)
{
    while (!enough) {
        int signal = -1;
        OK(prctl(PR_GET_PDEATHSIG, &signal));
        IS(signal, 0);
    }
    return unused;
}

/* Each question goes to the process's first kernel thread by the signal that ends quanta. */
CASE(questions_are_answered_while_threads_are_preempted)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(i < 2 ? ask_the_first : compute, NULL);
    }
    sleep_ms(1000);
    enough = 1;
    join_all(threads, THREADS);
}
