/* For debuggers: three threads compute in compute(), and the first gets SIGUSR1 from the others now
 * and then, for a debugger takes a millisecond for a signal. Ends by itself after a minute of CPU
 * time. */
#include <pthread.h>
#include <signal.h>
#include <time.h>

enum { THREADS = 3 };

static volatile long handled;
static volatile long computed;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

__attribute__((noinline)) static long compute(long rounds)
{
    for (long round = 0; round < rounds; round++) {
        computed++;
    }
    return computed;
}

static void *begin(void *first)
{
    while (clock() < 60 * CLOCKS_PER_SEC) {
        compute(30000000);
        if (first) {
            pthread_kill(*(pthread_t *)first, SIGUSR1);
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    signal(SIGUSR1, handle);
    for (int number = 0; number < THREADS; number++) {
        if (pthread_create(&threads[number], NULL, begin, number == 0 ? NULL : threads) != 0) {
            return 2;
        }
    }
    for (int number = THREADS - 1; number >= 0; number--) {
        pthread_join(threads[number], NULL);
    }
    return handled == 0;
}
