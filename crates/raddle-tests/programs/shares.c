// A program of known shares: five functions compute for 1, 2, 3, 4 and 5 parts of the time, five
// functions wait for as many parts, and three locks are held for 1, 2 and 3 parts.
//
// Usage: shares SECONDS [wait]. At the end it prints what it has measured itself, in seconds: "part
// NAME TIME" of the CPU time of its thread, or of the time for which threads waited. With `wait` it
// begins at SIGUSR1, when it has said "ready", and waits for ever at the end.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define UNIT_NS 400000L
#define CYCLE_US 30000

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

static void (*const computing[5])(void) = {
    compute_one, compute_two, compute_three, compute_four, compute_five,
};
static long computed_ns[5];

static void *computes(void *unused)
{
    while (!is_over()) {
        for (int number = 0; number < 5; number++) {
            long begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
            computing[number]();
            computed_ns[number] += now_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
        }
    }
    return unused;
}

// Each thread waits in one function for its part of a cycle, and in another one for the rest.
NOINLINE static void wait_rest(long us) { usleep(us); sink++; }
NOINLINE static void wait_one(void) { usleep(CYCLE_US * 1 / 10); sink++; }
NOINLINE static void wait_two(void) { usleep(CYCLE_US * 2 / 10); sink++; }
NOINLINE static void wait_three(void) { usleep(CYCLE_US * 3 / 10); sink++; }
NOINLINE static void wait_four(void) { usleep(CYCLE_US * 4 / 10); sink++; }
NOINLINE static void wait_five(void) { usleep(CYCLE_US * 5 / 10); sink++; }

static void (*const waiting[5])(void) = {wait_one, wait_two, wait_three, wait_four, wait_five};
static long waited_ns[5];
static long rested_ns[5];

static void *sleeps(void *argument)
{
    long number = (long)argument;
    while (!is_over()) {
        long begin = now_ns(CLOCK_MONOTONIC);
        waiting[number]();
        long middle = now_ns(CLOCK_MONOTONIC);
        wait_rest(CYCLE_US * (9 - number) / 10);
        waited_ns[number] += middle - begin;
        rested_ns[number] += now_ns(CLOCK_MONOTONIC) - middle;
    }
    return NULL;
}

pthread_mutex_t lock_one = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_two = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t lock_three = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t *const locks[3] = {&lock_one, &lock_two, &lock_three};
static long locked_ns[3]; // of both threads; changed while the lock is held

// Two threads contend for each lock, and hold it for its parts.
static void *contends(void *argument)
{
    long number = (long)argument;
    while (!is_over()) {
        long begin = now_ns(CLOCK_MONOTONIC);
        pthread_mutex_lock(locks[number]);
        locked_ns[number] += now_ns(CLOCK_MONOTONIC) - begin;
        usleep((number + 1) * 5000);
        pthread_mutex_unlock(locks[number]);
        usleep(100);
    }
    return NULL;
}

static void print(const char *name, long ns)
{
    printf("part %s %.6f\n", name, ns / 1e9);
}

static void *rests(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void wait_for_signal(void)
{
    sigset_t begin;
    int signal;
    pthread_t thread;
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &begin, NULL);
    pthread_create(&thread, NULL, rests, NULL);
    puts("ready");
    fflush(stdout);
    sigwait(&begin, &signal);
}

int main(int count, char **arguments)
{
    static const char *const names[5] = {"one", "two", "three", "four", "five"};
    seconds = count > 1 ? atof(arguments[1]) : 2;
    const int waits = count > 2 && strcmp(arguments[2], "wait") == 0;
    if (waits)
        wait_for_signal();
    is_over();
    // How many turns a unit has on this machine.
    const uint64_t trial = 4000000;
    turn(trial);
    long begin = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    turn(trial);
    turns_of_unit = trial * UNIT_NS / (now_ns(CLOCK_PROCESS_CPUTIME_ID) - begin + 1) + 1;

    pthread_t threads[12];
    int made = 0;
    pthread_create(&threads[made], NULL, computes, NULL);
    pthread_setname_np(threads[made++], "computes");
    for (long number = 0; number < 5; number++) {
        pthread_create(&threads[made], NULL, sleeps, (void *)number);
        pthread_setname_np(threads[made++], "sleeps");
    }
    for (long number = 0; number < 6; number++) {
        pthread_create(&threads[made], NULL, contends, (void *)(number % 3));
        pthread_setname_np(threads[made++], "contends");
    }
    for (int number = 0; number < made; number++)
        pthread_join(threads[number], NULL);
    char name[32];
    long rest_ns = 0;
    for (int number = 0; number < 5; number++) {
        snprintf(name, sizeof name, "compute_%s", names[number]);
        print(name, computed_ns[number]);
        snprintf(name, sizeof name, "wait_%s", names[number]);
        print(name, waited_ns[number]);
        rest_ns += rested_ns[number];
    }
    print("wait_rest", rest_ns);
    for (int number = 0; number < 3; number++) {
        snprintf(name, sizeof name, "lock_%s", names[number]);
        print(name, locked_ns[number]);
    }
    fflush(stdout);
    if (waits)
        rests(NULL);
    return 0;
}
