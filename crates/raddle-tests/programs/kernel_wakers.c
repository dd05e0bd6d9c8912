// Waits that the kernel ends, and one that the end of a thread ends, beside a thread that computes
// and makes no call.
//
// Usage: kernel_wakers SECONDS. Another process sends SIGUSR1, for which a thread waits; a second
// thread waits for children; a third one waits for the end of one that sleeps.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define PERIOD_US 20000

static int seconds;
static volatile int is_over;
static volatile long turns;

static void *computes(void *unused)
{
    pthread_setname_np(pthread_self(), "computes");
    while (!is_over)
        turns++;
    return unused;
}

NOINLINE static void wait_for_signal(void)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (!is_over)
        sigwait(&set, &signal);
}

static void *gets_signals(void *unused)
{
    pthread_setname_np(pthread_self(), "signals");
    wait_for_signal();
    return unused;
}

NOINLINE static void wait_for_children(void)
{
    while (!is_over) {
        pid_t child = fork();
        if (child == 0) {
            usleep(PERIOD_US);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

static void *has_children(void *unused)
{
    pthread_setname_np(pthread_self(), "children");
    wait_for_children();
    return unused;
}

static void *ends(void *unused)
{
    pthread_setname_np(pthread_self(), "ends");
    sleep(seconds - 1);
    return unused;
}

NOINLINE static void wait_for_end(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, ends, NULL);
    pthread_join(thread, NULL);
}

static void *joins(void *unused)
{
    pthread_setname_np(pthread_self(), "joins");
    wait_for_end();
    return unused;
}

int main(int count, char **arguments)
{
    sigset_t set;
    pthread_t threads[4];
    seconds = count > 1 ? atoi(arguments[1]) : 3;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t parent = getpid();
    pid_t sender = fork();
    if (sender == 0)
        while (getppid() == parent) {
            usleep(PERIOD_US);
            kill(parent, SIGUSR1);
        }
    pthread_create(&threads[0], NULL, joins, NULL);
    pthread_create(&threads[1], NULL, gets_signals, NULL);
    pthread_create(&threads[2], NULL, has_children, NULL);
    pthread_create(&threads[3], NULL, computes, NULL);
    sleep(seconds);
    is_over = 1;
    for (int number = 0; number < 4; number++)
        pthread_join(threads[number], NULL);
    kill(sender, SIGKILL);
    waitpid(sender, NULL, 0);
    return 0;
}
