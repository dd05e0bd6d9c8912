/* A thread with a name that would clear a terminal's screen and turn the text behind it. It waits
 * for a lock that the main thread holds most of the time. Ends with SIGTERM. */
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static pthread_mutex_t lock_odd = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_lock(void *unused)
{
    prctl(PR_SET_NAME, "a\x1b[2J\xe2\x80\xae\"b");
    for (;;) {
        pthread_mutex_lock(&lock_odd);
        pthread_mutex_unlock(&lock_odd);
        usleep(1000);
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_lock, NULL);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        pthread_mutex_lock(&lock_odd);
        usleep(20000);
        pthread_mutex_unlock(&lock_odd);
        usleep(100);
    }
}
