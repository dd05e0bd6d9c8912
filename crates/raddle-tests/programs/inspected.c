/* Beside a thread that computes, another one sleeps again and again, and prints so: it goes on as
 * long as the first is preempted. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TICK_US = 10000, TICKS = 20 };

static void *compute(void *unused)
{
    for (volatile long turns = 0;; turns++) {
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    if (count > 1 && strcmp(arguments[1], "undumpable") == 0) {
        prctl(PR_SET_DUMPABLE, 0);
    }
    if (pthread_create(&thread, NULL, compute, NULL) != 0) {
        return 1;
    }
    for (;;) {
        for (int tick = 0; tick < TICKS; tick++) {
            usleep(TICK_US);
        }
        printf("ticks\n");
        fflush(stdout);
    }
}
