/* The futex system call itself, as languages and allocators that don't use libc's locks call it.
 *
 * Expected results are those of the manual page futex(2).
 */
#include "check.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static atomic_int word, other_word, blocked, awake;

static long futex(atomic_int *address, int operation, int value, void *fourth, void *second,
                  int third)
{
    return syscall(SYS_futex, address, operation, value, fourth, second, third);
}

static long wait_private(int value, const struct timespec *timeout)
{
    return futex(&word, FUTEX_WAIT_PRIVATE, value, (void *)timeout, NULL, 0);
}

static long wake_private(atomic_int *address, int count)
{
    return futex(address, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void *wait_on(void *address)
{
    atomic_fetch_add(&blocked, 1);
    long result = futex(address, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    if (result == 0) {
        atomic_fetch_add(&awake, 1);
    }
    return number(result);
}

/* Starts waiters; they count themselves just before they wait, so wakers count what they woke. */
static void start_waiters(pthread_t *threads, int count, void *address)
{
    for (int i = 0; i < count; i++) {
        threads[i] = start(wait_on, address);
    }
    while (atomic_load(&blocked) < count) {
        sched_yield();
    }
    let_others_block();
}

/* Wakes until `count` are woken in all: a waiter may not have got to its wait yet. */
static void wake_in_all(atomic_int *address, int count)
{
    while (count > 0) {
        long woken = GET(wake_private(address, count));
        CHECK(woken <= count);
        count -= (int)woken;
        sched_yield();
    }
}

CASE(wait_with_another_value_says_again)
{
    word = 1;
    FAILS(wait_private(0, NULL), EAGAIN);
    struct timespec timeout = {0, 1000};
    FAILS(wait_private(2, &timeout), EAGAIN);
}

CASE(wait_times_out_relative)
{
    int64_t started_ns = now_ns();
    struct timespec timeout = timespec_of(50 * MS);
    FAILS(wait_private(0, &timeout), ETIMEDOUT);
    check_took(started_ns, 50);
    struct timespec zero = {0, 0};
    FAILS(wait_private(0, &zero), ETIMEDOUT);
}

CASE(wait_bitset_times_out_absolute_on_both_clocks)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_MONOTONIC, 50 * MS);
    FAILS(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &limit, NULL, -1), ETIMEDOUT);
    check_took(started_ns, 50);
    started_ns = now_ns();
    limit = from_now(CLOCK_REALTIME, 50 * MS);
    int operation = FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME;
    FAILS(futex(&word, operation, 0, &limit, NULL, -1), ETIMEDOUT);
    check_took(started_ns, 45);
    struct timespec past = {1, 0};
    FAILS(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, &past, NULL, -1), ETIMEDOUT);
}

CASE(invalid_arguments_are_told)
{
    struct timespec invalid = {0, 1000000000}, negative = {-1, 0};
    FAILS(wait_private(0, &invalid), EINVAL);
    FAILS(wait_private(0, &negative), EINVAL);
    FAILS(futex((atomic_int *)((char *)&word + 1), FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex((atomic_int *)((char *)&word + 1), FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 0), EINVAL);
    FAILS(futex(&word, 99, 0, NULL, NULL, 0), ENOSYS);
}

CASE(an_address_that_is_not_mapped_is_a_fault)
{
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    FAILS(futex((atomic_int *)page, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), EFAULT);
    FAILS(futex(&word, FUTEX_WAIT_PRIVATE, 0, page, NULL, 0), EFAULT);
}

CASE(wake_counts_whom_it_woke)
{
    pthread_t threads[10];
    IS(wake_private(&word, 1), 0);
    start_waiters(threads, 10, &word);
    wake_in_all(&word, 3);
    do {
        sleep_ms(20);
    } while (awake < 3);
    IS(awake, 3);
    wake_in_all(&word, 7);
    join_all(threads, 10);
    IS(wake_private(&word, INT_MAX), 0);
}

CASE(to_wake_none_wakes_one)
{
    pthread_t threads[2];
    start_waiters(threads, 2, &word);
    for (int i = 0; i < 2; i++) {
        while (!GET(wake_private(&word, -i))) {
            sched_yield();
        }
    }
    join_all(threads, 2);
}

static void *wait_with_bits(void *bits)
{
    atomic_fetch_add(&blocked, 1);
    IS(futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, (int)(long)bits), 0);
    atomic_fetch_add(&awake, (int)(long)bits);
    return NULL;
}

static void wake_bits(int bits, int expected_sum)
{
    while (atomic_load(&awake) != expected_sum) {
        GET(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, bits));
        sched_yield();
    }
}

CASE(bitsets_select_whom_to_wake)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(wait_with_bits, number(1 << i));
    }
    while (atomic_load(&blocked) < 4) {
        sched_yield();
    }
    wake_bits(4, 4);
    IS(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL, 16), 0);
    wake_bits(1 | 2, 7);
    wake_bits(-1, 15);
    join_all(threads, 4);
}

CASE(requeue_moves_waiters_to_another_word)
{
    pthread_t threads[6];
    start_waiters(threads, 6, &word);
    int moved = 0;
    while (moved < 6) {
        moved += (int)GET(futex(&word, FUTEX_REQUEUE_PRIVATE, 0, number(INT_MAX), &other_word, 0));
        sched_yield();
    }
    IS(wake_private(&word, INT_MAX), 0);
    IS(atomic_load(&awake), 0);
    IS(wake_private(&other_word, 4), 4);
    IS(wake_private(&other_word, INT_MAX), 2);
    join_all(threads, 6);
    IS(awake, 6);
}

CASE(cmp_requeue_checks_the_value)
{
    pthread_t threads[4];
    FAILS(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, number(1), &other_word, 5), EAGAIN);
    start_waiters(threads, 4, &word);
    FAILS(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, number(1), &other_word, 5), EAGAIN);
    int done = 0;
    while (done < 1) {
        done = (int)GET(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, number(0), &other_word, 0));
        CHECK(done <= 1);
        sched_yield();
    }
    for (done = 0; done < 3;) {
        void *many = number(INT_MAX);
        done += (int)GET(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 0, many, &other_word, 0));
        sched_yield();
    }
    IS(wake_private(&other_word, INT_MAX), 3);
    join_all(threads, 4);
}

static void *wait_briefly(void *argument)
{
    struct timespec timeout = timespec_of(150 * MS);
    atomic_fetch_add(&blocked, 1);
    FAILS(wait_private(0, &timeout), ETIMEDOUT);
    return argument;
}

CASE(a_requeued_wait_still_times_out)
{
    pthread_t thread = start(wait_briefly, NULL);
    int64_t limit_ns = now_ns() + 100 * MS;
    while (now_ns() < limit_ns) {
        GET(futex(&word, FUTEX_REQUEUE_PRIVATE, 0, number(INT_MAX), &other_word, 0));
        sched_yield();
    }
    join(thread);
    IS(wake_private(&other_word, INT_MAX), 0);
}

CASE(wake_op_changes_the_second_word_and_wakes_both)
{
    pthread_t threads[2] = {start(wait_on, &word), start(wait_on, &other_word)};
    int add_nothing = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0);
    void *many = number(INT_MAX);
    for (long woken = 0; woken < 2; sched_yield()) {
        woken += GET(futex(&word, FUTEX_WAKE_OP_PRIVATE, INT_MAX, many, &other_word, add_nothing));
        CHECK(woken <= 2);
    }
    join_all(threads, 2);
    int add_5 = FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0);
    IS(futex(&word, FUTEX_WAKE_OP_PRIVATE, INT_MAX, many, &other_word, add_5), 0);
    IS(other_word, 5);
}

CASE(wake_op_compares_the_old_value)
{
    other_word = 6;
    IS(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, number(1), &other_word,
             FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_GT, 6)),
       0);
    IS(other_word, 9);
    IS(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, number(1), &other_word,
             FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_NE, 6)),
       0);
    IS(other_word, 8);
    IS(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, number(1), &other_word,
             FUTEX_OP((FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT), 4, FUTEX_OP_CMP_LT, 6)),
       0);
    IS(other_word, 24);
    IS(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, number(1), &other_word,
             FUTEX_OP(FUTEX_OP_XOR, 8, FUTEX_OP_CMP_GE, 6)),
       0);
    IS(other_word, 16);
}

enum { ROUNDS = 20000 };

static void *raw_ping_pong(void *me)
{
    for (int i = 0; i < ROUNDS; i++) {
        int seen;
        while ((seen = atomic_load(&word)) % 2 != (long)me) {
            wait_private(seen, NULL);
        }
        atomic_fetch_add(&word, 1);
        GET(wake_private(&word, 1));
    }
    return NULL;
}

CASE(two_threads_take_turns)
{
    pthread_t threads[2] = {start(raw_ping_pong, number(0)), start(raw_ping_pong, number(1))};
    join_all(threads, 2);
    IS(word, 2 * ROUNDS);
}

/* Drepper's three-state mutex: 0 free, 1 taken, 2 taken and waited for. */
static void raw_lock(void)
{
    int seen = 0;
    if (!atomic_compare_exchange_strong(&word, &seen, 1)) {
        if (seen != 2) {
            seen = atomic_exchange(&word, 2);
        }
        while (seen != 0) {
            wait_private(2, NULL);
            seen = atomic_exchange(&word, 2);
        }
    }
}

static void raw_unlock(void)
{
    if (atomic_exchange(&word, 0) == 2) {
        GET(wake_private(&word, 1));
    }
}

static long counter;

static void *raw_count(void *argument)
{
    for (int i = 0; i < 2000; i++) {
        raw_lock();
        long before = counter;
        if (i % 64 == 0) {
            sched_yield();
        }
        counter = before + 1;
        raw_unlock();
    }
    return argument;
}

CASE(a_mutex_of_the_programs_own_excludes)
{
    pthread_t threads[32];
    for (int i = 0; i < 32; i++) {
        threads[i] = start(raw_count, NULL);
    }
    join_all(threads, 32);
    IS(counter, 64000);
}

CASE(a_shared_futex_crosses_processes)
{
    atomic_int *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t child = GET(fork());
    long me = child == 0;
    for (int i = 0; i < 500; i++) {
        int seen;
        while ((seen = atomic_load(shared)) % 2 != me) {
            futex(shared, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
        atomic_fetch_add(shared, 1);
        GET(futex(shared, FUTEX_WAKE, 1, NULL, NULL, 0));
    }
    if (child == 0) {
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    IS(*shared, 1000);
}

CASE(a_futex_without_the_private_flag_works_between_threads)
{
    pthread_t thread = start(wait_on, &word);
    /* A private wait is found by a private wake only; a plain one by a plain one. */
    wake_in_all(&word, 1);
    join(thread);
    int64_t started_ns = now_ns();
    struct timespec timeout = timespec_of(20 * MS);
    FAILS(futex(&word, FUTEX_WAIT, 0, &timeout, NULL, 0), ETIMEDOUT);
    check_took(started_ns, 20);
    IS(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
}

static struct {
    uint64_t value, address;
    uint32_t flags, reserved;
} vector[3];

/* An emulator's threads have blocks of its guest's libc in its own memory, as like libc's blocks as
 * can be, and the emulator itself wakes the word that libc leaves to the kernel. */
static char block[8192] __attribute__((aligned(64)));
static int join_words;
static atomic_int waits_at;

static void *wait_for_all_words(void *argument)
{
    for (int at = 0; at < join_words; at++) {
        atomic_int *word = (atomic_int *)(block + 4 * at + 32);
        int tid = 123456 + at;
        atomic_store(&waits_at, at);
        while (atomic_load(word) == tid) {
            if (at % 2) {
                futex(word, FUTEX_WAIT, tid, NULL, NULL, 0);
            } else {
                futex(word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, tid, NULL, NULL, ~0);
            }
        }
    }
    return argument;
}

CASE(a_wait_that_looks_like_a_join_is_woken_by_a_call)
{
    join_words = 1000;
    *(void **)(block + 16) = block;
    for (int at = 0; at < join_words; at++) {
        *(atomic_int *)(block + 4 * at + 32) = 123456 + at;
    }
    pthread_t thread = start(wait_for_all_words, NULL);
    for (int at = 0; at < join_words; at++) {
        atomic_int *word = (atomic_int *)(block + 4 * at + 32);
        int bits = at % 3 ? 0 : ~0;
        while (atomic_load(&waits_at) < at) {
            sched_yield();
        }
        usleep(100); /* it waits by now, as a rule */
        atomic_store(word, 0);
        GET(futex(word, bits ? FUTEX_WAKE_BITSET : FUTEX_WAKE, INT32_MAX, NULL, NULL, bits));
    }
    join(thread);
}

static void *wait_on_three(void *argument)
{
    for (int i = 0; i < 3; i++) {
        static atomic_int words[3];
        vector[i].address = (uintptr_t)&words[i];
        vector[i].flags = 2 /* 32 bits */ | FUTEX_PRIVATE_FLAG;
    }
    atomic_fetch_add(&blocked, 1);
    return number(syscall(449 /* futex_waitv */, vector, 3, 0, NULL, 0));
}

CASE(waitv_tells_which_word_woke_it)
{
    pthread_t thread = start(wait_on_three, NULL);
    while (!atomic_load(&blocked)) {
        sched_yield();
    }
    wake_in_all((atomic_int *)(uintptr_t)vector[1].address, 1);
    IS(join(thread), 1);
    vector[2].value = 7;
    FAILS(syscall(449, vector, 3, 0, NULL, 0), EAGAIN);
}

/* Waits and wakes that miss each other by design, with time limits: nothing may hang. */
static void *storm(void *seed)
{
    unsigned state = (unsigned)(long)seed * 2654435761u + 1;
    for (int i = 0; i < 500; i++) {
        state = state * 1664525u + 1013904223u;
        atomic_int *address = state >> 31 ? &word : &other_word;
        struct timespec timeout = timespec_of((state >> 16) % 1000 * 1000);
        switch ((state >> 8) % 4) {
        case 0:
            futex(address, FUTEX_WAIT_PRIVATE, 0, &timeout, NULL, 0);
            break;
        case 1:
            GET(wake_private(address, 2));
            break;
        case 2:
            GET(futex(address, FUTEX_REQUEUE_PRIVATE, 1, number(1), &other_word, 0));
            break;
        default:
            GET(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, number(1), &other_word,
                      FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)));
        }
    }
    return NULL;
}

CASE(a_storm_of_waits_wakes_and_requeues_ends)
{
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) {
        threads[i] = start(storm, number(i));
    }
    join_all(threads, 16);
    IS(wake_private(&word, INT_MAX), 0);
    IS(wake_private(&other_word, INT_MAX), 0);
}
