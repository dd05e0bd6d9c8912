/* Two threads compute for some tenths of a second in a function that a profiler should see, and
 * hand a turn to each other now and then. Prints "done" and ends. */
#include <pthread.h>
#include <stdio.h>

enum { TURNS = 200, STEPS = 1000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;

__attribute__((noinline)) static void burn(void)
{
    for (volatile int step = 0; step < STEPS; step++) {
    }
}

static void *alternate(void *parameter)
{
    int own = *(int *)parameter;
    for (int number = 0; number < TURNS; number++) {
        pthread_mutex_lock(&lock);
        while (turn != own) {
            pthread_cond_wait(&changed, &lock);
        }
        burn();
        turn = !own;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    for (int number = 0; number < 2; number++) {
        if (pthread_create(&threads[number], NULL, alternate, &numbers[number]) != 0) {
            return 1;
        }
    }
    for (int number = 0; number < 2; number++) {
        pthread_join(threads[number], NULL);
    }
    printf("done\n");
    return 0;
}
