/* A policy that sleeps for ever in its twentieth call, which it must not. */
#define MISBEHAVE(queue)                                                                 \
    while (queue->picks == 20) {                                                         \
        long result = 34; /* pause */                                                    \
        __asm__ volatile("syscall" : "+a"(result) : : "rcx", "r11", "memory");           \
    }
#include "policy.h"
