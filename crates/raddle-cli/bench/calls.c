// The cost of system calls, before and after the program has a second thread: one that a thread
// library must look at (write), one that it need not know (getppid), one that names the thread
// (gettid).
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { BATCHES = 11 };

static int sink;
static long rounds;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void call_write(void) {
  if (write(sink, "x", 1) != 1)
    exit(1);
}

static void call_getppid(void) { getppid(); }

static void call_gettid(void) { gettid(); }

// The median of several batches: one interrupt must not decide.
static void measure(const char *name, const char *when, void (*call)(void)) {
  double batches[BATCHES];
  for (int batch = 0; batch < BATCHES; batch++) {
    uint64_t start = now_ns();
    for (long i = 0; i < rounds; i++)
      call();
    batches[batch] = (double)(now_ns() - start) / (double)rounds;
  }
  char label[64];
  snprintf(label, sizeof label, "%s-%s", name, when);
  metric(label, quantile(batches, BATCHES, 0.5), "ns");
}

static void measure_all(const char *when) {
  measure("write", when, call_write);
  measure("getppid", when, call_getppid);
  measure("gettid", when, call_gettid);
}

static void *waits(void *argument) {
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return argument;
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 200000);
  sink = open("/dev/null", O_WRONLY);
  measure_all("alone");
  pthread_mutex_lock(&gate);
  pthread_t thread;
  must(pthread_create(&thread, NULL, waits, NULL), "pthread_create");
  usleep(10000);
  measure_all("threaded");
  pthread_mutex_unlock(&gate);
  pthread_join(thread, NULL);
  return 0;
}
