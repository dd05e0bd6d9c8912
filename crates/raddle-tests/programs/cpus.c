/* Prints how many CPUs there are by each of libc's ways, before the first thread and in one. */
#include "check.h"

#include <sched.h>
#include <sys/sysinfo.h>

static int threads_exist;

static int in_mask(const cpu_set_t *set)
{
    return CPU_COUNT_S(sizeof *set, set);
}

static void *say(void *when)
{
    cpu_set_t own, raw, of_thread;
    CPU_ZERO(&own);
    CPU_ZERO(&raw);
    CPU_ZERO(&of_thread);
    GET(sched_getaffinity(0, sizeof own, &own));
    OK(pthread_getaffinity_np(pthread_self(), sizeof of_thread, &of_thread));
    GET(syscall(SYS_sched_getaffinity, 0, sizeof raw, &raw));
    unsigned cpu, node;
    GET(getcpu(&cpu, &node));
    int known = CPU_ISSET(cpu, &own) && CPU_ISSET(sched_getcpu(), &own);
    printf("%s: %ld %d %d %d", (char *)when, sysconf(_SC_NPROCESSORS_ONLN), get_nprocs(),
           in_mask(&own), in_mask(&of_thread));
    if (threads_exist) {
        printf(" %d", in_mask(&raw)); /* before, the runtime sees no system calls */
    }
    printf(known ? " here\n" : " elsewhere\n");
    fflush(stdout);
    return NULL;
}

CASE(count)
{
    say("first");
    threads_exist = 1;
    join(start(say, "thread"));
    say("then");
}

/* A thread reads back the mask that it set for itself. */
CASE(choose)
{
    cpu_set_t all, set;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < 64; cpu++) {
        CPU_SET(cpu, &all);
    }
    threads_exist = 1;
    join(start(say, "thread"));
    GET(sched_setaffinity(0, sizeof all, &all));
    GET(sched_getaffinity(0, sizeof set, &set));
    printf("chosen: %d\n", in_mask(&set));
}

/* Asks for the main thread's mask again and again, with a short mask and with a long one. */
CASE(ask)
{
    pid_t self = getpid();
    cpu_set_t set, longer[8];
    threads_exist = 1;
    join(start(say, "thread"));
    for (int i = 0; i < 100; i++) {
        CPU_ZERO(&set);
        CPU_ZERO_S(sizeof longer, longer);
        OK(sched_getaffinity(self, sizeof set, &set));
        OK(sched_getaffinity(self, sizeof longer, longer));
        IS(in_mask(&set), CPU_COUNT_S(sizeof longer, longer));
    }
}

/* Prints how many CPUs a thread sees each time that a line comes. */
CASE(follow)
{
    char line[10];
    join(start(say, "thread"));
    while (fgets(line, sizeof line, stdin)) {
        cpu_set_t set;
        GET(sched_getaffinity(0, sizeof set, &set));
        printf("%d\n", in_mask(&set));
        fflush(stdout);
    }
}
