/* Makes a thread and executes itself, every few milliseconds. Prints "ready" the first time. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { LIFE_US = 8000 };

static void *wait_for_the_end(void *unused)
{
    pause();
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_for_the_end, NULL) != 0) {
        return 1;
    }
    if (count == 1) {
        printf("ready\n");
        fflush(stdout);
    }
    usleep(LIFE_US);
    char *again[] = {arguments[0], "again", NULL};
    execv("/proc/self/exe", again);
    return 1;
}
