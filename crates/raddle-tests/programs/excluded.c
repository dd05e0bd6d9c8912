/* Three threads with names, one of them named as rules may say: they wait until SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"

static const char *const names[] = {"kept-1", "free-1", "free-2"};
static pthread_barrier_t named;

static void *wait_for_ever(void *name)
{
    OK(pthread_setname_np(pthread_self(), name));
    pthread_barrier_wait(&named);
    for (;;) {
        pause();
    }
    return NULL;
}

int main(void)
{
    case_name = cases[case_count++].name = "excluded";
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    OK(pthread_barrier_init(&named, NULL, 4));
    for (int i = 0; i < 3; i++) {
        start(wait_for_ever, (void *)names[i]);
    }
    pthread_barrier_wait(&named);
    printf("waiting\n");
    fflush(stdout);
    OK(sigwait(&set, &signal));
    say_ok();
    return 0;
}
