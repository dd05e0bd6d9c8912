/* State of one thread: errno, thread-local variables, specific data; and pthread_once. */
#include "check.h"

#include <locale.h>
#include <sched.h>
#include <stdatomic.h>

static _Thread_local long plain_local;
static _Thread_local long initialised_local = 42;
static _Thread_local char large_local[20000];

static void *keep_locals(void *argument)
{
    long me = (long)argument;
    IS(plain_local, 0);
    IS(initialised_local, 42);
    long *address = &plain_local;
    plain_local = me;
    initialised_local = -me;
    memset(large_local, (int)me, sizeof large_local);
    for (int i = 0; i < 1000; i++) {
        errno = (int)me * 1000 + i % 1000;
        sched_yield();
        IS(errno, me * 1000 + i % 1000);
        IS(plain_local, me);
        IS(initialised_local, -me);
        CHECK(address == &plain_local);
        CHECK(large_local[i] == (char)me);
    }
    return NULL;
}

CASE(errno_and_locals_survive_64000_yields)
{
    pthread_t threads[64];
    for (long i = 0; i < 64; i++) {
        threads[i] = start(keep_locals, number(i + 1));
    }
    join_all(threads, 64);
    IS(plain_local, 0);
    IS(initialised_local, 42);
}

static void *keep_errno_over_waits(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < 20; i++) {
        errno = (int)me;
        usleep(500 + me * 10);
        IS(errno, me);
        IS(close(-1), -1);
        IS(errno, EBADF);
    }
    return NULL;
}

CASE(errno_survives_sleeps)
{
    pthread_t threads[32];
    for (long i = 0; i < 32; i++) {
        threads[i] = start(keep_errno_over_waits, number(i + 1000));
    }
    join_all(threads, 32);
}

static pthread_key_t key;
static atomic_long destroyed_sum;
static atomic_int destroyed;

static void count_destruction(void *value)
{
    CHECK(pthread_getspecific(key) == NULL);
    atomic_fetch_add(&destroyed_sum, (long)value);
    atomic_fetch_add(&destroyed, 1);
}

static void *set_specific(void *argument)
{
    CHECK(pthread_getspecific(key) == NULL);
    OK(pthread_setspecific(key, argument));
    for (int i = 0; i < 100; i++) {
        sched_yield();
        CHECK(pthread_getspecific(key) == argument);
    }
    return NULL;
}

CASE(destructors_run_once_for_each_thread)
{
    OK(pthread_key_create(&key, count_destruction));
    pthread_t threads[100];
    for (long i = 0; i < 100; i++) {
        threads[i] = start(set_specific, number(i + 1));
    }
    join_all(threads, 100);
    IS(destroyed, 100);
    IS(destroyed_sum, 5050);
    OK(pthread_key_delete(key));
}

static void set_again(void *value)
{
    atomic_fetch_add(&destroyed, 1);
    if ((long)value > 1) {
        OK(pthread_setspecific(key, number((long)value - 1)));
    }
}

CASE(destructors_that_set_again_run_again)
{
    OK(pthread_key_create(&key, set_again));
    join(start(set_specific, number(3)));
    IS(destroyed, 3);
}

static void block_in_destructor(void *value)
{
    sleep_ms(10);
    sched_yield();
    atomic_fetch_add(&destroyed, (int)(long)value);
}

CASE(destructors_may_block)
{
    OK(pthread_key_create(&key, block_in_destructor));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(set_specific, number(1));
    }
    join_all(threads, 20);
    IS(destroyed, 20);
}

static void *use_many_keys(void *argument)
{
    pthread_key_t *keys = argument;
    for (long i = 0; i < 200; i++) {
        OK(pthread_setspecific(keys[i], number(i + gettid())));
    }
    sched_yield();
    for (long i = 0; i < 200; i++) {
        IS(pthread_getspecific(keys[i]), i + gettid());
    }
    return NULL;
}

CASE(two_hundred_keys_in_eight_threads)
{
    static pthread_key_t keys[200];
    pthread_t threads[8];
    for (int i = 0; i < 200; i++) {
        OK(pthread_key_create(&keys[i], NULL));
    }
    for (int i = 0; i < 8; i++) {
        threads[i] = start(use_many_keys, keys);
    }
    join_all(threads, 8);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int initialised;

static void initialise(void)
{
    sleep_ms(30);
    atomic_fetch_add(&initialised, 1);
}

static void *call_once(void *argument)
{
    OK(pthread_once(&once, initialise));
    IS(initialised, 1);
    return argument;
}

CASE(pthread_once_runs_once_and_all_wait_for_it)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(call_once, NULL);
    }
    join_all(threads, 50);
    IS(initialised, 1);
}

static void *own_locale(void *argument)
{
    locale_t mine = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    CHECK(mine != (locale_t)0);
    if ((long)argument % 2) {
        uselocale(mine);
    }
    for (int i = 0; i < 200; i++) {
        sched_yield();
        CHECK(uselocale((locale_t)0) == ((long)argument % 2 ? mine : LC_GLOBAL_LOCALE));
    }
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(mine);
    return NULL;
}

CASE(each_thread_has_its_locale)
{
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) {
        threads[i] = start(own_locale, number(i));
    }
    join_all(threads, 16);
}

static void *tokens_and_errors(void *argument)
{
    char text[] = "a b c d";
    int count = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        count++;
    }
    IS(count, 4);
    char wanted[64];
    int code = 1 + (int)(long)argument % 30;
    strcpy(wanted, strerror(code));
    for (int i = 0; i < 50; i++) {
        const char *got = strerror(code);
        sched_yield();
        IS(strcmp(got, wanted), 0);
    }
    return NULL;
}

static pthread_mutex_t strtok_lock = PTHREAD_MUTEX_INITIALIZER;

static void *tokens_one_at_a_time(void *argument)
{
    OK(pthread_mutex_lock(&strtok_lock));
    tokens_and_errors(argument);
    OK(pthread_mutex_unlock(&strtok_lock));
    return NULL;
}

CASE(strerror_has_a_buffer_for_each_thread)
{
    pthread_t threads[30];
    for (long i = 0; i < 30; i++) {
        threads[i] = start(tokens_one_at_a_time, number(i));
    }
    join_all(threads, 30);
}
