/* Fibers. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <raddle_fiber.h>

enum { STACK = 64 << 10 };

static raddle_fiber *first;
static int turns;

static raddle_fiber *takes_turns(void *argument) {
    for (int i = 0; i < 3; i++) {
        IS(raddle_fiber_data(raddle_fiber_current()) == argument, 1);
        turns += (int)(intptr_t)argument;
        OK(raddle_fiber_switch(first));
    }
    return first;
}

static void *take_turns(void *unused) {
    raddle_fiber *fibers[4];
    OK(raddle_fiber_convert(number(42), &first));
    IS(raddle_fiber_current() == first, 1);
    IS((intptr_t)raddle_fiber_data(first), 42);
    turns = 0;
    for (int i = 0; i < 4; i++) OK(raddle_fiber_create(STACK, takes_turns, number(i), &fibers[i]));
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 4; i++) {
            IS(raddle_fiber_has_ended(fibers[i]), 0);
            OK(raddle_fiber_switch(fibers[i]));
            IS(raddle_fiber_current() == first, 1);
        }
    }
    IS(turns, 3 * (0 + 1 + 2 + 3));
    for (int i = 0; i < 4; i++) {
        IS(raddle_fiber_has_ended(fibers[i]), 1);
        IS(raddle_fiber_switch(fibers[i]), -ESRCH);
        OK(raddle_fiber_delete(fibers[i]));
    }
    OK(raddle_fiber_convert_back());
    IS(raddle_fiber_current() == NULL, 1);
    return unused;
}

static void fibers_take_turns(void) {
    pthread_t kernel;
    raddle_thread green;
    take_turns(NULL);
    OK(pthread_create(&kernel, NULL, take_turns, NULL));
    OK(pthread_join(kernel, NULL));
    OK(raddle_spawn(&green, NULL, take_turns, NULL));
    OK(raddle_join(green, NULL));
}

static raddle_fls_key key, other_key;
static intptr_t freed;
static int calls;

static void gets_back(void *value) {
    freed += (intptr_t)value;
    calls++;
}

static raddle_fiber *keeps_a_word(void *argument) {
    void *value = &value;
    OK(raddle_fls_get(key, &value));
    IS(value == NULL, 1);
    OK(raddle_fls_set(key, argument));
    OK(raddle_fls_set(other_key, argument));
    OK(raddle_fiber_switch(first));
    OK(raddle_fls_get(key, &value));
    IS(value == argument, 1);
    return first;
}

static void words_are_each_fibers_own(void) {
    raddle_fiber *fibers[3];
    void *value;
    OK(raddle_fls_alloc(gets_back, &key));
    OK(raddle_fls_alloc(NULL, &other_key));
    IS(raddle_fls_get(key, &value), -EPERM);
    IS(raddle_fls_set(key, NULL), -EPERM);
    OK(raddle_fiber_convert(NULL, &first));
    OK(raddle_fls_set(key, number(1000)));
    OK(raddle_fls_set(key, number(1)));
    for (int i = 0; i < 3; i++) {
        OK(raddle_fiber_create(STACK, keeps_a_word, number(10 << i), &fibers[i]));
        OK(raddle_fiber_switch(fibers[i]));
    }
    IS(calls, 0);
    OK(raddle_fiber_switch(fibers[0])); /* it ends */
    IS(freed, 10);
    OK(raddle_fiber_delete(fibers[1]));
    IS(freed, 10 + 20);
    OK(raddle_fls_free(key)); /* the first fiber's and the last one's */
    IS(freed, 10 + 20 + 40 + 1);
    IS(calls, 4);
    IS(raddle_fls_free(key), -EBADF);
    IS(raddle_fls_get(key, &value), -EBADF);
    IS(raddle_fls_set(key, NULL), -EBADF);
    OK(raddle_fls_free(other_key));
    OK(raddle_fiber_delete(fibers[0]));
    OK(raddle_fiber_delete(fibers[2]));
    OK(raddle_fls_alloc(gets_back, &key)); /* it reuses a slot, but is another key */
    OK(raddle_fls_get(key, &value));
    IS(value == NULL, 1);
    OK(raddle_fls_set(key, number(5)));
    OK(raddle_fiber_convert_back());
    IS(freed, 10 + 20 + 40 + 1 + 5);
    OK(raddle_fls_free(key));
}

static void keys_are_bounded(void) {
    raddle_fls_key keys[1024];
    for (int i = 0; i < 1024; i++) OK(raddle_fls_alloc(NULL, &keys[i]));
    IS(raddle_fls_alloc(NULL, &key), -ENOSPC);
    for (int i = 0; i < 1024; i++) OK(raddle_fls_free(keys[i]));
    OK(raddle_fls_alloc(NULL, &key));
    OK(raddle_fls_free(key));
}

static raddle_fiber *theirs;

static void *cannot_use(void *unused) {
    raddle_fiber *own;
    IS(raddle_fiber_switch(theirs), -EPERM);
    IS(raddle_fiber_delete(theirs), -EPERM);
    IS(raddle_fiber_has_ended(theirs), -EPERM);
    OK(raddle_fiber_convert(NULL, &own));
    IS(raddle_fiber_switch(theirs), -EPERM);
    OK(raddle_fiber_convert_back());
    return unused;
}

static void *cannot_convert(void *unused) {
    raddle_fiber *own;
    IS(raddle_fiber_convert(NULL, &own), -EPERM);
    return unused;
}

static raddle_fiber *tries_what_is_the_firsts(void *unused) {
    (void)unused;
    IS(raddle_fiber_convert_back(), -EPERM);
    IS(raddle_fiber_delete(first), -EBUSY);
    IS(raddle_fiber_delete(raddle_fiber_current()), -EBUSY);
    IS(raddle_fiber_switch(raddle_fiber_current()), -EBUSY);
    return first;
}

static raddle_fiber *left;

static raddle_fiber *never(void *unused) { return unused; }

/* Ends as a fiber, and leaves another one. */
static void *leaves_a_fiber(void *unused) {
    raddle_fiber *own;
    OK(raddle_fiber_convert(NULL, &own));
    OK(raddle_fiber_create(0, never, NULL, &left));
    return unused;
}

/* Runs where the one before ran, perhaps with its thread-locals' addresses. */
static void *finds_a_fiber(void *unused) {
    raddle_fiber *own;
    OK(raddle_fiber_convert(NULL, &own));
    IS(raddle_fiber_switch(left), -EPERM);
    IS(raddle_fiber_delete(left), -EPERM);
    IS(raddle_fiber_has_ended(left), -EPERM);
    OK(raddle_fiber_convert_back());
    return unused;
}

static void no_later_thread_has_the_fibers_of_one_that_ended(void) {
    raddle_thread thread;
    raddle_thread_options options = RADDLE_THREAD_OPTIONS_INIT;
    uint32_t kinds[] = {0, RADDLE_KERNEL_THREAD};
    for (int i = 0; i < 20; i++) {
        options.flags = kinds[i % 2];
        OK(raddle_spawn(&thread, &options, leaves_a_fiber, NULL));
        OK(raddle_join(thread, NULL));
        OK(raddle_spawn(&thread, &options, finds_a_fiber, NULL));
        OK(raddle_join(thread, NULL));
    }
}

static pthread_key_t at_the_end;
static int cleaned;

/* A thread's last words come after the destructors of the library's thread-locals. */
static void cleans_up(void *value) {
    raddle_fiber *fiber = value;
    IS(raddle_fiber_has_ended(fiber), 0);
    OK(raddle_fiber_delete(fiber));
    OK(raddle_fiber_convert_back());
    OK(raddle_fiber_convert(NULL, &fiber));
    OK(raddle_fiber_convert_back());
    cleaned++;
}

static void *leaves_it_to_a_destructor(void *unused) {
    raddle_fiber *own, *other;
    OK(raddle_fiber_convert(NULL, &own));
    OK(raddle_fiber_create(0, never, NULL, &other));
    OK(pthread_setspecific(at_the_end, other));
    return unused;
}

static void fibers_may_be_deleted_by_destructors_of_thread_locals(void) {
    raddle_thread thread;
    OK(pthread_key_create(&at_the_end, cleans_up));
    for (int i = 0; i < 3; i++) {
        OK(raddle_spawn(&thread, NULL, leaves_it_to_a_destructor, NULL));
        OK(raddle_join(thread, NULL));
        IS(cleaned, i + 1);
    }
}

static void wrong_use_is_refused(void) {
    raddle_fiber *fiber;
    raddle_thread thread;
    pthread_t other;
    void *value;
    raddle_thread_options light = RADDLE_THREAD_OPTIONS_INIT;
    light.flags = RADDLE_LIGHT;
    IS(raddle_fiber_convert_back(), -EPERM);
    IS(raddle_fiber_convert(NULL, NULL), -EFAULT);
    OK(raddle_fiber_create(STACK, tries_what_is_the_firsts, NULL, &theirs));
    IS(raddle_fiber_switch(theirs), -EPERM); /* this is no fiber */
    OK(raddle_fiber_convert(NULL, &first));
    IS(raddle_fiber_convert(NULL, &fiber), -EBUSY);
    IS(raddle_fiber_switch(first), -EBUSY);
    IS(raddle_fiber_delete(first), -EBUSY);
    IS(raddle_fiber_create(STACK, NULL, NULL, &fiber), -EFAULT);
    IS(raddle_fiber_create(STACK, takes_turns, NULL, NULL), -EFAULT);
    IS(raddle_fiber_create((size_t)-1, takes_turns, NULL, &fiber), -ENOMEM);
    IS(raddle_fiber_create((size_t)1 << 60, takes_turns, NULL, &fiber), -ENOMEM);
    IS(raddle_fiber_switch(NULL), -EFAULT);
    IS(raddle_fiber_delete(NULL), -EFAULT);
    IS(raddle_fiber_has_ended(NULL), -EFAULT);
    IS(raddle_fiber_data(NULL) == NULL, 1);
    IS(raddle_fls_alloc(NULL, NULL), -EFAULT);
    raddle_fls_key none = {0};
    IS(raddle_fls_get(none, &value), -EBADF);
    IS(raddle_fls_get(none, NULL), -EFAULT);
    OK(pthread_create(&other, NULL, cannot_use, NULL));
    OK(pthread_join(other, NULL));
    OK(raddle_spawn(&thread, &light, cannot_convert, NULL));
    OK(raddle_join(thread, NULL));
    OK(raddle_fiber_switch(theirs));
    OK(raddle_fiber_delete(theirs));
    OK(raddle_fiber_convert_back());
}

static const struct test_case cases[] = {
    {"fibers_take_turns", fibers_take_turns},
    {"words_are_each_fibers_own", words_are_each_fibers_own},
    {"keys_are_bounded", keys_are_bounded},
    {"no_later_thread_has_the_fibers_of_one_that_ended",
     no_later_thread_has_the_fibers_of_one_that_ended},
    {"fibers_may_be_deleted_by_destructors_of_thread_locals",
     fibers_may_be_deleted_by_destructors_of_thread_locals},
    {"wrong_use_is_refused", wrong_use_is_refused},
};

int main(int count, char **arguments) {
    (void)count;
    return RUN_CASES(cases, arguments);
}
