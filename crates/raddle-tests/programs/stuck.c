/* A thread is stuck in the kernel, until SIGTERM ends all; another one goes on. */
#define CHECK_OWN_MAIN
#include "check.h"
#include "made_call.h"

static int ends[2];

static void *get_stuck(void *unused)
{
    char byte;
    made_call(SYS_read, ends[0], (long)&byte, 1);
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
    start(get_stuck, NULL);
    start(go_on, NULL);
    OK(sigwait(&set, &signal));
    say_ok();
    _exit(0);
}
