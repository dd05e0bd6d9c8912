/* Engines and their policies. */
#define _GNU_SOURCE
#include "engines.h"
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <unistd.h>

static uint64_t threads_of(raddle_engine engine) {
    raddle_engine_counters counters = {0};
    counters.size = sizeof counters;
    OK(raddle_engine_count(engine, &counters));
    return counters.threads;
}

static void *is_green(void *argument) {
    (void)argument;
    return number(raddle_is_green());
}

/* The most important first, then the soonest; terms reach a policy of one's own. */
static struct raddle_policy_thread *pick_best(void *state, uint64_t now_ns) {
    struct queue *queue = state;
    struct raddle_policy_thread **best = &queue->first, **at, *picked;
    (void)now_ns;
    for (at = &queue->first; *at != NULL; at = next_of(*at))
        if ((*at)->priority > (*best)->priority) best = at;
    picked = *best;
    *best = *next_of(picked);
    for (queue->last = queue->first; queue->last && *next_of(queue->last);)
        queue->last = *next_of(queue->last);
    return picked;
}

static const struct raddle_policy best_first = {
    RADDLE_POLICY_VERSION, sizeof(struct raddle_policy), create, enqueue, pick_best, NULL, destroy};

static void engines_run_their_threads(void) {
    const char *policies[] = {NULL, "fifo", "lifo", "priority", "fair", "deadline"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        raddle_engine engine = one(policies[i], NULL);
        raddle_thread threads[50];
        raddle_engine_counters counters = {0};
        for (int j = 0; j < 50; j++) threads[j] = start(engine, 0, 0, is_green, NULL);
        for (int j = 0; j < 50; j++) {
            void *result;
            OK(raddle_join(threads[j], &result));
            IS((intptr_t)result, 1);
        }
        OK(raddle_engine_wait(engine, -1));
        counters.size = sizeof counters;
        OK(raddle_engine_count(engine, &counters));
        IS(counters.threads, 0);
        IS(counters.started, 50);
        IS(counters.cpu_ns > 0, 1);
        IS(raddle_engine_failure(engine), 0);
        OK(raddle_engine_free(engine));
    }
    raddle_engine engine;
    OK(raddle_engine_create(&engine, NULL));
    join(start(engine, 0, 0, nothing, NULL));
    OK(raddle_engine_free(engine));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long turn, order[8], ran;
static volatile int go, begun;

static void *takes_turns(void *argument) {
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&lock);
        while (turn % 3 != (intptr_t)argument) pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void threads_of_engines_wait_for_each_other(void) {
    raddle_engine a = one("fair", NULL), b = one(NULL, &in_turn);
    pthread_t kernel;
    raddle_thread in_a = start(a, 0, 0, takes_turns, number(0));
    raddle_thread in_b = start(b, 0, 0, takes_turns, number(1));
    OK(pthread_create(&kernel, NULL, takes_turns, number(2)));
    join(in_a);
    join(in_b);
    OK(pthread_join(kernel, NULL));
    IS(turn, 900);
    OK(raddle_engine_free(a));
    OK(raddle_engine_free(b));
}

static void *holds(void *argument) {
    begun = 1;
    while (!go) { /* the others come meanwhile */
    }
    return argument;
}

static void *notes(void *argument) {
    order[ran++] = (intptr_t)argument; /* one carrier, and no quantum ends so soon */
    return NULL;
}

/* Three threads that an engine's only carrier finds at once run in this order. With retries: a
 * preemption, or a thread that is made slowly, disturbs it. */
static void runs_in_order(raddle_engine engine, const uint32_t *priorities,
                          const uint64_t *deadlines, long a, long b, long c) {
    raddle_thread threads[3], holder;
    for (int attempt = 0; attempt < 100; attempt++) {
        go = begun = 0;
        ran = 0;
        holder = start(engine, 99, 1, holds, NULL);
        while (!begun) sched_yield();
        for (int i = 0; i < 3; i++)
            threads[i] = start(engine, priorities ? priorities[i] : 0,
                               deadlines ? deadlines[i] : 0, notes, number(i));
        go = 1;
        join(holder);
        for (int i = 0; i < 3; i++) join(threads[i]);
        if (order[0] == a && order[1] == b && order[2] == c) return;
    }
    fprintf(stderr, "never %ld %ld %ld, last %ld %ld %ld\n", a, b, c, order[0], order[1], order[2]);
    exit(1);
}

static void terms_reach_the_policies(void) {
    const uint32_t priorities[] = {1, 9, 5};
    const uint64_t deadlines[] = {0, 90000000, 30000000};
    OK(raddle_set_carriers(1));
    runs_in_order(one("priority", NULL), priorities, NULL, 1, 2, 0);
    runs_in_order(one("deadline", NULL), NULL, deadlines, 2, 1, 0);
    runs_in_order(one("lifo", NULL), NULL, NULL, 2, 1, 0);
    runs_in_order(one("fifo", NULL), NULL, NULL, 0, 1, 2);
    runs_in_order(one(NULL, &best_first), priorities, NULL, 1, 2, 0);
    runs_in_order(one(NULL, &in_turn), NULL, NULL, 0, 1, 2);
}

static void *parks(void *completion) {
    OK(raddle_completion_wait(*(raddle_completion *)completion, NULL));
    return NULL;
}

static raddle_engine own;

static void *waits_for_its_own(void *argument) {
    (void)argument;
    return number(raddle_engine_wait(own, -1));
}

static void engines_are_shut_down_and_waited_for(void) {
    raddle_completion completion, never = {5};
    raddle_thread thread, refused = {5};
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    void *result;
    own = one(NULL, NULL);
    OK(raddle_completion_create(&completion));
    thread = start(own, 0, 0, parks, &completion);
    IS(threads_of(own), 1);
    IS(raddle_engine_wait(own, 1000000), -ETIMEDOUT);
    OK(raddle_engine_shut_down(own));
    options.engine = own;
    IS(raddle_spawn(&refused, &options, nothing, NULL), -ESHUTDOWN);
    IS(refused.id, 0);
    IS(raddle_run(&never, &options, nothing, NULL), -ESHUTDOWN);
    IS(never.id, 0);
    OK(raddle_detach(thread));
    OK(raddle_engine_free(own)); /* it goes on until its thread ends */

    own = one(NULL, NULL);
    thread = start(own, 0, 0, waits_for_its_own, NULL);
    OK(raddle_join(thread, &result));
    IS((intptr_t)result, -EDEADLK);
    OK(raddle_engine_wait(own, 1000000000));
}

static void *uses_an_engine(void *argument) {
    raddle_engine engine = one("fair", NULL);
    raddle_thread thread = start(engine, 0, 0, is_green, NULL);
    void *result;
    OK(raddle_join(thread, &result));
    IS((intptr_t)result, 1);
    OK(raddle_engine_wait(engine, -1));
    OK(raddle_engine_free(engine));
    return argument;
}

static void kernel_threads_may_use_engines(void) {
    pthread_t thread;
    OK(raddle_on_kernel_thread(0, uses_an_engine, NULL, NULL));
    OK(pthread_create(&thread, NULL, uses_an_engine, NULL));
    OK(pthread_join(thread, NULL));
}

static void dead_handles_are_refused(void) {
    raddle_engine engine = one(NULL, NULL), none = {0}, never = {0x1234567890};
    raddle_engine_counters counters = RADDLE_ENGINE_COUNTERS_INIT;
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    raddle_pool_options pool_options = RADDLE_POOL_OPTIONS_INIT;
    raddle_thread thread;
    raddle_pool pool;
    OK(raddle_engine_free(engine));
    const raddle_engine dead[] = {engine, none, never};
    for (int i = 0; i < 3; i++) {
        IS(raddle_engine_free(dead[i]), -EBADF);
        IS(raddle_engine_shut_down(dead[i]), -EBADF);
        IS(raddle_engine_wait(dead[i], -1), -EBADF);
        IS(raddle_engine_set_share(dead[i], 50), -EBADF);
        IS(raddle_engine_failure(dead[i]), -EBADF);
        IS(raddle_engine_count(dead[i], &counters), -EBADF);
        if (dead[i].id == 0) continue; /* the first engine, for threads and pools */
        options.engine = pool_options.engine = dead[i];
        IS(raddle_spawn(&thread, &options, nothing, NULL), -EBADF);
        IS(raddle_pool_create(&pool, &pool_options), -EBADF);
    }
    raddle_completion other;
    OK(raddle_completion_create(&other));
    options.engine.id = other.id; /* what is no engine's */
    IS(raddle_spawn(&thread, &options, nothing, NULL), -EBADF);
}

static int refusal(raddle_engine_options options) {
    raddle_engine engine = {7};
    int error = raddle_engine_create(&engine, &options);
    IS(engine.id, 7); /* nothing is stored */
    return error;
}

static void bad_engines_are_refused(void) {
    raddle_engine engine = one(NULL, NULL);
    raddle_engine_options options = plain;
    struct raddle_policy table = in_turn;
    IS(raddle_engine_create(NULL, NULL), -EFAULT);
    IS(raddle_engine_count(engine, NULL), -EFAULT);
    raddle_engine_counters counters = {15, 0, 0, 0};
    IS(raddle_engine_count(engine, &counters), -EINVAL);
    IS(raddle_set_policy(NULL), -EFAULT);
    IS(raddle_set_policy("unfair"), -EINVAL);

    options.size = sizeof options - 1;
    IS(refusal(options), -EINVAL);
    options = plain;
    options.carriers = 65;
    IS(refusal(options), -EINVAL);
    options.carriers = UINT32_MAX; /* -1 */
    IS(refusal(options), -EINVAL);
    options = plain;
    options.cpu_share = 102401;
    IS(refusal(options), -EINVAL);
    IS(raddle_engine_set_share(engine, 102401), -EINVAL);
    options = plain;
    options.policy = "round-robin";
    IS(refusal(options), -EINVAL);
    options.policy = "";
    IS(refusal(options), -EINVAL);
    options.policy = "fifo";
    options.policy_table = &table;
    IS(refusal(options), -EINVAL);
    options.policy = NULL;
    table.version = RADDLE_POLICY_VERSION + 1;
    IS(refusal(options), -EINVAL);
    table = in_turn;
    table.size--;
    IS(refusal(options), -EINVAL);
    table = in_turn;
    table.enqueue = NULL;
    IS(refusal(options), -EINVAL);
    table = in_turn;
    table.pick = NULL;
    IS(refusal(options), -EINVAL);
    IS(lived, 0);

    raddle_engine all[64];
    int made = 0;
    options = plain;
    while (made < 64 && raddle_engine_create(&all[made], &options) == 0) made++;
    IS(raddle_engine_create(&all[63], &options), -ENOSPC);
    while (made > 0) OK(raddle_engine_free(all[--made]));
    OK(raddle_engine_create(&all[0], &options));
}

static void bad_terms_are_refused(void) {
    raddle_thread thread;
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    raddle_engine engine = one(NULL, NULL);
    options.priority = 100;
    IS(raddle_spawn(&thread, &options, nothing, NULL), -EINVAL);
    options.priority = 99;
    options.reserved = 1;
    IS(raddle_spawn(&thread, &options, nothing, NULL), -EINVAL);
    options.reserved = 0;
    for (uint32_t flag = RADDLE_LIGHT; flag <= RADDLE_KERNEL_THREAD; flag *= 8) {
        raddle_thread_options other = RADDLE_THREAD_OPTIONS_INIT;
        other.flags = flag;
        other.priority = 1;
        IS(raddle_spawn(&thread, &other, nothing, NULL), -EINVAL);
        other.priority = 0;
        other.deadline_ns = 1;
        IS(raddle_spawn(&thread, &other, nothing, NULL), -EINVAL);
        other.deadline_ns = 0;
        other.engine = engine;
        IS(raddle_spawn(&thread, &other, nothing, NULL), -EINVAL);
    }
    OK(raddle_spawn(&thread, &options, nothing, NULL));
    join(thread);
    /* An earlier version's options end before the engine. */
    options.engine.id = 5;
    options.size = offsetof(raddle_thread_options, engine);
    OK(raddle_spawn(&thread, &options, nothing, NULL));
    join(thread);
    options.size--;
    IS(raddle_spawn(&thread, &options, nothing, NULL), -EINVAL);
}

static void states_end_with_their_engines(void) {
    for (int i = 0; i < 20; i++) {
        raddle_engine engine = one(NULL, &in_turn);
        raddle_thread thread = start(engine, 0, 0, counts, NULL);
        OK(raddle_engine_free(engine)); /* its thread keeps it */
        join(thread);
    }
    for (int i = 0; i < 1000 && died < 20; i++) sleep_ms(10);
    IS(lived, 20);
    IS(died, 20);
}

static void shares_are_kept(void) {
    raddle_engine_options options = plain;
    raddle_engine_counters counters = RADDLE_ENGINE_COUNTERS_INIT;
    raddle_thread thread;
    options.carriers = 1;
    options.cpu_share = 20;
    uint64_t since_ns = clock_ns();
    raddle_engine engine = engine_of(options);
    thread = start(engine, 0, 0, holds, NULL);
    sleep_ms(1000);
    OK(raddle_engine_count(engine, &counters));
    IS(counters.cpu_ns > 1000000, 1);
    IS(counters.cpu_ns < (clock_ns() - since_ns) / 100 * 35, 1); /* 20% or a little more */
    OK(raddle_engine_set_share(engine, 0));
    go = 1;
    join(thread);
}

static void *names_itself(void *argument) {
    (void)argument;
    return number((intptr_t)raddle_self().id);
}

static void pools_and_runs_go_to_engines(void) {
    raddle_engine engine = one("fair", NULL);
    raddle_engine_counters counters = RADDLE_ENGINE_COUNTERS_INIT;
    raddle_pool_options pool_options = RADDLE_POOL_OPTIONS_INIT;
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    raddle_completion completion;
    raddle_pool pool;
    raddle_task task;
    void *result;
    options.engine = pool_options.engine = engine;
    OK(raddle_pool_create(&pool, &pool_options));
    OK(raddle_pool_task(pool, &task, nothing, number(6)));
    OK(raddle_task_wait_for(task, 60000000000, &result));
    IS((intptr_t)result, 6);
    OK(raddle_engine_count(engine, &counters));
    IS(counters.started > 0, 1);
    OK(raddle_pool_dispose(pool, 0, -1));
    OK(raddle_run(&completion, &options, names_itself, NULL));
    OK(raddle_completion_wait(completion, &result));
    IS((intptr_t)result, 0);
    OK(raddle_completion_free(completion));
    OK(raddle_engine_wait(engine, -1));
}

static void the_first_engines_policy_can_be_changed(void) {
    const char *names[] = {"lifo", "priority", "fair", "deadline", "fifo"};
    IS(strcmp(raddle_policy_name(), "fifo"), 0);
    for (int i = 0; i < 5; i++) {
        OK(raddle_set_policy(names[i]));
        IS(strcmp(raddle_policy_name(), names[i]), 0);
        raddle_thread threads[20];
        for (int j = 0; j < 20; j++) OK(raddle_spawn(&threads[j], NULL, counts, NULL));
        for (int j = 0; j < 20; j++) join(threads[j]);
    }
    IS(count, 5 * 20 * 20);
}

int main(int argc, char **arguments) {
    static const struct test_case cases[] = {
        {"engines_run_their_threads", engines_run_their_threads},
        {"threads_of_engines_wait_for_each_other", threads_of_engines_wait_for_each_other},
        {"terms_reach_the_policies", terms_reach_the_policies},
        {"engines_are_shut_down_and_waited_for", engines_are_shut_down_and_waited_for},
        {"kernel_threads_may_use_engines", kernel_threads_may_use_engines},
        {"dead_handles_are_refused", dead_handles_are_refused},
        {"bad_engines_are_refused", bad_engines_are_refused},
        {"bad_terms_are_refused", bad_terms_are_refused},
        {"states_end_with_their_engines", states_end_with_their_engines},
        {"shares_are_kept", shares_are_kept},
        {"pools_and_runs_go_to_engines", pools_and_runs_go_to_engines},
        {"the_first_engines_policy_can_be_changed", the_first_engines_policy_can_be_changed},
    };
    (void)argc;
    return RUN_CASES(cases, arguments);
}
