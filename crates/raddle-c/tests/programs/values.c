/* Completions and tables of handles. */
#define _GNU_SOURCE
#include "check.h"

static const raddle_thread_options light = {
    sizeof light, 0, NULL, RADDLE_LIGHT, 0, {0}, 0, 0, 0};

static void a_completion_is_set_once_and_waited_for_often(void) {
    raddle_completion completion;
    void *value = number(1);
    OK(raddle_completion_create(&completion));
    IS(raddle_completion_poll(completion, &value), -EAGAIN);
    IS(raddle_completion_wait_for(completion, 1000000, &value), -ETIMEDOUT);
    IS((intptr_t)value, 1);
    OK(raddle_completion_set(completion, number(5)));
    IS(raddle_completion_set(completion, number(6)), -EALREADY);
    IS(raddle_completion_fail(completion, EIO), -EALREADY);
    for (int i = 0; i < 3; i++) {
        OK(raddle_completion_wait(completion, &value));
        IS((intptr_t)value, 5);
        OK(raddle_completion_wait(completion, NULL));
        OK(raddle_completion_poll(completion, NULL));
        OK(raddle_completion_wait_for(completion, 0, NULL));
    }
    OK(raddle_completion_free(completion));
    IS(raddle_completion_free(completion), -EBADF);
}

static raddle_completion shared;

static void *waits(void *argument) {
    void *value = NULL;
    (void)argument;
    int status = raddle_completion_wait(shared, &value);
    return number(status == 0 ? (intptr_t)value : status);
}

static void end_by_setting(void) { OK(raddle_completion_set(shared, number(9))); }
static void end_by_failing(void) { OK(raddle_completion_fail(shared, EPROTO)); }
static void end_by_freeing(void) { OK(raddle_completion_free(shared)); }

/* Waiters of each kind before the end get the expected result. */
static void waiters_get(void (*end)(void), long expected) {
    raddle_thread threads[20];
    OK(raddle_completion_create(&shared));
    for (int i = 0; i < 20; i++) OK(raddle_spawn(&threads[i], i % 2 ? &light : NULL, waits, NULL));
    sleep_ms(20);
    end();
    for (int i = 0; i < 20; i++) {
        void *result;
        OK(raddle_join(threads[i], &result));
        if (expected != -ECANCELED || (intptr_t)result != -EBADF) /* or it came too late */
            IS((intptr_t)result, expected);
    }
}

static void all_waiters_are_told(void) {
    waiters_get(end_by_setting, 9);
    OK(raddle_completion_free(shared));
    waiters_get(end_by_failing, -EPROTO);
    OK(raddle_completion_free(shared));
    waiters_get(end_by_freeing, -ECANCELED);
}

static int told;

static void listens(void *argument, int status, void *value) {
    told = told * 10 + (int)(intptr_t)argument;
    IS(status, told < 10 ? 0 : status);
    if (status != 0) IS((intptr_t)value, 0);
}

static void listeners_are_called_once(void) {
    raddle_completion completion;
    OK(raddle_completion_create(&completion));
    OK(raddle_completion_then(completion, listens, number(1)));
    IS(told, 0);
    OK(raddle_completion_set(completion, number(5)));
    IS(told, 1);
    OK(raddle_completion_then(completion, listens, number(2))); /* at once */
    IS(told, 12);
    OK(raddle_completion_free(completion));
    OK(raddle_completion_create(&completion));
    OK(raddle_completion_then(completion, listens, number(3)));
    OK(raddle_completion_free(completion)); /* with -ECANCELED */
    IS(told, 123);
    IS(raddle_completion_then(completion, listens, NULL), -EBADF);
    OK(raddle_completion_create(&completion));
    IS(raddle_completion_then(completion, NULL, NULL), -EFAULT);
    OK(raddle_completion_free(completion));
}

static void *half(void *argument) { return number((intptr_t)argument / 2); }

static void what_is_run_completes(void) {
    raddle_completion completions[100];
    for (int i = 0; i < 100; i++)
        OK(raddle_run(&completions[i], i % 2 ? &light : NULL, half, number(2 * i)));
    for (int i = 0; i < 100; i++) {
        void *value;
        OK(raddle_completion_wait(completions[i], &value));
        IS((intptr_t)value, i);
        OK(raddle_completion_free(completions[i]));
    }
    IS(raddle_run(NULL, NULL, half, NULL), -EFAULT);
    IS(raddle_run(&completions[0], NULL, NULL, NULL), -EFAULT);
    raddle_thread_options tiny = RADDLE_THREAD_OPTIONS_INIT;
    tiny.stack_size = 100;
    IS(raddle_run(&completions[0], &tiny, half, NULL), -EINVAL);
}

static void completions_refuse_bad_arguments(void) {
    raddle_completion completion, none = {0};
    raddle_table table;
    OK(raddle_completion_create(&completion));
    IS(raddle_completion_create(NULL), -EFAULT);
    IS(raddle_completion_fail(completion, 0), -EINVAL);
    IS(raddle_completion_fail(completion, -EIO), -EINVAL);
    IS(raddle_completion_fail(completion, 4096), -EINVAL);
    IS(raddle_completion_wait_for(completion, -1, NULL), -EINVAL);
    OK(raddle_table_create(&table, NULL));
    OK(raddle_completion_free(completion));
    for (int i = 0; i < 3; i++) {
        IS(raddle_completion_set(none, NULL), -EBADF);
        IS(raddle_completion_fail(none, EIO), -EBADF);
        IS(raddle_completion_wait(none, NULL), -EBADF);
        IS(raddle_completion_wait_for(none, 0, NULL), -EBADF);
        IS(raddle_completion_poll(none, NULL), -EBADF);
        IS(raddle_completion_free(none), -EBADF);
        none.id = i == 0 ? completion.id : table.id; /* freed; another kind's */
    }
    OK(raddle_table_free(table));
}

static void *ping_pong(void *argument) {
    raddle_completion *turns = argument;
    for (int i = 0; i < 1000; i += 2) {
        OK(raddle_completion_wait(turns[i], NULL));
        OK(raddle_completion_set(turns[i + 1], number(i)));
    }
    return NULL;
}

static void completions_hand_over_between_kinds(void) {
    static raddle_completion turns[1000];
    for (int kind = 0; kind < 2; kind++) {
        raddle_thread thread;
        for (int i = 0; i < 1000; i++) OK(raddle_completion_create(&turns[i]));
        OK(raddle_spawn(&thread, kind ? &light : NULL, ping_pong, turns));
        for (int i = 0; i < 1000; i += 2) {
            void *value;
            OK(raddle_completion_set(turns[i], NULL));
            OK(raddle_completion_wait(turns[i + 1], &value));
            IS((intptr_t)value, i);
        }
        OK(raddle_join(thread, NULL));
        for (int i = 0; i < 1000; i++) OK(raddle_completion_free(turns[i]));
    }
}

static int released;

static void release(void *value) { released += (int)(intptr_t)value; }

static void *look(void *value, void *argument) {
    return number((intptr_t)value + (intptr_t)argument);
}

static void handles_keep_values(void) {
    raddle_table table;
    raddle_handle normal, pinned, kept;
    void *value;
    OK(raddle_table_create(&table, release));
    OK(raddle_handle_create(table, RADDLE_NORMAL, number(1), &normal));
    OK(raddle_handle_create(table, RADDLE_PINNED, number(10), &pinned));
    IS(raddle_table_count(table), 2);
    IS(raddle_handle_kind(table, normal), RADDLE_NORMAL);
    IS(raddle_handle_kind(table, pinned), RADDLE_PINNED);
    OK(raddle_handle_with(table, normal, look, number(4), &value));
    IS((intptr_t)value, 5);
    OK(raddle_handle_with(table, pinned, look, number(4), NULL));
    OK(raddle_handle_address(table, pinned, &value));
    IS((intptr_t)value, 10);
    IS(raddle_handle_address(table, normal, &value), -EINVAL);
    OK(raddle_handle_keep(table, normal, &kept, &value));
    IS((intptr_t)value, 1);
    OK(raddle_handle_free(table, normal));
    IS(raddle_handle_free(table, normal), -EBADF);
    IS(raddle_handle_with(table, normal, look, NULL, &value), -EBADF);
    IS(released, 0);
    OK(raddle_handle_free(table, kept));
    IS(released, 1);
    OK(raddle_table_free(table)); /* with what is in it */
    IS(released, 11);
    IS(raddle_table_free(table), -EBADF);
    IS(raddle_handle_kind(table, pinned), -EBADF);
}

static void weak_handles_expire(void) {
    raddle_table table;
    raddle_owner nobody = {0}, owner;
    raddle_handle value, weak, owned, kept;
    OK(raddle_table_create(&table, release));
    OK(raddle_owner_create(table, &owner));
    OK(raddle_handle_create(table, RADDLE_PINNED, number(1), &value));
    OK(raddle_handle_weak(table, value, nobody, &weak));
    OK(raddle_handle_weak(table, value, owner, &owned));
    IS(raddle_handle_kind(table, weak), RADDLE_WEAK);
    OK(raddle_handle_with(table, owned, look, NULL, NULL));
    OK(raddle_owner_end(table, owner));
    IS(raddle_owner_end(table, owner), -ESTALE);
    IS(raddle_handle_with(table, owned, look, NULL, NULL), -ESTALE);
    IS(raddle_handle_weak(table, value, owner, &owned), -ESTALE);
    OK(raddle_handle_keep(table, weak, &kept, NULL));
    OK(raddle_handle_free(table, value));
    OK(raddle_handle_with(table, weak, look, NULL, NULL)); /* kept still */
    OK(raddle_handle_free(table, kept));
    IS(released, 1);
    IS(raddle_handle_with(table, weak, look, NULL, NULL), -ESTALE);
    IS(raddle_handle_keep(table, weak, &kept, NULL), -ESTALE);
    OK(raddle_handle_free(table, weak));
    OK(raddle_handle_free(table, owned));
    IS(raddle_table_count(table), 0);
    OK(raddle_table_free(table));
}

static void tables_refuse_bad_arguments(void) {
    raddle_table table, none = {0};
    raddle_handle handle = {0};
    raddle_owner owner;
    void *value;
    IS(raddle_table_create(NULL, NULL), -EFAULT);
    OK(raddle_table_create(&table, NULL));
    IS(raddle_handle_create(table, RADDLE_NORMAL, NULL, NULL), -EFAULT);
    IS(raddle_handle_create(table, RADDLE_WEAK, NULL, &handle), -EINVAL);
    IS(raddle_handle_create(table, 7, NULL, &handle), -EINVAL);
    IS(raddle_handle_create(none, RADDLE_NORMAL, NULL, &handle), -EBADF);
    for (uint64_t id = 0; id < 50; id++) {
        handle.id = id < 25 ? id : UINT64_MAX - id;
        IS(raddle_handle_with(table, handle, look, NULL, NULL), -EBADF);
        IS(raddle_handle_keep(table, handle, &handle, NULL), -EBADF);
        IS(raddle_handle_address(table, handle, &value), -EBADF);
        IS(raddle_handle_kind(table, handle), -EBADF);
        IS(raddle_handle_free(table, handle), -EBADF);
        owner.id = (uint32_t)id;
        IS(raddle_handle_weak(table, handle, owner, &handle), -EBADF);
        IS(raddle_owner_end(table, owner), -ESTALE);
    }
    IS(raddle_handle_with(table, handle, NULL, NULL, NULL), -EFAULT);
    IS(raddle_owner_create(table, NULL), -EFAULT);
    IS(raddle_owner_create(none, &owner), -EBADF);
    IS(raddle_table_count(none), -EBADF);
    for (int i = 0; i < 256; i++) OK(raddle_owner_create(table, &owner));
    IS(raddle_owner_create(table, &owner), -ENOSPC);
    OK(raddle_table_free(table));
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"a_completion_is_set_once", a_completion_is_set_once_and_waited_for_often},
        {"all_waiters_are_told", all_waiters_are_told},
        {"listeners_are_called_once", listeners_are_called_once},
        {"what_is_run_completes", what_is_run_completes},
        {"completions_refuse_bad_arguments", completions_refuse_bad_arguments},
        {"completions_hand_over_between_kinds", completions_hand_over_between_kinds},
        {"handles_keep_values", handles_keep_values},
        {"weak_handles_expire", weak_handles_expire},
        {"tables_refuse_bad_arguments", tables_refuse_bad_arguments},
    };
    (void)count;
    return RUN_CASES(cases, arguments);
}
