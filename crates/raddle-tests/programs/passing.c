/* Threads come and go all the time, libraries with code are loaded and unloaded, children are made.
 * With an argument, the process ends after so many milliseconds. Prints "ready" at first. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *live_shortly(void *unused)
{
    usleep(100);
    return unused;
}

static void *make_threads(void *unused)
{
    for (;;) {
        pthread_t threads[16];
        for (int number = 0; number < 16; number++) {
            pthread_create(&threads[number], NULL, live_shortly, NULL);
        }
        for (int number = 0; number < 16; number++) {
            pthread_join(threads[number], NULL);
        }
    }
    return unused;
}

static void *load_libraries(void *unused)
{
    for (;;) {
        void *library = dlopen("libutil.so.1", RTLD_NOW);
        usleep(50);
        if (library != NULL) {
            dlclose(library);
        }
    }
    return unused;
}

static void *make_children(void *unused)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        waitpid(child, NULL, 0);
        usleep(1000);
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    pthread_create(&thread, NULL, make_threads, NULL);
    pthread_create(&thread, NULL, load_libraries, NULL);
    pthread_create(&thread, NULL, make_children, NULL);
    usleep(100 * 1000);
    printf("ready\n");
    fflush(stdout);
    if (count > 1) {
        usleep(1000 * (useconds_t)atoi(arguments[1]));
        return 0;
    }
    pause();
    return 0;
}
