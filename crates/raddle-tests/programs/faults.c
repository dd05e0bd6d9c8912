/* Faults of a thread: alternate stacks, jumps out, mended memory, changed registers. */
#include "check.h"

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile uintptr_t unmapped = 16;
static __thread sigjmp_buf after_fault;
static atomic_int on_alternate_stack;

static void escape(int signal, siginfo_t *info, void *context)
{
    stack_t stack;
    (void)context;
    GET(sigaltstack(NULL, &stack));
    if (stack.ss_flags & SS_ONSTACK) {
        atomic_fetch_add(&on_alternate_stack, 1);
    }
    CHECK(info->si_addr == number(16) || signal != SIGSEGV);
    siglongjmp(after_fault, signal);
}

static void *fault_often(void *argument)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, off = {.ss_flags = SS_DISABLE};
    GET(sigaltstack(&stack, NULL));
    for (int i = 0; i < 20; i++) {
        int signal = sigsetjmp(after_fault, 1);
        if (signal == 0) {
            *(volatile int *)unmapped = 1;
            CHECK(!"reached");
        }
        IS(signal, SIGSEGV);
        sched_yield();
    }
    GET(sigaltstack(&off, NULL));
    free(stack.ss_sp);
    return argument;
}

CASE(faults_are_handled_on_alternate_stacks_of_ten_threads)
{
    struct sigaction action = {.sa_sigaction = escape, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    pthread_t threads[10];
    GET(sigaction(SIGSEGV, &action, NULL));
    for (int i = 0; i < 10; i++) {
        threads[i] = start(fault_often, NULL);
    }
    join_all(threads, 10);
    IS(on_alternate_stack, 200);
}

static __thread char *lowest;

static void escape_from_overflow(int signal, siginfo_t *info, void *context)
{
    char here;
    stack_t stack;
    (void)context;
    GET(sigaltstack(NULL, &stack));
    CHECK(stack.ss_flags & SS_ONSTACK);
    CHECK(&here >= (char *)stack.ss_sp && &here < (char *)stack.ss_sp + stack.ss_size);
    CHECK((char *)info->si_addr < lowest && (char *)info->si_addr > lowest - 65536);
    siglongjmp(after_fault, signal);
}

static __attribute__((noinline)) int go_deeper(int depth)
{
    volatile char frame[2000];
    frame[0] = (char)depth;
    lowest = (char *)frame;
    int result = depth < 0 ? 0 : go_deeper(depth + 1);
    return result + frame[0];
}

static void *overflow_often(void *argument)
{
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, off = {.ss_flags = SS_DISABLE};
    GET(sigaltstack(&stack, NULL));
    for (int i = 0; i < 10; i++) {
        int signal = sigsetjmp(after_fault, 1);
        if (signal == 0) {
            go_deeper(0);
            CHECK(!"reached");
        }
        IS(signal, SIGSEGV);
        sched_yield();
    }
    GET(sigaltstack(&off, NULL));
    free(stack.ss_sp);
    return argument;
}

CASE(stacks_overflow_into_handlers_in_ten_threads)
{
    struct sigaction action = {.sa_sigaction = escape_from_overflow,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    pthread_t threads[10];
    GET(sigaction(SIGSEGV, &action, NULL));
    for (int i = 0; i < 10; i++) {
        threads[i] = start_small(overflow_often, NULL);
    }
    join_all(threads, 10);
}

static char *page;

static void make_writable(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    CHECK((char *)info->si_addr >= page);
    GET(mprotect((void *)((uintptr_t)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE));
}

static void *touch_page(void *which)
{
    page[(long)which * 4096] = 1;
    return NULL;
}

CASE(a_fault_handler_mends_and_the_instruction_is_repeated)
{
    struct sigaction action = {.sa_sigaction = make_writable, .sa_flags = SA_SIGINFO};
    pthread_t threads[20];
    GET(sigaction(SIGSEGV, &action, NULL));
    page = mmap(NULL, 20 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 20; i++) {
        threads[i] = start(touch_page, number(i));
    }
    join_all(threads, 20);
}

static void skip_instruction(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ucontext_t *state = context;
    state->uc_mcontext.gregs[REG_RIP] += 2;
    state->uc_mcontext.gregs[REG_RAX] = 1234;
}

static void *illegal(void *argument)
{
    for (int i = 0; i < 50; i++) {
        long value = 1;
        __asm__ volatile("ud2" : "+a"(value));
        IS(value, 1234);
    }
    return argument;
}

CASE(a_handler_changes_the_registers_it_returns_to)
{
    struct sigaction action = {.sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO};
    GET(sigaction(SIGILL, &action, NULL));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(illegal, NULL);
    }
    join_all(threads, 4);
    illegal(NULL);
}

static atomic_int traps;

/* The byte behind the breakpoint is data for the handler, as in runtimes that trap on purpose. */
static void skip_data(int signal, siginfo_t *info, void *context)
{
    ucontext_t *state = context;
    greg_t *rip = &state->uc_mcontext.gregs[REG_RIP];
    IS(signal, SIGTRAP);
    CHECK(info->si_code > 0);
    IS(*(unsigned char *)*rip, 0x09);
    *rip += 1;
    state->uc_mcontext.gregs[REG_RAX] = gettid();
    atomic_fetch_add(&traps, 1);
}

static void *trap(void *argument)
{
    for (int i = 0; i < 50; i++) {
        long value = 1;
        __asm__ volatile("int3; .byte 0x09" : "+a"(value));
        IS(value, gettid());
        sched_yield();
    }
    return argument;
}

CASE(a_breakpoint_is_its_threads_own_before_the_next_instruction)
{
    struct sigaction action = {.sa_sigaction = skip_data, .sa_flags = SA_SIGINFO};
    GET(sigaction(SIGTRAP, &action, NULL));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(trap, NULL);
    }
    join_all(threads, 4);
    trap(NULL);
    IS(traps, 250);
}

static void *trap_blocked(void *argument)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    __asm__ volatile("int3");
    CHECK(!"reached");
    return argument;
}

CASE(a_breakpoint_that_is_blocked_ends_the_process)
{
    int status;
    pid_t child = GET(fork());
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = skip_data, .sa_flags = SA_SIGINFO};
        GET(sigaction(SIGTRAP, &action, NULL));
        join(start(trap_blocked, NULL));
        _exit(0);
    }
    GET(waitpid(child, &status, 0));
    CHECK(WIFSIGNALED(status));
    IS(WTERMSIG(status), SIGTRAP);
}
