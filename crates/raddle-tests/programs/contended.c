/* A thread waits until it is recorded, computes for a tenth of a second of CPU time on a CPU on
 * which other processes compute, too, sleeps for a moment, and the program ends. It prints
 * "kernel TIME": the CPU time of the whole process in seconds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NEIGHBOURS = 3 };

static pid_t neighbours[NEIGHBOURS];

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

__attribute__((noinline)) static void compute(long ns)
{
    long end = now_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now_ns(CLOCK_THREAD_CPUTIME_ID) < end) {
        for (volatile int step = 0; step < 1000; step++) {
        }
    }
}

static void *computes(void *unused)
{
    usleep(300000);
    compute(100000000);
    usleep(1000);
    return unused;
}

/* All computes on one CPU: the first one that the process may use. */
static int use_one_cpu(void)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return -1;
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one);
}

int main(void)
{
    if (use_one_cpu() != 0)
        return 1;
    for (int number = 0; number < NEIGHBOURS; number++) {
        neighbours[number] = fork();
        if (neighbours[number] < 0)
            return 1;
        if (neighbours[number] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (volatile int step = 0;; step++) {
            }
        }
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, computes, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    printf("kernel %.6f\n", now_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
    fflush(stdout);
    for (int number = 0; number < NEIGHBOURS; number++) {
        kill(neighbours[number], SIGKILL);
        waitpid(neighbours[number], NULL, 0);
    }
    return 0;
}
