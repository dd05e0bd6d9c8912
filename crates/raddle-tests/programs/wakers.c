// A program of known wakers: one thread waits for a condition variable, in one function, and
// another one ends the waits from three functions, after 1, 2 and 3 parts of the time. A third one
// waits for times that end by themselves, and for the bytes of a pipe.
//
// Usage: wakers SECONDS [yields]. At the end it prints what the waiter has measured itself, in
// seconds: "part NAME TIME" of the time that ended by each function. With "yields", its threads
// only make room for each other: nothing is woken.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define PART_US 1500

static double seconds;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
// 1 to 3: which function has woken the waiter; 4 for the end. 0 while the waiter waits.
static int turn;
static double ended[4];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void wake(int number)
{
    pthread_mutex_lock(&lock);
    turn = number;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&lock);
}

NOINLINE static void wake_one(void) { usleep(1 * PART_US); wake(1); ended[0] += 0; }
NOINLINE static void wake_two(void) { usleep(2 * PART_US); wake(2); ended[0] += 0; }
NOINLINE static void wake_three(void) { usleep(3 * PART_US); wake(3); ended[0] += 0; }

NOINLINE static void waits_here(void)
{
    double begin = now();
    pthread_mutex_lock(&lock);
    while (turn == 0)
        pthread_cond_wait(&condition, &lock);
    ended[turn - 1] += now() - begin;
    pthread_mutex_unlock(&lock);
}

static int is_over;

static void *waiter(void *unused)
{
    pthread_setname_np(pthread_self(), "waiter");
    while (!is_over) {
        waits_here();
        is_over = turn == 4;
        turn = 0;
    }
    return unused;
}

static void *rests(void *unused)
{
    pthread_setname_np(pthread_self(), "rester");
    int pipes[2];
    char byte;
    if (pipe(pipes) != 0)
        exit(1);
    while (!is_over) {
        usleep(3000);
        if (write(pipes[1], "a", 1) != 1 || read(pipes[0], &byte, 1) != 1)
            exit(1);
    }
    return unused;
}

static void *yields(void *unused)
{
    for (double end = now() + seconds; now() < end;)
        sched_yield();
    return unused;
}

int main(int count, char **arguments)
{
    seconds = count > 1 ? atof(arguments[1]) : 1;
    pthread_t threads[2];
    if (count > 2 && strcmp(arguments[2], "yields") == 0) {
        pthread_create(&threads[0], NULL, yields, NULL);
        yields(NULL);
        return pthread_join(threads[0], NULL);
    }
    pthread_create(&threads[0], NULL, waiter, NULL);
    pthread_create(&threads[1], NULL, rests, NULL);
    for (double end = now() + seconds; now() < end;) {
        wake_one();
        wake_two();
        wake_three();
    }
    usleep(PART_US);
    wake(4);
    for (int number = 0; number < 2; number++)
        pthread_join(threads[number], NULL);
    const char *names[3] = {"wake_one", "wake_two", "wake_three"};
    for (int number = 0; number < 3; number++)
        printf("part %s %.6f\n", names[number], ended[number]);
    return 0;
}
