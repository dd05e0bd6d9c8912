/*
 * Jobs with a size run smallest first, by a policy of this program's own, on an engine beside the
 * others; together they use at most half a CPU.
 *
 *   cc engines.c $(pkg-config --cflags --libs raddle) -o engines && ./engines
 */
#include <errno.h>
#include <raddle_engine.h>
#include <raddle_policy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 5 };

/* Functions return negative errno values: this is how an error is reported. */
static int check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-result));
        exit(1);
    }
    return result;
}

/*
 * A list of the threads that can run, the smallest job first, equal ones as they came. The links
 * are in the threads' own words; a job's size is its deadline. What is here may call libc and lock,
 * as the list is the policy's own, and no two calls overlap.
 */
struct list {
    struct raddle_policy_thread *first;
};

static struct raddle_policy_thread **next_of(struct raddle_policy_thread *thread) {
    return (struct raddle_policy_thread **)&thread->user[0];
}

static void *create(void) { return calloc(1, sizeof(struct list)); }

static void enqueue(void *list, struct raddle_policy_thread *thread, uint32_t reason,
                    uint64_t now_ns) {
    struct raddle_policy_thread **at = &((struct list *)list)->first;
    (void)reason, (void)now_ns;
    while (*at != NULL && (*at)->deadline_ns <= thread->deadline_ns) at = next_of(*at);
    *next_of(thread) = *at;
    *at = thread;
}

static struct raddle_policy_thread *pick(void *list, uint64_t now_ns) {
    struct raddle_policy_thread **first = &((struct list *)list)->first, *picked = *first;
    (void)now_ns;
    *first = *next_of(picked);
    return picked;
}

static const struct raddle_policy smallest_first = {
    RADDLE_POLICY_VERSION, sizeof(struct raddle_policy), create, enqueue, pick, NULL, free};

static raddle_completion all_came;
static int done[JOBS], count;

static void *wait_for_all(void *argument) {
    check(raddle_completion_set(*(raddle_completion *)argument, NULL), "telling");
    while (raddle_completion_poll(all_came, NULL) == -EAGAIN) { /* keeps the only carrier */
    }
    return NULL;
}

static void *run_job(void *size) {
    done[count++] = (int)(intptr_t)size; /* the engine has one carrier */
    return NULL;
}

int main(void) {
    static const int sizes[JOBS] = {50, 10, 40, 20, 30};
    raddle_engine engine;
    raddle_engine_options options = RADDLE_ENGINE_OPTIONS_INIT;
    raddle_thread_options job = RADDLE_THREAD_OPTIONS_INIT;
    raddle_thread first, jobs[JOBS];
    raddle_completion begun;

    options.name = "jobs";
    options.policy_table = &smallest_first;
    options.carriers = 1;
    options.cpu_share = 50;
    check(raddle_engine_create(&engine, &options), "an engine");
    check(raddle_completion_create(&all_came), "a completion");
    check(raddle_completion_create(&begun), "a completion");
    job.engine = engine;
    check(raddle_spawn(&first, &job, wait_for_all, &begun), "a thread");
    check(raddle_completion_wait(begun, NULL), "waiting for its start");
    for (int i = 0; i < JOBS; i++) {
        job.deadline_ns = (uint64_t)sizes[i];
        check(raddle_spawn(&jobs[i], &job, run_job, (void *)(intptr_t)sizes[i]), "a job");
    }
    check(raddle_completion_set(all_came, NULL), "telling that all came");
    check(raddle_join(first, NULL), "joining");
    for (int i = 0; i < JOBS; i++) check(raddle_join(jobs[i], NULL), "joining");
    check(raddle_engine_shut_down(engine), "shutting down");
    check(raddle_engine_wait(engine, -1), "waiting for the engine");
    if (raddle_engine_failure(engine) != 0) fprintf(stderr, "the policy is wrong\n");
    check(raddle_engine_free(engine), "freeing");
    check(raddle_completion_free(begun), "freeing");
    check(raddle_completion_free(all_came), "freeing");
    printf("they ran in this order:");
    for (int i = 0; i < JOBS; i++) printf(" %d", done[i]);
    printf("\n");
    return 0;
}
