/* A thread with turns of one and a half periods of a recording at 999 Hz: half a turn in one
 * function, half in another, and then a short wait.
 *
 * Usage: long_turns SECONDS. Prints "part NAME SECONDS" of what each function has taken. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define HALF_NS 750000

static volatile uint64_t sink;

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static inline __attribute__((always_inline)) void compute(long turns)
{
    uint64_t sum = sink;
    for (long i = 0; i < turns; i++)
        sum = sum * 6364136223846793005u + 1442695040888963407u;
    sink = sum;
}

NOINLINE static void compute_one(long turns) { compute(turns); sink++; }
NOINLINE static void compute_two(long turns) { compute(turns); sink += 2; }

static double seconds;

static void *take_turns(void *unused)
{
    long spent_ns[2] = {0, 0};
    long turns = 1000, took_ns;
    do { /* how many take half a turn */
        turns *= 2;
        long before_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        compute(turns);
        took_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    } while (took_ns < 10 * HALF_NS);
    turns = turns * HALF_NS / took_ns;
    long end_ns = now_ns(CLOCK_MONOTONIC) + (long)(seconds * 1e9);
    while (now_ns(CLOCK_MONOTONIC) < end_ns) {
        long begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        compute_one(turns);
        long middle_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        compute_two(turns);
        spent_ns[0] += middle_ns - begin_ns;
        spent_ns[1] += now_ns(CLOCK_THREAD_CPUTIME_ID) - middle_ns;
        usleep(500);
    }
    printf("part compute_one %.6f\npart compute_two %.6f\n", spent_ns[0] / 1e9, spent_ns[1] / 1e9);
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    seconds = count > 1 ? atof(arguments[1]) : 1;
    if (pthread_create(&thread, NULL, take_turns, NULL) != 0)
        return 1;
    return pthread_join(thread, NULL);
}
