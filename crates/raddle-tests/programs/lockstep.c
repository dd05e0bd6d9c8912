// Threads that all do the same thing at a time: they sleep in one function, then in another one,
// and pause.
//
// Usage: lockstep SECONDS. At the end it prints "part NAME SECONDS" for both functions.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define THREADS 50
#define SHORT_US 1000
#define SHORT_COUNT 40
#define LONG_US 7000
#define LONG_COUNT 6
#define PAUSE_NS 200000000

static double until;
static double sums[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

NOINLINE static void sleep_short(void)
{
    for (int count = 0; count < SHORT_COUNT; count++)
        usleep(SHORT_US);
}

NOINLINE static void sleep_long(void)
{
    for (int count = 0; count < LONG_COUNT; count++)
        usleep(LONG_US);
}

// Another kind of wait than a sleep.
NOINLINE static void pause_all(void)
{
    sem_t never;
    struct timespec time;
    sem_init(&never, 0, 0);
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += PAUSE_NS;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    sem_timedwait(&never, &time);
}

static void *run(void *unused)
{
    double own[2] = { 0, 0 };
    pthread_barrier_wait(&begin);
    while (now() < until) {
        double from = now();
        sleep_short();
        double middle = now();
        sleep_long();
        own[0] += middle - from;
        own[1] += now() - middle;
        pause_all();
    }
    pthread_mutex_lock(&lock);
    sums[0] += own[0];
    sums[1] += own[1];
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    until = now() + (count > 1 ? atoi(arguments[1]) : 3);
    pthread_barrier_init(&begin, NULL, THREADS);
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], NULL, run, NULL);
    for (int number = 0; number < THREADS; number++)
        pthread_join(threads[number], NULL);
    printf("part sleep_short %f\npart sleep_long %f\n", sums[0], sums[1]);
    return 0;
}
