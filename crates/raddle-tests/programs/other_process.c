/* Two threads that another process wakes: one by a semaphore in shared memory, one by a pipe. The
 * other process has the name "poster". Prints "poster PID". */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURNS = 60 };
static sem_t *posted;
static int ends[2];
static volatile int sink;

__attribute__((noinline)) static void wait_for_semaphore(void)
{
    sem_wait(posted);
    sink++;
}

__attribute__((noinline)) static void wait_for_pipe(void)
{
    char byte;
    sink += read(ends[0], &byte, 1);
}

static void *wait_for_both(void *is_pipe)
{
    prctl(PR_SET_NAME, is_pipe ? "of-pipe" : "of-semaphore");
    for (int turn = 0; turn < TURNS; turn++) {
        if (is_pipe) {
            wait_for_pipe();
        } else {
            wait_for_semaphore();
        }
    }
    return NULL;
}

static void post(void)
{
    prctl(PR_SET_NAME, "poster");
    for (int turn = 0; turn < TURNS; turn++) {
        usleep(20000);
        sem_post(posted);
        if (write(ends[1], "x", 1) != 1) {
            _exit(1);
        }
    }
    _exit(0);
}

int main(void)
{
    posted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (posted == MAP_FAILED || sem_init(posted, 1, 0) != 0 || pipe(ends) != 0) {
        return 1;
    }
    pid_t poster = fork();
    if (poster == 0) {
        post();
    }
    printf("poster %d\n", poster);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, wait_for_both, NULL);
    pthread_create(&threads[1], NULL, wait_for_both, ends);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    return waitpid(poster, NULL, 0) != poster;
}
