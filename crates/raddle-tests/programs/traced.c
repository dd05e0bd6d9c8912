/* A tracer's view of a process's kernel threads by ptrace, on which debuggers rely. */
#include "check.h"
#include "made_call.h"

#include <sys/ptrace.h>
#include <sys/user.h>

enum { STUCK = 24 };

static void *get_stuck(void *time_us)
{
    struct timespec time = timespec_of((long)time_us * 1000);
    made_call(SYS_nanosleep, (long)&time, 0, 0);
    return NULL;
}

/* Ends while threads get stuck in the kernel, one after the other: new carriers are being made. */
CASE(ends_while_threads_get_stuck)
{
    for (long i = 0; i < STUCK; i++) {
        start_small(get_stuck, number(100 + i * 200));
    }
    struct timespec time = timespec_of(MS);
    made_call(SYS_nanosleep, (long)&time, 0, 0);
}

/* By direct calls: the runtime knows a tracer by the name of libc's function. */
static long trace(long request, pid_t pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

/* Those that have stopped for the first time before their makers' stops were seen. */
static pid_t early[STUCK * 8];
static int early_count;

static int was_early(pid_t pid)
{
    for (int i = 0; i < early_count; i++) {
        if (early[i] == pid) {
            early[i] = early[--early_count];
            return 1;
        }
    }
    return 0;
}

/* A kernel thread was made: it stops before it does anything, and its FS base is that of one of
 * libc's threads: the block there begins with its own address, and has it as third word, too. */
static void check_birth(pid_t maker)
{
    unsigned long born = 0;
    if (trace(PTRACE_GETEVENTMSG, maker, NULL, &born) == -1) {
        IS(errno, ESRCH); /* the maker is dying; so is what it made */
        return;
    }
    if (!was_early((pid_t)born)) {
        int status;
        IS(waitpid((pid_t)born, &status, __WALL), born);
        CHECK(WIFSTOPPED(status));
    }
    struct user_regs_struct registers;
    unsigned long block[3];
    if (trace(PTRACE_GETREGS, (pid_t)born, NULL, &registers) == -1) {
        IS(errno, ESRCH);
        return;
    }
    CHECK(registers.fs_base != 0);
    for (int i = 0; i < 3; i += 2) {
        char *at = (char *)registers.fs_base + i * sizeof *block;
        if (trace(PTRACE_PEEKDATA, (pid_t)born, at, &block[i]) == -1) {
            IS(errno, ESRCH);
            return;
        }
        IS(block[i], registers.fs_base);
    }
    trace(PTRACE_CONT, (pid_t)born, NULL, NULL);
}

static void become_traced(void)
{
    int nowhere = GET(open("/dev/null", O_WRONLY));
    GET(dup2(nowhere, 1));
    GET(trace(PTRACE_TRACEME, 0, NULL, NULL));
    GET(execl("/proc/self/exe", "traced", "ends_while_threads_get_stuck", (char *)NULL));
}

/* Runs a traced child to its end; how many kernel threads it made. */
static int run_traced(void)
{
    pid_t child = GET(fork());
    if (child == 0) {
        become_traced();
    }
    int status, born = 0;
    early_count = 0;
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSTOPPED(status));
    GET(trace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)));
    GET(trace(PTRACE_CONT, child, NULL, NULL));
    for (;;) {
        pid_t pid = GET(waitpid(-1, &status, __WALL));
        if (!WIFSTOPPED(status)) {
            if (pid == child) {
                IS(status, 0);
                return born;
            }
            continue;
        }
        long signal = WSTOPSIG(status);
        if (status >> 16 == PTRACE_EVENT_CLONE) {
            check_birth(pid);
            born++;
            signal = 0;
        } else if (signal == SIGSTOP) {
            CHECK(early_count < STUCK * 8);
            early[early_count++] = pid; /* it goes on when its maker is seen */
            continue;
        }
        trace(PTRACE_CONT, pid, NULL, number(signal));
    }
}

CASE(kernel_threads_are_born_as_debuggers_expect)
{
    for (int i = 0; i < 10; i++) {
        CHECK(run_traced() > 0);
    }
}
