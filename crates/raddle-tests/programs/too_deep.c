/* A thread that waits below more frames than a dump shows. Prints "ready". */
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { DEPTH = 3000 };

__attribute__((noinline)) static int descend(int depth)
{
    if (depth == 0) {
        printf("ready\n");
        fflush(stdout);
        pause();
        return 0;
    }
    int result = descend(depth - 1);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return result + 1;
}

static void *run(void *unused)
{
    prctl(PR_SET_NAME, "deep");
    descend(DEPTH);
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0) {
        return 1;
    }
    return pthread_join(thread, NULL);
}
