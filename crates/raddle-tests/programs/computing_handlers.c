/* Two threads compute in handlers on alternate stacks: one above the thread's own stack, one below.
 * Prints "ready" once both are there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STACK = 256 * 1024 };

static pthread_barrier_t begun;
static volatile unsigned long sum;

struct stacks {
    const char *name;
    char *own, *alternate;
};

__attribute__((noinline)) static void compute_in_handler(void)
{
    for (;;) {
        sum++;
    }
}

static void on_signal(int signal)
{
    (void)signal;
    pthread_barrier_wait(&begun);
    compute_in_handler();
}

__attribute__((noinline)) static void raise_it(void)
{
    raise(SIGUSR1);
    sum++;
}

static void *be_interrupted(void *argument)
{
    struct stacks *stacks = argument;
    stack_t stack = {.ss_sp = stacks->alternate, .ss_size = STACK};
    prctl(PR_SET_NAME, stacks->name);
    sigaltstack(&stack, NULL);
    raise_it();
    sum++;
    return NULL;
}

int main(void)
{
    int access = PROT_READ | PROT_WRITE;
    char *memory = mmap(NULL, 4 * STACK, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct stacks both[] = {
        {"above", memory, memory + STACK},
        {"below", memory + 3 * STACK, memory + 2 * STACK},
    };
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    if (memory == MAP_FAILED || sigaction(SIGUSR1, &action, NULL) != 0) {
        return 1;
    }
    pthread_barrier_init(&begun, NULL, 3);
    for (int number = 0; number < 2; number++) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstack(&attributes, both[number].own, STACK);
        if (pthread_create(&thread, &attributes, be_interrupted, &both[number]) != 0) {
            return 2;
        }
    }
    pthread_barrier_wait(&begun);
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
