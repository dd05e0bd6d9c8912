// What a child process costs: the time of a turn, and the CPU time of parent and child in it. First
// in a process that never had a thread, then in one with a thread that has ended. At last, sixteen
// threads start shells.
#define _GNU_SOURCE
#include "common.h"
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 16, EXECS_IN = 4, SHELLS_IN = 2 };

static double cpu_us(int target) {
  struct rusage used;
  must(getrusage(target, &used), "getrusage");
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
         (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

struct use {
  double wall_us, parent_us, child_us;
};

static struct use used_so_far(void) {
  return (struct use){(double)now_ns() / 1e3, cpu_us(RUSAGE_SELF), cpu_us(RUSAGE_CHILDREN)};
}

static void tell(const char *what, struct use before, long turns) {
  struct use now = used_so_far();
  char name[64];
  snprintf(name, sizeof name, "%s", what);
  metric(name, (now.wall_us - before.wall_us) / (double)turns, "us");
  snprintf(name, sizeof name, "%s-parent", what);
  metric(name, (now.parent_us - before.parent_us) / (double)turns, "us");
  snprintf(name, sizeof name, "%s-child", what);
  metric(name, (now.child_us - before.child_us) / (double)turns, "us");
}

static void run_child(int executes) {
  pid_t child = fork();
  if (child == 0) {
    if (executes) {
      execl("/bin/true", "true", (char *)NULL);
    }
    _exit(executes);
  }
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    must(status, "a child");
  }
}

static void children(const char *what, long turns, int executes) {
  for (long i = 0; i < turns / 20 + 1; i++) {
    run_child(executes);
  }
  struct use before = used_so_far();
  for (long i = 0; i < turns; i++) {
    run_child(executes);
  }
  tell(what, before, turns);
}

static void *nothing(void *argument) {
  return argument;
}

static void *start_shells(void *turns) {
  for (long i = *(long *)turns; i > 0; i--) {
    must(system(":"), "a shell");
  }
  return NULL;
}

int main(int argc, char **argv) {
  long turns = rounds_of(argc, argv, 2000);
  long execs = turns / EXECS_IN + 1, shells = turns / SHELLS_IN / THREADS + 1;
  children("exit", turns, 0);
  children("exec", execs, 1);
  pthread_t threads[THREADS];
  must(pthread_create(threads, NULL, nothing, NULL), "pthread_create");
  must(pthread_join(threads[0], NULL), "pthread_join");
  children("exit-after-thread", turns, 0);
  children("exec-after-thread", execs, 1);
  struct use before = used_so_far();
  for (int i = 0; i < THREADS; i++) {
    must(pthread_create(&threads[i], NULL, start_shells, &shells), "pthread_create");
  }
  for (int i = 0; i < THREADS; i++) {
    must(pthread_join(threads[i], NULL), "pthread_join");
  }
  tell("shell", before, shells * THREADS);
}
