/* Starts as many threads as it is told, says so, and ends with 0 on SIGTERM.
 *
 * What a test looks at from outside while it waits: how many kernel threads that takes.
 */
#define CHECK_OWN_MAIN
#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int open_for_all;

static void *wait_until_opened(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    while (!open_for_all) {
        OK(pthread_cond_wait(&opened, &mutex));
    }
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

int main(int argc, char **argv)
{
    case_name = cases[case_count++].name = "many_waiting";
    int count = argc > 1 ? atoi(argv[1]) : 100, status;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t *threads = calloc(count, sizeof *threads);
    for (int i = 0; i < count; i++) {
        threads[i] = start_small(wait_until_opened, NULL);
    }
    printf("waiting\n");
    fflush(stdout);
    OK(sigwait(&set, &status));
    OK(pthread_mutex_lock(&mutex));
    open_for_all = 1;
    OK(pthread_cond_broadcast(&opened));
    OK(pthread_mutex_unlock(&mutex));
    join_all(threads, count);
    say_ok();
    free(threads);
    return 0;
}
