/* Threads that wait in known functions: a condition variable, a pipe, a sleep, a futex. The number
 * of threads of each kind is the first argument. Prints "ready" once all have begun to wait. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t none;
static int empty[2];
static pthread_barrier_t begun;
static volatile int depth = 5;

static void name_it(const char *kind, long number)
{
    char name[32];
    snprintf(name, sizeof name, "%s-%ld", kind, number);
    prctl(PR_SET_NAME, name);
}

__attribute__((noinline)) static long wait_for_condition(long number)
{
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&never, &lock);
    }
    return number;
}

__attribute__((noinline)) static long wait_for_pipe(long number)
{
    char byte;
    return read(empty[0], &byte, 1) + number;
}

__attribute__((noinline)) static long wait_for_semaphore(long number)
{
    while (sem_wait(&none) != 0 && errno == EINTR) {
    }
    return number;
}

__attribute__((noinline)) static long sleep_long(long number)
{
    return sleep(100000) + number;
}

typedef long (*wait_function)(long);

/* Not a tail call, and some stack of its own at each level. */
__attribute__((noinline)) static long descend(wait_function wait, long number, int levels)
{
    volatile char room[64];
    memset((char *)room, levels, sizeof room);
    long result = levels == 0 ? wait(number) : descend(wait, number, levels - 1);
    return result + room[levels];
}

static const struct {
    const char *name;
    wait_function wait;
} KINDS[] = {
    {"condition", wait_for_condition},
    {"pipe", wait_for_pipe},
    {"semaphore", wait_for_semaphore},
    {"sleeper", sleep_long},
};

enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

static void *begin(void *argument)
{
    long number = (long)argument;
    name_it(KINDS[number % KIND_COUNT].name, number / KIND_COUNT);
    pthread_barrier_wait(&begun);
    return (void *)descend(KINDS[number % KIND_COUNT].wait, number, depth);
}

int main(int count, char **arguments)
{
    long threads = KIND_COUNT * (count > 1 ? atol(arguments[1]) : 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&begun, NULL, (unsigned)threads + 1);
    if (pipe(empty) != 0 || sem_init(&none, 0, 0) != 0) {
        return 1;
    }
    for (long number = 0; number < threads; number++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, begin, (void *)number) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&begun);
    usleep(200 * 1000);
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
