// Threads that end at once, made and joined one after another.
#include "common.h"
#include <pthread.h>

static void *nothing(void *argument) { return argument; }

int main(int argc, char **argv) {
  long rounds = rounds_of(argc, argv, 50000);
  uint64_t start = now_ns();
  for (long i = 0; i < rounds; i++) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, nothing, NULL), "pthread_create");
    must(pthread_join(thread, NULL), "pthread_join");
  }
  metric("create+join", (double)(now_ns() - start) / (double)rounds, "ns");
  return 0;
}
