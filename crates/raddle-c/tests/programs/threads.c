/* Threads of all kinds. */
#define _GNU_SOURCE
#include "check.h"
#include <sys/resource.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static const raddle_thread_options plain = RADDLE_THREAD_OPTIONS_INIT;

static raddle_thread_options light_options(void) {
    raddle_thread_options options = plain;
    options.flags = RADDLE_LIGHT;
    return options;
}

static void *twice(void *argument) { return number(2 * (intptr_t)argument); }

static void the_runtime_is_there(void) {
    IS(raddle_version(), RADDLE_VERSION);
    IS(raddle_status(), RADDLE_GREEN);
}

static void *which(void *argument) {
    (void)argument;
    return number(10 * raddle_is_green() + raddle_is_light());
}

static void kinds_know_themselves(void) {
    raddle_thread thread;
    void *kind;
    OK(raddle_spawn(&thread, NULL, which, NULL));
    OK(raddle_join(thread, &kind));
    IS((intptr_t)kind, 10);
    raddle_thread_options light = light_options();
    OK(raddle_spawn(&thread, &light, which, NULL));
    OK(raddle_join(thread, &kind));
    IS((intptr_t)kind, 11);
    raddle_thread_options kernel = plain;
    kernel.flags = RADDLE_KERNEL_THREAD;
    int under_raddle = raddle_is_green(); /* there all threads are green */
    OK(raddle_spawn(&thread, &kernel, which, NULL));
    OK(raddle_join(thread, &kind));
    IS((intptr_t)kind, under_raddle ? 10 : 0);
    IS(raddle_is_light(), 0);
    IS(raddle_self().id, 0);
}

static void *is_on_kernel_thread(void *argument) {
    (void)argument;
    return number(raddle_is_green() == 0);
}

static void kernel_threads_have_large_stacks_and_are_not_green(void) {
    void *result;
    int under_raddle = raddle_is_green(); /* there all threads are green */
    OK(raddle_on_kernel_thread(64 << 20, is_on_kernel_thread, NULL, &result));
    IS((intptr_t)result, !under_raddle);
    OK(raddle_on_kernel_thread(0, twice, number(4), &result));
    IS((intptr_t)result, 8);
    OK(raddle_on_kernel_thread(0, twice, NULL, NULL));
    IS(raddle_on_kernel_thread(1, twice, NULL, NULL), -EINVAL);
    IS(raddle_on_kernel_thread(0, NULL, NULL, NULL), -EFAULT);
}

static void *niceness(void *argument) {
    (void)argument;
    return number(getpriority(PRIO_PROCESS, 0));
}

static void niceness_is_each_threads_own(void) {
    int own = getpriority(PRIO_PROCESS, 0);
    raddle_thread thread;
    void *nice;
    raddle_thread_options options = plain;
    options.flags = RADDLE_NICE;
    options.nice = 11;
    OK(raddle_spawn(&thread, &options, niceness, NULL));
    OK(raddle_join(thread, &nice));
    IS((intptr_t)nice, 11);
    IS(getpriority(PRIO_PROCESS, 0), own);
    options.nice = 20;
    IS(raddle_spawn(&thread, &options, niceness, NULL), -EINVAL);
    options.nice = 0;
    options.flags |= RADDLE_LIGHT;
    IS(raddle_spawn(&thread, &options, niceness, NULL), -EINVAL);
    options.flags = RADDLE_KERNEL_THREAD | RADDLE_LIGHT;
    IS(raddle_spawn(&thread, &options, niceness, NULL), -EINVAL);
}

static void many(const raddle_thread_options *options, int count) {
    raddle_thread *threads = malloc((size_t)count * sizeof *threads);
    long sum = 0;
    for (int i = 0; i < count; i++) OK(raddle_spawn(&threads[i], options, twice, number(i)));
    for (int i = 0; i < count; i++) {
        void *result;
        OK(raddle_join(threads[i], &result));
        sum += (intptr_t)result;
    }
    IS(sum, (long)count * (count - 1));
    free(threads);
}

static void many_green_threads_return_their_values(void) { many(NULL, 2000); }

static void many_light_threads_return_their_values(void) {
    raddle_thread_options light = light_options();
    many(&light, 20000);
}

static raddle_thread own;

static void *joins_itself(void *argument) {
    (void)argument;
    IS(raddle_self().id, own.id); /* stored before the thread runs */
    IS(raddle_join(own, NULL), -EDEADLK);
    IS(raddle_yield(), 0);
    IS(raddle_self().id, own.id);
    return NULL;
}

static void joining_oneself_is_refused(void) {
    OK(raddle_spawn(&own, NULL, joins_itself, NULL));
    OK(raddle_join(own, NULL));
    raddle_thread_options light = light_options();
    OK(raddle_spawn(&own, &light, joins_itself, NULL));
    OK(raddle_join(own, NULL));
}

static void *detaches_itself(void *argument) {
    OK(raddle_detach(raddle_self()));
    IS(raddle_detach(raddle_self()), -EBADF);
    OK(raddle_completion_set(*(raddle_completion *)argument, number(7)));
    return NULL;
}

static void threads_may_detach_themselves(void) {
    raddle_thread_options light = light_options();
    for (int i = 0; i < 200; i++) {
        raddle_completion done;
        raddle_thread thread;
        void *value;
        OK(raddle_completion_create(&done));
        OK(raddle_spawn(&thread, i % 2 ? &light : NULL, detaches_itself, &done));
        OK(raddle_completion_wait(done, &value));
        IS((intptr_t)value, 7);
        IS(raddle_join(thread, NULL), -EBADF);
        OK(raddle_completion_free(done));
    }
}

static void *waits_for_it(void *argument) {
    OK(raddle_completion_wait(*(raddle_completion *)argument, NULL));
    return NULL;
}

static raddle_thread joined;

static void *joins_it(void *argument) {
    (void)argument;
    return number(raddle_join(joined, NULL));
}

static void handles_end_with_join_and_detach(void) {
    raddle_completion go;
    raddle_thread joiner;
    void *result;
    OK(raddle_completion_create(&go));
    OK(raddle_spawn(&joined, NULL, waits_for_it, &go));
    IS(raddle_is_finished(joined), 0);
    OK(raddle_spawn(&joiner, NULL, joins_it, NULL));
    while (raddle_is_finished(joined) == 0) sleep_ms(1); /* until it is being joined */
    IS(raddle_is_finished(joined), -EBUSY);
    IS(raddle_join(joined, NULL), -EBUSY);
    IS(raddle_detach(joined), -EBUSY);
    OK(raddle_completion_set(go, NULL));
    OK(raddle_join(joiner, &result));
    IS((intptr_t)result, 0);
    IS(raddle_join(joined, NULL), -EBADF);
    IS(raddle_detach(joined), -EBADF);
    IS(raddle_is_finished(joined), -EBADF);
    OK(raddle_completion_free(go));
}

static void bad_arguments_are_refused(void) {
    raddle_thread thread = {5};
    raddle_thread_options options = plain;
    IS(raddle_spawn(NULL, NULL, twice, NULL), -EFAULT);
    IS(raddle_spawn(&thread, NULL, NULL, NULL), -EFAULT);
    options.stack_size = 1;
    IS(raddle_spawn(&thread, &options, twice, NULL), -EINVAL);
    options.stack_size = RADDLE_STACK_MIN - 1;
    IS(raddle_spawn(&thread, &options, twice, NULL), -EINVAL);
    options.stack_size = SIZE_MAX;
    IS(raddle_spawn(&thread, &options, twice, NULL), -ENOMEM);
    options.flags = RADDLE_LIGHT;
    options.stack_size = (size_t)1 << 46;
    IS(raddle_spawn(&thread, &options, twice, NULL), -ENOMEM);
    IS(thread.id, 0);
    options = plain;
    options.flags = 1u << 31;
    IS(raddle_spawn(&thread, &options, twice, NULL), -EINVAL);
    options = plain;
    options.nice = 1; /* without its flag */
    IS(raddle_spawn(&thread, &options, twice, NULL), -EINVAL);
    options = plain;
    options.size = 0;
    IS(raddle_spawn(&thread, &options, twice, NULL), -EINVAL);
    struct {
        raddle_thread_options options;
        long later;
    } future = {RADDLE_THREAD_OPTIONS_INIT, 1};
    future.options.size = sizeof future;
    IS(raddle_spawn(&thread, &future.options, twice, NULL), -E2BIG);
    future.later = 0;
    OK(raddle_spawn(&thread, &future.options, twice, NULL));
    OK(raddle_join(thread, NULL));
    for (uint64_t id = 0; id < 100; id++) {
        raddle_thread none = {id};
        IS(raddle_join(none, NULL), -EBADF);
        IS(raddle_detach(none), -EBADF);
        none.id = UINT64_MAX - id;
        IS(raddle_join(none, NULL), -EBADF);
    }
    IS(raddle_set_carriers(-1), -EINVAL);
}

static void *deep(void *argument) {
    volatile char room[10000];
    memset((void *)room, 1, sizeof room);
    return number(room[(intptr_t)argument]);
}

static void the_smallest_stack_is_enough_for_some(void) {
    for (int kind = 0; kind < 2; kind++) {
        raddle_thread_options options = plain;
        raddle_thread thread;
        void *result;
        options.flags = kind == 0 ? 0 : RADDLE_LIGHT;
        options.stack_size = RADDLE_STACK_MIN;
        OK(raddle_spawn(&thread, &options, twice, number(3)));
        OK(raddle_join(thread, &result));
        IS((intptr_t)result, 6);
        options.stack_size = 1 << 20;
        OK(raddle_spawn(&thread, &options, deep, number(9)));
        OK(raddle_join(thread, &result));
        IS((intptr_t)result, 1);
    }
}

static void *own_name(void *argument) {
    OK(pthread_getname_np(pthread_self(), argument, 16));
    return argument;
}

static void names_are_the_kernels(void) {
    raddle_thread_options options = plain;
    raddle_thread thread;
    char name[16];
    options.name = "weaver";
    OK(raddle_spawn(&thread, &options, own_name, name));
    OK(raddle_join(thread, NULL));
    IS(strcmp(name, "weaver"), 0);
}

static pthread_key_t key;
static int destroyed;

static void destroy(void *value) { destroyed += (int)(intptr_t)value; }

static void *has_locals(void *argument) {
    OK(pthread_setspecific(key, argument));
    OK(raddle_yield());
    return pthread_getspecific(key);
}

static void join_waits_for_destructors(void) {
    raddle_thread thread;
    OK(pthread_key_create(&key, destroy));
    for (int i = 1; i <= 100; i++) {
        OK(raddle_spawn(&thread, NULL, has_locals, number(1)));
        OK(raddle_join(thread, NULL));
        IS(destroyed, i);
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long counter;

static void *counts(void *argument) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&lock);
        counter++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (i % 100 == 0) raddle_yield();
    }
    return argument;
}

static void kinds_share_locks(void) {
    raddle_thread green[8];
    pthread_t kernel[8];
    for (int i = 0; i < 8; i++) {
        OK(raddle_spawn(&green[i], NULL, counts, NULL));
        OK(pthread_create(&kernel[i], NULL, counts, NULL));
    }
    pthread_mutex_lock(&lock);
    while (counter < 16000) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 8; i++) {
        OK(raddle_join(green[i], NULL));
        OK(pthread_join(kernel[i], NULL));
    }
}

static void *naps(void *argument) {
    OK(raddle_sleep(20000000));
    return argument;
}

/* A thousand naps of light threads take as long as some; by libc each would keep a host. */
static void light_threads_sleep_together(void) {
    static raddle_thread threads[1000];
    struct timespec before, after;
    raddle_thread_options light = light_options();
    OK(raddle_sleep(0));
    clock_gettime(CLOCK_MONOTONIC, &before);
    for (int i = 0; i < 1000; i++) OK(raddle_spawn(&threads[i], &light, naps, NULL));
    for (int i = 0; i < 1000; i++) OK(raddle_join(threads[i], NULL));
    naps(NULL);
    clock_gettime(CLOCK_MONOTONIC, &after);
    long long ms = (after.tv_sec - before.tv_sec) * 1000LL;
    ms += (after.tv_nsec - before.tv_nsec) / 1000000;
    IS(ms >= 40, 1);
    IS(ms < 10000, 1); /* one after another they take 20 seconds */
}

static int ends[2];

static void *echoes(void *argument) {
    char byte;
    while (read(ends[0], &byte, 1) == 1 && byte != 'q') counter++;
    return argument;
}

static void pipes_park_green_threads(void) {
    raddle_thread thread;
    OK(pipe(ends));
    OK(raddle_set_carriers(1));
    OK(raddle_spawn(&thread, NULL, echoes, NULL));
    for (int i = 0; i < 100; i++) IS(write(ends[1], "x", 1), 1);
    IS(write(ends[1], "q", 1), 1);
    OK(raddle_join(thread, NULL));
    IS(counter, 100);
    IS(raddle_carriers(), 1);
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"the_runtime_is_there", the_runtime_is_there},
        {"kinds_know_themselves", kinds_know_themselves},
        {"niceness_is_each_threads_own", niceness_is_each_threads_own},
        {"kernel_threads", kernel_threads_have_large_stacks_and_are_not_green},
        {"many_green_threads", many_green_threads_return_their_values},
        {"many_light_threads", many_light_threads_return_their_values},
        {"joining_oneself_is_refused", joining_oneself_is_refused},
        {"threads_may_detach_themselves", threads_may_detach_themselves},
        {"handles_end_with_join_and_detach", handles_end_with_join_and_detach},
        {"bad_arguments_are_refused", bad_arguments_are_refused},
        {"the_smallest_stack_is_enough_for_some", the_smallest_stack_is_enough_for_some},
        {"names_are_the_kernels", names_are_the_kernels},
        {"join_waits_for_destructors", join_waits_for_destructors},
        {"kinds_share_locks", kinds_share_locks},
        {"light_threads_sleep_together", light_threads_sleep_together},
        {"pipes_park_green_threads", pipes_park_green_threads},
    };
    (void)count;
    return RUN_CASES(cases, arguments);
}
