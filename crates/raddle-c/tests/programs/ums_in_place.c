/* Schedulers with workers that decide in their place, and light workers. */
#define _GNU_SOURCE
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <raddle_ums.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 8, TURNS = 200, STACK = 32 << 10 };

/* State of several schedulers: claimed workers, and how many haven't ended. */
struct shared {
    raddle_ums_list *list;
    pthread_mutex_t lock;
    raddle_ums_context *ready[WORKERS];
    int first, count, left;
    int starts, yields, blocked, locked;
    uintptr_t sum;
};

static __thread int own_word;
static pthread_t main_threads[WORKERS];

static void push(struct shared *shared, raddle_ums_context *context) {
    OK(pthread_mutex_lock(&shared->lock));
    IS(shared->count < WORKERS, 1);
    shared->ready[(shared->first + shared->count++) % WORKERS] = context;
    OK(pthread_mutex_unlock(&shared->lock));
}

static raddle_ums_context *pop(struct shared *shared) {
    raddle_ums_context *context = NULL;
    OK(pthread_mutex_lock(&shared->lock));
    if (shared->count > 0) {
        context = shared->ready[shared->first];
        shared->first = (shared->first + 1) % WORKERS;
        shared->count--;
    }
    OK(pthread_mutex_unlock(&shared->lock));
    return context;
}

static void take(struct shared *shared, int wait_ms) {
    raddle_ums_context *item, *after;
    if (raddle_ums_dequeue(shared->list, wait_ms, &item) != 0) return;
    for (; item != NULL; item = after) {
        uintptr_t has_ended;
        after = raddle_ums_next_item(item);
        OK(raddle_ums_query(item, RADDLE_UMS_HAS_ENDED, &has_ended));
        if (has_ended) {
            IS(raddle_ums_claim(item), -EINVAL);
            __sync_fetch_and_sub(&shared->left, 1);
        } else {
            OK(raddle_ums_claim(item));
            IS(raddle_ums_claim(item), -EBUSY);
            push(shared, item);
        }
    }
}

static raddle_ums_context *decide(void *argument, int reason, uintptr_t payload, void *parameter) {
    struct shared *shared = argument;
    switch (reason) {
    case RADDLE_UMS_STARTUP:
        __sync_fetch_and_add(&shared->starts, 1);
        break;
    case RADDLE_UMS_YIELD:
        __sync_fetch_and_add(&shared->yields, 1);
        __sync_fetch_and_add(&shared->sum, (uintptr_t)parameter);
        push(shared, (raddle_ums_context *)payload);
        break;
    case RADDLE_UMS_LOCKED:
        __sync_fetch_and_add(&shared->locked, 1);
        push(shared, (raddle_ums_context *)payload);
        sched_yield();
        break;
    default:
        IS(reason, RADDLE_UMS_BLOCKED);
        IS(payload == RADDLE_UMS_BY_CALL || payload == RADDLE_UMS_BY_KERNEL ||
               payload == RADDLE_UMS_BY_END, 1);
        __sync_fetch_and_add(&shared->blocked, 1);
    }
    for (;;) {
        take(shared, 0);
        raddle_ums_context *next = pop(shared);
        if (next != NULL) return next;
        if (__sync_fetch_and_add(&shared->left, 0) == 0) return NULL;
        take(shared, 2);
    }
}

static void *schedule(void *argument) {
    OK(raddle_ums_enter_in_place(decide, argument));
    return NULL;
}

static void run(struct shared *shared, int schedulers) {
    raddle_thread threads[2];
    for (int i = 0; i < schedulers; i++) OK(raddle_spawn(&threads[i], NULL, schedule, shared));
    for (int i = 0; i < schedulers; i++) OK(raddle_join(threads[i], NULL));
    IS(shared->starts, schedulers);
    IS(shared->left, 0);
}

static struct shared new_shared(int left) {
    struct shared shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .left = left};
    OK(raddle_ums_list_create(&shared.list));
    return shared;
}

static void *yields(void *argument) {
    own_word = (int)(intptr_t)argument;
    for (int i = 0; i < TURNS; i++) {
        OK(raddle_ums_yield(argument));
        IS(own_word, (intptr_t)argument);
        if (i % 50 == 49) usleep(10);
    }
    return argument;
}

static void workers_that_yield_decide(void) {
    for (int schedulers = 1; schedulers <= 2; schedulers++) {
        struct shared shared = new_shared(WORKERS);
        raddle_ums_context *contexts[WORKERS];
        for (intptr_t i = 0; i < WORKERS; i++) {
            OK(raddle_ums_context_create(shared.list, &contexts[i]));
            OK(raddle_ums_thread_create(&main_threads[i], NULL, contexts[i], yields, (void *)i));
        }
        run(&shared, schedulers);
        IS(shared.yields, WORKERS * TURNS);
        IS(shared.sum, TURNS * WORKERS * (WORKERS - 1) / 2);
        IS(shared.blocked > 0, 1);
        for (intptr_t i = 0; i < WORKERS; i++) {
            void *result;
            OK(pthread_join(main_threads[i], &result));
            IS((intptr_t)result, i);
            OK(raddle_ums_context_delete(contexts[i]));
        }
        raddle_ums_list_delete(shared.list);
    }
}

static int lights_done;

static void light_yields(void *argument) {
    intptr_t me = (intptr_t)argument;
    uintptr_t id = 7, pthread = 7;
    for (int i = 0; i < TURNS; i++) {
        OK(raddle_ums_yield(argument));
        if ((i + me) % 50 == 49) {
            own_word = (int)me;
            usleep(10);
            IS(own_word, me); /* it keeps its thread while it is blocked */
        }
    }
    OK(raddle_ums_query(raddle_ums_current(), RADDLE_UMS_THREAD_ID, &id));
    OK(raddle_ums_query(raddle_ums_current(), RADDLE_UMS_PTHREAD, &pthread));
    IS(id, 0);
    IS(pthread, 0);
    IS(raddle_ums_query(raddle_ums_current(), RADDLE_UMS_NICENESS, &id), -ESRCH);
    __sync_fetch_and_add(&lights_done, 1);
}

static void light_workers_yield_and_block(void) {
    for (int schedulers = 1; schedulers <= 2; schedulers++) {
        struct shared shared = new_shared(WORKERS);
        raddle_ums_context *contexts[WORKERS];
        lights_done = 0;
        for (intptr_t i = 0; i < WORKERS; i++) {
            OK(raddle_ums_context_create(shared.list, &contexts[i]));
            OK(raddle_ums_light_create(contexts[i], STACK, light_yields, (void *)i));
            IS(raddle_ums_light_create(contexts[i], STACK, light_yields, NULL), -EBUSY);
            IS(raddle_ums_context_delete(contexts[i]), -EBUSY);
        }
        run(&shared, schedulers);
        IS(shared.yields, WORKERS * TURNS);
        IS(lights_done, WORKERS);
        for (int i = 0; i < WORKERS; i++) OK(raddle_ums_context_delete(contexts[i]));
        raddle_ums_list_delete(shared.list);
    }
}

static void *asks_of_itself(void *argument) {
    raddle_ums_context *me = raddle_ums_current();
    uintptr_t value, mask;
    OK(raddle_ums_query(me, RADDLE_UMS_PTHREAD, &value));
    IS(value, (uintptr_t)pthread_self());
    OK(raddle_ums_query(me, RADDLE_UMS_NICENESS, &value));
    OK(raddle_ums_set(me, RADDLE_UMS_NICENESS, value + 1));
    OK(raddle_ums_query(me, RADDLE_UMS_NICENESS, &mask));
    IS(mask, value + 1);
    OK(raddle_ums_query(me, RADDLE_UMS_AFFINITY, &mask));
    IS(mask != 0, 1);
    OK(raddle_ums_set(me, RADDLE_UMS_AFFINITY, mask & -mask));
    OK(raddle_ums_query(me, RADDLE_UMS_AFFINITY, &value));
    IS(value, mask & -mask);
    IS(raddle_ums_set(me, RADDLE_UMS_AFFINITY, 0), -EINVAL);
    IS(raddle_ums_set(me, RADDLE_UMS_PTHREAD, 0), -EINVAL);
    return argument;
}

static void contexts_tell_of_their_threads(void) {
    struct shared shared = new_shared(1);
    raddle_ums_context *context;
    uintptr_t value;
    OK(raddle_ums_context_create(shared.list, &context));
    IS(raddle_ums_query(context, RADDLE_UMS_AFFINITY, &value), -ESRCH);
    OK(raddle_ums_thread_create(&main_threads[0], NULL, context, asks_of_itself, NULL));
    OK(raddle_ums_query(context, RADDLE_UMS_AFFINITY, &value)); /* though it hasn't run */
    OK(raddle_ums_query(context, RADDLE_UMS_PTHREAD, &value));
    IS(value, (uintptr_t)main_threads[0]);
    run(&shared, 1);
    OK(pthread_join(main_threads[0], NULL));
    IS(raddle_ums_set(context, RADDLE_UMS_NICENESS, 0), -ESRCH);
    OK(raddle_ums_context_delete(context));
    raddle_ums_list_delete(shared.list);
}

static raddle_ums_context *misuses(void *argument, int reason, uintptr_t payload,
                                   void *parameter) {
    raddle_ums_context *context = argument;
    (void)payload;
    (void)parameter;
    IS(reason, RADDLE_UMS_STARTUP);
    IS(raddle_ums_execute(context), -EPERM);
    OK(raddle_ums_claim(context));
    OK(raddle_ums_release(context));
    IS(raddle_ums_release(context), -EINVAL);
    return context; /* not claimed */
}

static raddle_ums_context *leaves(void *argument, int reason, uintptr_t payload, void *parameter) {
    (void)argument, (void)reason, (void)payload, (void)parameter;
    return NULL;
}

static void *tries(void *context) {
    IS(raddle_ums_enter_in_place(misuses, context), -EINVAL);
    OK(raddle_ums_enter_in_place(leaves, NULL));
    return NULL;
}

static void misuse_is_refused(void) {
    struct shared shared = new_shared(1);
    raddle_ums_context *context, *item;
    raddle_thread thread;
    OK(raddle_ums_context_create(shared.list, &context));
    IS(raddle_ums_light_create(context, STACK, NULL, NULL), -EFAULT);
    IS(raddle_ums_light_create(NULL, STACK, light_yields, NULL), -EFAULT);
    IS(raddle_ums_light_create(context, (size_t)1 << 40, light_yields, NULL), -ENOMEM);
    IS(raddle_ums_enter_in_place(NULL, NULL), -EFAULT);
    IS(raddle_ums_claim(NULL), -EFAULT);
    IS(raddle_ums_release(NULL), -EFAULT);
    IS(raddle_ums_claim(context), -EINVAL);
    OK(raddle_ums_light_create(context, STACK, light_yields, NULL));
    IS(raddle_ums_claim(context), -EINVAL); /* it is listed */
    OK(raddle_ums_dequeue(shared.list, 0, &item));
    IS(item == context, 1);
    OK(raddle_spawn(&thread, NULL, tries, context));
    OK(raddle_join(thread, NULL));
    OK(raddle_ums_claim(context));
    push(&shared, context);
    run(&shared, 1);
    OK(raddle_ums_context_delete(context));
    raddle_ums_list_delete(shared.list);
}

static const struct test_case cases[] = {
    {"workers_that_yield_decide", workers_that_yield_decide},
    {"light_workers_yield_and_block", light_workers_yield_and_block},
    {"contexts_tell_of_their_threads", contexts_tell_of_their_threads},
    {"misuse_is_refused", misuse_is_refused},
};

int main(int count, char **arguments) {
    (void)count;
    return RUN_CASES(cases, arguments);
}
