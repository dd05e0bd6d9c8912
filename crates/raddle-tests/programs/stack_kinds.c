/* Threads with stacks of every kind: some compute, some wait in a signal handler, on their own
 * stack or an alternate one, some wait in the kernel. Prints "ready" once all have begun. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t begun;
static volatile unsigned long sink;
static int queue;

__attribute__((noinline)) static void compute_inner(unsigned long from)
{
    for (unsigned long number = from;; number++) {
        sink += number;
    }
}

__attribute__((noinline)) static void *compute(void *unused)
{
    prctl(PR_SET_NAME, "computer");
    pthread_barrier_wait(&begun);
    compute_inner(7);
    sink++;
    return unused;
}

/* Large enough to need a frame pointer where the size isn't known. */
__attribute__((noinline)) static void wait_in_handler(int signal)
{
    volatile char room[signal * 16];
    room[0] = 1;
    pthread_barrier_wait(&begun);
    for (;;) {
        sleep(1000);
        room[0]++;
    }
}

static void on_signal(int signal)
{
    wait_in_handler(signal);
    sink++;
}

__attribute__((noinline)) static void raise_it(int signal)
{
    pthread_kill(pthread_self(), signal);
    sink++;
}

static void *be_interrupted(void *unused)
{
    prctl(PR_SET_NAME, "interrupted");
    raise_it(SIGUSR1);
    return unused;
}

static void *be_interrupted_elsewhere(void *unused)
{
    stack_t stack = {.ss_size = 1 << 16};
    stack.ss_sp = malloc(stack.ss_size);
    prctl(PR_SET_NAME, "alternate");
    sigaltstack(&stack, NULL);
    raise_it(SIGUSR2);
    return unused;
}

__attribute__((noinline)) static long wait_for_message(void)
{
    struct {
        long kind;
        char text[8];
    } message;
    return msgrcv(queue, &message, sizeof message.text, 1, 0) + message.kind;
}

static void *wait_in_kernel(void *unused)
{
    prctl(PR_SET_NAME, "kernel");
    pthread_barrier_wait(&begun);
    sink += wait_for_message();
    return unused;
}

__attribute__((noinline)) static int wait_for_end(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    pthread_barrier_wait(&begun);
    waitpid(child, &status, 0);
    return status;
}

static void *wait_for_child(void *unused)
{
    prctl(PR_SET_NAME, "parent");
    sink += wait_for_end();
    return unused;
}

int main(void)
{
    enum { COMPUTERS = 6 };
    static void *(*const others[])(void *) = {
        be_interrupted,
        be_interrupted_elsewhere,
        wait_in_kernel,
        wait_for_child,
    };
    enum { OTHERS = sizeof others / sizeof *others };
    pthread_t thread;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, NULL);
    queue = msgget(IPC_PRIVATE, 0600);
    if (queue < 0) {
        return 1;
    }
    pthread_barrier_init(&begun, NULL, COMPUTERS + OTHERS + 1);
    for (int number = 0; number < COMPUTERS; number++) {
        if (pthread_create(&thread, NULL, compute, NULL) != 0) {
            return 2;
        }
    }
    for (int number = 0; number < OTHERS; number++) {
        if (pthread_create(&thread, NULL, others[number], NULL) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&begun);
    usleep(300 * 1000);
    msgctl(queue, IPC_STAT, NULL);
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
