/* After SIGUSR1 two threads wake each other ROUNDS times, then wait for ever. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>

enum { ROUNDS = 3000 };

static sem_t turns[2], finished, never;

static void *player(void *own) {
    long me = (long)own;
    pthread_setname_np(pthread_self(), me ? "pong" : "ping");
    for (int round = 0; round < ROUNDS; round++) {
        sem_wait(&turns[me]);
        sem_post(&turns[!me]);
    }
    sem_post(&finished);
    sem_wait(&never);
    return NULL;
}

int main(void) {
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    if (pthread_sigmask(SIG_BLOCK, &start, NULL) != 0)
        return 1;
    sem_init(&turns[0], 0, 1);
    sem_init(&turns[1], 0, 0);
    sem_init(&finished, 0, 0);
    sem_init(&never, 0, 0);
    pthread_t idle;
    if (pthread_create(&idle, NULL, (void *(*)(void *))sem_wait, &never) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    int signal;
    sigwait(&start, &signal);
    pthread_t threads[2];
    for (long me = 0; me < 2; me++)
        if (pthread_create(&threads[me], NULL, player, (void *)me) != 0)
            return 1;
    for (int me = 0; me < 2; me++)
        sem_wait(&finished);
    puts("done");
    fflush(stdout);
    sem_wait(&never);
    return 0;
}
