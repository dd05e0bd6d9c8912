// Again and again a thread is stuck in the kernel for a tenth of a second, where no runtime can
// park it: the delay meanwhile of threads that sleep a millisecond at a time, and the wait of two
// others that hand a turn to each other. A figure is the median, or the worst, of the longest wait
// in each such time.
#define _GNU_SOURCE
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLEEPERS = 4, MOST = 1000, SLEEP_NS = 1000000, TURN_NS = 200000, PAGE = 4096 };
enum { STUCK_US = 100000, REST_US = 20000 };

static atomic_int over;
static atomic_long latest, longest_turn; // since a thread got stuck
static char folder[] = "/tmp/raddle-stuck-XXXXXX";

static void at_least(atomic_long *most, long value) {
  long before = atomic_load(most);
  while (before < value && !atomic_compare_exchange_weak(most, &before, value)) {}
}

static long raw_call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}

static void *sleep_often(void *argument) {
  while (!atomic_load(&over)) {
    struct timespec pause = {0, SLEEP_NS};
    uint64_t start = now_ns();
    nanosleep(&pause, NULL);
    at_least(&latest, (long)(now_ns() - start) - SLEEP_NS);
  }
  return argument;
}

static sem_t there, back;

static void *answer(void *argument) {
  do {
    while (sem_wait(&there) != 0) {}
    sem_post(&back);
  } while (!atomic_load(&over));
  return argument;
}

static void *ask(void *argument) {
  while (!atomic_load(&over)) {
    struct timespec pause = {0, TURN_NS};
    uint64_t start = now_ns();
    sem_post(&there);
    while (sem_wait(&back) != 0) {}
    nanosleep(&pause, NULL);
    at_least(&longest_turn, (long)(now_ns() - start) - TURN_NS);
  }
  sem_post(&there);
  return argument;
}

// The ways to be stuck; another thread frees the stuck one.

static int pipes[2];

static void stick_call(void) {
  char byte;
  raw_call(SYS_read, pipes[0], (long)&byte, 1);
}
static void free_call(void) { must(write(pipes[1], "x", 1) != 1, "write"); }

static char *slow_page;
static int faults;

static void prepare_fault(void) {
  slow_page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register range = {
      .range = {(uintptr_t)slow_page, PAGE},
      .mode = UFFDIO_REGISTER_MODE_MISSING,
  };
  must(ioctl(faults, UFFDIO_REGISTER, &range), "UFFDIO_REGISTER");
}
static void stick_fault(void) { *(volatile char *)slow_page; }
static void free_fault(void) {
  static char content[PAGE];
  struct uffdio_copy copy = {
      .dst = (uintptr_t)slow_page,
      .src = (uintptr_t)content,
      .len = PAGE,
  };
  must(ioctl(faults, UFFDIO_COPY, &copy), "UFFDIO_COPY");
}

static int locks[2];

static void prepare_lock(void) { must(flock(locks[0], LOCK_EX), "flock"); }
static void stick_lock(void) {
  must(flock(locks[1], LOCK_EX), "flock");
  must(flock(locks[1], LOCK_UN), "flock");
}
static void free_lock(void) { must(flock(locks[0], LOCK_UN), "flock"); }

static char fifo[64];

static void stick_fifo(void) { close(open(fifo, O_RDONLY)); }
static void free_fifo(void) { close(open(fifo, O_WRONLY)); }

struct kind {
  const char *name;
  void (*prepare)(void), (*stick)(void), (*free)(void);
};

static void *free_later(void *kind) {
  usleep(STUCK_US);
  ((const struct kind *)kind)->free();
  return NULL;
}

static void *get_stuck(void *kind) {
  ((const struct kind *)kind)->stick();
  return NULL;
}

static void report(const char *kind, const char *what, double *waits, long count) {
  char name[64];
  snprintf(name, sizeof name, "%s-%s-p50", kind, what);
  metric(name, quantile(waits, count, 0.5), "ns");
  snprintf(name, sizeof name, "%s-%s-worst", kind, what);
  metric(name, quantile(waits, count, 1), "ns");
}

static void measure(const struct kind *kind, long times) {
  pthread_t threads[SLEEPERS + 2], stuck, helper;
  static double late[MOST], turns[MOST];
  atomic_store(&over, 0);
  for (int i = 0; i < SLEEPERS; i++)
    must(pthread_create(&threads[i], NULL, sleep_often, NULL), "pthread_create");
  must(pthread_create(&threads[SLEEPERS], NULL, answer, NULL), "pthread_create");
  must(pthread_create(&threads[SLEEPERS + 1], NULL, ask, NULL), "pthread_create");
  for (long i = 0; i < times; i++) {
    usleep(REST_US);
    if (kind->prepare) kind->prepare();
    must(pthread_create(&helper, NULL, free_later, (void *)kind), "pthread_create");
    atomic_store(&latest, 0);
    atomic_store(&longest_turn, 0);
    must(pthread_create(&stuck, NULL, get_stuck, (void *)kind), "pthread_create");
    pthread_join(stuck, NULL);
    late[i] = (double)atomic_load(&latest);
    turns[i] = (double)atomic_load(&longest_turn);
    pthread_join(helper, NULL);
  }
  atomic_store(&over, 1);
  for (int i = 0; i < SLEEPERS + 2; i++) pthread_join(threads[i], NULL);
  report(kind->name, "late", late, times);
  report(kind->name, "turn", turns, times);
}

int main(int argc, char **argv) {
  long times = rounds_of(argc, argv, 10);
  if (times > MOST) times = MOST;
  must(pipe(pipes), "pipe");
  sem_init(&there, 0, 0);
  sem_init(&back, 0, 0);
  if (!mkdtemp(folder)) must(errno, folder);
  snprintf(fifo, sizeof fifo, "%s/fifo", folder);
  must(mkfifo(fifo, 0600), "mkfifo");
  for (int i = 0; i < 2; i++) {
    locks[i] = open(folder, O_RDONLY | O_DIRECTORY);
    must(locks[i] < 0, folder);
  }
  const struct kind kinds[] = {
      {"call", NULL, stick_call, free_call},
      {"fault", prepare_fault, stick_fault, free_fault},
      {"flock", prepare_lock, stick_lock, free_lock},
      {"fifo", NULL, stick_fifo, free_fifo},
  };
  struct uffdio_api api = {.api = UFFD_API};
  faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  int may_fault = faults >= 0 && ioctl(faults, UFFDIO_API, &api) == 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].prepare != prepare_fault || may_fault) measure(&kinds[i], times);
  unlink(fifo);
  rmdir(folder);
  return 0;
}
