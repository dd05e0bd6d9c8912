// Threads that compute, and wait for a lock, with a name that would be a tag in a page.
//
// Usage: pages SECONDS
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sink;
static volatile int is_over;

__attribute__((noinline, noclone)) static void compute_for_the_page(void)
{
    for (int i = 0; i < 2000000; i++)
        sink += i;
}

__attribute__((noinline, noclone)) static void wait_for_the_page(void)
{
    pthread_mutex_lock(&lock);
    usleep(2000);
    pthread_mutex_unlock(&lock);
    sink++;
}

static void *works(void *unused)
{
    pthread_setname_np(pthread_self(), "</script><b>&");
    while (!is_over) {
        compute_for_the_page();
        wait_for_the_page();
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, works, NULL);
    usleep(count > 1 ? atof(arguments[1]) * 1e6 : 1000000);
    is_over = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
