/* Scarce resources, and calls in the wrong place. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <raddle_engine.h>
#include <raddle_fiber.h>
#include <raddle_ums.h>
#include <unistd.h>

#define LIMIT 16

static char **own_arguments;

/* Makes this process one that may have few threads. */
static void have_few_threads(void) {
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (getenv("RADDLE_MAX_THREADS") != NULL) return;
    IS(length > 0, 1);
    program[length] = 0;
    setenv("RADDLE_MAX_THREADS", "16", 1);
    execv(program, own_arguments);
    IS(errno, 0);
}

static raddle_completion gate;

static void *waits_at_the_gate(void *argument) {
    OK(raddle_completion_wait(gate, NULL));
    return argument;
}

/* Starts threads until there is no more, LIMIT + 1 at most. */
static int hold(raddle_thread *threads) {
    /* Named ones: their places are free when they end. */
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    options.name = "held";
    OK(raddle_completion_create(&gate));
    for (int made = 0; made <= LIMIT; made++) {
        int status = raddle_spawn(&threads[made], &options, waits_at_the_gate, NULL);
        if (status < 0) {
            IS(status, -EAGAIN);
            IS(threads[made].id, 0);
            return made;
        }
    }
    return LIMIT + 1;
}

static void let_go(const raddle_thread *threads, int count) {
    OK(raddle_completion_set(gate, NULL));
    for (int i = 0; i < count; i++) OK(raddle_join(threads[i], NULL));
    OK(raddle_completion_free(gate));
}

static int ran;

static void *runs(void *argument) {
    __atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
    return argument;
}

static raddle_pool few;
static raddle_completion stolen;

static void *is_stolen(void *argument) {
    OK(raddle_completion_set(stolen, NULL));
    return argument;
}

/* Waits for work in its worker's own queue: another worker must take it there. */
static void *shares(void *argument) {
    (void)argument;
    OK(raddle_pool_queue(few, is_stolen, NULL));
    return number(raddle_completion_wait_for(stolen, 20000000000, NULL));
}

static void work_waits_for_a_thread(void) {
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    raddle_thread threads[LIMIT + 1];
    raddle_completion completion;
    raddle_task task;
    void *result;
    int count;
    have_few_threads();
    options.workers = options.max_workers = 2;
    options.flags = RADDLE_WAITS_ONLY;
    OK(raddle_pool_create(&few, &options));
    count = hold(threads);
    IS(count < LIMIT, 1);
    IS(raddle_pool_queue(few, runs, NULL), -EAGAIN);
    IS(raddle_pool_task(few, &task, runs, NULL), -EAGAIN);
    IS(task.id, 0);
    IS(raddle_run(&completion, NULL, runs, NULL), -EAGAIN);
    IS(completion.id, 0);
    IS(ran, 0);
    let_go(threads, count);
    /* A thread's place is free shortly after its join. */
    for (;;) {
        count = hold(threads);
        let_go(threads, count);
        if (count >= LIMIT / 2) break;
        sleep_ms(1);
    }
    OK(raddle_completion_create(&stolen));
    OK(raddle_pool_task(few, &task, shares, NULL));
    OK(raddle_task_wait(task, &result));
    IS((intptr_t)result, 0);
    OK(raddle_pool_dispose(few, 0, -1));
    IS(ran, 2); /* what was refused ran, but for what needed a thread of its own */
}

static raddle_task own_task;

static void *waits_for_itself(void *argument) {
    OK(raddle_completion_wait(stolen, NULL)); /* until own_task is known */
    IS(raddle_task_wait(own_task, NULL), -EDEADLK);
    IS(raddle_task_wait(own_task, NULL), -EBADF);
    OK(raddle_completion_set(*(raddle_completion *)argument, NULL));
    return argument;
}

static void a_task_does_not_wait_for_itself(void) {
    raddle_pool pool;
    raddle_completion done;
    OK(raddle_completion_create(&stolen));
    OK(raddle_completion_create(&done));
    OK(raddle_pool_create(&pool, NULL));
    OK(raddle_pool_task(pool, &own_task, waits_for_itself, &done));
    OK(raddle_completion_set(stolen, NULL));
    OK(raddle_completion_wait(done, NULL));
    OK(raddle_pool_dispose(pool, 0, -1));
}

static void *five(void *argument) {
    (void)argument;
    return number(5);
}

/* Functions for any thread, on one that this library didn't make. */
static void *is_no_thread_of_ours(void *argument) {
    raddle_thread_options light = RADDLE_THREAD_OPTIONS_INIT;
    raddle_thread thread;
    raddle_pool pool;
    raddle_task task;
    raddle_completion completion;
    raddle_table table;
    raddle_handle handle;
    void *value;
    IS(raddle_self().id, 0);
    IS(raddle_is_light(), 0);
    OK(raddle_yield());
    OK(raddle_sleep(1000));
    IS(raddle_park(), -EPERM);
    light.flags = RADDLE_LIGHT;
    OK(raddle_spawn(&thread, &light, five, NULL));
    OK(raddle_join(thread, &value));
    IS((intptr_t)value, 5);
    OK(raddle_run(&completion, NULL, five, NULL));
    OK(raddle_completion_wait(completion, &value));
    IS((intptr_t)value, 5);
    OK(raddle_completion_free(completion));
    OK(raddle_pool_create(&pool, NULL));
    OK(raddle_pool_task(pool, &task, five, NULL));
    OK(raddle_task_wait(task, &value));
    IS((intptr_t)value, 5);
    OK(raddle_pool_join(pool, five, NULL, &value, five, NULL, NULL));
    IS((intptr_t)value, 5);
    OK(raddle_pool_blocking(five, NULL, &value)); /* no worker: it is just called */
    IS((intptr_t)value, 5);
    OK(raddle_pool_dispose(pool, 0, -1));
    OK(raddle_table_create(&table, NULL));
    OK(raddle_handle_create(table, RADDLE_NORMAL, number(5), &handle));
    OK(raddle_handle_free(table, handle));
    OK(raddle_table_free(table));
    OK(raddle_on_kernel_thread(0, five, NULL, &value));
    IS((intptr_t)value, 5);
    /* Functions for other threads: this one is no fiber's thread, no worker and no scheduler. */
    IS(raddle_fiber_convert_back(), -EPERM);
    IS(raddle_fiber_current() == NULL, 1);
    return argument;
}

static void threads_of_others_may_use_all_that_is_for_any_thread(void) {
    pthread_t other;
    void *result;
    IS(pthread_create(&other, NULL, is_no_thread_of_ours, number(7)), 0);
    IS(pthread_join(other, &result), 0);
    IS((intptr_t)result, 7);
    is_no_thread_of_ours(NULL); /* the main thread */
}

static void stacks_too_small_are_refused(void) {
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    raddle_pool_options pool_options = RADDLE_POOL_OPTIONS_INIT;
    raddle_completion completion;
    raddle_thread thread;
    raddle_pool pool;
    options.stack_size = pool_options.stack_size = RADDLE_STACK_MIN - 1;
    for (int kind = 0; kind < 3; kind++) {
        static const uint32_t flags[] = {0, RADDLE_LIGHT, RADDLE_KERNEL_THREAD};
        options.flags = flags[kind];
        IS(raddle_spawn(&thread, &options, five, NULL), -EINVAL);
        IS(raddle_run(&completion, &options, five, NULL), -EINVAL);
    }
    IS(raddle_on_kernel_thread(RADDLE_STACK_MIN - 1, five, NULL, NULL), -EINVAL);
    IS(raddle_pool_create(&pool, &pool_options), -EINVAL);
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"work_waits_for_a_thread", work_waits_for_a_thread},
        {"a_task_does_not_wait_for_itself", a_task_does_not_wait_for_itself},
        {"threads_of_others_may_use_all_that_is_for_any_thread",
         threads_of_others_may_use_all_that_is_for_any_thread},
        {"stacks_too_small_are_refused", stacks_too_small_are_refused},
    };
    own_arguments = arguments;
    (void)count;
    return RUN_CASES(cases, arguments);
}
