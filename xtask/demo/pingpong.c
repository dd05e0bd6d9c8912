/* Two threads hand a turn to each other through one mutex and two condition variables. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { ROUNDS = 200000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t my_turn[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;

static void *player(void *argument) {
    int me = argument != NULL;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        while (turn != me) pthread_cond_wait(&my_turn[me], &mutex);
        turn = !me;
        pthread_cond_signal(&my_turn[!me]);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(void) {
    pthread_t players[2];
    double start_ns = now_ns();
    if (pthread_create(&players[0], NULL, player, NULL) != 0) return 1;
    if (pthread_create(&players[1], NULL, player, &turn) != 0) return 1;
    for (int i = 0; i < 2; i++) pthread_join(players[i], NULL);
    printf("%.0f ns/hand-off\n", (now_ns() - start_ns) / (2.0 * ROUNDS));
    return 0;
}
