// Threads that compute share the CPU: how evenly, and the delay of a thread among them that sleeps
// a millisecond at a time.
#include "common.h"
#include <pthread.h>

enum { MANY = 100, SLEEP_NS = 1000000 };

static volatile int stop;
static volatile long counts[MANY][8]; // a cache line each

static void *compute(void *count) {
  volatile long *mine = count;
  while (!stop) ++*mine;
  return NULL;
}

// Runs `burners` threads beside `sleeps` sleeps; returns the largest difference of their counts
// from the mean, in percent.
static double share(long burners, long sleeps, double *lateness) {
  pthread_t threads[MANY];
  stop = 0;
  for (long i = 0; i < burners; i++) {
    counts[i][0] = 0;
    must(pthread_create(&threads[i], NULL, compute, (void *)&counts[i][0]), "pthread_create");
  }
  for (long i = 0; i < sleeps; i++) {
    struct timespec pause = {0, SLEEP_NS};
    uint64_t start = now_ns();
    nanosleep(&pause, NULL);
    lateness[i] = (double)(now_ns() - start) - SLEEP_NS;
  }
  stop = 1;
  double sum = 0, worst = 0;
  for (long i = 0; i < burners; i++) {
    pthread_join(threads[i], NULL);
    sum += (double)counts[i][0];
  }
  for (long i = 0; i < burners; i++) {
    double off = (double)counts[i][0] / (sum / (double)burners) - 1;
    if (off < 0) off = -off;
    if (off > worst) worst = off;
  }
  return worst * 100;
}

int main(int argc, char **argv) {
  long sleeps = rounds_of(argc, argv, 1000);
  double *lateness = malloc((size_t)sleeps * sizeof *lateness);
  metric("two-burners-apart", share(2, sleeps, lateness), "%");
  metric("lateness-p50-among-2", quantile(lateness, sleeps, 0.5), "ns");
  metric("lateness-p99-among-2", quantile(lateness, sleeps, 0.99), "ns");
  share(MANY, sleeps, lateness);
  metric("lateness-p50-among-100", quantile(lateness, sleeps, 0.5), "ns");
  metric("lateness-p99-among-100", quantile(lateness, sleeps, 0.99), "ns");
  return 0;
}
