/* At each SIGUSR1 two threads wake each other ROUNDS times. Beside them a thread sleeps for 20 ms
 * each time, and another one waits for a lock for ever. Prints "ready", and "done" after each.
 *
 * trading ROUNDS */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t begins[2], turns[2], finished, never;
static long rounds;

static void *trader(void *own) {
    long me = (long)own;
    pthread_setname_np(pthread_self(), me ? "buyer" : "seller");
    for (;;) {
        sem_wait(&begins[me]);
        for (long round = 0; round < rounds; round++) {
            sem_wait(&turns[me]);
            sem_post(&turns[!me]);
        }
        sem_post(&finished);
    }
    return NULL;
}

static void *sleeper(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "sleeper");
    for (;;)
        usleep(20000);
    return NULL;
}

static void *waiter(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "waiter");
    sem_wait(&never);
    return NULL;
}

int main(int count, char **arguments) {
    rounds = count > 1 ? atol(arguments[1]) : 1000;
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    if (pthread_sigmask(SIG_BLOCK, &start, NULL) != 0)
        return 1;
    sem_init(&turns[0], 0, 1);
    sem_init(&turns[1], 0, 0);
    sem_init(&finished, 0, 0);
    sem_init(&never, 0, 0);
    pthread_t thread;
    for (long me = 0; me < 2; me++) {
        sem_init(&begins[me], 0, 0);
        if (pthread_create(&thread, NULL, trader, (void *)me) != 0)
            return 1;
    }
    if (pthread_create(&thread, NULL, sleeper, NULL) != 0 ||
        pthread_create(&thread, NULL, waiter, NULL) != 0)
        return 1;
    puts("ready");
    for (;;) {
        fflush(stdout);
        int signal;
        sigwait(&start, &signal);
        for (int me = 0; me < 2; me++)
            sem_post(&begins[me]);
        for (int me = 0; me < 2; me++)
            sem_wait(&finished);
        puts("done");
    }
}
