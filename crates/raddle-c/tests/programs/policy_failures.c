/* Policies of engines that fail. */
#define _GNU_SOURCE
#include "engines.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static struct raddle_policy_thread *picks_garbage(struct queue *queue) {
    return (void *)&queue->first->user[1];
}

static struct raddle_policy_thread *picks_one_twice(struct queue *queue) {
    static struct raddle_policy_thread copy;
    copy = *queue->first;
    return &copy;
}

static struct raddle_policy_thread *picks_nothing(struct queue *queue) {
    (void)queue;
    return NULL;
}

static struct raddle_policy_thread *computes_for_ever(struct queue *queue) {
    for (volatile long i = 0;; i = i + 1) {
    }
    return queue->first;
}

static struct raddle_policy_thread *blocks(struct queue *queue) {
    sleep_ms(3000);
    return queue->first; /* the answer is not used any more */
}

/* A policy that does this at its twentieth pick fails, this is reported, and no thread is lost. */
static void fails(struct raddle_policy_thread *(*act)(struct queue *), int failure,
                  const char *said) {
    char text[300] = "";
    int saved = dup(2), ends[2], died_before = died;
    ssize_t length;
    wrong = act;
    for (uint32_t carriers = 1; carriers <= 2; carriers++) {
        raddle_thread threads[20];
        raddle_engine_options options = plain;
        options.name = "wrong";
        options.carriers = carriers;
        options.policy_table = &in_turn;
        OK(pipe(ends));
        IS(dup2(ends[1], 2), 2);
        raddle_engine engine = engine_of(options);
        for (int i = 0; i < 20; i++) threads[i] = start(engine, 0, 0, counts, NULL);
        for (int i = 0; i < 20; i++) join(threads[i]);
        int found = raddle_engine_failure(engine);
        OK(raddle_engine_wait(engine, -1));
        OK(raddle_engine_free(engine));
        IS(dup2(saved, 2), 2);
        close(ends[1]); /* a line that is missing ends the read */
        length = read(ends[0], text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        close(ends[0]);
        IS(found, failure);
        if (strstr(text, "policy of engine \"wrong\"") == NULL || strstr(text, said) == NULL) {
            fprintf(stderr, "it said: %s\n", text);
            exit(1);
        }
    }
    IS(count, 2 * 20 * 20);
    if (failure == RADDLE_STUCK) return; /* it may be in the call still */
    for (int i = 0; i < 1000 && died - died_before < 2; i++) sleep_ms(10);
    IS(died - died_before, 2);
}

static void garbage_ends_a_policy(void) {
    fails(picks_garbage, RADDLE_PICKED_GARBAGE, "picked a thread that is not its own");
}

static void copies_of_threads_end_a_policy(void) {
    fails(picks_one_twice, RADDLE_PICKED_GARBAGE, "picked a thread that is not its own");
}

static void picking_nothing_ends_a_policy(void) {
    fails(picks_nothing, RADDLE_PICKED_NOTHING, "picked nothing while threads waited");
}

static void computing_for_ever_ends_a_policy(void) {
    fails(computes_for_ever, RADDLE_STUCK, "did not return from a call");
}

static void blocking_ends_a_policy(void) {
    fails(blocks, RADDLE_STUCK, "did not return from a call");
}

static int report[2]; /* a pipe that is full at first */
static volatile int has_room;

static void *makes_room(void *argument) {
    char text[512];
    sleep_ms(2000); /* the policy is given up after one second */
    has_room = 1;
    while (read(report[0], text, sizeof text) > 0) {
    }
    return argument;
}

static void a_failure_is_seen_after_its_report(void) {
    static const char filling[4096];
    raddle_engine_options options = plain;
    pthread_t reader;
    int saved = dup(2);
    wrong = computes_for_ever;
    options.name = "wrong";
    options.carriers = 2;
    options.policy_table = &in_turn;
    OK(pipe(report));
    IS(fcntl(report[1], F_SETPIPE_SZ, sizeof filling), sizeof filling);
    IS(write(report[1], filling, sizeof filling), sizeof filling);
    IS(dup2(report[1], 2), 2);
    OK(pthread_create(&reader, NULL, makes_room, NULL));
    raddle_engine engine = engine_of(options);
    for (int i = 0; i < 20; i++) OK(raddle_detach(start(engine, 0, 0, counts, NULL)));
    while (raddle_engine_failure(engine) == 0) sleep_ms(10);
    int could_report = has_room;
    IS(dup2(saved, 2), 2);
    close(report[1]);
    OK(pthread_join(reader, NULL));
    IS(could_report, 1);
}

int main(int argc, char **arguments) {
    static const struct test_case cases[] = {
        {"garbage_ends_a_policy", garbage_ends_a_policy},
        {"copies_of_threads_end_a_policy", copies_of_threads_end_a_policy},
        {"picking_nothing_ends_a_policy", picking_nothing_ends_a_policy},
        {"computing_for_ever_ends_a_policy", computing_for_ever_ends_a_policy},
        {"blocking_ends_a_policy", blocking_ends_a_policy},
        {"a_failure_is_seen_after_its_report", a_failure_is_seen_after_its_report},
    };
    (void)argc;
    return RUN_CASES(cases, arguments);
}
