/* Eight threads compute until SIGTERM, in this process and in as many children as are asked for. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>
#include <sys/prctl.h>

static atomic_int stop;

static void *compute(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    }
    return NULL;
}

/* Makes children, which end with the parent, before the first thread. False in a child. */
static int make_children(int count)
{
    pid_t parent = getpid();
    while (count-- > 0) {
        if (GET(fork()) == 0) {
            OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
            if (getppid() != parent) {
                _exit(1);
            }
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    case_name = cases[case_count++].name = "computing";
    pthread_t threads[8];
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int is_parent = make_children(argc > 1 ? atoi(argv[1]) : 0);
    for (int i = 0; i < 8; i++) {
        threads[i] = start(compute, NULL);
    }
    if (is_parent) {
        printf("computing\n");
        fflush(stdout);
    }
    OK(sigwait(&set, &signal));
    atomic_store(&stop, 1);
    join_all(threads, 8);
    say_ok();
    return 0;
}
