/* Parts that the programs about engines share: making engines and threads, and a policy. */
#ifndef ENGINES_H
#define ENGINES_H

#include "check.h"
#include <raddle_engine.h>
#include <raddle_policy.h>

static const raddle_engine_options plain = RADDLE_ENGINE_OPTIONS_INIT;

static inline raddle_engine engine_of(raddle_engine_options options) {
    raddle_engine engine;
    OK(raddle_engine_create(&engine, &options));
    return engine;
}

/* An engine with one carrier. */
static inline raddle_engine one(const char *policy, const struct raddle_policy *table) {
    raddle_engine_options options = plain;
    options.name = "one";
    options.carriers = 1;
    options.policy = policy;
    options.policy_table = table;
    return engine_of(options);
}

static inline raddle_thread start(raddle_engine engine, uint32_t priority, uint64_t deadline_ns,
                                  void *(*run)(void *), void *argument) {
    raddle_thread thread;
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    options.engine = engine;
    options.priority = priority;
    options.deadline_ns = deadline_ns;
    OK(raddle_spawn(&thread, &options, run, argument));
    return thread;
}

static inline void join(raddle_thread thread) { OK(raddle_join(thread, NULL)); }

static inline void *nothing(void *argument) { return argument; }

/* A policy: first come, first served, by links in the threads' own words, until `wrong` says
 * otherwise. */
struct queue {
    struct raddle_policy_thread *first, *last;
    long picks;
};

static struct raddle_policy_thread *(*wrong)(struct queue *queue);
static volatile int lived, died; /* changed atomically */

static inline struct raddle_policy_thread **next_of(struct raddle_policy_thread *thread) {
    return (void *)&thread->user[0];
}

static inline void *create(void) {
    struct queue *queue = calloc(1, sizeof *queue); /* a policy may allocate here */
    __atomic_fetch_add(&lived, 1, __ATOMIC_RELAXED);
    return queue;
}

static inline void destroy(void *state) {
    free(state);
    __atomic_fetch_add(&died, 1, __ATOMIC_RELAXED);
}

static inline void enqueue(void *state, struct raddle_policy_thread *thread, uint32_t reason,
                           uint64_t now_ns) {
    struct queue *queue = state;
    if (reason > RADDLE_PREEMPTED || now_ns == 0 || thread->user[1] != (reason != RADDLE_NEW))
        abort();
    if (thread->tid == 0) abort();
    thread->user[1] = 1; /* it isn't new any more */
    *next_of(thread) = NULL;
    if (queue->first == NULL) queue->first = thread;
    else *next_of(queue->last) = thread;
    queue->last = thread;
}

static inline struct raddle_policy_thread *pick(void *state, uint64_t now_ns) {
    struct queue *queue = state;
    struct raddle_policy_thread *picked = queue->first;
    (void)now_ns;
    if (++queue->picks == 20 && wrong != NULL) return wrong(queue);
    queue->first = *next_of(picked);
    return picked;
}

static inline uint64_t quantum(void *state, struct raddle_policy_thread *running) {
    (void)state;
    return running->user[1] == 1 ? 1000000 : 0;
}

static const struct raddle_policy in_turn = {
    RADDLE_POLICY_VERSION, sizeof(struct raddle_policy), create, enqueue, pick, quantum, destroy};

static volatile long count; /* changed atomically */

static inline void *counts(void *argument) {
    for (int i = 0; i < 20; i++) {
        __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
        OK(raddle_yield());
    }
    sleep_ms(1);
    return argument;
}

#endif
