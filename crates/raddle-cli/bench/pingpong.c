// Two threads hand a turn to each other: one mutex, one condition variable each.
#include "common.h"
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;
static long rounds;

static void *player(void *argument) {
  int me = (int)(long)argument;
  for (long i = 0; i < rounds; i++) {
    pthread_mutex_lock(&mutex);
    while (turn != me)
      pthread_cond_wait(&changed[me], &mutex);
    turn = !me;
    pthread_cond_signal(&changed[!me]);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

int main(int argc, char **argv) {
  rounds = rounds_of(argc, argv, 1000000);
  pthread_t threads[2];
  uint64_t start = now_ns();
  for (long i = 0; i < 2; i++)
    must(pthread_create(&threads[i], NULL, player, (void *)i), "pthread_create");
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  metric("hand-off", (double)(now_ns() - start) / (2.0 * (double)rounds), "ns");
  return 0;
}
