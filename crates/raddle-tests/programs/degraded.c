/* Restricted processes: a container's filter of system calls, a limit of kernel threads, a
 * debugger. Programs run on, with less speed at most.
 */
#include "check.h"
#include "container.h"
#include "made_call.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { BLOCK = 4096, BLOCKS = 64, THREADS = 8, ROUNDS = 40 };

static long raw_read(int fd, void *to, size_t size)
{
    return made_call(SYS_read, fd, (long)to, size);
}

static int file, pipes[2], sockets[2];
static atomic_int over;

static void *use_the_disk(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    for (long i = 0; i < ROUNDS; i++) {
        off_t at = (i * 7 + (long)me) % BLOCKS * BLOCK;
        IS(pread(file, block, BLOCK, at), BLOCK);
        IS(block[0], at / BLOCK);
    }
    GET(fsync(file));
    free(block);
    return NULL;
}

static void *echo(void *unused)
{
    char byte;
    while (GET(read(sockets[1], &byte, 1)) == 1) {
        IS(write(sockets[1], &byte, 1), 1);
    }
    return unused;
}

static void *compute(void *unused)
{
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {}
    return unused;
}

static void *read_raw(void *unused)
{
    char byte;
    IS(raw_read(pipes[0], &byte, 1), 1);
    return unused;
}

static void live_with_less(void)
{
    static char block[BLOCK];
    int fd = (int)GET(open("data", O_CREAT | O_TRUNC | O_WRONLY, 0600));
    for (int i = 0; i < BLOCKS; i++) {
        memset(block, i, BLOCK);
        IS(write(fd, block, BLOCK), BLOCK);
    }
    GET(fsync(fd));
    file = open("data", O_RDWR | O_DIRECT);
    if (file < 0) {
        file = (int)GET(open("data", O_RDWR));
    }
    GET(pipe(pipes));
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pthread_t threads[THREADS], others[4] = {start(echo, NULL), start(compute, NULL),
                                             start(read_raw, NULL), start(read_raw, NULL)};
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(use_the_disk, number(i));
    }
    for (int i = 0; i < ROUNDS; i++) {
        char byte = (char)i;
        IS(write(sockets[0], &byte, 1), 1);
        IS(read(sockets[0], &byte, 1), 1);
        sleep_ms(1);
    }
    join_all(threads, THREADS);
    IS(write(pipes[1], "xx", 2), 2);
    close(sockets[0]);
    atomic_store(&over, 1);
    join_all(others, 4);
}

CASE(in_a_container)
{
    if (argument_count > 2) {
        FAILS(syscall(SYS_io_uring_setup, 0, NULL), EPERM);
        FAILS(syscall(SYS_perf_event_open, NULL, 0, 0, 0, 0), EPERM);
        FAILS(syscall(454 /* futex_wake */, 0, 0, 0, 0), EPERM);
        FAILS(syscall(SYS_clone3, NULL, 0), ENOSYS);
        return live_with_less();
    }
    install_filter();
    execl("/proc/self/exe", "degraded", case_name, "filtered", NULL);
    CHECK(!"exec");
}

/* A filter that kills a process that asks for a performance event, as many services have. */
CASE(where_asking_for_events_kills)
{
    if (argument_count > 2) {
        return live_with_less();
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    GET(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    execl("/proc/self/exe", "degraded", case_name, "filtered", NULL);
    CHECK(!"exec");
}

/* Timers of the runtime's interrupt threads that compute in turns. */
static void *take_turns(void *turns)
{
    while (!atomic_load(&over)) {
        atomic_fetch_add((atomic_long *)turns, 1);
    }
    return NULL;
}

/* How many bytes the list of the process's timers has: none without timers, or without a list. */
static long timers_listed(void)
{
    char text[4000];
    int file = open("/proc/self/timers", O_RDONLY);
    if (file < 0) {
        return 0;
    }
    long size = GET(read(file, text, sizeof text));
    close(file);
    return size;
}

/* A filter for all threads that kills a process that makes, sets or deletes a timer, installed
 * while there may be such timers: none goes on, and the threads still take turns. */
CASE(where_timers_kill_from_now_on)
{
    enum { COMPUTING = 6 };
    static atomic_long turns[COMPUTING];
    pthread_t threads[COMPUTING];
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_create, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_settime, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_delete, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    for (int i = 0; i < COMPUTING; i++) {
        threads[i] = start(take_turns, &turns[i]);
    }
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    /* Natively, and on a machine too busy for regular turns, there are no timers. */
    for (int ms = 0; timers_listed() == 0 && ms < 500; ms += 10) {
        sleep_ms(10);
    }
    GET(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter));
    IS(timers_listed(), 0);
    for (int i = 0; i < COMPUTING; i++) {
        long before = atomic_load(&turns[i]);
        while (atomic_load(&turns[i]) == before) {
            sleep_ms(5);
        }
    }
    IS(timers_listed(), 0);
    atomic_store(&over, 1);
    join_all(threads, COMPUTING);
}

static atomic_long done;

static void *sleep_often(void *unused)
{
    while (!atomic_load(&over)) {
        sleep_ms(1);
        atomic_fetch_add(&done, 1);
    }
    return unused;
}

static atomic_int reads;

static void *read_when_told(void *unused)
{
    while (!atomic_load(&reads)) {
        sleep_ms(1);
    }
    return read_raw(unused);
}

/* More threads sit in the kernel than there may be kernel threads: the others go on, and all do
 * when these come back. */
static void live_without_more_kernel_threads(int is_late)
{
    enum { STUCK = 6 };
    pthread_t sleeper, stuck[STUCK];
    GET(pipe(pipes));
    sleeper = start(sleep_often, NULL);
    atomic_store(&reads, !is_late);
    for (int i = 0; i < STUCK; i++) {
        stuck[i] = start(read_when_told, NULL);
    }
    /* The limit binds users without privileges only, so that natively all threads are there. */
    struct rlimit none = {1, 1};
    GET(setrlimit(RLIMIT_NPROC, &none));
    if (geteuid() == 0) {
        GET(setresuid(65534, 65534, 65534));
    }
    if (is_late) {
        GET(prctl(PR_SET_DUMPABLE, 1)); /* the kernel says again where the threads wait */
    }
    atomic_store(&reads, 1);
    sleep_ms(50);
    for (int i = 0; i < STUCK; i++) {
        IS(write(pipes[1], "x", 1), 1);
        sleep_ms(5);
    }
    join_all(stuck, STUCK);
    /* This may take long on a busy machine. */
    long before = atomic_load(&done);
    while (atomic_load(&done) == before) {
        sleep_ms(1);
    }
    atomic_store(&over, 1);
    join(sleeper);
}

CASE(without_more_kernel_threads)
{
    live_without_more_kernel_threads(0);
}

CASE(calls_that_begin_without_more_kernel_threads)
{
    live_without_more_kernel_threads(1);
}

static int silent[2];

static void *wait_for_byte(void *unused)
{
    char byte;
    IS(read(silent[0], &byte, 1), 1);
    return unused;
}

/* A filter refuses the question whether a descriptor may wait: calls wait all the same. */
CASE(where_flags_are_not_told)
{
    GET(pipe(silent));
    load(offsetof(struct seccomp_data, nr));
    answer(SYS_fcntl, SECCOMP_RET_ERRNO | EPERM);
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog filter = {(unsigned short)length, code};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    GET(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    FAILS(fcntl(silent[0], F_GETFL), EPERM);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(wait_for_byte, NULL);
    }
    let_others_block();
    IS(write(silent[1], "wxyz", 4), 4);
    join_all(threads, 4);
}

/* A debugger stops each of a process's kernel threads in turn; the others go on. It calls the
 * kernel by itself: a program that imports `ptrace` runs on kernel threads, and so would the other.
 */
struct shared {
    atomic_long counts[3];
    atomic_int stop;
};

static void *count_up(void *count)
{
    struct shared *shared = *(struct shared **)arguments;
    while (!atomic_load(&shared->stop)) {
        atomic_fetch_add((atomic_long *)count, 1);
        sleep_ms(1);
    }
    return NULL;
}

static void be_debugged(struct shared *shared)
{
    pthread_t threads[3];
    static char *only[1];
    only[0] = (char *)shared;
    arguments = only;
    for (int i = 0; i < 3; i++) {
        threads[i] = start(count_up, &shared->counts[i]);
    }
    join_all(threads, 3);
    _exit(0);
}

static long trace(long request, pid_t tid, void *address, long data)
{
    return syscall(SYS_ptrace, request, tid, address, data);
}

/* Stops a traced kernel thread; what it would have been told, or -1 if it has ended: the runtime
 * gives back those that it doesn't need. */
static int stop_traced(pid_t tid)
{
    int status;
    if (trace(PTRACE_INTERRUPT, tid, NULL, 0) != 0) {
        IS(errno, ESRCH);
    }
    IS(waitpid(tid, &status, __WALL), tid);
    if (!WIFSTOPPED(status)) {
        return -1;
    }
    return WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
}

static void wait_until_all_count(struct shared *shared)
{
    for (int i = 0; i < 3; i++) {
        long before = atomic_load(&shared->counts[i]);
        while (atomic_load(&shared->counts[i]) < before + 5) {
            sleep_ms(1);
        }
    }
}

CASE(under_a_debugger)
{
    struct shared *shared = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        be_debugged(shared);
    }
    wait_until_all_count(shared);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", child);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        pid_t tid = atoi(entry->d_name);
        if (tid == 0 || trace(PTRACE_SEIZE, tid, NULL, 0) != 0) {
            continue;
        }
        int signal = stop_traced(tid);
        if (signal < 0) {
            continue;
        }
        sleep_ms(20);
        GET(trace(PTRACE_CONT, tid, NULL, signal));
        signal = stop_traced(tid);
        if (signal >= 0) {
            GET(trace(PTRACE_DETACH, tid, NULL, signal));
        }
    }
    closedir(folder);
    wait_until_all_count(shared);
    atomic_store(&shared->stop, 1);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}
