/* Eight threads compute until SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>

static atomic_int stop;

static void *compute(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    }
    return NULL;
}

int main(void)
{
    case_name = cases[case_count++].name = "computing";
    pthread_t threads[8];
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < 8; i++) {
        threads[i] = start(compute, NULL);
    }
    printf("computing\n");
    fflush(stdout);
    OK(sigwait(&set, &signal));
    atomic_store(&stop, 1);
    join_all(threads, 8);
    say_ok();
    return 0;
}
