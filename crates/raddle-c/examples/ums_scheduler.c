/*
 * A scheduler of the program's own: three workers take turns in its order, and one of them waits
 * for the others in read(2), which lets the scheduler go on.
 *
 *   cc -pthread ums_scheduler.c $(pkg-config --cflags --libs raddle) -o ums_scheduler
 */
#include <errno.h>
#include <raddle_ums.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 3, TURNS = 4 };

static raddle_ums_list *list;
static raddle_ums_context *ready[WORKERS]; /* workers that can be executed, the next one first */
static int count, running = WORKERS;
static int turns_of[WORKERS];
static int pipe_ends[2];

/* Functions return negative errno values: this is how an error is reported. */
static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-result));
        exit(1);
    }
}

static void *work(void *argument) {
    int me = (int)(intptr_t)argument;
    char letter;
    if (me == 0 && read(pipe_ends[0], &letter, 1) != 1) exit(1); /* blocks until worker 2 writes */
    for (int turn = 0; turn < TURNS; turn++) {
        turns_of[me]++;
        check(raddle_ums_yield(argument), "a yield");
    }
    if (me == 2 && write(pipe_ends[1], "x", 1) != 1) exit(1);
    return NULL;
}

/* Takes the listed workers: new ones, ones that no longer block, and ones that have ended. */
static void take(int wait_ms) {
    raddle_ums_context *item, *next;
    if (raddle_ums_dequeue(list, wait_ms, &item) < 0) return; /* nothing in time */
    for (; item != NULL; item = next) {
        uintptr_t has_ended;
        next = raddle_ums_next_item(item);
        check(raddle_ums_query(item, RADDLE_UMS_HAS_ENDED, &has_ended), "a question");
        if (!has_ended) {
            ready[count++] = item;
        } else {
            running--;
            check(raddle_ums_context_delete(item), "deleting");
        }
    }
}

/* Starts anew each time a worker gives the thread back. It keeps nothing on its stack, and takes no
 * lock that a worker may hold. */
static void scheduler(int reason, uintptr_t payload, void *parameter) {
    (void)parameter;
    if (reason == RADDLE_UMS_YIELD) ready[count++] = (raddle_ums_context *)payload;
    /* A worker that is blocked or has ended comes back on the list. */
    while (running > 0) {
        take(count > 0 ? 0 : -1);
        if (count == 0) continue;
        raddle_ums_context *next = ready[0];
        memmove(ready, ready + 1, (size_t)--count * sizeof *ready);
        int error = raddle_ums_execute(next); /* returns only on an error */
        if (error != -EAGAIN) check(error, "executing");
        ready[count++] = next; /* its registers are still being saved: try again */
    }
}

static void *run_scheduler(void *argument) {
    check(raddle_ums_enter(scheduler, argument), "scheduling");
    return NULL;
}

int main(void) {
    pthread_t workers[WORKERS];
    raddle_thread thread;

    if (pipe(pipe_ends) != 0) exit(1);
    check(raddle_ums_list_create(&list), "a list");
    for (intptr_t i = 0; i < WORKERS; i++) {
        raddle_ums_context *context;
        check(raddle_ums_context_create(list, &context), "a context");
        check(raddle_ums_thread_create(&workers[i], NULL, context, work, (void *)i), "a worker");
    }
    check(raddle_spawn(&thread, NULL, run_scheduler, NULL), "a scheduler");
    check(raddle_join(thread, NULL), "joining");
    for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
    raddle_ums_list_delete(list);
    printf("%d workers, turns %d %d %d\n", WORKERS, turns_of[0], turns_of[1], turns_of[2]);
    return 0;
}
