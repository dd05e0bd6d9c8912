/* Base of programs about the memory of stacks: where a stack is, and its permitted accesses. */
#ifndef STACK_H
#define STACK_H

#include "check.h"

#include <setjmp.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

/* The calling thread's stack: its low end above the guard, its size, and its guard's. */
struct stack {
    char *low;
    size_t size, guard;
};

__attribute__((unused)) static struct stack own_stack(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size, guard;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &low, &size));
    OK(pthread_attr_getguardsize(&attributes, &guard));
    OK(pthread_attr_destroy(&attributes));
    return (struct stack){low, size, guard};
}

/* A page of the own stack, `pages` above its low end. */
__attribute__((unused)) static char *low_page(int pages)
{
    return own_stack().low + pages * PAGE;
}

/* The page `pages` below the caller's frame. */
__attribute__((noinline, unused)) static char *page_below(int pages)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return (char *)((here & -(uintptr_t)PAGE) - pages * PAGE);
}

__attribute__((unused)) static void *wait_for_ever(void *unused)
{
    pause();
    return unused;
}

/* Runs a case on threads with stacks of 1 MiB and with default ones, beside others that wait. */
__attribute__((unused)) static void on_threads(thread_function run)
{
    pthread_attr_t attributes;
    pthread_t thread;
    OK(pthread_attr_init(&attributes));
    for (int i = 0; i < 2; i++) {
        OK(pthread_create(&thread, &attributes, wait_for_ever, NULL));
        for (int j = 0; j < 2; j++) {
            OK(pthread_create(&thread, &attributes, run, NULL));
            join(thread);
        }
        OK(pthread_attr_setstacksize(&attributes, 1 << 20));
    }
}

__attribute__((unused)) static __thread sigjmp_buf fault;

__attribute__((unused)) static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(fault, 1);
}

__attribute__((unused)) static void catch_faults(void)
{
    struct sigaction action = {.sa_handler = on_fault};
    GET(sigaction(SIGSEGV, &action, NULL));
}

__attribute__((unused)) static int can_read(const char *at)
{
    if (sigsetjmp(fault, 1)) {
        return 0;
    }
    (void)*(volatile const char *)at;
    return 1;
}

__attribute__((unused)) static int can_write(char *at)
{
    if (sigsetjmp(fault, 1)) {
        return 0;
    }
    *(volatile char *)at = *(volatile char *)at;
    return 1;
}

/* The kernel's access of an address in its list of mappings: "rw-" and so on, or "". */
__attribute__((unused)) static const char *access_of(const void *address)
{
    static char access[4];
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    access[0] = 0;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        char found[5];
        IS(sscanf(line, "%lx-%lx %4s", &from, &to, found), 3);
        if (from <= (uintptr_t)address && (uintptr_t)address < to) {
            memcpy(access, found, 3);
        }
    }
    OK(fclose(maps));
    return access;
}

#define HAS_ACCESS(address, expected) OK(strcmp(access_of(address), expected))

__attribute__((unused)) static int is_filled(const char *from, size_t size, char byte)
{
    for (size_t i = 0; i < size; i++) {
        if (from[i] != byte) {
            return 0;
        }
    }
    return 1;
}

#endif
