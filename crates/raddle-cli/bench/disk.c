// Reads that are served from memory, reads that wait for the disk (past the page cache, and after
// it was dropped), and syncs beside a thread that computes. The file lies in TMPDIR, or /tmp.
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 65536, READERS = 64, SYNCERS = 8, BATCHES = 11 };

static long rounds;
static int file;
static char path[4096];
static atomic_int over;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void make_file(void) {
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/raddle-disk-XXXXXX", folder ? folder : "/tmp");
  static char block[BLOCK];
  memset(block, 7, sizeof block);
  file = mkstemp(path);
  if (file < 0)
    fail(path);
  for (long i = 0; i < BLOCKS; i++)
    if (write(file, block, BLOCK) != BLOCK)
      fail("write");
  if (fsync(file) != 0)
    fail("fsync");
}

static void measure(const char *name, ssize_t (*call)(char *)) {
  static char block[BLOCK];
  double batches[BATCHES];
  for (int batch = 0; batch < BATCHES; batch++) {
    uint64_t start = now_ns();
    for (long i = 0; i < rounds; i++)
      if (call(block) != BLOCK)
        fail(name);
    batches[batch] = (double)(now_ns() - start) / (double)rounds;
  }
  metric(name, quantile(batches, BATCHES, 0.5), "ns");
}

static ssize_t read_place(char *block) { return pread(file, block, BLOCK, 0); }

static ssize_t read_next(char *block) {
  ssize_t got = read(file, block, BLOCK);
  if (got != 0)
    return got;
  lseek(file, 0, SEEK_SET);
  return read(file, block, BLOCK);
}

static void *wait_for_end(void *argument) {
  while (!atomic_load(&over))
    usleep(10000);
  return argument;
}

static void measure_cached(void) {
  pthread_t thread;
  must(pthread_create(&thread, NULL, wait_for_end, NULL), "pthread_create");
  lseek(file, 0, SEEK_SET);
  measure("cached-pread", read_place);
  measure("cached-read", read_next);
  atomic_store(&over, 1);
  pthread_join(thread, NULL);
}

static long reads_each;

static void *read_at_random(void *me) {
  char *block = aligned_alloc(BLOCK, BLOCK);
  uint64_t dice = (uintptr_t)me + 1;
  for (long i = 0; i < reads_each; i++) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    if (pread(file, block, BLOCK, (off_t)((dice >> 33) % BLOCKS) * BLOCK) != BLOCK)
      fail("pread");
  }
  free(block);
  return NULL;
}

static double run_threads(void *(*run)(void *), int count) {
  pthread_t threads[READERS];
  uint64_t start = now_ns();
  for (long i = 0; i < count; i++)
    must(pthread_create(&threads[i], NULL, run, (void *)i), "pthread_create");
  for (int i = 0; i < count; i++)
    pthread_join(threads[i], NULL);
  return (double)(now_ns() - start) / 1e9;
}

static void measure_uncached(const char *name, int flags, long reads) {
  reads_each = reads / READERS + 1;
  int cached = file;
  file = open(path, O_RDONLY | flags);
  if (file < 0)
    fail("O_DIRECT");
  must(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), "posix_fadvise");
  must(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), "posix_fadvise");
  double seconds = run_threads(read_at_random, READERS);
  metric(name, (double)(reads_each * READERS) / seconds, "reads/s");
  close(file);
  file = cached;
}

static long syncs_each(void) { return rounds / 1000 + 1; }

static void *write_and_sync(void *me) {
  for (long i = 0; i < syncs_each(); i++)
    if (pwrite(file, "x", 1, (intptr_t)me * BLOCK) != 1 || fsync(file) != 0)
      fail("fsync");
  return NULL;
}

static void *compute(void *count) {
  volatile double value = 1;
  long steps = 0;
  for (; !atomic_load_explicit(&over, memory_order_relaxed); steps++)
    value = value * 1.0000001 + 1e-9;
  *(long *)count = steps;
  return NULL;
}

static void measure_syncs(void) {
  long steps = 0;
  pthread_t thread;
  atomic_store(&over, 0);
  must(pthread_create(&thread, NULL, compute, &steps), "pthread_create");
  double seconds = run_threads(write_and_sync, SYNCERS);
  atomic_store(&over, 1);
  pthread_join(thread, NULL);
  metric("fsync", (double)(syncs_each() * SYNCERS) / seconds, "syncs/s");
  metric("computed-beside", (double)steps / seconds / 1e6, "Msteps/s");
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 100000);
  make_file();
  measure_cached();
  measure_uncached("uncached-pread", O_DIRECT, rounds);
  measure_uncached("dropped-pread", 0, rounds / 4); // few of them twice
  measure_syncs();
  unlink(path);
  return 0;
}
