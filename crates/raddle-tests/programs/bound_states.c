/* Twelve threads "bound-*", each in another state, that rules may bind by their names, and twelve
 * "free-*" that do the same. Says "ready", and with an argument crashes in a thirteenth one. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all_are_there;
static pthread_t sleeper;
static sem_t none;
static int ends[2], word;
static volatile unsigned long sink;

/* A loop around a call, in a function of its own. */
#define STATE(name, ...) \
    __attribute__((noinline)) static void name(void) \
    { \
        for (;;) { \
            __VA_ARGS__; \
            sink++; \
        } \
    }

STATE(state_compute, )
STATE(state_read, char byte; if (read(ends[0], &byte, 1) != 1) abort())
STATE(state_poll, struct pollfd one = {ends[0], POLLIN, 0}; poll(&one, 1, -1))
STATE(state_mutex, pthread_mutex_lock(&held))
STATE(state_condition, pthread_mutex_lock(&own); pthread_cond_wait(&never, &own);
      pthread_mutex_unlock(&own))
STATE(state_semaphore, sem_wait(&none))
STATE(state_sleep, sleep(1000))
STATE(state_futex, syscall(SYS_futex, &word, 0, 0, NULL, NULL, 0))
STATE(state_join, pthread_join(sleeper, NULL))
STATE(state_yield, sched_yield())
STATE(state_epoll, struct epoll_event event; int set = epoll_create1(0);
      epoll_wait(set, &event, 1, -1))
STATE(state_signal, sigset_t set; int signal; sigemptyset(&set); sigaddset(&set, SIGUSR2);
      sigwait(&set, &signal))

static const struct {
    const char *name;
    void (*enter)(void);
} states[] = {
    {"sleep", state_sleep},         {"compute", state_compute},
    {"read", state_read},           {"poll", state_poll},
    {"mutex", state_mutex},         {"condition", state_condition},
    {"semaphore", state_semaphore}, {"futex", state_futex},
    {"join", state_join},           {"yield", state_yield},
    {"epoll", state_epoll},         {"signal", state_signal},
};
enum { STATES = sizeof states / sizeof *states };

static void enter(const char *kind, long number)
{
    char name[16];
    snprintf(name, sizeof name, "%s-%s", kind, states[number].name);
    prctl(PR_SET_NAME, name);
    pthread_barrier_wait(&all_are_there);
    states[number].enter();
}

static void *be_bound(void *number)
{
    enter("bound", (long)number);
    return NULL;
}

static void *be_free(void *number)
{
    enter("free", (long)number);
    return NULL;
}

__attribute__((noinline)) static void state_crash(void)
{
    static volatile int *volatile nowhere;
    *nowhere = 1;
    sink++;
}

static void *crash(void *unused)
{
    prctl(PR_SET_NAME, "bound-crash");
    usleep(100000);
    state_crash();
    return unused;
}

int main(int count, char **arguments)
{
    (void)arguments;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pipe(ends) != 0) {
        return 1;
    }
    pthread_mutex_lock(&held);
    pthread_barrier_init(&all_are_there, NULL, 2 * STATES + 1);
    for (long number = 0; number < STATES; number++) {
        pthread_t thread, other;
        pthread_create(&thread, NULL, be_bound, (void *)number);
        pthread_create(&other, NULL, be_free, (void *)number);
        if (number == 0) {
            sleeper = thread;
        }
    }
    pthread_barrier_wait(&all_are_there);
    usleep(200000);
    printf("ready\n");
    fflush(stdout);
    if (count > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, crash, NULL);
    }
    for (;;) {
        pause();
    }
}
