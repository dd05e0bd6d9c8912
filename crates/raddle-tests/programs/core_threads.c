/* As many threads as the first argument says wait in worker(), each with a local variable that
 * tells it from the others. With "spin", one more thread computes. Prints "ready", and then waits,
 * or with "crash" writes to a null pointer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t begun;
static volatile long computed;

__attribute__((noinline)) static long worker(long number)
{
    volatile long twice = 2 * number;
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&never, &lock);
    }
    return twice;
}

static void *begin(void *argument)
{
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", (long)argument);
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&begun);
    return (void *)worker((long)argument);
}

__attribute__((noinline)) static void *spin(void *argument)
{
    prctl(PR_SET_NAME, "spinner");
    for (;;) {
        computed++;
    }
    return argument;
}

__attribute__((noinline)) static void crash(volatile int *nowhere)
{
    *nowhere = 1;
}

int main(int count, char **arguments)
{
    long threads = count > 1 ? atol(arguments[1]) : 1;
    const char *what = count > 2 ? arguments[2] : "";
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&begun, NULL, (unsigned)threads + 1);
    for (long number = 0; number < threads; number++) {
        if (pthread_create(&thread, &small, begin, (void *)number) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&begun);
    usleep(300 * 1000);
    if (strcmp(what, "spin") == 0 && pthread_create(&thread, &small, spin, NULL) != 0) {
        return 2;
    }
    printf("ready\n");
    fflush(stdout);
    if (strcmp(what, "crash") == 0) {
        struct rlimit most;
        getrlimit(RLIMIT_CORE, &most);
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_CORE, &most);
        crash(NULL);
    }
    pause();
    return 0;
}
