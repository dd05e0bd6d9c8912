/* Locks that are shared between processes: other processes take part, and so do many threads. */
#include "check.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { MANY = 200 };

static struct memory {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    pthread_rwlock_t rwlock;
    pthread_barrier_t barrier;
    sem_t semaphore;
    atomic_int word, waiting, turn;
    int go;
    long counter;
} * memory;

__attribute__((constructor)) static void map(void)
{
    memory = mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void make_mutex(int kind, int protocol)
{
    pthread_mutexattr_t attributes;
    OK(pthread_mutexattr_init(&attributes));
    OK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_mutexattr_settype(&attributes, kind));
    OK(pthread_mutexattr_setprotocol(&attributes, protocol));
    OK(pthread_mutex_init(&memory->mutex, &attributes));
}

static void make_condition(void)
{
    pthread_condattr_t attributes;
    OK(pthread_condattr_init(&attributes));
    OK(pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    OK(pthread_cond_init(&memory->condition, &attributes));
    make_mutex(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE);
}

static void expect_success(pid_t child)
{
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static void *wait_until_go(void *argument)
{
    OK(pthread_mutex_lock(&memory->mutex));
    atomic_fetch_add(&memory->waiting, 1);
    while (!memory->go) {
        OK(pthread_cond_wait(&memory->condition, &memory->mutex));
    }
    memory->counter++;
    OK(pthread_mutex_unlock(&memory->mutex));
    return argument;
}

CASE(two_hundred_wait_on_a_condition_of_another_process)
{
    make_condition();
    pid_t child = GET(fork());
    if (child == 0) {
        while (atomic_load(&memory->waiting) < MANY) {
            usleep(1000);
        }
        OK(pthread_mutex_lock(&memory->mutex));
        memory->go = 1;
        OK(pthread_cond_broadcast(&memory->condition));
        OK(pthread_mutex_unlock(&memory->mutex));
        _exit(0);
    }
    pthread_t threads[MANY];
    for (int i = 0; i < MANY; i++) {
        threads[i] = start_small(wait_until_go, NULL);
    }
    join_all(threads, MANY);
    IS(memory->counter, MANY);
    expect_success(child);
}

static void *take_one(void *argument)
{
    while (sem_wait(&memory->semaphore) == -1) {
        CHECK(errno == EINTR);
    }
    return argument;
}

CASE(another_process_posts_to_two_hundred)
{
    GET(sem_init(&memory->semaphore, 1, 0));
    pid_t child = GET(fork());
    if (child == 0) {
        for (int i = 0; i < MANY; i++) {
            GET(sem_post(&memory->semaphore));
        }
        _exit(0);
    }
    pthread_t threads[MANY];
    for (int i = 0; i < MANY; i++) {
        threads[i] = start_small(take_one, NULL);
    }
    join_all(threads, MANY);
    FAILS(sem_trywait(&memory->semaphore), EAGAIN);
    expect_success(child);
}

static void *count(void *argument)
{
    for (int i = 0; i < 300; i++) {
        OK(pthread_mutex_lock(&memory->mutex));
        if (argument) {
            OK(pthread_mutex_lock(&memory->mutex)); /* recursive */
        }
        long before = memory->counter;
        sched_yield();
        memory->counter = before + 1;
        if (argument) {
            OK(pthread_mutex_unlock(&memory->mutex));
        }
        OK(pthread_mutex_unlock(&memory->mutex));
    }
    return argument;
}

/* Threads of two processes: an owner elsewhere is never taken for oneself. */
static void two_processes_count(int kind, int protocol)
{
    make_mutex(kind, protocol);
    pid_t child = GET(fork());
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = start(count, number(kind == PTHREAD_MUTEX_RECURSIVE));
    }
    join_all(threads, 8);
    if (child == 0) {
        _exit(0);
    }
    expect_success(child);
    IS(memory->counter, 4800);
}

CASE(threads_of_two_processes_exclude_each_other)
{
    two_processes_count(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE);
}

CASE(recursive_across_processes)
{
    two_processes_count(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE);
}

CASE(errorcheck_across_processes)
{
    two_processes_count(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE);
}

CASE(priority_inheritance_across_processes)
{
    two_processes_count(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT);
}

static void *read_and_write(void *argument)
{
    for (int i = 0; i < 200; i++) {
        if (i % 4) {
            OK(pthread_rwlock_rdlock(&memory->rwlock));
            IS(memory->counter % 2, 0);
        } else {
            OK(pthread_rwlock_wrlock(&memory->rwlock));
            memory->counter++;
            sched_yield();
            memory->counter++;
        }
        OK(pthread_rwlock_unlock(&memory->rwlock));
    }
    return argument;
}

CASE(a_rwlock_between_processes)
{
    pthread_rwlockattr_t attributes;
    OK(pthread_rwlockattr_init(&attributes));
    OK(pthread_rwlockattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_rwlock_init(&memory->rwlock, &attributes));
    pid_t child = GET(fork());
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = start(read_and_write, NULL);
    }
    join_all(threads, 8);
    if (child == 0) {
        _exit(0);
    }
    expect_success(child);
    IS(memory->counter, 2 * 16 * 50);
}

static void *pass_barrier(void *argument)
{
    for (int i = 0; i < 50; i++) {
        int result = pthread_barrier_wait(&memory->barrier);
        CHECK(result == 0 || result == PTHREAD_BARRIER_SERIAL_THREAD);
        if (result) {
            memory->counter++;
        }
    }
    return argument;
}

CASE(a_barrier_between_processes)
{
    pthread_barrierattr_t attributes;
    OK(pthread_barrierattr_init(&attributes));
    OK(pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    OK(pthread_barrier_init(&memory->barrier, &attributes, 8));
    pid_t child = GET(fork());
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(pass_barrier, NULL);
    }
    join_all(threads, 4);
    if (child == 0) {
        _exit(0);
    }
    expect_success(child);
    IS(memory->counter, 50);
}

static void *time_out(void *argument)
{
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_MONOTONIC, 60 * MS);
    OK(pthread_mutex_lock(&memory->mutex));
    int result;
    while ((result = pthread_cond_timedwait(&memory->condition, &memory->mutex, &limit)) == 0) {
    }
    IS(result, ETIMEDOUT);
    OK(pthread_mutex_unlock(&memory->mutex));
    check_took(started_ns, 60);
    limit = from_now(CLOCK_MONOTONIC, 20 * MS);
    FAILS(sem_clockwait(&memory->semaphore, CLOCK_MONOTONIC, &limit), ETIMEDOUT);
    return argument;
}

CASE(time_limits_pass)
{
    make_condition();
    GET(sem_init(&memory->semaphore, 1, 0));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(time_out, NULL);
    }
    join_all(threads, 20);
    OK(pthread_mutex_lock(&memory->mutex));
    int64_t started_ns = now_ns();
    struct timespec limit = from_now(CLOCK_MONOTONIC, 30 * MS);
    IS(pthread_mutex_clocklock(&memory->mutex, CLOCK_MONOTONIC, &limit), ETIMEDOUT);
    limit = from_now(CLOCK_REALTIME, 30 * MS);
    IS(pthread_mutex_timedlock(&memory->mutex, &limit), ETIMEDOUT);
    check_took(started_ns, 55);
}

static void unlock(void *mutex)
{
    OK(pthread_mutex_unlock(mutex));
    atomic_fetch_add(&memory->turn, 1);
}

static void *wait_to_be_cancelled(void *argument)
{
    OK(pthread_mutex_lock(&memory->mutex));
    pthread_cleanup_push(unlock, &memory->mutex);
    atomic_fetch_add(&memory->waiting, 1);
    for (;;) {
        OK(pthread_cond_wait(&memory->condition, &memory->mutex));
    }
    pthread_cleanup_pop(0);
    return argument;
}

static void *take_to_be_cancelled(void *argument)
{
    atomic_fetch_add(&memory->waiting, 1);
    take_one(NULL);
    return argument;
}

CASE(waits_are_cancelled)
{
    make_condition();
    GET(sem_init(&memory->semaphore, 1, 0));
    pthread_t threads[40];
    for (int i = 0; i < 40; i++) {
        threads[i] = start(i % 2 ? wait_to_be_cancelled : take_to_be_cancelled, NULL);
    }
    while (atomic_load(&memory->waiting) < 40) {
        sched_yield();
    }
    for (int i = 0; i < 40; i++) {
        OK(pthread_cancel(threads[i]));
    }
    for (int i = 0; i < 40; i++) {
        CHECK(join(threads[i]) == PTHREAD_CANCELED);
    }
    IS(memory->turn, 20);
}

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&memory->turn, 1);
}

static int flag;

static void *wait_for_a_signal(void *argument)
{
    atomic_fetch_add(&memory->waiting, 1);
    long result = syscall(SYS_futex, &memory->word, FUTEX_WAIT | flag, 0, NULL, NULL, 0);
    return result == -1 ? number(errno) : argument;
}

/* The handler runs while the thread waits; without SA_RESTART the wait ends. */
static void signals_find_waits(int flags, long expected)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    GET(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(wait_for_a_signal, NULL);
    }
    while (atomic_load(&memory->waiting) < 20) {
        sched_yield();
    }
    let_others_block();
    for (int i = 0; i < 20; i++) {
        OK(pthread_kill(threads[i], SIGUSR1));
    }
    while (atomic_load(&memory->turn) < 20) {
        sched_yield();
    }
    for (int woken = 0; expected == 0 && woken < 20; sched_yield()) {
        long count = syscall(SYS_futex, &memory->word, FUTEX_WAKE | flag, INT_MAX, NULL, NULL, 0);
        woken += (int)GET(count);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(join(threads[i]) == number(expected));
    }
}

CASE(a_signal_ends_a_wait)
{
    signals_find_waits(0, EINTR);
}

CASE(a_signal_with_restart_does_not_end_a_wait)
{
    signals_find_waits(SA_RESTART, 0);
}

CASE(a_signal_ends_a_private_wait)
{
    flag = FUTEX_PRIVATE_FLAG;
    signals_find_waits(0, EINTR);
}

CASE(a_signal_with_restart_does_not_end_a_private_wait)
{
    flag = FUTEX_PRIVATE_FLAG;
    signals_find_waits(SA_RESTART, 0);
}

static void *wait_with_flag(void *kind)
{
    atomic_fetch_add(&memory->waiting, 1);
    OK(syscall(SYS_futex, &memory->word, FUTEX_WAIT | (long)kind, memory->word, NULL, NULL, 0));
    return kind;
}

static long wake_one(int kind)
{
    return GET(syscall(SYS_futex, &memory->word, FUTEX_WAKE | kind, 1, NULL, NULL, 0));
}

CASE(private_and_shared_waits_of_one_word_are_two_queues)
{
    memory->word = 5 << 20; /* a value that could be a thread's id */
    pthread_t alone = start(wait_with_flag, number(FUTEX_PRIVATE_FLAG));
    pthread_t public = start(wait_with_flag, number(0));
    while (atomic_load(&memory->waiting) < 2) {
        sched_yield();
    }
    let_others_block();
    while (!wake_one(0)) {
        sched_yield();
    }
    join(public);
    IS(wake_one(0), 0);
    while (!wake_one(FUTEX_PRIVATE_FLAG)) {
        sched_yield();
    }
    join(alone);
    IS(wake_one(FUTEX_PRIVATE_FLAG), 0);
}

/* Values that could be ids of threads, as sequence numbers reach them. */
static void *take_turns(void *me)
{
    for (int i = 0; i < 300; i++) {
        int seen;
        while ((seen = atomic_load(&memory->word)) % 2 != (long)me) {
            syscall(SYS_futex, &memory->word, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
        atomic_fetch_add(&memory->word, 1);
        GET(syscall(SYS_futex, &memory->word, FUTEX_WAKE, 1, NULL, NULL, 0));
    }
    return NULL;
}

CASE(sequence_numbers_of_any_size_cross_processes)
{
    memory->word = 6 << 20;
    pid_t child = GET(fork());
    join(start(take_turns, number(child == 0)));
    if (child == 0) {
        _exit(0);
    }
    expect_success(child);
    IS(memory->word, (6 << 20) + 600);
}
