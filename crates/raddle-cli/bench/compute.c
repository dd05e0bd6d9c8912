// A thread that computes and makes no system call, with integers, memory and floating point.
#include "common.h"
#include <pthread.h>

enum { WORDS = 1 << 14 };

static uint64_t words[WORDS];
static long rounds;
static volatile double result;

static void *compute(void *argument) {
  uint64_t state = 88172645463325252u;
  double sum = 0;
  for (long i = 0; i < rounds; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    words[state % WORDS] += state;
    sum += (double)(words[i % WORDS] & 1023) * 1e-3;
  }
  result = sum;
  return argument;
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 200000000);
  pthread_t thread;
  uint64_t start = now_ns();
  must(pthread_create(&thread, NULL, compute, NULL), "pthread_create");
  pthread_join(thread, NULL);
  metric("compute", (double)(now_ns() - start) / 1e6, "ms");
  return 0;
}
