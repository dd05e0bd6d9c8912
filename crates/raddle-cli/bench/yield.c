// Two threads that do nothing but yield.
#include "common.h"
#include <pthread.h>
#include <sched.h>

static pthread_barrier_t barrier;
static long rounds;

static void *yielder(void *argument) {
  pthread_barrier_wait(&barrier);
  for (long i = 0; i < rounds; i++)
    sched_yield();
  return argument;
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 1000000);
  pthread_barrier_init(&barrier, NULL, 3);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    must(pthread_create(&threads[i], NULL, yielder, NULL), "pthread_create");
  pthread_barrier_wait(&barrier);
  uint64_t start = now_ns();
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  metric("yield", (double)(now_ns() - start) / (2.0 * (double)rounds), "ns");
  return 0;
}
