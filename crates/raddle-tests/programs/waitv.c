/* futex_waitv: a wait on several words, private and shared, that ends with one of them. */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { U32 = 2, PRIVATE_U32 = U32 | FUTEX_PRIVATE_FLAG, MOST = 128 };

struct entry {
    uint64_t value, address;
    uint32_t flags, reserved;
};

static atomic_int words[MOST], blocked;

static long waitv(struct entry *entries, unsigned count, const struct timespec *limit,
                  clockid_t clock)
{
    return syscall(449 /* futex_waitv */, entries, count, 0, limit, clock);
}

static long wake(atomic_int *address, int flag)
{
    return GET(syscall(SYS_futex, address, FUTEX_WAKE | flag, 1, NULL, NULL, 0));
}

static void fill(struct entry *entries, int count, uint32_t flags)
{
    memset(entries, 0, sizeof *entries * (unsigned)count);
    for (int i = 0; i < count; i++) {
        entries[i].address = (uintptr_t)&words[i];
        entries[i].flags = flags;
    }
}

static void *wait_on_all_private(void *count)
{
    struct entry entries[MOST];
    fill(entries, (int)(long)count, PRIVATE_U32);
    atomic_fetch_add(&blocked, 1);
    return number(waitv(entries, (unsigned)(long)count, NULL, 0));
}

CASE(the_last_of_128_words_wakes)
{
    pthread_t thread = start(wait_on_all_private, number(MOST));
    while (!wake(&words[MOST - 1], FUTEX_PRIVATE_FLAG)) {
        sched_yield();
    }
    IS(join(thread), MOST - 1);
}

CASE(a_word_that_is_named_twice_wakes_once)
{
    struct entry entries[2];
    fill(entries, 2, PRIVATE_U32);
    entries[1] = entries[0];
    struct timespec limit = from_now(CLOCK_MONOTONIC, 20 * MS);
    pthread_t thread = start(wait_on_all_private, number(1)); /* the process has threads */
    FAILS(waitv(entries, 2, &limit, CLOCK_MONOTONIC), ETIMEDOUT);
    while (!wake(&words[0], FUTEX_PRIVATE_FLAG)) {
        sched_yield();
    }
    IS(join(thread), 0);
}

CASE(time_limits_are_absolute_on_both_clocks)
{
    join(start(wait_on_all_private, number(0))); /* no words: EINVAL, and the process has threads */
    struct entry entries[3];
    fill(entries, 3, PRIVATE_U32);
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME};
    for (int i = 0; i < 2; i++) {
        int64_t started_ns = now_ns();
        struct timespec limit = from_now(clocks[i], 50 * MS);
        FAILS(waitv(entries, 3, &limit, clocks[i]), ETIMEDOUT);
        check_took(started_ns, i ? 45 : 50);
    }
    struct timespec past = {1, 0}, invalid = {0, 1000000000};
    FAILS(waitv(entries, 3, &past, CLOCK_MONOTONIC), ETIMEDOUT);
    FAILS(waitv(entries, 3, &invalid, CLOCK_MONOTONIC), EINVAL);
    FAILS(waitv(entries, 3, &past, CLOCK_BOOTTIME), EINVAL);
}

static void *ask_for_nonsense(void *argument)
{
    struct entry entries[3];
    fill(entries, 3, PRIVATE_U32);
    FAILS(waitv(entries, 0, NULL, 0), EINVAL);
    FAILS(waitv(entries, MOST + 1, NULL, 0), EINVAL);
    FAILS(waitv(NULL, 3, NULL, 0), EINVAL);
    FAILS(syscall(449, entries, 3, 1, NULL, 0), EINVAL);
    entries[2].value = 1;
    FAILS(waitv(entries, 3, NULL, 0), EAGAIN);
    entries[2].value = 1ull << 32;
    FAILS(waitv(entries, 3, NULL, 0), EINVAL);
    entries[2].value = 0;
    entries[2].reserved = 1;
    FAILS(waitv(entries, 3, NULL, 0), EINVAL);
    entries[2].reserved = 0;
    entries[1].flags = 0x40 | PRIVATE_U32;
    FAILS(waitv(entries, 3, NULL, 0), EINVAL);
    entries[1].flags = PRIVATE_U32;
    entries[1].address++;
    FAILS(waitv(entries, 3, NULL, 0), EINVAL);
    entries[1].address = 4096;
    FAILS(waitv(entries, 3, NULL, 0), EFAULT);
    return argument;
}

CASE(nonsense_is_told)
{
    join(start(ask_for_nonsense, NULL));
}

/* One word of each kind. */
static void *wait_on_both_kinds(void *argument)
{
    struct entry entries[2];
    fill(entries, 2, PRIVATE_U32);
    entries[1].flags = U32;
    for (int i = 0; i < 2; i++) {
        atomic_fetch_add(&blocked, 1);
        IS(waitv(entries, 2, NULL, 0), i);
    }
    return argument;
}

CASE(private_and_shared_words_in_one_wait)
{
    pthread_t thread = start(wait_on_both_kinds, NULL);
    while (!wake(&words[0], FUTEX_PRIVATE_FLAG)) {
        sched_yield();
    }
    while (atomic_load(&blocked) < 2) { /* two wakes of one wait would count as one */
        sched_yield();
    }
    while (!wake(&words[1], 0)) {
        sched_yield();
    }
    join(thread);
}

CASE(a_shared_word_is_woken_by_another_process)
{
    atomic_int *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK((void *)shared != MAP_FAILED);
    pthread_t thread = start(wait_on_all_private, number(1));
    pid_t child = GET(fork());
    if (child == 0) {
        while (!wake(&shared[1], 0)) {
            usleep(1000);
        }
        _exit(0);
    }
    struct entry entries[2];
    fill(entries, 2, U32);
    entries[0].address = (uintptr_t)&shared[0];
    entries[1].address = (uintptr_t)&shared[1];
    IS(waitv(entries, 2, NULL, 0), 1);
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    while (!wake(&words[0], FUTEX_PRIVATE_FLAG)) {
        sched_yield();
    }
    join(thread);
}

static void on_signal(int signal)
{
    (void)signal;
}

static void *wait_for_a_signal(void *argument)
{
    struct entry entries[2];
    fill(entries, 2, PRIVATE_U32);
    atomic_fetch_add(&blocked, 1);
    FAILS(waitv(entries, 2, NULL, 0), EINTR);
    return argument;
}

CASE(a_handler_without_restart_ends_the_wait)
{
    struct sigaction action = {.sa_handler = on_signal};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(wait_for_a_signal, NULL);
    while (!atomic_load(&blocked)) {
        sched_yield();
    }
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

/* Tokens: a wake that is counted is a wait that returned an index, whatever races. */
static atomic_int woken, returned, stop;

static void *wait_many_times(void *seed)
{
    unsigned state = (unsigned)(long)seed * 2654435761u + 1;
    struct entry entries[6];
    while (!atomic_load(&stop)) {
        state = state * 1664525u + 1013904223u;
        fill(entries, 6, PRIVATE_U32);
        struct timespec limit = from_now(CLOCK_MONOTONIC, (state >> 16) % 500 * 1000);
        long index = waitv(entries, 1 + state % 6, &limit, CLOCK_MONOTONIC);
        if (index >= 0) {
            CHECK(index < 6);
            atomic_fetch_add(&returned, 1);
        } else {
            CHECK(errno == ETIMEDOUT);
        }
    }
    return NULL;
}

static void *wake_many_times(void *seed)
{
    unsigned state = (unsigned)(long)seed * 2246822519u + 1;
    for (int i = 0; i < 3000; i++) {
        state = state * 1664525u + 1013904223u;
        atomic_fetch_add(&woken, (int)wake(&words[state % 6], FUTEX_PRIVATE_FLAG));
        if (i % 8 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

CASE(no_wake_is_lost_or_counted_twice)
{
    pthread_t waiters[8], wakers[4];
    for (long i = 0; i < 8; i++) {
        waiters[i] = start(wait_many_times, number(i));
    }
    for (long i = 0; i < 4; i++) {
        wakers[i] = start(wake_many_times, number(i));
    }
    join_all(wakers, 4);
    atomic_store(&stop, 1);
    join_all(waiters, 8);
    /* The kernel may count two wakes of one wait, on two of its words. */
    CHECK(woken >= returned);
    CHECK(returned > 0);
}
