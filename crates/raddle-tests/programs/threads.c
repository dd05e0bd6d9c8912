/* A thread's life: creation, identity, its end, its value; many at once; its attributes. */
#include "check.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static void *return_argument(void *argument)
{
    return argument;
}

CASE(creates_and_joins_10000_in_turn)
{
    for (long i = 0; i < 10000; i++) {
        IS(join(start(return_argument, number(i))), i);
    }
}

CASE(creates_and_joins_in_batches)
{
    pthread_t threads[100];
    for (int round = 0; round < 50; round++) {
        for (long i = 0; i < 100; i++) {
            threads[i] = start(return_argument, number(i));
        }
        for (long i = 99; i >= 0; i--) {
            IS(join(threads[i]), i);
        }
    }
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opens = PTHREAD_COND_INITIALIZER;
static int gate_is_open;
static atomic_int arrived;

static void *wait_at_gate(void *argument)
{
    atomic_fetch_add(&arrived, 1);
    OK(pthread_mutex_lock(&gate));
    while (!gate_is_open) {
        OK(pthread_cond_wait(&gate_opens, &gate));
    }
    OK(pthread_mutex_unlock(&gate));
    return argument;
}

static void open_gate(void)
{
    OK(pthread_mutex_lock(&gate));
    gate_is_open = 1;
    OK(pthread_cond_broadcast(&gate_opens));
    OK(pthread_mutex_unlock(&gate));
}

CASE(keeps_10000_alive_at_once)
{
    static pthread_t threads[10000];
    for (long i = 0; i < 10000; i++) {
        threads[i] = start_small(wait_at_gate, number(i));
    }
    while (atomic_load(&arrived) != 10000) {
        sched_yield();
    }
    open_gate();
    for (long i = 0; i < 10000; i++) {
        IS(join(threads[i]), i);
    }
}

static atomic_int finished;

static void *count_end(void *argument)
{
    atomic_fetch_add(&finished, 1);
    return argument;
}

CASE(detached_threads_run_and_vanish)
{
    pthread_attr_t detached;
    OK(pthread_attr_init(&detached));
    OK(pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED));
    for (int i = 0; i < 2000; i++) {
        pthread_t thread;
        OK(pthread_create(&thread, &detached, count_end, NULL));
    }
    while (atomic_load(&finished) != 2000) {
        sched_yield();
    }
}

static void *detach_self(void *argument)
{
    OK(pthread_detach(pthread_self()));
    return count_end(argument);
}

CASE(a_thread_detaches_itself)
{
    for (int i = 0; i < 1000; i++) {
        start(detach_self, NULL);
    }
    while (atomic_load(&finished) != 1000) {
        sched_yield();
    }
}

__attribute__((noinline)) static void exit_below(int depth, void *value)
{
    if (depth == 0) {
        pthread_exit(value);
    }
    if (depth > 0) {
        exit_below(depth - 1, value);
    }
    __asm__ volatile("");
}

static void *exit_deep(void *argument)
{
    exit_below(100, argument);
    return NULL;
}

CASE(pthread_exit_gives_its_value_from_any_depth)
{
    for (long i = 0; i < 500; i++) {
        IS(join(start(exit_deep, number(i))), i);
    }
}

static void *own_identity(void *slot)
{
    *(pthread_t *)slot = pthread_self();
    for (int i = 0; i < 100; i++) {
        sched_yield();
        CHECK(pthread_equal(pthread_self(), *(pthread_t *)slot));
    }
    return NULL;
}

CASE(pthread_self_is_what_create_returned)
{
    pthread_t threads[50], seen[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(own_identity, &seen[i]);
    }
    for (int i = 0; i < 50; i++) {
        join(threads[i]);
        CHECK(pthread_equal(threads[i], seen[i]));
        CHECK(!pthread_equal(threads[i], pthread_self()));
    }
}

static void *stable_id(void *slot)
{
    pid_t id = gettid();
    *(pid_t *)slot = id;
    for (int i = 0; i < 200; i++) {
        sched_yield();
        IS(gettid(), id);
        IS(syscall(SYS_gettid), id);
    }
    wait_at_gate(NULL);
    IS(gettid(), id);
    return NULL;
}

static int compare_ids(const void *a, const void *b)
{
    return *(const pid_t *)a - *(const pid_t *)b;
}

CASE(thread_ids_are_unique_and_stable)
{
    enum { COUNT = 200 };
    pthread_t threads[COUNT];
    pid_t ids[COUNT + 1];
    for (int i = 0; i < COUNT; i++) {
        threads[i] = start(stable_id, &ids[i]);
    }
    while (atomic_load(&arrived) != COUNT) {
        sched_yield();
    }
    open_gate();
    join_all(threads, COUNT);
    ids[COUNT] = gettid();
    qsort(ids, COUNT + 1, sizeof ids[0], compare_ids);
    for (int i = 0; i < COUNT; i++) {
        CHECK(ids[i] > 0 && ids[i] < ids[i + 1]);
    }
}

static void *note_id(void *to)
{
    *(pid_t *)to = gettid();
    return NULL;
}

/* Linux gives an id again after 32,768 others, unless pid_max was changed. */
CASE(an_id_does_not_come_again_soon)
{
    enum { COUNT = 8000 };
    static pid_t ids[COUNT];
    for (int i = 0; i < COUNT; i++) {
        join(start(note_id, &ids[i]));
    }
    qsort(ids, COUNT, sizeof ids[0], compare_ids);
    for (int i = 1; i < COUNT; i++) {
        CHECK(ids[i - 1] < ids[i]);
    }
}

CASE(the_main_threads_id_is_the_process_id)
{
    IS(gettid(), getpid());
    pid_t other;
    gate_is_open = 1;
    join(start(stable_id, &other));
    CHECK(other != getpid());
    IS(gettid(), getpid());
}

static void *own_stack(void *expected_size)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    char here;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &low, &size));
    CHECK((char *)low < &here && &here < (char *)low + size);
    CHECK(size >= (size_t)expected_size);
    OK(pthread_attr_destroy(&attributes));
    return NULL;
}

CASE(stack_size_is_what_was_asked)
{
    size_t sizes[] = {PTHREAD_STACK_MIN, 64 << 10, 256 << 10, 1 << 20, 16 << 20};
    for (int i = 0; i < 5; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        OK(pthread_attr_init(&attributes));
        OK(pthread_attr_setstacksize(&attributes, sizes[i]));
        OK(pthread_create(&thread, &attributes, own_stack, (void *)sizes[i]));
        join(thread);
    }
    own_stack(number(4096));
}

static void *is_within(void *low)
{
    char here;
    CHECK((char *)low < &here && &here < (char *)low + (256 << 10));
    return low;
}

CASE(a_stack_of_the_programs_own_is_used)
{
    int rights = PROT_READ | PROT_WRITE;
    void *memory = mmap(NULL, 256 << 10, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (int i = 0; i < 100; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        OK(pthread_attr_init(&attributes));
        OK(pthread_attr_setstack(&attributes, memory, 256 << 10));
        OK(pthread_create(&thread, &attributes, is_within, memory));
        CHECK(join(thread) == memory);
    }
}

CASE(tryjoin_and_timedjoin)
{
    pthread_t thread = start(wait_at_gate, number(5));
    void *value;
    IS(pthread_tryjoin_np(thread, &value), EBUSY);
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_REALTIME, 50 * MS);
    IS(pthread_timedjoin_np(thread, &value, &limit), ETIMEDOUT);
    check_took(started_ns, 45);
    open_gate();
    limit = from_now(CLOCK_REALTIME, 20 * SECOND);
    OK(pthread_timedjoin_np(thread, &value, &limit));
    IS(value, 5);
}

static void *join_other(void *other)
{
    return (char *)join(*(pthread_t *)other) + 1;
}

CASE(threads_join_each_other_in_a_chain)
{
    static pthread_t chain[200];
    chain[0] = start(wait_at_gate, number(0));
    for (int i = 1; i < 200; i++) {
        chain[i] = start(join_other, &chain[i - 1]);
    }
    open_gate();
    IS(join(chain[199]), 199);
}

CASE(joining_oneself_is_a_deadlock)
{
    IS(pthread_join(pthread_self(), NULL), EDEADLK);
}

static void *create_children(void *depth)
{
    if ((long)depth == 0) {
        return number(1);
    }
    pthread_t left = start_small(create_children, number((long)depth - 1));
    pthread_t right = start_small(create_children, number((long)depth - 1));
    long sum = (long)join(left) + (long)join(right);
    return number(sum);
}

CASE(threads_create_threads)
{
    IS(create_children(number(10)), 1024);
}

static void *named(void *argument)
{
    char name[16], wanted[16];
    snprintf(wanted, sizeof wanted, "thread %ld", (long)argument);
    OK(pthread_setname_np(pthread_self(), wanted));
    for (int i = 0; i < 50; i++) {
        sched_yield();
        OK(pthread_getname_np(pthread_self(), name, sizeof name));
        IS(strcmp(name, wanted), 0);
    }
    return NULL;
}

CASE(each_thread_keeps_its_name)
{
    pthread_t threads[20];
    for (long i = 0; i < 20; i++) {
        threads[i] = start(named, number(i));
    }
    join_all(threads, 20);
}

static atomic_int turns[3];

static void *take_turns(void *me)
{
    for (int i = 0; i < 2000; i++) {
        atomic_fetch_add(&turns[(long)me], 1);
        sched_yield();
    }
    return NULL;
}

CASE(sched_yield_lets_everyone_run)
{
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) {
        threads[i] = start(take_turns, number(i));
    }
    join_all(threads, 3);
    for (int i = 0; i < 3; i++) {
        IS(turns[i], 2000);
    }
}

static atomic_int stop_spinning;

static void *spin(void *argument)
{
    while (!atomic_load(&stop_spinning)) {
    }
    return argument;
}

/* More threads that never make a call than carriers: the threads must take turns. */
CASE(a_compute_loop_does_not_stop_the_others)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        threads[i] = start(spin, NULL);
    }
    sleep_ms(50);
    IS(join(start(return_argument, number(3))), 3);
    atomic_store(&stop_spinning, 1);
    join_all(threads, 6);
}
