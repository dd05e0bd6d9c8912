/* A policy that soon picks nothing. */
#define MISBEHAVE(queue)                                                                 \
    if (queue->picks > 20) return NULL
#include "policy.h"
