// Threads with equal computations, in short turns that end by a yield or in one go: the CPU time of
// the process, with kernel threads that the program did not make.
#include "common.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { THREADS = 4, STEPS_IN_TURN = 1 << 17 }; // some hundred microseconds

static long steps;
static int in_turns;
static volatile uint64_t results[THREADS][8]; // a cache line each

static void *compute(void *me) {
  uint64_t state = 88172645463325252u + (uintptr_t)me;
  for (long i = 1; i <= steps; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    if (in_turns && i % STEPS_IN_TURN == 0) sched_yield();
  }
  results[(intptr_t)me][0] = state;
  return NULL;
}

static double cpu_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

int main(int argc, char **argv) {
  steps = rounds_of(argc, argv, 100000000);
  in_turns = argc > 2 && strcmp(argv[2], "short") == 0;
  pthread_t threads[THREADS];
  double start = cpu_ms();
  for (long i = 0; i < THREADS; i++)
    must(pthread_create(&threads[i], NULL, compute, (void *)i), "pthread_create");
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  metric("cpu", cpu_ms() - start, "ms");
  return 0;
}
