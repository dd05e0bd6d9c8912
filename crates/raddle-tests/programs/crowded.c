/* Prints how many of 30 computing threads could be made, and then how many waiting ones. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>

enum { MOST = 30 };

static atomic_int over;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static int waiting, open_for_all;

static void *compute(void *argument)
{
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {}
    return argument;
}

static void *wait_until_opened(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    waiting++;
    while (!open_for_all) {
        OK(pthread_cond_wait(&opened, &mutex));
    }
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

static void wait_until_waiting(int count)
{
    int now;
    do {
        sched_yield();
        OK(pthread_mutex_lock(&mutex));
        now = waiting;
        OK(pthread_mutex_unlock(&mutex));
    } while (now < count);
}

int main(void)
{
    case_name = cases[case_count++].name = "crowded";
    pthread_t threads[MOST];
    int made = 0, error = 0;
    while (made < MOST && !(error = pthread_create(&threads[made], NULL, compute, NULL))) {
        made++;
    }
    CHECK(error == 0 || error == EAGAIN);
    printf("computing %d\n", made);
    atomic_store(&over, 1);
    join_all(threads, made);
    for (made = 0; made < MOST; made++) {
        OK(pthread_create(&threads[made], NULL, wait_until_opened, NULL));
        wait_until_waiting(made + 1);
    }
    OK(pthread_mutex_lock(&mutex));
    open_for_all = 1;
    OK(pthread_cond_broadcast(&opened));
    OK(pthread_mutex_unlock(&mutex));
    join_all(threads, made);
    printf("waiting %d\n", made);
    say_ok();
    return 0;
}
