/* System calls by code that the program makes while it runs: what no runtime finds in a file. */
#ifndef MADE_CALL_H
#define MADE_CALL_H

#include "check.h"
#include <sys/mman.h>

typedef long (*made_code)(long number, long a, long b, long c);

static made_code made;

static void make_code(void)
{
    static const unsigned char bytes[] = {
        0x48, 0x89, 0xf8, /* mov %rdi, %rax */
        0x48, 0x89, 0xf7, /* mov %rsi, %rdi */
        0x48, 0x89, 0xd6, /* mov %rdx, %rsi */
        0x48, 0x89, 0xca, /* mov %rcx, %rdx */
        0x0f, 0x05,       /* syscall */
        0xc3,             /* ret */
    };
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page, bytes, sizeof bytes);
    OK(mprotect(page, 4096, PROT_READ | PROT_EXEC));
    memcpy(&made, &page, sizeof page);
}

/* The kernel's result: a negated errno if the call fails. */
__attribute__((unused)) static long made_call(long number, long a, long b, long c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    OK(pthread_once(&once, make_code));
    return made(number, a, b, c);
}

#endif
