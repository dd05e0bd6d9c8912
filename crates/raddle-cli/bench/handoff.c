// Threads wait in the kernel where no runtime can park them (a system call instruction of the
// program's own, on an empty pipe): the delay of others that sleep a millisecond at a time.
#include "common.h"
#include <pthread.h>
#include <unistd.h>
#include <sys/syscall.h>

enum { STUCK = 4, SLEEP_NS = 1000000, STUCK_FOR = 50 };

static int pipes[STUCK][2];

static long raw_read(int fd, void *to, long size) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(SYS_read), "D"(fd), "S"(to), "d"(size)
                   : "rcx", "r11", "memory");
  return result;
}

static void *stick(void *argument) {
  char byte;
  while (raw_read(pipes[(long)argument][0], &byte, 1) == 1) {}
  return NULL;
}

int main(int argc, char **argv) {
  long sleeps = rounds_of(argc, argv, 1000);
  double *lateness = malloc((size_t)sleeps * sizeof *lateness);
  pthread_t threads[STUCK];
  for (long i = 0; i < STUCK; i++) {
    must(pipe(pipes[i]), "pipe");
    must(pthread_create(&threads[i], NULL, stick, (void *)i), "pthread_create");
  }
  for (long i = 0; i < sleeps; i++) {
    struct timespec pause = {0, SLEEP_NS};
    uint64_t start = now_ns();
    nanosleep(&pause, NULL);
    lateness[i] = (double)(now_ns() - start) - SLEEP_NS;
    if (i % STUCK_FOR == 0) { // they come back, and wait again
      for (long k = 0; k < STUCK; k++) must(write(pipes[k][1], "x", 1) != 1, "write");
    }
  }
  for (long i = 0; i < STUCK; i++) {
    close(pipes[i][1]);
    pthread_join(threads[i], NULL);
  }
  metric("lateness-p50", quantile(lateness, sleeps, 0.5), "ns");
  metric("lateness-p99", quantile(lateness, sleeps, 0.99), "ns");
  metric("lateness-worst", lateness[sleeps - 1], "ns");
  return 0;
}
