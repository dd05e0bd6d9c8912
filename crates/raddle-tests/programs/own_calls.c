/* System call instructions of the program's own text: their results are about threads. */
#include "check.h"
#include <execinfo.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>

/* `syscall`, as compilers write it into programs that make their own calls. */
static inline __attribute__((always_inline)) long own_call(long nr, long a, long b, long c,
                                                           long d)
{
    long result = nr;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

/* The instruction has a run-time number. */
static __attribute__((noinline)) long any_call(long nr, long a, long b, long c, long d)
{
    return own_call(nr, a, b, c, d);
}

static long futex(atomic_int *word, int operation, int value)
{
    return own_call(SYS_futex, (long)word, operation | FUTEX_PRIVATE_FLAG, value, 0);
}

static atomic_int turn;

static void *take_turns(void *me)
{
    for (int i = 0; i < 300; i++) {
        int seen;
        while ((seen = atomic_load(&turn)) % 3 != (long)me) {
            long result = futex(&turn, FUTEX_WAIT, seen);
            CHECK(result == 0 || result == -EAGAIN);
        }
        atomic_fetch_add(&turn, 1);
        CHECK(futex(&turn, FUTEX_WAKE, 1 << 20) >= 0);
    }
    return NULL;
}

CASE(three_threads_take_turns)
{
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) {
        threads[i] = start(take_turns, number(i));
    }
    join_all(threads, 3);
    IS(turn, 900);
}

static atomic_int arrived, word;

static void *wait_for_word(void *unused)
{
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&word) == 0) {
        long result = any_call(SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, 0);
        CHECK(result == 0 || result == -EAGAIN);
    }
    return unused;
}

/* One word is waited for by the program's calls, and woken by libc's. */
CASE(libcs_calls_and_the_programs_meet)
{
    pthread_t threads[100];
    for (int i = 0; i < 100; i++) {
        threads[i] = start_small(wait_for_word, NULL);
    }
    while (arrived < 100) {
        sleep_ms(1);
    }
    let_others_block();
    atomic_store(&word, 1);
    GET(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1000, NULL));
    join_all(threads, 100);
}

static int pipes[50][2];

static void *echo(void *me)
{
    char byte;
    int *ends = pipes[(long)me];
    for (int i = 0; i < 20; i++) {
        IS(own_call(SYS_read, ends[0], (long)&byte, 1, 0), 1);
        int next = pipes[((long)me + 1) % 50][1];
        IS(own_call(SYS_write, next, (long)&byte, 1, 0), 1);
    }
    return NULL;
}

CASE(a_byte_goes_round_fifty_threads)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        GET(pipe(pipes[i]));
    }
    for (long i = 0; i < 50; i++) {
        threads[i] = start_small(echo, number(i));
    }
    IS(write(pipes[0][1], "x", 1), 1);
    join_all(threads, 50);
}

static __thread atomic_int handled;

static void count_handler(int signal)
{
    (void)signal;
    handled++;
}

static void *signal_itself(void *unused)
{
    long tid = own_call(SYS_gettid, 0, 0, 0, 0);
    IS(gettid(), tid);
    for (int i = 1; i <= 50; i++) {
        OK(own_call(SYS_tgkill, getpid(), tid, SIGUSR1, 0));
        IS(handled, i);
        sched_yield();
    }
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(own_call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, (long)&old, 8));
    OK(own_call(SYS_tgkill, getpid(), tid, SIGUSR1, 0));
    sched_yield();
    IS(handled, 50);
    OK(any_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, 8));
    IS(handled, 51);
    return unused;
}

CASE(signals_and_masks_are_of_the_calling_thread)
{
    pthread_t threads[4];
    struct sigaction action = {.sa_handler = count_handler};
    GET(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < 4; i++) {
        threads[i] = start(signal_itself, NULL);
    }
    join_all(threads, 4);
    IS(handled, 0);
}

static void *wait_for_signal(void *unused)
{
    struct timespec time = {100, 0}, left = {0, 0};
    IS(own_call(SYS_nanosleep, (long)&time, (long)&left, 0, 0), -EINTR);
    CHECK(left.tv_sec >= 90);
    IS(handled, 1);
    return unused;
}

CASE(a_signal_ends_a_sleep)
{
    struct sigaction action = {.sa_handler = count_handler};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(wait_for_signal, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

static void *frames[100];
static int frame_count;

static void trace_handler(int signal)
{
    (void)signal;
    frame_count = backtrace(frames, 100);
}

static __attribute__((noinline)) void *read_at_depth(long depth)
{
    char byte;
    if (depth > 0) {
        void *result = read_at_depth(depth - 1);
        __asm__ volatile("" : "+r"(result));
        return result;
    }
    IS(own_call(SYS_read, pipes[0][0], (long)&byte, 1, 0), 1);
    return NULL;
}

static void *read_below(void *unused)
{
    read_at_depth(10);
    return unused;
}

/* A backtrace from a handler passes the interrupted call, and the frames above it. */
CASE(a_backtrace_passes_the_call)
{
    struct sigaction action = {.sa_handler = trace_handler, .sa_flags = SA_RESTART};
    int through = 0;
    GET(pipe(pipes[0]));
    backtrace(frames, 1); /* loads what it needs */
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(read_below, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    IS(write(pipes[0][1], "x", 1), 1);
    join(thread);
    for (int i = 0; i < frame_count; i++) {
        char *at = frames[i];
        through += at > (char *)read_at_depth && at < (char *)read_at_depth + 400;
    }
    CHECK(through >= 11);
}

/* Every register but three, the flags of direction and the vectors outlive a call. */
static void *keep_registers(void *unused)
{
    for (int i = 0; i < 200; i++) {
        long bad;
        __asm__ volatile("mov $11, %%rbx\n\t"
                         "mov $12, %%r12\n\t"
                         "mov $13, %%r13\n\t"
                         "mov $14, %%r14\n\t"
                         "mov $15, %%r15\n\t"
                         "mov $8, %%r8\n\t"
                         "mov $9, %%r9\n\t"
                         "mov $10, %%r10\n\t"
                         "movq %%r12, %%xmm0\n\t"
                         "movq %%r13, %%xmm15\n\t"
                         "mov $24, %%eax\n\t"
                         "syscall\n\t"
                         "sub $11, %%rbx\n\t"
                         "sub $12, %%r12\n\t"
                         "sub $13, %%r13\n\t"
                         "sub $14, %%r14\n\t"
                         "sub $15, %%r15\n\t"
                         "sub $8, %%r8\n\t"
                         "sub $9, %%r9\n\t"
                         "sub $10, %%r10\n\t"
                         "or %%rbx, %%rax\n\t"
                         "or %%r12, %%rax\n\t"
                         "or %%r13, %%rax\n\t"
                         "or %%r14, %%rax\n\t"
                         "or %%r15, %%rax\n\t"
                         "or %%r8, %%rax\n\t"
                         "or %%r9, %%rax\n\t"
                         "or %%r10, %%rax\n\t"
                         "movq %%xmm0, %%rcx\n\t"
                         "sub $12, %%rcx\n\t"
                         "or %%rcx, %%rax\n\t"
                         "movq %%xmm15, %%rcx\n\t"
                         "sub $13, %%rcx\n\t"
                         "or %%rcx, %%rax"
                         : "=a"(bad)
                         :
                         : "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                           "xmm0", "xmm15", "memory");
        IS(bad, 0);
    }
    return unused;
}

CASE(registers_outlive_a_call)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = start(keep_registers, NULL);
    }
    join_all(threads, 8);
}

static void *sleep_a_while(void *unused)
{
    let_others_block();
    return unused;
}

/* The child goes on behind the instruction, with threads of its own. */
CASE(a_child_of_an_own_fork_uses_threads)
{
    pthread_t other = start(sleep_a_while, NULL);
    long child = GET(own_call(SYS_clone, SIGCHLD, 0, 0, 0));
    if (child == 0) {
        join(start(sleep_a_while, NULL));
        _exit(7);
    }
    int status;
    IS(own_call(SYS_wait4, child, (long)&status, 0, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    join(other);
}

/* Time limits and masks of calls that wait for descriptors. */
CASE(polls_wait_and_time_out)
{
    pthread_t other = start(sleep_a_while, NULL);
    struct pollfd poll = {.events = POLLIN};
    struct timespec limit = {0, 20 * MS};
    int ends[2];
    GET(pipe(ends));
    poll.fd = ends[0];
    int64_t started_ns = now_ns();
    IS(own_call(SYS_ppoll, (long)&poll, 1, (long)&limit, 0), 0);
    check_took(started_ns, 20);
    IS(write(ends[1], "x", 1), 1);
    IS(own_call(SYS_poll, (long)&poll, 1, -1, 0), 1);
    join(other);
}
