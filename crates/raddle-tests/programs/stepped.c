/* For debuggers: four threads take turns in give_and_take(), each with a number of its own. The
 * turns are handed on by semaphores, so that a thread goes on on any carrier. The argument is the
 * number of rounds. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { THREADS = 4 };

static sem_t turns[THREADS];
static volatile long watched;
static long rounds;

__attribute__((noinline)) static long give_and_take(long number)
{
    volatile long before = watched;
    sem_wait(&turns[number]);
    volatile long after = watched;
    watched = after + 1;
    sem_post(&turns[(number + 1) % THREADS]);
    return after - before;
}

static void *begin(void *argument)
{
    volatile long sum = 0;
    char name[16];
    snprintf(name, sizeof name, "taker-%ld", (long)argument);
    prctl(PR_SET_NAME, name);
    for (long round = 0; round < rounds; round++) {
        sum += give_and_take((long)argument);
    }
    return (void *)sum;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    rounds = count > 1 ? atol(arguments[1]) : 100;
    for (long number = 0; number < THREADS; number++) {
        sem_init(&turns[number], 0, 0);
    }
    for (long number = 0; number < THREADS; number++) {
        if (pthread_create(&threads[number], NULL, begin, (void *)number) != 0) {
            return 2;
        }
    }
    sem_post(&turns[0]);
    for (long number = 0; number < THREADS; number++) {
        pthread_join(threads[number], NULL);
    }
    printf("%ld turns\n", watched);
    return watched == rounds * THREADS ? 0 : 1;
}
