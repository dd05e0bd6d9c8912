/* Two threads lend the memory to children that execute no program: by vfork, where the child shares
 * the stack, too, and by clone, as posix_spawn does. The children write over all of the stack that
 * they may. Prints "ready" when both wait, and the number of vfork's child to
 * standard error. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int told[2];
static char other_stack[64 * 1024];

__attribute__((noinline)) static void use_stack(int byte)
{
    volatile char room[16 * 1024];
    for (unsigned i = 0; i < sizeof room; i++) {
        room[i] = (char)byte;
    }
}

/* What a child does, until its parent ends. */
__attribute__((noinline)) static void borrow(void)
{
    pid_t own = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    use_stack(0x5a);
    if (write(told[1], &own, sizeof own) != sizeof own) {
        _exit(1);
    }
    for (;;) {
        pause();
    }
}

__attribute__((noinline)) static long lend_by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        borrow();
    }
    return child;
}

static int run_child(void *unused)
{
    (void)unused;
    borrow();
    return 0;
}

__attribute__((noinline)) static long lend_by_clone(void)
{
    int flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
    return clone(run_child, other_stack + sizeof other_stack, flags, NULL) + 1;
}

static void *lend(void *by_clone)
{
    prctl(PR_SET_NAME, by_clone ? "by-clone" : "by-vfork");
    volatile long child = by_clone ? lend_by_clone() : lend_by_vfork();
    return (void *)child;
}

int main(void)
{
    pthread_t threads[2];
    pid_t child, other;
    if (pipe(told) != 0 || pthread_create(&threads[0], NULL, lend, NULL) != 0 ||
        read(told[0], &child, sizeof child) != sizeof child ||
        pthread_create(&threads[1], NULL, lend, &threads) != 0 ||
        read(told[0], &other, sizeof other) != sizeof other) {
        return 1;
    }
    fprintf(stderr, "%d\n", child);
    printf("ready\n");
    fflush(stdout);
    pthread_join(threads[0], NULL);
    return 0;
}
