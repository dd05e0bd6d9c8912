/* A policy that soon picks an invalid thread. */
#define MISBEHAVE(queue)                                                                 \
    if (queue->picks > 20) return (void *)&picked->user[1]
#include "policy.h"
