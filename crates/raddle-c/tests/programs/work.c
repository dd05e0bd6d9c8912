/* More of pools' work: options, ends, cancellation; and structs of other versions. */
#define _GNU_SOURCE
#include "check.h"
#include <raddle_engine.h>

/* A pool of one worker, which waits in `gate`, so that queued work stays queued. */
struct busy {
    raddle_pool pool;
    raddle_task holder;
    raddle_completion entered, gate;
};

static void *hold(void *argument) {
    struct busy *busy = argument;
    OK(raddle_completion_set(busy->entered, NULL));
    OK(raddle_completion_wait(busy->gate, NULL));
    return NULL;
}

static void make_busy(struct busy *busy, size_t capacity, int overflow) {
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.workers = options.max_workers = 1;
    options.capacity = capacity;
    options.overflow = overflow;
    options.flags = RADDLE_WAITS_ONLY;
    OK(raddle_pool_create(&busy->pool, &options));
    OK(raddle_completion_create(&busy->entered));
    OK(raddle_completion_create(&busy->gate));
    OK(raddle_pool_task(busy->pool, &busy->holder, hold, busy));
    OK(raddle_completion_wait(busy->entered, NULL));
}

static void let_go(struct busy *busy) {
    OK(raddle_completion_set(busy->gate, NULL));
    OK(raddle_task_wait(busy->holder, NULL));
}

static void *same(void *argument) { return argument; }

/* A listener's arguments, by a completion. */
struct told {
    raddle_completion done;
    int status, calls;
    void *value;
};

static void is_told(void *argument, int status, void *value) {
    struct told *told = argument;
    told->status = status;
    told->value = value;
    IS(__atomic_add_fetch(&told->calls, 1, __ATOMIC_SEQ_CST), 1);
    OK(raddle_completion_set(told->done, NULL));
}

static void await_told(struct told *told) {
    OK(raddle_completion_wait(told->done, NULL));
    OK(raddle_completion_free(told->done));
}

static void one_request_cancels_many_tasks(void) {
    struct busy busy;
    raddle_cancel cancel, other;
    raddle_task tasks[3], task = {7};
    raddle_work_options options = RADDLE_WORK_OPTIONS_INIT;
    make_busy(&busy, 0, 0);
    OK(raddle_cancel_create(&cancel));
    OK(raddle_cancel_create(&other));
    options.cancel = cancel;
    for (int i = 0; i < 2; i++)
        OK(raddle_pool_submit(busy.pool, &options, &tasks[i], same, number(i)));
    options.cancel = other;
    options.priority = RADDLE_HIGH;
    OK(raddle_pool_submit(busy.pool, &options, &tasks[2], same, number(2)));
    IS(raddle_cancel_is_requested(cancel), 0);
    OK(raddle_cancel_request(cancel));
    IS(raddle_cancel_request(cancel), -EALREADY);
    IS(raddle_cancel_is_requested(cancel), 1);
    for (int i = 0; i < 2; i++) {
        IS(raddle_task_is_cancelled(tasks[i]), 1);
        IS(raddle_task_is_done(tasks[i]), 1);
        IS(raddle_task_wait(tasks[i], NULL), -ECANCELED);
    }
    options.cancel = cancel;
    IS(raddle_pool_submit(busy.pool, &options, &task, same, NULL), -ECANCELED);
    IS(task.id, 0);
    IS(raddle_pool_submit(busy.pool, &options, NULL, same, NULL), -ECANCELED);
    OK(raddle_cancel_free(cancel));
    IS(raddle_pool_submit(busy.pool, &options, &task, same, NULL), -EBADF);
    IS(raddle_cancel_request(cancel), -EBADF);
    OK(raddle_cancel_free(other)); /* its task goes on */
    IS(raddle_task_is_done(tasks[2]), 0);
    let_go(&busy);
    OK(raddle_task_wait(tasks[2], NULL));
    OK(raddle_pool_dispose(busy.pool, 0, -1));
}

static void *requests(void *argument) {
    sleep_ms(5);
    OK(raddle_cancel_request(*(raddle_cancel *)argument));
    return NULL;
}

static void requests_are_waited_for_and_heard_of(void) {
    raddle_cancel cancel;
    raddle_thread thread;
    struct told told[2] = {{{0}, 0, 0, NULL}, {{0}, 0, 0, NULL}};
    OK(raddle_cancel_create(&cancel));
    for (int i = 0; i < 2; i++) OK(raddle_completion_create(&told[i].done));
    OK(raddle_cancel_then(cancel, is_told, &told[0]));
    IS(raddle_cancel_wait_for(cancel, 0), -ETIMEDOUT);
    IS(raddle_cancel_wait_for(cancel, 1000000), -ETIMEDOUT);
    IS(raddle_cancel_wait_for(cancel, -1), -EINVAL);
    OK(raddle_spawn(&thread, NULL, requests, &cancel));
    OK(raddle_cancel_wait_for(cancel, INT64_MAX));
    OK(raddle_join(thread, NULL));
    OK(raddle_cancel_then(cancel, is_told, &told[1]));
    for (int i = 0; i < 2; i++) {
        await_told(&told[i]);
        IS(told[i].status, -ECANCELED);
    }
    IS(raddle_cancel_then(cancel, NULL, NULL), -EFAULT);
    OK(raddle_cancel_free(cancel));
    IS(raddle_cancel_free(cancel), -EBADF);
    IS(raddle_cancel_wait_for(cancel, 0), -EBADF);
    IS(raddle_cancel_then(cancel, is_told, NULL), -EBADF);
    IS(raddle_cancel_is_requested(cancel), -EBADF);
    IS(raddle_cancel_create(NULL), -EFAULT);
}

static void tasks_tell_of_their_ends(void) {
    struct busy busy;
    raddle_task task;
    struct told told[3] = {{{0}, 0, 0, NULL}, {{0}, 0, 0, NULL}, {{0}, 0, 0, NULL}};
    make_busy(&busy, 0, 0);
    for (int i = 0; i < 3; i++) {
        OK(raddle_completion_create(&told[i].done));
        OK(raddle_pool_submit(busy.pool, NULL, &task, same, number(40 + i)));
        if (i == 1) OK(raddle_task_cancel(task));
        IS(raddle_task_then(task, NULL, NULL), -EFAULT);
        OK(raddle_task_then(task, is_told, &told[i]));
        IS(raddle_task_then(task, is_told, &told[i]), -EBADF);
    }
    raddle_task last;
    OK(raddle_pool_task(busy.pool, &last, same, NULL));
    OK(raddle_completion_set(busy.gate, NULL));
    for (int i = 0; i < 2; i++) await_told(&told[i]);
    IS(told[0].status, 0);
    IS((intptr_t)told[0].value, 40);
    IS(told[1].status, -ECANCELED);
    IS(told[1].value == NULL, 1);
    await_told(&told[2]);
    OK(raddle_task_wait(last, NULL));
    OK(raddle_task_wait(busy.holder, NULL));
    OK(raddle_pool_dispose(busy.pool, 0, -1));
}

static void who_hears_of_a_task_hears_of_its_pools_end(void) {
    struct busy busy;
    raddle_task task;
    struct told told = {{0}, 0, 0, NULL};
    make_busy(&busy, 0, 0);
    OK(raddle_completion_create(&told.done));
    OK(raddle_pool_task(busy.pool, &task, same, NULL));
    OK(raddle_task_then(task, is_told, &told));
    IS(raddle_pool_dispose(busy.pool, RADDLE_DROP_PENDING, 0), 1);
    await_told(&told);
    IS(told.status, -ECANCELED);
    let_go(&busy);
}

static raddle_task own;

/* Runs on the queueing thread, and finds its task. */
static void *asks_for_its_task(void *argument) {
    IS(own.id != 0, 1);
    IS(raddle_task_is_done(own), -EDEADLK);
    IS(raddle_task_wait(own, NULL), -EDEADLK);
    IS(raddle_task_wait_for(own, 1000000, NULL), -EDEADLK);
    IS(raddle_task_then(own, is_told, NULL), -EDEADLK);
    IS(raddle_task_free(own), -EDEADLK);
    IS(raddle_task_is_cancelled(own), 0);
    OK(raddle_task_cancel(own));
    IS(raddle_task_is_cancelled(own), 1);
    return argument;
}

static void work_that_its_queuer_runs_may_ask_for_its_task(void) {
    struct busy busy;
    void *result;
    make_busy(&busy, 1, RADDLE_CALLER_RUNS);
    OK(raddle_pool_queue(busy.pool, same, NULL));
    OK(raddle_pool_task(busy.pool, &own, asks_for_its_task, number(6)));
    IS(raddle_task_is_done(own), 1);
    OK(raddle_task_wait(own, &result));
    IS((intptr_t)result, 6);
    let_go(&busy);
    OK(raddle_pool_dispose(busy.pool, 0, -1));
}

static void *pool_of_this(void *argument) {
    *(raddle_pool *)argument = raddle_pool_self();
    return NULL;
}

static void workers_know_their_pool(void) {
    raddle_pool pools[2], seen;
    raddle_task task;
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.flags = RADDLE_WAITS_ONLY;
    OK(raddle_pool_create(&pools[0], &options));
    OK(raddle_pool_create(&pools[1], NULL));
    IS(raddle_pool_self().id, 0);
    for (int i = 0; i < 2; i++) {
        OK(raddle_pool_task(pools[i], &task, pool_of_this, &seen));
        OK(raddle_task_wait_for(task, INT64_MAX, NULL));
        IS(seen.id, pools[i].id);
    }
    for (int i = 0; i < 2; i++) OK(raddle_pool_dispose(pools[i], 0, -1));
}

static int ran;

static void *add_one(void *argument) {
    __atomic_add_fetch(&ran, 1, __ATOMIC_SEQ_CST);
    return argument;
}

/* The pool's own work disposes of it: waiting work runs. */
static void *disposes(void *argument) {
    raddle_pool pool = raddle_pool_self();
    for (int i = 0; i < 50; i++) OK(raddle_pool_queue(pool, add_one, NULL));
    int running = raddle_pool_dispose(pool, 0, 0);
    IS(running >= 1, 1);
    IS(raddle_pool_queue(pool, add_one, NULL), -EBADF);
    OK(raddle_completion_set(*(raddle_completion *)argument, NULL));
    return NULL;
}

static void stops(void *argument, size_t worker) {
    (void)worker;
    __atomic_sub_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
}

static void starts(void *argument, size_t worker) {
    (void)worker;
    __atomic_add_fetch((int *)argument, 1, __ATOMIC_SEQ_CST);
}

static void a_pool_may_be_disposed_of_by_its_own_work(void) {
    raddle_pool pool;
    raddle_completion done;
    int workers = 0;
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.workers = 2;
    options.on_start = starts;
    options.on_stop = stops;
    options.hook_argument = &workers;
    OK(raddle_completion_create(&done));
    OK(raddle_pool_create(&pool, &options));
    OK(raddle_pool_queue(pool, disposes, &done));
    OK(raddle_completion_wait(done, NULL));
    while (__atomic_load_n(&workers, __ATOMIC_SEQ_CST) != 0) sleep_ms(1);
    IS(ran, 50);
    OK(raddle_completion_free(done));
}

static void structs_may_be_of_other_versions(void) {
    raddle_pool pool, other;
    raddle_engine engine;
    union {
        raddle_pool_counters counters;
        raddle_engine_counters of_engine;
        raddle_thread_options options;
        size_t size;
        uint64_t words[600];
    } room;
    OK(raddle_pool_create(&pool, NULL));
    /* Of an earlier version: no more than it has room for. */
    for (size_t size = 16; size < sizeof(raddle_pool_counters) + 24; size += 4) {
        for (int i = 0; i < 600; i++) room.words[i] = 0x5555;
        room.size = size;
        OK(raddle_pool_count(pool, &room.counters));
        IS(room.size, size);
        for (size_t i = 1; i < 600; i++) IS(room.words[i] == 0x5555, i >= size / 8);
    }
    for (int i = 0; i < 600; i++) room.words[i] = 0x5555;
    size_t wrong[] = {0, 1, 8, 15};
    for (int i = 0; i < 4; i++) {
        room.size = wrong[i];
        IS(raddle_pool_count(pool, &room.counters), -EINVAL);
    }
    size_t garbage[] = {4097, 0x5555555555555555, SIZE_MAX};
    for (int i = 0; i < 3; i++) {
        room.size = garbage[i];
        IS(raddle_pool_count(pool, &room.counters), -E2BIG);
        IS(raddle_spawn(NULL, &room.options, same, NULL), -E2BIG);
        IS(raddle_pool_create(&other, (raddle_pool_options *)&room), -E2BIG);
        IS(raddle_pool_submit(pool, (raddle_work_options *)&room, NULL, same, NULL), -E2BIG);
        IS(raddle_engine_create(&engine, (raddle_engine_options *)&room), -E2BIG);
    }
    OK(raddle_pool_dispose(pool, 0, -1));
    if (raddle_status() != RADDLE_GREEN) return; /* there are no engines */
    OK(raddle_engine_create(&engine, NULL));
    room.size = 16;
    room.words[2] = 0x5555;
    OK(raddle_engine_count(engine, &room.of_engine));
    IS(room.of_engine.threads, 0);
    IS(room.words[2], 0x5555);
    room.size = 8;
    IS(raddle_engine_count(engine, &room.of_engine), -EINVAL);
    room.size = SIZE_MAX;
    IS(raddle_engine_count(engine, &room.of_engine), -E2BIG);
    OK(raddle_engine_free(engine));
}

static void work_options_are_checked(void) {
    raddle_pool pool;
    raddle_task task;
    raddle_work_options options = RADDLE_WORK_OPTIONS_INIT;
    OK(raddle_pool_create(&pool, NULL));
    options.priority = 2;
    IS(raddle_pool_submit(pool, &options, &task, same, NULL), -EINVAL);
    options.priority = 0;
    options.reserved = 1;
    IS(raddle_pool_submit(pool, &options, &task, same, NULL), -EINVAL);
    options.reserved = 0;
    options.size = 8;
    IS(raddle_pool_submit(pool, &options, &task, same, NULL), -EINVAL);
    options.size = sizeof options;
    options.cancel.id = 5;
    IS(raddle_pool_submit(pool, &options, &task, same, NULL), -EBADF);
    options.cancel.id = 0;
    IS(raddle_pool_submit(pool, &options, &task, NULL, NULL), -EFAULT);
    OK(raddle_pool_submit(pool, &options, NULL, same, NULL));
    OK(raddle_pool_submit(pool, &options, &task, same, NULL));
    OK(raddle_task_wait(task, NULL));
    OK(raddle_pool_dispose(pool, 0, -1));
    IS(raddle_pool_submit(pool, NULL, NULL, same, NULL), -EBADF);
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"one_request_cancels_many_tasks", one_request_cancels_many_tasks},
        {"requests_are_waited_for_and_heard_of", requests_are_waited_for_and_heard_of},
        {"tasks_tell_of_their_ends", tasks_tell_of_their_ends},
        {"who_hears_of_a_task_hears_of_its_pools_end", who_hears_of_a_task_hears_of_its_pools_end},
        {"work_that_its_queuer_runs_may_ask_for_its_task",
         work_that_its_queuer_runs_may_ask_for_its_task},
        {"workers_know_their_pool", workers_know_their_pool},
        {"a_pool_may_be_disposed_of_by_its_own_work", a_pool_may_be_disposed_of_by_its_own_work},
        {"structs_may_be_of_other_versions", structs_may_be_of_other_versions},
        {"work_options_are_checked", work_options_are_checked},
    };
    (void)count;
    return RUN_CASES(cases, arguments);
}
