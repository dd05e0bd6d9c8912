// A read-write lock that one thread holds to read for most of the time, while another one waits to
// write.
//
// Usage: lock_readers SECONDS.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define READ_US 40000
#define WRITE_US 5000
#define REST_US 1000

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile int is_over;

NOINLINE static void write_hold(void) { usleep(WRITE_US); is_over += 0; }
NOINLINE static void read_hold(void) { usleep(READ_US); is_over += 0; }

static void *writer(void *unused)
{
    while (!is_over) {
        pthread_rwlock_wrlock(&lock);
        write_hold();
        pthread_rwlock_unlock(&lock);
        usleep(REST_US);
    }
    return unused;
}

static void *reader(void *unused)
{
    while (!is_over) {
        pthread_rwlock_rdlock(&lock);
        read_hold();
        pthread_rwlock_unlock(&lock);
        usleep(REST_US);
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, writer, NULL);
    pthread_create(&threads[1], NULL, reader, NULL);
    sleep(count > 1 ? atoi(arguments[1]) : 3);
    is_over = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return 0;
}
