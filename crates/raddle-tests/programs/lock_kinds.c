// One mutex of a certain kind: a thread holds it for 20 ms at a time, and another one waits for it.
//
// Usage: lock_kinds KIND SECONDS. Prints at the end what the program has measured itself, in
// seconds: "held NUMBER TIME", "longest TIME" and "waited TIME".
//
//   plain    as it is by default
//   robust   robust, in private memory
//   shared   shared between processes, though there is one
//   timed    wanted by pthread_mutex_timedlock, again and again, for 6 ms each time
//   timed_robust  both
//   foreign  shared, and held by another process
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define HOLD_US 20000
#define REST_US 5000
#define TRY_NS 6000000

static pthread_mutex_t *lock;
static volatile int is_over;
static int is_timed;
static double held, longest, waited;
static int holds;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

NOINLINE static void hold(void) { usleep(HOLD_US); is_over += 0; }

NOINLINE static void release(void) { pthread_mutex_unlock(lock); is_over += 0; }

static void *holder(void *unused)
{
    pthread_setname_np(pthread_self(), "holder");
    while (!is_over) {
        pthread_mutex_lock(lock);
        double begin = now();
        hold();
        double time = now() - begin;
        release();
        held += time;
        longest = time > longest ? time : longest;
        holds++;
        usleep(REST_US);
    }
    return unused;
}

NOINLINE static void want(void)
{
    struct timespec until;
    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TRY_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    } while (is_timed ? pthread_mutex_timedlock(lock, &until) : pthread_mutex_lock(lock));
}

static void *waiter(void *unused)
{
    pthread_setname_np(pthread_self(), "waiter");
    while (!is_over) {
        double begin = now();
        want();
        waited += now() - begin;
        pthread_mutex_unlock(lock);
        usleep(1000);
    }
    return unused;
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    const char *kind = arguments[1];
    int is_foreign = !strcmp(kind, "foreign");
    int is_shared = is_foreign || !strcmp(kind, "shared");
    is_timed = !strncmp(kind, "timed", 5);
    lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                MAP_ANONYMOUS | (is_shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    if (strstr(kind, "robust"))
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (is_shared)
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(lock, &attributes);
    pid_t child = is_foreign ? fork() : -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        holder(NULL);
    }
    pthread_t threads[2];
    if (!is_foreign)
        pthread_create(&threads[0], NULL, holder, NULL);
    pthread_create(&threads[1], NULL, waiter, NULL);
    usleep(atof(arguments[2]) * 1e6);
    is_over = 1;
    if (is_foreign) {
        // The holder may be dead with the lock.
        kill(child, SIGKILL);
        return 0;
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("held %d %f\nlongest %f\nwaited %f\n", holds, held, longest, waited);
    return 0;
}
