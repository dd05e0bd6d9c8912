/* A policy for `--policy FILE`: the newest thread first, but yielding and preempted threads last.
 * With MISBEHAVE, one that does something wrong. */
#include "../../raddle-interface/include/raddle_policy.h"

#include <stddef.h>

typedef struct raddle_policy_thread thread;

struct queue {
    thread *first, *last;
    long picks;
};

static void *create(void)
{
    static struct queue queue;
    queue = (struct queue){0};
    return &queue;
}

static thread **next_of(thread *thread)
{
    return (void *)&thread->user[0];
}

static void enqueue(void *state, thread *new, uint32_t reason, uint64_t now_ns)
{
    struct queue *queue = state;
    int is_last = reason == RADDLE_YIELDED || reason == RADDLE_PREEMPTED;
    (void)now_ns;
    *next_of(new) = is_last ? NULL : queue->first;
    if (!queue->first) {
        queue->first = queue->last = new;
    } else if (is_last) {
        *next_of(queue->last) = new;
        queue->last = new;
    } else {
        queue->first = new;
    }
}

#ifndef MISBEHAVE
#define MISBEHAVE(queue)
#endif

static thread *pick(void *state, uint64_t now_ns)
{
    struct queue *queue = state;
    thread *picked = queue->first;
    (void)now_ns;
    queue->picks++;
    MISBEHAVE(queue);
    queue->first = *next_of(picked);
    return picked;
}

static uint64_t quantum(void *state, thread *running)
{
    (void)state, (void)running;
    return 1000000;
}

const struct raddle_policy raddle_policy = {
    .version = RADDLE_POLICY_VERSION,
    .size = sizeof(struct raddle_policy),
    .create = create,
    .enqueue = enqueue,
    .pick = pick,
    .quantum = quantum,
};
