/* What a handler sees of a system call that it interrupts, and what becomes of its changes: the
 * registers are those of the program at the call, and the program goes on with what the handler
 * has left in them. */
#include "check.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

struct registers {
    long rbx, rbp, r12, r13, r14, r15, xmm3[2];
};

/* Makes a call with these registers, and notes them behind it. */
long call_with(long number, long a, long b, long c, long d, struct registers *registers);
/* Saves all registers, counts in `visits` and returns. */
void visit(void);

volatile long call_sp __attribute__((visibility("hidden")));
volatile long visits __attribute__((visibility("hidden")));

__asm__(".text\n"
        "call_with:\n"
        "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n push %r9\n"
        "mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n mov %r8, %r10\n"
        "mov (%r9), %rbx\n mov 8(%r9), %rbp\n mov 16(%r9), %r12\n mov 24(%r9), %r13\n"
        "mov 32(%r9), %r14\n mov 40(%r9), %r15\n movdqu 48(%r9), %xmm3\n"
        "mov %rsp, call_sp(%rip)\n"
        "mov $8, %r8d\n mov $0x99, %r9d\n"
        "syscall\n"
        "mov (%rsp), %rcx\n"
        "mov %rbx, (%rcx)\n mov %rbp, 8(%rcx)\n mov %r12, 16(%rcx)\n mov %r13, 24(%rcx)\n"
        "mov %r14, 32(%rcx)\n mov %r15, 40(%rcx)\n movdqu %xmm3, 48(%rcx)\n"
        "add $8, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"
        "visit:\n"
        "pushfq\n incq visits(%rip)\n popfq\n"
        "ret $128\n");

static const struct registers BEFORE = {0xb, 0xbb, 0x12, 0x13, 0x14, 0x15, {0x3333, 0x4444}};
static struct registers registers;
static volatile int handled;
static void (*volatile change)(greg_t *gregs, ucontext_t *context);
static long shown_rax;
static int pipe_ends[2];

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *gregs = ((ucontext_t *)context)->uc_mcontext.gregs;
    struct registers seen = {gregs[REG_RBX], gregs[REG_RBP], gregs[REG_R12], gregs[REG_R13],
                             gregs[REG_R14], gregs[REG_R15], {0}};
    struct _libc_fpstate *state = ((ucontext_t *)context)->uc_mcontext.fpregs;
    memcpy(seen.xmm3, &state->_xmm[3], sizeof seen.xmm3);
    if (handled++ == 0) {
        IS(memcmp(&seen, &BEFORE, sizeof seen), 0);
        IS(gregs[REG_RSP], call_sp);
        IS(gregs[REG_R8], 8);
        IS(gregs[REG_R9], 0x99);
        CHECK(gregs[REG_RCX] == gregs[REG_RIP] || gregs[REG_RAX] >= 0);
        shown_rax = gregs[REG_RAX];
    }
    if (change != NULL) {
        change(gregs, context);
    }
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    OK(sigaction(signal, &action, NULL));
}

static pthread_t caller;
static volatile int is_calling;

/* Sends the signal when the caller waits; then writes what it reads. */
static void *send(void *argument)
{
    while (!is_calling) {
        usleep(1000);
    }
    for (int i = 0; handled == 0; i++) {
        usleep(50000);
        OK(pthread_kill(caller, SIGUSR1));
        usleep(50000);
    }
    usleep(20000);
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    return argument;
}

/* Makes a call that a signal of another thread's interrupts. Returns its result. */
static long interrupted(int flags, long number, long a, long b, long c, long d)
{
    pthread_t sender;
    handle(SIGUSR1, flags);
    OK(pipe(pipe_ends));
    caller = pthread_self();
    registers = BEFORE;
    OK(pthread_create(&sender, NULL, send, NULL));
    is_calling = 1;
    long result = call_with(number, number == SYS_read ? pipe_ends[0] : a, b, c, d, &registers);
    OK(pthread_join(sender, NULL));
    CHECK(handled > 0);
    return result;
}

static void *nothing(void *argument)
{
    return argument;
}

static void make_a_thread(void)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, nothing, NULL));
    OK(pthread_join(thread, NULL));
}

/* Makes a call that ends with a signal. */
static long at_its_end(void)
{
    make_a_thread();
    handle(SIGUSR1, 0);
    registers = BEFORE;
    return call_with(SYS_tgkill, getpid(), gettid(), SIGUSR1, 0, &registers);
}

static void change_preserved(greg_t *gregs, ucontext_t *context)
{
    gregs[REG_RBX] = 0x100;
    gregs[REG_RBP] = 0x101;
    gregs[REG_R12] = 0x102;
    gregs[REG_R13] = 0x103;
    gregs[REG_R14] = 0x104;
    gregs[REG_R15] = 0x105;
    long xmm3[2] = {0x106, 0x107};
    memcpy(&context->uc_mcontext.fpregs->_xmm[3], xmm3, sizeof xmm3);
}

static void check_changed(void)
{
    const struct registers after = {0x100, 0x101, 0x102, 0x103, 0x104, 0x105, {0x106, 0x107}};
    IS(memcmp(&registers, &after, sizeof after), 0);
}

static void check_unchanged(void)
{
    IS(memcmp(&registers, &BEFORE, sizeof BEFORE), 0);
}

CASE(a_call_that_has_ended_shows_its_result)
{
    IS(at_its_end(), 0);
    IS(handled, 1);
    IS(shown_rax, 0);
    check_unchanged();
}

CASE(a_call_that_ends_by_the_signal_shows_the_error)
{
    char byte;
    IS(interrupted(0, SYS_read, 0, (long)&byte, 1, 0), -EINTR);
    IS(shown_rax, -EINTR);
    check_unchanged();
}

CASE(a_call_that_begins_again_shows_its_number)
{
    char byte = 0;
    IS(interrupted(SA_RESTART, SYS_read, 0, (long)&byte, 1, 0), 1);
    IS(byte, 'x');
    IS(shown_rax, SYS_read);
    check_unchanged();
}

CASE(changed_registers_at_the_end_of_a_call)
{
    change = change_preserved;
    IS(at_its_end(), 0);
    check_changed();
}

CASE(changed_registers_of_a_call_that_ends)
{
    char byte;
    change = change_preserved;
    IS(interrupted(0, SYS_read, 0, (long)&byte, 1, 0), -EINTR);
    check_changed();
}

CASE(changed_registers_of_a_call_that_begins_again)
{
    char byte = 0;
    change = change_preserved;
    IS(interrupted(SA_RESTART, SYS_read, 0, (long)&byte, 1, 0), 1);
    IS(byte, 'x');
    check_changed();
}

CASE(changed_registers_of_waits)
{
    struct timespec time = {60, 0};
    sigset_t mask;
    int word = 0;
    change = change_preserved;
    OK(sigemptyset(&mask));
    IS(interrupted(SA_RESTART, SYS_nanosleep, (long)&time, 0, 0, 0), -EINTR);
    check_changed();
    handled = is_calling = 0;
    IS(interrupted(SA_RESTART, SYS_ppoll, 0, 0, (long)&time, (long)&mask), -EINTR);
    check_changed();
    handled = is_calling = 0;
    IS(interrupted(SA_RESTART, SYS_rt_sigsuspend, (long)&mask, 8, 0, 0), -EINTR);
    check_changed();
    handled = is_calling = 0;
    IS(interrupted(0, SYS_futex, (long)&word, FUTEX_WAIT_PRIVATE, 0, 0), -EINTR);
    check_changed();
}

static void change_result(greg_t *gregs, ucontext_t *context)
{
    (void)context;
    gregs[REG_RAX] = 0x77;
    gregs[REG_RDX] = 0x78;
}

CASE(a_changed_result)
{
    char byte;
    change = change_result;
    IS(interrupted(0, SYS_read, 0, (long)&byte, 1, 0), 0x77);
    check_unchanged();
}

static char other_byte;

static void change_arguments(greg_t *gregs, ucontext_t *context)
{
    (void)context;
    gregs[REG_RSI] = (long)&other_byte;
}

CASE(changed_arguments_of_a_call_that_begins_again)
{
    char byte = 0;
    change = change_arguments;
    IS(interrupted(SA_RESTART, SYS_read, 0, (long)&byte, 1, 0), 1);
    IS(byte, 0);
    IS(other_byte, 'x');
    check_unchanged();
}

static void change_number(greg_t *gregs, ucontext_t *context)
{
    (void)context;
    gregs[REG_RAX] = SYS_getpid;
}

CASE(another_number_of_a_call_that_begins_again)
{
    char byte = 0;
    change = change_number;
    IS(interrupted(SA_RESTART, SYS_read, 0, (long)&byte, 1, 0), getpid());
    IS(byte, 0);
    check_unchanged();
}

/* As runtimes do that stop threads: the function runs as if called by the interrupted code. */
static void push_call(greg_t *gregs, ucontext_t *context)
{
    (void)context;
    long *stack = (long *)(gregs[REG_RSP] - 128);
    *--stack = gregs[REG_RIP];
    gregs[REG_RSP] = (long)stack;
    gregs[REG_RIP] = (long)visit;
}

CASE(a_call_that_a_handler_pushes)
{
    char byte = 0;
    change = push_call;
    IS(at_its_end(), 0);
    IS(visits, 1);
    check_unchanged();
    handled = 0;
    IS(interrupted(0, SYS_read, 0, (long)&byte, 1, 0), -EINTR);
    IS(visits, 2);
    check_unchanged();
    handled = is_calling = 0;
    IS(interrupted(SA_RESTART, SYS_read, 0, (long)&byte, 1, 0), 1);
    IS(visits, 3);
    IS(byte, 'x');
    check_unchanged();
}

static void change_one(greg_t *gregs, ucontext_t *context)
{
    (void)context;
    gregs[REG_R12]++;
    if (handled == 1) {
        OK(raise(SIGUSR2));
    }
}

CASE(the_changes_of_two_handlers)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    change = change_one;
    OK(sigaddset(&action.sa_mask, SIGUSR2));
    OK(sigaddset(&action.sa_mask, SIGUSR1));
    OK(sigaction(SIGUSR2, &action, NULL));
    make_a_thread();
    OK(sigaction(SIGUSR1, &action, NULL));
    registers = BEFORE;
    IS(call_with(SYS_tgkill, getpid(), gettid(), SIGUSR1, 0, &registers), 0);
    IS(handled, 2);
    IS(registers.r12, BEFORE.r12 + 2);
}

/* Reads by an instruction that can't be patched: jumps lead right before and right behind it. */
long unpatched_read(int descriptor, void *to, size_t size, long zero);
__asm__("unpatched_read:\n"
        "xor %eax, %eax\n"
        "test %rcx, %rcx\n jnz 2f\n jz 1f\n nop\n nop\n nop\n"
        "1: syscall\n"
        "2: ret\n"
        "nop\n nop\n nop\n nop\n jmp 2b\n jmp 1b\n");

static void count(int signal)
{
    (void)signal;
    handled++;
}

static void *read_unpatched(void *result)
{
    char byte = 0;
    is_calling = 1;
    *(long *)result = unpatched_read(pipe_ends[0], &byte, 1, 0);
    return NULL;
}

static long interrupted_unpatched(int flags)
{
    pthread_t sender;
    long result = 0;
    struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pipe(pipe_ends));
    handled = is_calling = 0;
    OK(pthread_create(&caller, NULL, read_unpatched, &result));
    OK(pthread_create(&sender, NULL, send, NULL));
    OK(pthread_join(sender, NULL));
    OK(pthread_join(caller, NULL));
    CHECK(handled > 0);
    return result;
}

CASE(a_call_of_code_that_is_not_patched)
{
    IS(interrupted_unpatched(0), -EINTR);
    IS(interrupted_unpatched(SA_RESTART), 1);
}

static volatile pid_t forked = -1;

static void fork_here(int signal)
{
    (void)signal;
    handled++;
    if (forked == -1) {
        forked = fork();
    }
}

static void *read_over_a_fork(void *argument)
{
    char byte = 0;
    int status;
    is_calling = 1;
    IS(read(pipe_ends[0], &byte, 1), 1);
    if (forked == 0) {
        _exit(byte != 'x');
    }
    IS(waitpid(forked, &status, 0), forked);
    IS(status, 0);
    return argument;
}

CASE(the_child_of_a_handlers_fork_begins_the_call_again)
{
    pthread_t sender;
    struct sigaction action = {.sa_handler = fork_here, .sa_flags = SA_RESTART};
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pipe(pipe_ends));
    OK(pthread_create(&caller, NULL, read_over_a_fork, NULL));
    OK(pthread_create(&sender, NULL, send, NULL));
    OK(pthread_join(sender, NULL));
    CHECK(write(pipe_ends[1], "x", 1) == 1);
    OK(pthread_join(caller, NULL));
}

static volatile int steps;

static void on_trap(int signal)
{
    steps += signal == SIGTRAP;
}

static void *trace_itself(void *argument)
{
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq\n" ::: "memory", "cc");
    for (volatile int i = 0; i < 100; i++) {
    }
    int before = steps;
    sched_yield();
    __asm__ volatile("pushfq\n andq $~0x100, (%%rsp)\n popfq\n" ::: "memory", "cc");
    CHECK(before > 100);
    return argument;
}

CASE(a_thread_that_traces_itself)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_trap};
    OK(sigaction(SIGTRAP, &action, NULL));
    OK(pthread_create(&thread, NULL, trace_itself, NULL));
    OK(pthread_join(thread, NULL));
}

static volatile int forks_seen;

static void on_alarm(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    greg_t *gregs = ((ucontext_t *)context)->uc_mcontext.gregs;
    if (gregs[REG_RSP] == call_sp && gregs[REG_RCX] != 0) {
        struct registers seen = {gregs[REG_RBX], gregs[REG_RBP], gregs[REG_R12], gregs[REG_R13],
                                 gregs[REG_R14], gregs[REG_R15], {0x3333, 0x4444}};
        IS(memcmp(&seen, &BEFORE, sizeof seen), 0);
        gregs[REG_R12]++;
        forks_seen++;
    }
}

static void *fork_and_fork(void *argument)
{
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    OK(sigaction(SIGALRM, &action, NULL));
    for (int i = 0; forks_seen < 3 && i < 3000; i++) {
        struct itimerval soon = {{0, 0}, {0, 50 + i % 200}};
        int status, before = forks_seen;
        registers = BEFORE;
        OK(setitimer(ITIMER_REAL, &soon, NULL));
        long child = call_with(SYS_fork, 0, 0, 0, 0, &registers);
        if (child == 0) {
            _exit(registers.r15 != BEFORE.r15 || registers.rbx != BEFORE.rbx);
        }
        CHECK(child > 0);
        int changes = forks_seen - before;
        registers.r12 -= changes;
        check_unchanged();
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
    return argument;
}

CASE(forks_that_a_timer_interrupts)
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, fork_and_fork, NULL));
    sigset_t set;
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGALRM));
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    OK(pthread_join(thread, NULL));
    CHECK(forks_seen > 0);
}

/* Coroutines of one thread: a timer's handler puts the context of one in the place of the other's,
 * with their stacks and their floating-point states. */
#define COROUTINES 3
#define STACK 262144

static ucontext_t saved[COROUTINES];
static volatile int current, turns[COROUTINES];
static volatile long works[COROUTINES];

static void switch_contexts(int signal, siginfo_t *info, void *interrupted)
{
    (void)signal, (void)info;
    ucontext_t *context = interrupted;
    int next = (current + 1) % COROUTINES;
    saved[current].uc_mcontext = context->uc_mcontext;
    context->uc_mcontext = saved[next].uc_mcontext;
    turns[next]++;
    current = next;
}

static void coroutine(long number)
{
    char path[64];
    for (long i = 0; turns[0] < 60; i++) {
        long key = number * 1000003 + i;
        struct registers mine = {key, key + 1, key + 2, key + 3, key + 4, key + 5, {key, ~key}};
        struct registers kept = mine;
        struct timespec little = {0, 200000};
        long result = i % 3 == 0 ? call_with(SYS_nanosleep, (long)&little, 0, 0, 0, &mine)
                      : i % 3 == 1
                          ? call_with(SYS_poll, 0, 0, 1, 0, &mine)
                          : call_with(SYS_getcwd, (long)path, sizeof path - 1, 0, 0, &mine);
        CHECK(result >= 0 || result == -EINTR || result == -ERANGE);
        IS(memcmp(&mine, &kept, sizeof mine), 0);
        works[number]++;
    }
}

static void begin(long number)
{
    coroutine(number);
    for (;;) {
        pause();
    }
}

static void *run_coroutines(void *argument)
{
    sigset_t set;
    for (volatile long i = 1; i < COROUTINES; i++) {
        char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(stack != MAP_FAILED);
        OK(getcontext(&saved[i]));
        greg_t *gregs = saved[i].uc_mcontext.gregs;
        gregs[REG_RSP] = (long)(stack + STACK - 8);
        gregs[REG_RIP] = (long)begin;
        gregs[REG_RDI] = i;
        gregs[REG_EFL] = 0x202;
        gregs[REG_CSGSFS] = 0x2b000000000033;
        saved[i].uc_mcontext.fpregs = NULL;
    }
    struct sigaction action = {.sa_sigaction = switch_contexts, .sa_flags = SA_SIGINFO};
    OK(sigaction(SIGALRM, &action, NULL));
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGALRM));
    OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    struct itimerval often = {{0, 3000}, {0, 3000}};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    coroutine(0);
    struct itimerval never = {{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &never, NULL));
    return argument;
}

CASE(coroutines_that_exchange_their_contexts)
{
    pthread_t thread;
    sigset_t set;
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGALRM));
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    OK(pthread_create(&thread, NULL, run_coroutines, NULL));
    OK(pthread_join(thread, NULL));
    for (int i = 0; i < COROUTINES; i++) {
        CHECK(works[i] > 0);
    }
}
