/* A thread is stuck in the kernel, until SIGTERM ends all; another one goes on. */
#define CHECK_OWN_MAIN
#include "check.h"

static int ends[2];

static int depth;

__attribute__((noinline)) static void get_stuck(void)
{
    char byte;
    long result = SYS_read;
    /* Jumps can't be moved, so the instruction between them can't be patched. */
    __asm__ volatile("jmp 1f\n"
                     "1: syscall\n"
                     "jmp 2f\n"
                     "2:"
                     : "+a"(result)
                     : "D"((long)ends[0]), "S"(&byte), "d"(1L)
                     : "rcx", "r11", "memory");
    (void)result;
    depth++; /* so that it isn't left by a jump */
}

__attribute__((noinline)) static void call_it(int depth_before)
{
    volatile char room[300];
    room[depth_before] = 1;
    get_stuck();
    depth += room[0];
}

static void *run_it(void *unused)
{
    call_it(depth);
    depth++;
    return unused;
}

static void *go_on(void *unused)
{
    for (int i = 0; i < 100; i++) {
        sleep_ms(1);
    }
    printf("stuck\n");
    fflush(stdout);
    return unused;
}

int main(void)
{
    case_name = cases[case_count++].name = "stuck";
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    GET(pipe(ends));
    start(run_it, NULL);
    start(go_on, NULL);
    OK(sigwait(&set, &signal));
    say_ok();
    _exit(0);
}
