/* Robust mutexes: however an owner dies, the next one is told. */
#include "check.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

static struct memory {
    pthread_mutex_t mutexes[8];
    atomic_int step;
} * memory;

static void make(int shared, int protocol, int kind)
{
    int kinds = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, kinds, -1, 0);
    CHECK((void *)memory != MAP_FAILED);
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutexattr_setprotocol(&attributes, protocol));
    OK(pthread_mutexattr_settype(&attributes, kind));
    OK(pthread_mutexattr_setpshared(&attributes, shared));
    for (int i = 0; i < 8; i++) {
        OK(pthread_mutex_init(&memory->mutexes[i], &attributes));
    }
}

static void wait_for_step(int wanted)
{
    while (atomic_load(&memory->step) < wanted) {
        usleep(1000);
    }
}

static void recover(int index)
{
    IS(pthread_mutex_lock(&memory->mutexes[index]), EOWNERDEAD);
    OK(pthread_mutex_consistent(&memory->mutexes[index]));
    OK(pthread_mutex_unlock(&memory->mutexes[index]));
}

static void *hold_all(void *argument)
{
    for (int i = 0; i < 8; i++) {
        OK(pthread_mutex_lock(&memory->mutexes[i]));
    }
    OK(pthread_mutex_unlock(&memory->mutexes[3]));
    atomic_fetch_add(&memory->step, 1);
    return argument;
}

static void a_thread_dies(int protocol, int kind)
{
    make(PTHREAD_PROCESS_PRIVATE, protocol, kind);
    join(start(hold_all, NULL));
    OK(pthread_mutex_lock(&memory->mutexes[3]));
    for (int i = 0; i < 8; i++) {
        if (i != 3) {
            recover(i);
        }
    }
}

CASE(a_thread_dies_with_several)
{
    a_thread_dies(PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
}

CASE(a_thread_dies_with_recursive_ones)
{
    a_thread_dies(PTHREAD_PRIO_NONE, PTHREAD_MUTEX_RECURSIVE);
}

CASE(a_thread_dies_with_those_that_inherit)
{
    a_thread_dies(PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_ERRORCHECK);
}

static void *lock_first(void *argument)
{
    return argument ? number(pthread_mutex_lock(&memory->mutexes[0])) : hold_all(NULL);
}

static void waiters_are_woken(int protocol)
{
    make(PTHREAD_PROCESS_PRIVATE, protocol, PTHREAD_MUTEX_NORMAL);
    OK(pthread_mutex_lock(&memory->mutexes[7])); /* stops the holder of the rest */
    pthread_t holder = start(lock_first, NULL);
    while (pthread_mutex_trylock(&memory->mutexes[6]) == 0) {
        OK(pthread_mutex_unlock(&memory->mutexes[6]));
        sched_yield();
    }
    pthread_t waiter = start(lock_first, number(1));
    let_others_block();
    OK(pthread_mutex_unlock(&memory->mutexes[7]));
    join(holder);
    IS(join(waiter), EOWNERDEAD);
    /* The waiter died without making it consistent, so the next one hears of a death as well. */
    recover(0);
}

CASE(a_waiter_is_woken)
{
    waiters_are_woken(PTHREAD_PRIO_NONE);
}

CASE(a_waiter_of_one_that_inherits_is_woken)
{
    waiters_are_woken(PTHREAD_PRIO_INHERIT);
}

CASE(what_is_not_made_consistent_is_lost)
{
    make(PTHREAD_PROCESS_PRIVATE, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
    join(start(hold_all, NULL));
    IS(pthread_mutex_lock(&memory->mutexes[0]), EOWNERDEAD);
    OK(pthread_mutex_unlock(&memory->mutexes[0]));
    IS(pthread_mutex_lock(&memory->mutexes[0]), ENOTRECOVERABLE);
    IS(pthread_mutex_trylock(&memory->mutexes[0]), ENOTRECOVERABLE);
    struct timespec limit = from_now(CLOCK_MONOTONIC, SECOND);
    IS(pthread_mutex_clocklock(&memory->mutexes[1], CLOCK_MONOTONIC, &limit), EOWNERDEAD);
    IS(pthread_mutex_trylock(&memory->mutexes[2]), EOWNERDEAD);
}

static void *hold_for_ever(void *argument)
{
    hold_all(argument);
    sleep_ms(60000);
    return argument;
}

/* Another process has a thread that holds all, and dies by `die`: waiters here are told. */
static void a_process_dies(void (*die)(void), int by_main)
{
    make(PTHREAD_PROCESS_SHARED, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
    pid_t child = GET(fork());
    if (child == 0) {
        start(by_main ? lock_first : hold_for_ever, by_main ? number(1) : NULL);
        if (by_main) {
            sleep_ms(100); /* the thread has locked the first, and is gone */
            IS(pthread_mutex_lock(&memory->mutexes[0]), EOWNERDEAD);
            OK(pthread_mutex_consistent(&memory->mutexes[0]));
            OK(pthread_mutex_unlock(&memory->mutexes[0]));
            hold_all(NULL);
        }
        wait_for_step(2);
        sleep_ms(50);
        die();
        _exit(3);
    }
    wait_for_step(1);
    atomic_fetch_add(&memory->step, 1);
    recover(0);
    recover(7);
    OK(pthread_mutex_lock(&memory->mutexes[3]));
    int status;
    IS(waitpid(child, &status, 0), child);
}

static void die_by_exit(void)
{
    _exit(0);
}

static void die_by_abort(void)
{
    signal(SIGABRT, SIG_DFL);
    abort();
}

static void die_by_fault(void)
{
    *(volatile int *)(uintptr_t)(8 + argument_count * 8) = 1;
}

static void die_by_kill(void)
{
    kill(getpid(), SIGKILL);
}

CASE(a_process_exits)
{
    a_process_dies(die_by_exit, 0);
}

CASE(a_process_aborts)
{
    a_process_dies(die_by_abort, 0);
}

CASE(a_process_crashes)
{
    a_process_dies(die_by_fault, 0);
}

CASE(a_process_is_killed_whose_main_thread_holds_them)
{
    a_process_dies(die_by_kill, 1);
}

/* The list by hand: a circle and a bad pointer end the walk, and nothing else. */
struct list {
    struct list *next;
    atomic_uint word;
};

static void *die_with_list(void *argument)
{
    static struct list entries[3];
    static struct robust_list_head head;
    unsigned me = (unsigned)syscall(SYS_gettid);
    struct list *first = argument;
    head.futex_offset = offsetof(struct list, word);
    for (int i = 0; i < 3; i++) {
        entries[i].word = me;
        entries[i].next = &entries[(i + 1) % 3];
    }
    entries[2].word = me + 1;
    if (first) {
        entries[1].next = first;
    }
    head.list.next = (void *)&entries[0];
    head.list_op_pending = (void *)&entries[2];
    FAILS(syscall(SYS_set_robust_list, &head, 23), EINVAL);
    GET(syscall(SYS_set_robust_list, &head, sizeof head));
    struct robust_list_head *got = NULL;
    size_t size = 0;
    GET(syscall(SYS_get_robust_list, 0, &got, &size));
    CHECK(got == &head && size == sizeof head);
    return entries;
}

CASE(lists_may_be_circles_or_end_nowhere)
{
    struct list *entries = join(start(die_with_list, NULL));
    IS(entries[0].word, FUTEX_OWNER_DIED);
    IS(entries[1].word, FUTEX_OWNER_DIED);
    CHECK(!(entries[2].word & FUTEX_OWNER_DIED));
    entries = join(start(die_with_list, (void *)8));
    IS(entries[0].word, FUTEX_OWNER_DIED);
    IS(entries[1].word, FUTEX_OWNER_DIED);
}
