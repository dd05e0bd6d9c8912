/* A policy that takes long for everything. */
#define MISBEHAVE(queue)                                                                 \
    for (volatile long i = 0; i < 1000000; i++) { }
#include "policy.h"
