/* After SIGUSR1 a thread "maker" makes eight threads, which live for some milliseconds: four name
 * themselves "brief-named-N", and four have the name of their maker. Prints "done" when they have
 * ended, and waits for ever. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 8, NAMED = 4 };

static void *brief(void *own) {
    long me = (long)own;
    if (me < NAMED) {
        char name[] = "brief-named-0";
        name[sizeof name - 2] += (char)me;
        pthread_setname_np(pthread_self(), name);
    }
    usleep(5000);
    return NULL;
}

static void *maker(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "maker");
    pthread_t threads[THREADS];
    for (long me = 0; me < THREADS; me++)
        if (pthread_create(&threads[me], NULL, brief, (void *)me) != 0)
            return "it can't make threads";
    for (int me = 0; me < THREADS; me++)
        pthread_join(threads[me], NULL);
    return NULL;
}

static void *idle(void *unused) {
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

int main(void) {
    sigset_t start;
    sigemptyset(&start);
    sigaddset(&start, SIGUSR1);
    if (pthread_sigmask(SIG_BLOCK, &start, NULL) != 0)
        return 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, idle, NULL) != 0)
        return 1;
    puts("ready");
    fflush(stdout);
    int signal;
    sigwait(&start, &signal);
    void *failure;
    if (pthread_create(&thread, NULL, maker, NULL) != 0 || pthread_join(thread, &failure) != 0 ||
        failure != NULL)
        return 1;
    puts("done");
    fflush(stdout);
    pause();
    return 0;
}
