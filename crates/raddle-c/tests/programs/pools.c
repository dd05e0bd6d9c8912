/* Thread pools. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static void *half(void *argument) { return number((intptr_t)argument / 2); }

static void pools_run_what_is_queued(void) {
    raddle_pool pool;
    raddle_task tasks[100];
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.workers = 3;
    options.name = "weavers";
    OK(raddle_pool_create(&pool, &options));
    for (int i = 0; i < 100; i++) OK(raddle_pool_task(pool, &tasks[i], half, number(2 * i)));
    for (int i = 0; i < 100; i++) OK(raddle_pool_queue(pool, half, NULL));
    for (int i = 0; i < 98; i++) {
        void *value;
        int limited = i % 2 && raddle_task_wait_for(tasks[i], 10000000000, &value) == 0;
        if (!limited) OK(raddle_task_wait(tasks[i], &value));
        IS((intptr_t)value, i);
        IS(raddle_task_wait(tasks[i], &value), -EBADF);
    }
    OK(raddle_task_free(tasks[98]));
    IS(raddle_task_free(tasks[98]), -EBADF);
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(raddle_pool_dispose(pool, 0, -1), -EBADF);
    IS(raddle_pool_queue(pool, half, NULL), -EBADF);
    OK(raddle_task_wait(tasks[99], NULL)); /* it ran before the pool's end */
}

static raddle_completion gate;

static long plus(long *at, long n) { return __atomic_add_fetch(at, n, __ATOMIC_SEQ_CST); }

static void until(long *value, long least) {
    for (int i = 0; plus(value, 0) < least; i++) {
        IS(i < 10000, 1);
        sleep_ms(1);
    }
}

/* Work that waits for the gate has begun. */
static long begun;

static void *blocks(void *argument) {
    (void)argument;
    plus(&begun, 1);
    OK(raddle_completion_wait(gate, NULL));
    return NULL;
}

static void *blocks_aloud(void *argument) {
    void *result;
    OK(raddle_pool_blocking(blocks, argument, &result));
    return result;
}

static void tasks_are_cancelled_and_dropped(void) {
    raddle_pool pool;
    raddle_task running, waiting[3];
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.workers = options.max_workers = 1;
    options.capacity = 3;
    OK(raddle_completion_create(&gate));
    OK(raddle_pool_create(&pool, &options));
    OK(raddle_pool_task(pool, &running, blocks_aloud, NULL));
    until(&begun, 1); /* it waits no more in the queue */
    IS(raddle_task_wait_for(running, 10000000, NULL), -ETIMEDOUT);
    for (int i = 0; i < 3; i++) OK(raddle_pool_task(pool, &waiting[i], half, number(i)));
    IS(raddle_pool_queue(pool, half, NULL), -ENOBUFS);
    OK(raddle_task_cancel(waiting[0]));
    IS(raddle_task_is_cancelled(waiting[0]), 1);
    IS(raddle_task_is_cancelled(waiting[1]), 0);
    IS(raddle_task_wait(waiting[0], NULL), -ECANCELED);
    IS(raddle_task_wait_for(waiting[1], 1000000, NULL), -ETIMEDOUT);
    IS(raddle_pool_dispose(pool, RADDLE_DROP_PENDING, 1000000), 1);
    IS(raddle_task_wait(waiting[1], NULL), -ECANCELED);
    IS(raddle_task_wait(waiting[2], NULL), -ECANCELED);
    OK(raddle_completion_set(gate, NULL));
    OK(raddle_task_wait(running, NULL));
    OK(raddle_completion_free(gate));
}

static void pools_refuse_bad_arguments(void) {
    raddle_pool pool, none = {0};
    raddle_task task = {0};
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    IS(raddle_pool_create(NULL, NULL), -EFAULT);
    options.size = 8;
    IS(raddle_pool_create(&pool, &options), -EINVAL);
    options.size = sizeof options;
    options.stack_size = 1;
    IS(raddle_pool_create(&pool, &options), -EINVAL);
    options.stack_size = 0;
    options.workers = 4;
    options.max_workers = 2;
    IS(raddle_pool_create(&pool, &options), -EINVAL);
    options.max_workers = 0;
    options.memory_reserve = 101;
    IS(raddle_pool_create(&pool, &options), -EINVAL);
    options.memory_reserve = 0;
    options.flags = ~RADDLE_WAITS_ONLY;
    IS(raddle_pool_create(&pool, &options), -EINVAL);
    OK(raddle_pool_create(&pool, NULL));
    IS(raddle_pool_queue(pool, NULL, NULL), -EFAULT);
    IS(raddle_pool_task(pool, NULL, half, NULL), -EFAULT);
    IS(raddle_pool_task(pool, &task, NULL, NULL), -EFAULT);
    IS(raddle_pool_dispose(pool, 2, 0), -EINVAL);
    IS(raddle_task_wait(task, NULL), -EBADF);
    IS(raddle_task_wait_for(task, -1, NULL), -EINVAL);
    IS(raddle_task_cancel(task), -EBADF);
    IS(raddle_task_is_cancelled(task), -EBADF);
    IS(raddle_task_free(task), -EBADF);
    IS(raddle_pool_queue(none, half, NULL), -EBADF);
    IS(raddle_pool_dispose(none, 0, 0), -EBADF);
    IS(raddle_pool_blocking(NULL, NULL, NULL), -EFAULT);
    OK(raddle_pool_dispose(pool, 0, -1));
}

/* Counts of hooks, timers and parts. */
static long counted;

static void count_worker(void *argument, size_t worker) {
    IS(worker, 0);
    plus(argument, 1);
}

static void *count_one(void *argument) {
    plus(argument, 1);
    return NULL;
}

static void count_part(void *argument, size_t begin, size_t end) {
    IS(end - begin <= 10 && begin < end, 1);
    plus(argument, (long)(end - begin));
}

static void *note(void *argument) {
    *(long *)argument = plus(&counted, 1);
    return NULL;
}

static void work_has_priorities_and_pools_count(void) {
    raddle_pool pool;
    raddle_task running, low, high;
    long low_at = 0, high_at = 0, usual_at = 0;
    static long workers, here;
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    raddle_pool_counters counters = {0};
    options.workers = options.max_workers = 1;
    options.capacity = 3;
    options.overflow = RADDLE_CALLER_RUNS;
    options.on_start = options.on_stop = count_worker;
    options.hook_argument = &workers;
    OK(raddle_completion_create(&gate));
    OK(raddle_pool_create(&pool, &options));
    OK(raddle_pool_task(pool, &running, blocks, NULL));
    until(&begun, 1); /* it waits no more in the queue */
    IS(raddle_task_wait_for(running, 10000000, NULL), -ETIMEDOUT);
    OK(raddle_pool_task_at(pool, RADDLE_LOW, &low, note, &low_at));
    OK(raddle_pool_queue_at(pool, RADDLE_USUAL, note, &usual_at));
    OK(raddle_pool_task_at(pool, RADDLE_HIGH, &high, note, &high_at));
    OK(raddle_pool_queue(pool, count_one, &here)); /* runs here: there is no room */
    IS(here, 1);
    IS(raddle_pool_queue_at(pool, 2, note, &low_at), -EINVAL);
    IS(raddle_pool_task_at(pool, -2, &low, note, &low_at), -EINVAL);
    IS(raddle_pool_count(pool, &counters), -EINVAL);
    IS(raddle_pool_count(pool, NULL), -EFAULT);
    counters.size = sizeof counters;
    OK(raddle_pool_count(pool, &counters));
    IS(counters.pending, 3);
    IS(counters.caller_ran, 1);
    IS(counters.workers, 1);
    OK(raddle_completion_set(gate, NULL));
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(high_at, 1);
    IS(usual_at, 2);
    IS(low_at, 3);
    IS(workers, 2); /* one worker's start and its end */
    OK(raddle_task_wait(running, NULL));
    OK(raddle_task_wait(low, NULL));
    OK(raddle_task_wait(high, NULL));
    OK(raddle_completion_free(gate));
}

static void pools_work_by_time_and_readiness(void) {
    raddle_pool pool;
    raddle_watch timer, ticks, readable, none = {0};
    int pipes[2];
    OK(raddle_pool_create(&pool, NULL));
    OK(raddle_pool_after(pool, 3600000000000, count_one, &counted, &timer));
    IS(raddle_watch_cancel(timer), 1);
    IS(raddle_watch_cancel(timer), -EBADF);
    OK(raddle_pool_after(pool, 1000000, count_one, &counted, NULL));
    until(&counted, 1);
    IS(counted, 1);
    OK(raddle_pool_every(pool, 1000000, count_one, &counted, &ticks));
    until(&counted, 4);
    IS(raddle_watch_cancel(ticks), 1);
    OK(pipe(pipes));
    counted = 0;
    OK(raddle_pool_when_ready(pool, pipes[0], RADDLE_READABLE, count_one, &counted, &readable));
    IS(write(pipes[1], "x", 1), 1);
    until(&counted, 1);
    IS(raddle_watch_cancel(readable), 0);
    IS(raddle_pool_when_ready(pool, pipes[0], 3, count_one, &counted, NULL), -EINVAL);
    IS(raddle_pool_when_ready(pool, -1, RADDLE_READABLE, count_one, &counted, NULL), -EBADF);
    IS(raddle_pool_every(pool, 0, count_one, &counted, NULL), -EINVAL);
    IS(raddle_pool_after(pool, 0, NULL, NULL, NULL), -EFAULT);
    IS(raddle_watch_cancel(none), -EBADF);
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(raddle_pool_after(pool, 0, count_one, &counted, NULL), -EBADF);
}

static void ranges_are_covered_once(void) {
    raddle_pool pool;
    OK(raddle_pool_create(&pool, NULL));
    OK(raddle_pool_for(pool, 5, 1005, 10, count_part, &counted));
    IS(counted, 1000);
    OK(raddle_pool_for(pool, 7, 7, 10, count_part, &counted));
    IS(counted, 1000);
    IS(raddle_pool_for(pool, 0, 1, 1, NULL, NULL), -EFAULT);
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(raddle_pool_for(pool, 0, 1, 1, count_part, &counted), -EBADF);
}

/* A range to sum: its first element, and the one behind its last. */
struct range {
    raddle_pool pool;
    intptr_t begin, end;
};

static void *sum(void *argument) {
    const struct range *range = argument;
    intptr_t middle = (range->begin + range->end) / 2;
    struct range low = {range->pool, range->begin, middle};
    struct range high = {range->pool, middle, range->end};
    void *first, *second;
    if (range->end - range->begin == 1) return number(range->begin);
    OK(raddle_pool_join(range->pool, sum, &low, &first, sum, &high, &second));
    return number((intptr_t)first + (intptr_t)second);
}

static raddle_completion arrived[2];

/* Ends when the other half has begun: the halves are on two workers. */
static void *meets(void *argument) {
    intptr_t own = (intptr_t)argument;
    OK(raddle_completion_set(arrived[own], NULL));
    OK(raddle_completion_wait(arrived[1 - own], NULL));
    return number(own + 5);
}

static void two_functions_are_joined(void) {
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    struct range range = {{0}, 0, 1000};
    void *first, *second;
    options.workers = 2;
    OK(raddle_pool_create(&range.pool, &options));
    for (int i = 0; i < 2; i++) OK(raddle_completion_create(&arrived[i]));
    OK(raddle_pool_join(range.pool, meets, number(0), &first, meets, number(1), &second));
    IS((intptr_t)first, 5);
    IS((intptr_t)second, 6);
    OK(raddle_pool_join(range.pool, half, number(8), NULL, half, number(4), NULL));
    IS((intptr_t)sum(&range), 499500);
    IS(raddle_pool_join(range.pool, NULL, NULL, NULL, half, NULL, NULL), -EFAULT);
    IS(raddle_pool_join(range.pool, half, NULL, NULL, NULL, NULL, NULL), -EFAULT);
    OK(raddle_pool_dispose(range.pool, 0, -1));
    IS(raddle_pool_join(range.pool, half, NULL, NULL, half, NULL, NULL), -EBADF);
}

/* Counts of the hooks: workers' starts and ends, and calls before and after work. */
static struct {
    int started, stopped, before, after;
} seen;

static int add_one(int *count) { return __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST); }

static void starts(void *argument, size_t worker) {
    IS(argument == &seen && worker < 3, 1);
    add_one(&seen.started);
}

static void stops(void *argument, size_t worker) {
    IS(argument == &seen && worker < 3, 1);
    add_one(&seen.stopped);
}

static void before(void *argument) {
    IS(argument == &seen, 1);
    add_one(&seen.before);
}

static void after(void *argument) {
    IS(argument == &seen, 1);
    add_one(&seen.after);
}

static pthread_t maker;

/* On its worker it ran after one hook and runs before the other. */
static void *is_between(void *argument) {
    (void)argument;
    int ended = __atomic_load_n(&seen.after, __ATOMIC_SEQ_CST); /* first: both only rise */
    IS(__atomic_load_n(&seen.before, __ATOMIC_SEQ_CST) > ended, 1);
    return number(!pthread_equal(pthread_self(), maker));
}

static void hooks_see_workers_and_work(void) {
    maker = pthread_self();
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    raddle_pool pool;
    raddle_task task;
    void *on_a_worker;
    options.workers = options.max_workers = 3;
    options.on_start = starts;
    options.on_stop = stops;
    options.before_work = before;
    options.after_work = after;
    options.hook_argument = &seen;
    options.tick_ns = 5000000;
    options.memory_reserve = 1;
    options.flags = RADDLE_WAITS_ONLY; /* tasks that ran here would be seen by no hook */
    OK(raddle_pool_create(&pool, &options));
    for (int i = 0; i < 100; i++) {
        OK(raddle_pool_task(pool, &task, is_between, NULL));
        OK(raddle_task_wait(task, &on_a_worker));
        IS((intptr_t)on_a_worker, 1);
        OK(raddle_pool_queue(pool, is_between, NULL));
    }
    raddle_pool_counters counters = RADDLE_POOL_COUNTERS_INIT;
    OK(raddle_pool_count(pool, &counters));
    IS(counters.inlined, 0);
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(seen.before, 200);
    IS(seen.after, 200);
    IS(seen.started >= 1 && seen.started <= 3, 1);
    IS(seen.stopped, seen.started);
}
int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"pools_run_what_is_queued", pools_run_what_is_queued},
        {"tasks_are_cancelled_and_dropped", tasks_are_cancelled_and_dropped},
        {"pools_refuse_bad_arguments", pools_refuse_bad_arguments},
        {"work_has_priorities_and_pools_count", work_has_priorities_and_pools_count},
        {"pools_work_by_time_and_readiness", pools_work_by_time_and_readiness},
        {"ranges_are_covered_once", ranges_are_covered_once},
        {"two_functions_are_joined", two_functions_are_joined},
        {"hooks_see_workers_and_work", hooks_see_workers_and_work},
    };
    (void)count;
    return RUN_CASES(cases, arguments);
}
