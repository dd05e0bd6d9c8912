// The delay of a sleeping thread: after a semaphore is posted by a thread that then sleeps, and
// after a timer has expired.
#include "common.h"
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { PAUSE_NS = 200000 };

static sem_t posted, seen;
static volatile uint64_t posted_at_ns;
static double *latencies;
static long rounds;

static void *sleeper(void *argument) {
  for (long i = 0; i < rounds; i++) {
    sem_wait(&posted);
    latencies[i] = (double)(now_ns() - posted_at_ns);
    sem_post(&seen);
  }
  return argument;
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 4000);
  latencies = malloc((size_t)rounds * sizeof *latencies);
  double *lateness = malloc((size_t)rounds * sizeof *lateness);
  sem_init(&posted, 0, 0);
  sem_init(&seen, 0, 0);
  pthread_t thread;
  must(pthread_create(&thread, NULL, sleeper, NULL), "pthread_create");
  for (long i = 0; i < rounds; i++) {
    struct timespec pause = {0, PAUSE_NS};
    uint64_t start = now_ns();
    nanosleep(&pause, NULL);
    uint64_t end = now_ns();
    lateness[i] = (double)(end - start) - PAUSE_NS;
    posted_at_ns = now_ns();
    sem_post(&posted);
    sem_wait(&seen);
  }
  pthread_join(thread, NULL);
  metric("semaphore-p50", quantile(latencies, rounds, 0.5), "ns");
  metric("semaphore-p99", quantile(latencies, rounds, 0.99), "ns");
  metric("timer-p50", quantile(lateness, rounds, 0.5), "ns");
  metric("timer-p99", quantile(lateness, rounds, 0.99), "ns");
  return 0;
}
