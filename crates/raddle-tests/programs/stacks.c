/* Stacks for a debugger: threads that wait, call and crash below frames with known names. */
#define CHECK_OWN_MAIN
#include "check.h"

#include <sys/resource.h>
#include <sys/stat.h>

static int how;
static volatile uintptr_t bad_address = 16;
static int ends[2];
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

#define KEEP __asm__ volatile("" ::: "memory")

/* One call through a stub that finds its data at once, and one into the symbol layer. */
__attribute__((noinline)) static void call_both(void)
{
    GET(write(ends[1], "x", 1));
    OK(pthread_cond_signal(&condition));
    KEEP;
}

__attribute__((noinline)) static void open_for_ever(void)
{
    printf("waiting\n");
    fflush(stdout);
    GET(open("fifo", O_RDONLY));
    KEEP;
}

__attribute__((noinline)) static void crash(void)
{
    switch (how) {
    case 'f': *(volatile int *)bad_address = 1; break;
    case 'a': abort();
    case 'q': raise(SIGQUIT); break;
    default: __builtin_trap();
    }
    KEEP;
}

__attribute__((noinline)) static void inner_frame(void)
{
    if (how == 'w') {
        open_for_ever();
    } else if (how == 's') {
        call_both();
    } else {
        crash();
    }
    KEEP;
}

__attribute__((noinline)) static void outer_frame(void)
{
    sleep_ms(10);
    inner_frame();
    KEEP;
}

static void *run(void *argument)
{
    outer_frame();
    return argument;
}

static void *sleep_on(void *argument)
{
    sleep_ms(100000);
    return argument;
}

int main(int argc, char **argv)
{
    struct rlimit no_limit = {RLIM_INFINITY, RLIM_INFINITY};
    case_name = "stacks";
    how = argc > 1 ? argv[1][0] : 0;
    GET(pipe(ends));
    if (how == 'w') {
        GET(mkfifo("fifo", 0600));
    } else if (how != 's') {
        GET(setrlimit(RLIMIT_CORE, &no_limit));
    }
    for (int i = 0; i < 5; i++) {
        start(sleep_on, NULL);
    }
    join(start(run, NULL));
    return 0;
}
