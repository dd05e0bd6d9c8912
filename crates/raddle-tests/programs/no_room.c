/* Frames of signals that have no room on the stack of the handler: the thread takes SIGSEGV, of
 * which the handler runs on another stack. */
#include "check.h"

#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK 65536
/* Enough for what is called there, and not for a frame, which AVX-512 doubles. */
#define ROOM (has_large_frames() ? 1536 : 880)
#define ROOM_OF_CALLS (has_large_frames() ? 2800 : 1360)
#define SMALL 2100 /* sigaltstack refuses less than MINSIGSTKSZ */

static sigjmp_buf back;
static volatile int handled, segv_code;
static volatile uintptr_t segv_at;
static char *memory;

static int has_large_frames(void)
{
    return getauxval(AT_MINSIGSTKSZ) > 3000;
}

static void has_no_room(int signal)
{
    (void)signal;
    handled = 1;
}

static void on_segv(int signal, siginfo_t *info, void *unused)
{
    (void)unused;
    IS(signal, SIGSEGV);
    segv_code = info->si_code;
    segv_at = (uintptr_t)__builtin_frame_address(0);
    siglongjmp(back, 1);
}

static void prepare(int signal, int flags, int segv_flags)
{
    struct sigaction action = {.sa_handler = has_no_room, .sa_flags = flags};
    OK(sigaction(signal, &action, NULL));
    action.sa_sigaction = on_segv;
    action.sa_flags = segv_flags | SA_SIGINFO;
    OK(sigaction(SIGSEGV, &action, NULL));
    memory = mmap(NULL, 3 * STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    OK(mprotect(memory + STACK, STACK, PROT_READ | PROT_WRITE));
}

static void use_alternate(char *at, size_t size)
{
    stack_t stack = {.ss_sp = at, .ss_size = size};
    OK(sigaltstack(&stack, NULL));
}

/* SIGSEGV came in place of the signal, and its handler ran on this stack, or not there. */
static void check_segv(char *stack, size_t size, int is_there)
{
    IS(handled, 0);
    IS(segv_code, SI_KERNEL);
    IS(segv_at - (uintptr_t)stack < size, is_there);
}

static void in_a_thread(void *(*body)(void *))
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, NULL));
    OK(pthread_join(thread, NULL));
}

static void trap(void)
{
    __asm__ volatile("ud2");
}

static void compute(void)
{
    for (;;) {
        __asm__ volatile("");
    }
}

/* Calls `body` on a stack with so many bytes, between pages that can't be used. */
static void call_with_room(size_t room, void (*body)(void))
{
    static ucontext_t own, thread;
    GET(getcontext(&own));
    own.uc_stack.ss_sp = memory + STACK;
    own.uc_stack.ss_size = room;
    own.uc_link = &thread;
    makecontext(&own, body, 0);
    if (sigsetjmp(back, 1) == 0) {
        GET(swapcontext(&thread, &own));
        CHECK(0);
    }
}

static void *trap_with_little_room(void *unused)
{
    static char alternate[STACK];
    prepare(SIGILL, 0, SA_ONSTACK);
    use_alternate(alternate, STACK);
    call_with_room(ROOM, trap);
    check_segv(alternate, STACK, 1);
    return unused;
}

CASE(a_faults_handler)
{
    in_a_thread(trap_with_little_room);
}

static pthread_t computing;

static void *signal_it(void *unused)
{
    usleep(20000);
    OK(pthread_kill(computing, SIGUSR1));
    return unused;
}

static void *compute_with_little_room(void *unused)
{
    static char alternate[STACK];
    pthread_t sender;
    prepare(SIGUSR1, 0, SA_ONSTACK);
    use_alternate(alternate, STACK);
    computing = pthread_self();
    OK(pthread_create(&sender, NULL, signal_it, NULL));
    call_with_room(ROOM, compute);
    check_segv(alternate, STACK, 1);
    OK(pthread_join(sender, NULL));
    return unused;
}

CASE(a_handler_of_a_thread_that_computes)
{
    in_a_thread(compute_with_little_room);
}

static void raise_it(void)
{
    raise(SIGUSR1);
}

static void *raise_with_little_room(void *unused)
{
    static char alternate[STACK];
    prepare(SIGUSR1, 0, SA_ONSTACK);
    use_alternate(alternate, STACK);
    raise(0); /* its first call, in which ld.so looks it up, may need more room */
    call_with_room(ROOM_OF_CALLS, raise_it);
    check_segv(alternate, STACK, 1);
    return unused;
}

CASE(a_handler_that_interrupts_a_call)
{
    in_a_thread(raise_with_little_room);
}

static void *raise_on_alternate(char *stack, size_t size)
{
    prepare(SIGUSR1, SA_ONSTACK, 0);
    use_alternate(stack ? stack : memory, size);
    if (sigsetjmp(back, 1) == 0) {
        raise(SIGUSR1);
        CHECK(0);
    }
    check_segv(stack ? stack : memory, size, 0);
    return NULL;
}

static void *raise_on_a_small_one(void *unused)
{
    static char small[SMALL];
    (void)unused;
    return raise_on_alternate(small, SMALL);
}

CASE(a_handler_on_an_alternate_stack_that_is_too_small)
{
    /* Without AVX-512 a frame has room on each stack that sigaltstack takes. */
    if (has_large_frames())
        in_a_thread(raise_on_a_small_one);
}

static void *raise_on_none(void *unused)
{
    (void)unused;
    return raise_on_alternate(NULL, STACK);
}

CASE(a_handler_on_an_alternate_stack_that_can_not_be_used)
{
    in_a_thread(raise_on_none);
}

static void *overflow_without_a_stack(void *unused)
{
    prepare(SIGILL, 0, 0);
    call_with_room(ROOM, trap);
    return unused;
}

CASE(without_a_stack_for_sigsegv_the_process_ends)
{
    pid_t child = GET(fork());
    if (child == 0) {
        in_a_thread(overflow_without_a_stack);
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    IS(WTERMSIG(status), SIGSEGV);
}
