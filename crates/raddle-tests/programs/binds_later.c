/* Threads that become bound some time after their beginning, by a priority for disks of their own,
 * then read from an empty pipe, and end. Prints what they have waited for: `part wait 12.3`.
 *
 * binds_later THREADS WAIT_MS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long wait_ms;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

__attribute__((noinline)) static void wait_in_kernel(void)
{
    int ends[2];
    struct timespec limit = {wait_ms / 1000, wait_ms % 1000 * 1000000};
    if (pipe(ends) != 0) {
        abort();
    }
    /* A call that the runtime passes on for bound threads. */
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    pselect(ends[0] + 1, &set, NULL, NULL, &limit, NULL);
    close(ends[0]);
    close(ends[1]);
}

static void *run(void *waited)
{
    prctl(PR_SET_NAME, "later");
    usleep(350000);
    /* Best effort, 3. */
    if (syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3) != 0) {
        abort();
    }
    double before = now();
    wait_in_kernel();
    *(double *)waited = now() - before;
    return NULL;
}

int main(int count, char **arguments)
{
    int threads = count > 2 ? atoi(arguments[1]) : 1;
    wait_ms = count > 2 ? atol(arguments[2]) : 100;
    double sum = 0;
    for (int number = 0; number < threads; number++) {
        pthread_t thread;
        double waited = 0;
        pthread_create(&thread, NULL, run, &waited);
        pthread_join(thread, NULL);
        sum += waited;
    }
    printf("part wait %.3f\n", sum);
    return 0;
}
