/* Threads that rules may bind by their names: one computes, one reads from a pipe, one waits for a
 * lock, for so many seconds (2 without an argument). Prints the time that each has spent so, by its
 * own clocks: `part compute 0.700`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock_bound = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static volatile int is_over;
static volatile unsigned long sink;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static double wall(void)
{
    return now(CLOCK_MONOTONIC);
}

__attribute__((noinline)) static void compute(void)
{
    for (int number = 0; number < 2000000; number++) {
        sink += number;
    }
}

/* Computes nearly all the time. */
static void *computes(void *unused)
{
    prctl(PR_SET_NAME, "bound-computes");
    double before = now(CLOCK_THREAD_CPUTIME_ID);
    while (!is_over) {
        compute();
    }
    printf("part compute %.3f\n", now(CLOCK_THREAD_CPUTIME_ID) - before);
    return unused;
}

__attribute__((noinline)) static long wait_for_pipe(void)
{
    char byte;
    long got = read(ends[0], &byte, 1);
    sink += got;
    return got;
}

static void *reads(void *unused)
{
    prctl(PR_SET_NAME, "bound-reads");
    double waited = 0;
    for (;;) {
        double before = wall();
        long got = wait_for_pipe();
        waited += wall() - before;
        if (got <= 0) {
            printf("part wait_for_pipe %.3f\n", waited);
            return unused;
        }
    }
}

__attribute__((noinline)) static void wait_for_lock(void)
{
    pthread_mutex_lock(&lock_bound);
    sink++;
}

static void *locks(void *unused)
{
    prctl(PR_SET_NAME, "bound-locks");
    double waited = 0;
    while (!is_over) {
        double before = wall();
        wait_for_lock();
        waited += wall() - before;
        pthread_mutex_unlock(&lock_bound);
        usleep(1000);
    }
    printf("part wait_for_lock %.3f\n", waited);
    return unused;
}

/* Holds the lock most of the time, and lets the reader go on now and then. */
int main(int count, char **arguments)
{
    double seconds = count > 1 ? atof(arguments[1]) : 2;
    static void *(*const starts[])(void *) = {computes, reads, locks};
    pthread_t threads[3];
    if (pipe(ends) != 0) {
        return 1;
    }
    for (int number = 0; number < 3; number++) {
        pthread_create(&threads[number], NULL, starts[number], NULL);
    }
    printf("ready\n");
    fflush(stdout);
    double until = wall() + seconds;
    for (int turn = 0; wall() < until; turn++) {
        pthread_mutex_lock(&lock_bound);
        usleep(20000);
        pthread_mutex_unlock(&lock_bound);
        if (turn % 5 == 0 && write(ends[1], "x", 1) != 1) {
            return 1;
        }
    }
    is_over = 1;
    close(ends[1]);
    for (int number = 0; number < 3; number++) {
        pthread_join(threads[number], NULL);
    }
    return 0;
}
