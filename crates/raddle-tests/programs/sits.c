/* A thread that waits in the kernel for children which share its memory, while no other thread
 * needs its carrier, for so many seconds. Prints the time: `part wait_for_child 2.000`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double wall(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static pid_t wait_for_child(void)
{
    struct timespec rest = {.tv_nsec = 30000000};
    pid_t child = vfork();
    if (child == 0) {
        syscall(SYS_nanosleep, &rest, NULL);
        _exit(0);
    }
    return child;
}

static void *sits(void *seconds)
{
    prctl(PR_SET_NAME, "sits");
    double waited = 0, end = wall() + atof(seconds);
    while (wall() < end) {
        double before = wall();
        pid_t child = wait_for_child();
        waited += wall() - before;
        waitpid(child, NULL, 0);
    }
    printf("part wait_for_child %.3f\n", waited);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t thread;
    if (count < 2 || pthread_create(&thread, NULL, sits, words[1]) != 0) {
        return 1;
    }
    pthread_join(thread, NULL);
    return 0;
}
