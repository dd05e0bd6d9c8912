/* A small program with threads, for filters of system calls and for limits: a mutex, a condition,
 * sleep, a pipe, an exit status. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 100, STATUS = 7, REFUSED = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int pipes[2];
static long turns, sum;

static void *take_turns(void *me)
{
    long number = (long)me;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        while (turns % THREADS != number) {
            pthread_cond_wait(&turned, &lock);
        }
        turns++;
        sum += i;
        pthread_cond_broadcast(&turned);
        pthread_mutex_unlock(&lock);
    }
    struct timespec nap = {0, 1000000};
    nanosleep(&nap, NULL);
    char byte = 'x';
    int is_writer = number % 2;
    long done = is_writer ? write(pipes[1], &byte, 1) : read(pipes[0], &byte, 1);
    return done == 1 ? NULL : is_writer ? "write" : "read";
}

int main(void)
{
    pthread_t threads[THREADS];
    if (pipe(pipes) != 0) {
        puts("no pipe");
        return REFUSED;
    }
    for (long i = 0; i < THREADS; i++) {
        int error = pthread_create(&threads[i], NULL, take_turns, (void *)i);
        if (error != 0) {
            printf("no thread: %s\n", strerror(error));
            fflush(stdout);
            _exit(REFUSED);
        }
    }
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        if (failed != NULL) {
            printf("failed: %s\n", (char *)failed);
        }
    }
    printf("sum %ld\n", sum);
    return STATUS;
}
