/* A policy that computes for ever in its twentieth call. */
#define MISBEHAVE(queue)                                                                 \
    while (queue->picks == 20) { __asm__ volatile("" ::: "memory"); }
#include "policy.h"
