// A program of known shares: five functions compute for 1, 2, 3, 4 and 5 parts of the time, five
// threads wait for as many parts, and three locks are held for 1, 2 and 3 parts.
//
// Usage: shares SECONDS. Computing is measured by the CPU time of the process, so that each
// function has its part on a busy machine, too.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define UNIT_NS 400000L

static double seconds;

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int is_over(void)
{
    static long begin;
    if (begin == 0)
        begin = now_ns(CLOCK_MONOTONIC);
    return now_ns(CLOCK_MONOTONIC) - begin > seconds * 1e9;
}

static uint64_t turns_of_unit;
static volatile uint64_t sink;

static inline __attribute__((always_inline)) void turn(uint64_t turns)
{
    uint64_t sum = sink;
    for (uint64_t i = 0; i < turns; i++)
        sum = sum * 6364136223846793005u + 1442695040888963407u;
    sink = sum;
}

NOINLINE static void compute_one(void) { turn(1 * turns_of_unit); sink++; }
NOINLINE static void compute_two(void) { turn(2 * turns_of_unit); sink += 2; }
NOINLINE static void compute_three(void) { turn(3 * turns_of_unit); sink += 3; }
NOINLINE static void compute_four(void) { turn(4 * turns_of_unit); sink += 4; }
NOINLINE static void compute_five(void) { turn(5 * turns_of_unit); sink += 5; }

static void *computes(void *unused)
{
    while (!is_over()) {
        compute_one();
        compute_two();
        compute_three();
        compute_four();
        compute_five();
    }
    return unused;
}

// Each waits in one function for its part of a cycle, and in another one for the rest.
#define CYCLE_US 30000

NOINLINE static void rest(long us) { usleep(us); sink++; }
NOINLINE static void wait_one(void) { usleep(CYCLE_US * 1 / 10); sink++; }
NOINLINE static void wait_two(void) { usleep(CYCLE_US * 2 / 10); sink++; }
NOINLINE static void wait_three(void) { usleep(CYCLE_US * 3 / 10); sink++; }
NOINLINE static void wait_four(void) { usleep(CYCLE_US * 4 / 10); sink++; }
NOINLINE static void wait_five(void) { usleep(CYCLE_US * 5 / 10); sink++; }

static void (*const waits[5])(void) = {wait_one, wait_two, wait_three, wait_four, wait_five};

static void *sleeps(void *number)
{
    long parts = (long)number + 1;
    while (!is_over()) {
        waits[(long)number]();
        rest(CYCLE_US * (10 - parts) / 10);
    }
    return NULL;
}

pthread_mutex_t lock_one = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_two = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_three = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t *const locks[3] = {&lock_one, &lock_two, &lock_three};

// Two threads contend for each lock, and hold it for its parts of a unit.
static void *locks_it(void *number)
{
    long parts = (long)number + 1;
    while (!is_over()) {
        pthread_mutex_lock(locks[(long)number]);
        usleep(parts * 5000);
        pthread_mutex_unlock(locks[(long)number]);
        usleep(100);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    seconds = count > 1 ? atof(arguments[1]) : 2;
    is_over();
    // How many turns a unit has on this machine.
    const uint64_t trial = 4000000;
    turn(trial);
    long begin = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    turn(trial);
    turns_of_unit = trial * UNIT_NS / (now_ns(CLOCK_PROCESS_CPUTIME_ID) - begin + 1) + 1;

    pthread_t threads[12];
    int made = 0;
    pthread_create(&threads[made++], NULL, computes, NULL);
    pthread_setname_np(threads[0], "computes");
    for (long number = 0; number < 5; number++) {
        pthread_create(&threads[made], NULL, sleeps, (void *)number);
        pthread_setname_np(threads[made++], "sleeps");
    }
    for (long number = 0; number < 6; number++) {
        pthread_create(&threads[made], NULL, locks_it, (void *)(number % 3));
        pthread_setname_np(threads[made++], "locks");
    }
    for (int number = 0; number < made; number++)
        pthread_join(threads[number], NULL);
    puts("done");
    return 0;
}
