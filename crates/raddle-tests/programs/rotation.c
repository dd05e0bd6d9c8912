/* Five threads compute for a second. Prints for each after how many of its turns the thread came
 * that came most often, and how many turns it had. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>

enum { THREADS = 5 };

static atomic_int last = -1, stop;
static atomic_int turns[THREADS][THREADS];

static void *compute(void *number)
{
    int own = (int)(long)number;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        int before = atomic_load_explicit(&last, memory_order_relaxed);
        if (before != own) {
            last = own;
            if (before >= 0) {
                turns[before][own]++;
            }
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    case_name = cases[case_count++].name = "rotation";
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(compute, (void *)i);
    }
    sleep_ms(1000);
    stop = 1;
    join_all(threads, THREADS);
    for (int i = 0; i < THREADS; i++) {
        int most = 0, all = 0;
        for (int next = 0; next < THREADS; next++) {
            all += turns[i][next];
            most = turns[i][next] > most ? turns[i][next] : most;
        }
        printf("%d %d\n", most, all);
    }
    return 0;
}
