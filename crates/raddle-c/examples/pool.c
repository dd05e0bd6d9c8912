/*
 * A pool sums numbers: a range in parallel, tasks with results, and a clock that ticks meanwhile.
 *
 *   cc pool.c $(pkg-config --cflags --libs raddle) -o pool && ./pool
 */
#include <raddle.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 1000000, TASKS = 10 };

static uint32_t numbers[NUMBERS];

/* Functions return negative errno values: this is how an error is reported. */
static int check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-result));
        exit(1);
    }
    return result;
}

static void fill(void *argument, size_t begin, size_t end) {
    uint32_t *all = argument;
    for (size_t at = begin; at < end; at++) all[at] = (uint32_t)at % 10;
}

static void *sum(void *argument) {
    const uint32_t *part = argument;
    uintptr_t total = 0;
    for (size_t at = 0; at < NUMBERS / TASKS; at++) total += part[at];
    return (void *)total;
}

static void *tick(void *completion) {
    raddle_completion_set(*(raddle_completion *)completion, NULL); /* later ones are refused */
    return NULL;
}

int main(void) {
    raddle_pool pool;
    raddle_pool_options options = RADDLE_POOL_OPTIONS_INIT;
    options.name = "sums";
    options.capacity = 1000;
    options.overflow = RADDLE_BLOCK;
    check(raddle_pool_create(&pool, &options), "creating a pool");

    raddle_completion ticked;
    raddle_watch clock;
    check(raddle_completion_create(&ticked), "creating a completion");
    check(raddle_pool_every(pool, 1000000, tick, &ticked, &clock), "starting a clock");

    check(raddle_pool_for(pool, 0, NUMBERS, 0, fill, numbers), "filling");
    raddle_task tasks[TASKS];
    for (int i = 0; i < TASKS; i++) {
        uint32_t *part = numbers + i * (NUMBERS / TASKS);
        check(raddle_pool_task_at(pool, RADDLE_HIGH, &tasks[i], sum, part), "queueing");
    }
    uintptr_t total = 0;
    for (int i = 0; i < TASKS; i++) {
        void *result;
        check(raddle_task_wait(tasks[i], &result), "waiting for a task");
        total += (uintptr_t)result;
    }
    check(raddle_completion_wait(ticked, NULL), "waiting for the clock");
    check(raddle_watch_cancel(clock), "stopping the clock");

    raddle_pool_counters counters = {0};
    counters.size = sizeof counters;
    check(raddle_pool_count(pool, &counters), "counting");
    check(raddle_pool_dispose(pool, 0, -1), "disposing");
    check(raddle_completion_free(ticked), "freeing");
    printf("sum %ju, %s\n", (uintmax_t)total, counters.workers > 0 ? "by workers" : "by nobody");
    return 0;
}
