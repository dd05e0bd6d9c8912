/* Threads that park, and threads that wake them. */
#include "check.h"
#include <pthread.h>

static const raddle_thread_options kinds[] = {
    RADDLE_THREAD_OPTIONS_INIT,
    {sizeof(raddle_thread_options), 0, NULL, RADDLE_LIGHT, 0, {0}, 0, 0, 0},
    {sizeof(raddle_thread_options), 0, NULL, RADDLE_KERNEL_THREAD, 0, {0}, 0, 0, 0},
};
#define KINDS 3
#define MS 1000000

static void *uses_a_permission(void *argument) {
    (void)argument;
    OK(raddle_unpark(raddle_self()));
    OK(raddle_unpark(raddle_self())); /* there is one at most */
    OK(raddle_park());
    IS(raddle_park_for(MS), -ETIMEDOUT);
    IS(raddle_park_for(0), -ETIMEDOUT);
    OK(raddle_unpark(raddle_self()));
    OK(raddle_park_for(0));
    IS(raddle_park_for(-1), -EINVAL);
    return NULL;
}

static void a_permission_is_kept_until_it_is_used(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        raddle_thread thread;
        OK(raddle_spawn(&thread, &kinds[kind], uses_a_permission, NULL));
        OK(raddle_join(thread, NULL));
        IS(raddle_unpark(thread), -EBADF);
    }
}

static int time_is_over;

static void *parks(void *argument) {
    uint64_t begin = clock_ns();
    if (argument != NULL) {
        IS(raddle_park_for(20 * MS), -ETIMEDOUT);
        IS(clock_ns() - begin >= 20 * MS, 1);
        __atomic_store_n(&time_is_over, 1, __ATOMIC_RELEASE);
    }
    return number(raddle_park());
}

static void a_park_ends_by_word_or_by_time(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        raddle_thread thread;
        void *result;
        OK(raddle_spawn(&thread, &kinds[kind], parks, NULL));
        sleep_ms(kind * 5);
        OK(raddle_unpark(thread));
        OK(raddle_join(thread, &result));
        IS((intptr_t)result, 0);
        OK(raddle_spawn(&thread, &kinds[kind], parks, &kind));
        while (!__atomic_exchange_n(&time_is_over, 0, __ATOMIC_ACQUIRE)) sleep_ms(1);
        IS(raddle_is_finished(thread), 0);
        OK(raddle_unpark(thread));
        OK(raddle_join(thread, &result));
        IS((intptr_t)result, 0);
    }
}

enum { ROUNDS = 300 };
static raddle_thread players[2];
static int turn;

/* Waits for its turn by parking alone, and gives the other thread its turn. */
static void *plays(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != 2 * round + own) OK(raddle_park());
        __atomic_store_n(&turn, 2 * round + own + 1, __ATOMIC_RELEASE);
        /* The other thread may have ended after its last turn. */
        int status = raddle_unpark(players[1 - own]);
        IS(status == 0 || status == -EBADF, 1);
    }
    return NULL;
}

static void *starts_to_play(void *argument) {
    OK(raddle_park()); /* until both are known */
    return plays(argument);
}

static void kinds_wake_each_other(void) {
    for (int pair = 0; pair < KINDS * KINDS; pair++) {
        turn = 0;
        for (intptr_t own = 0; own < 2; own++) {
            const raddle_thread_options *kind = &kinds[own == 0 ? pair % KINDS : pair / KINDS];
            OK(raddle_spawn(&players[own], kind, starts_to_play, number(own)));
        }
        OK(raddle_unpark(players[0]));
        OK(raddle_unpark(players[1]));
        OK(raddle_join(players[0], NULL));
        OK(raddle_join(players[1], NULL));
        IS(turn, 2 * ROUNDS);
    }
}

static raddle_completion told;

static void *tells_how_it_parks(void *argument) {
    int status = raddle_park();
    if (argument != NULL) IS(raddle_park_for(MS), -EPERM);
    OK(raddle_completion_set(told, number(status)));
    return NULL;
}

static void *parks_unknown(void *argument) {
    (void)argument;
    IS(raddle_self().id, 0);
    IS(raddle_park(), -EPERM);
    IS(raddle_park_for(MS), -EPERM);
    return NULL;
}

static void who_has_no_handle_does_not_park(void) {
    pthread_t other;
    void *status;
    parks_unknown(NULL);
    IS(pthread_create(&other, NULL, parks_unknown, NULL), 0);
    IS(pthread_join(other, NULL), 0);
    for (int kind = 0; kind < KINDS; kind++) {
        raddle_thread_options detached = kinds[kind];
        raddle_thread thread;
        detached.flags |= RADDLE_DETACHED;
        OK(raddle_completion_create(&told));
        OK(raddle_spawn(NULL, &detached, tells_how_it_parks, &detached));
        OK(raddle_completion_wait(told, &status));
        IS((intptr_t)status, -EPERM);
        OK(raddle_completion_free(told));
        /* A thread that is detached while it parks, or before it does. */
        OK(raddle_completion_create(&told));
        OK(raddle_spawn(&thread, &kinds[kind], tells_how_it_parks, &detached));
        sleep_ms(kind == 0 ? 0 : 10);
        OK(raddle_detach(thread));
        IS(raddle_unpark(thread), -EBADF);
        OK(raddle_completion_wait(told, &status));
        IS((intptr_t)status, -EPERM);
        OK(raddle_completion_free(told));
    }
}

static void *joins(void *argument) {
    OK(raddle_join(*(raddle_thread *)argument, NULL));
    return NULL;
}

static void who_is_joined_can_be_unparked(void) {
    for (int kind = 0; kind < KINDS; kind++) {
        raddle_thread parked, joiner;
        OK(raddle_spawn(&parked, &kinds[kind], parks, NULL));
        OK(raddle_spawn(&joiner, NULL, joins, &parked));
        while (raddle_is_finished(parked) == 0) raddle_yield();
        IS(raddle_detach(parked), -EBUSY);
        OK(raddle_unpark(parked));
        OK(raddle_join(joiner, NULL));
        IS(raddle_unpark(parked), -EBADF);
    }
}

int main(int count, char **arguments) {
    static const struct test_case cases[] = {
        {"a_permission_is_kept_until_it_is_used", a_permission_is_kept_until_it_is_used},
        {"a_park_ends_by_word_or_by_time", a_park_ends_by_word_or_by_time},
        {"kinds_wake_each_other", kinds_wake_each_other},
        {"who_has_no_handle_does_not_park", who_has_no_handle_does_not_park},
        {"who_is_joined_can_be_unparked", who_is_joined_can_be_unparked},
    };
    (void)count;
    return RUN_CASES(cases, arguments);
}
