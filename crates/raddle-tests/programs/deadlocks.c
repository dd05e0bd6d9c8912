/* Deadlocks of each kind, by the first argument. Prints "ready" when the last thread is about to
 * wait for ever; it may take a moment until it does. The functions wait_* are on the stacks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <threads.h>
#include <unistd.h>

enum { LOCKS = 5 };

static pthread_mutex_t locks[LOCKS];
static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared_data = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t together;
static pthread_barrier_t gate;
static sem_t empty;
static mtx_t modern[2];
static pthread_t threads[LOCKS];

static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static pthread_t begin(void *(*function)(void *), long number)
{
    char name[16];
    snprintf(name, sizeof name, "party-%ld", number);
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, (void *)number) != 0) {
        exit(1);
    }
    pthread_setname_np(thread, name);
    return thread;
}

static void make_mutex(pthread_mutex_t *mutex, int type, int protocol, int robust, int shared)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, type);
    pthread_mutexattr_setprotocol(&attributes, protocol);
    pthread_mutexattr_setrobust(&attributes, robust);
    pthread_mutexattr_setpshared(&attributes, shared);
    if (pthread_mutex_init(mutex, &attributes) != 0) {
        exit(2);
    }
}

static void make_locks(int type, int protocol, int robust, int shared)
{
    for (int i = 0; i < LOCKS; i++) {
        make_mutex(&locks[i], type, protocol, robust, shared);
    }
}

__attribute__((noinline)) static int wait_for_mutex(pthread_mutex_t *mutex)
{
    return pthread_mutex_lock(mutex) + 1;
}

static long parties;

/* Takes its own lock, and when all have theirs, wants the next one's. */
static void *take_two(void *argument)
{
    long number = (long)argument;
    pthread_mutex_lock(&locks[number]);
    pthread_barrier_wait(&together);
    return (void *)(long)wait_for_mutex(&locks[(number + 1) % parties]);
}

static void go_round(long count)
{
    parties = count;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (long i = 0; i < count; i++) {
        threads[i] = begin(take_two, i);
    }
    say_ready();
    sleep(1000);
}

static void make_plain(void) { make_locks(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0, 0); }

static void cycle2(void)
{
    make_plain();
    go_round(2);
}

static void cycle5(void)
{
    make_plain();
    go_round(5);
}

static void recursive(void)
{
    make_locks(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE, 0, 0);
    go_round(2);
}

static void checking(void)
{
    make_locks(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE, 0, 0);
    go_round(3);
}

static void robust(void)
{
    make_locks(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_ROBUST, 0);
    go_round(2);
}

static void inheriting(void)
{
    make_locks(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT, 0, 0);
    go_round(2);
}

static void process_shared(void)
{
    make_locks(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0, PTHREAD_PROCESS_SHARED);
    go_round(2);
}

static void *take_two_modern(void *argument)
{
    long number = (long)argument;
    mtx_lock(&modern[number]);
    pthread_barrier_wait(&together);
    return (void *)(long)mtx_lock(&modern[1 - number]);
}

static void c11(void)
{
    pthread_barrier_init(&together, NULL, 2);
    for (long i = 0; i < 2; i++) {
        mtx_init(&modern[i], mtx_plain);
        begin(take_two_modern, i);
    }
    say_ready();
    sleep(1000);
}

static void *take_twice(void *argument)
{
    pthread_mutex_lock(&lock_a);
    return (void *)((long)wait_for_mutex(&lock_a) + (long)argument);
}

static void itself(void)
{
    begin(take_twice, 0);
    say_ready();
    sleep(1000);
}

static void *join_other(void *argument)
{
    pthread_barrier_wait(&together);
    void *result;
    pthread_join(threads[1 - (long)argument], &result);
    return result;
}

static void join_cycle(void)
{
    pthread_barrier_init(&together, NULL, 3);
    for (long i = 0; i < 2; i++) {
        threads[i] = begin(join_other, i);
    }
    pthread_barrier_wait(&together);
    say_ready();
    sleep(1000);
}

static void *want_lock(void *argument)
{
    return (void *)((long)wait_for_mutex(&lock_a) + (long)argument);
}

__attribute__((noinline)) static int wait_for_end(pthread_t thread)
{
    return pthread_join(thread, NULL) + 1;
}

static void *join_with_lock(void *argument)
{
    pthread_mutex_lock(&lock_a);
    return (void *)((long)wait_for_end(begin(want_lock, 1)) + (long)argument);
}

static void join_mutex(void)
{
    begin(join_with_lock, 0);
    say_ready();
    sleep(1000);
}

static void *end_with_lock(void *argument)
{
    pthread_mutex_lock(&lock_a);
    return argument;
}

static void lost(void)
{
    pthread_join(begin(end_with_lock, 0), NULL);
    begin(want_lock, 1);
    say_ready();
    sleep(1000);
}

/* Holds the lock for reading and wants it for writing. */
static void *upgrade_lock(void *argument)
{
    pthread_rwlock_rdlock(&shared_data);
    return (void *)((long)pthread_rwlock_wrlock(&shared_data) + (long)argument);
}

static void upgrade(void)
{
    threads[0] = begin(upgrade_lock, 0);
    say_ready();
    pthread_join(threads[0], NULL);
}

/* Two locks, one of which is held for writing. */
static void *write_and_lock(void *argument)
{
    if (argument == NULL) {
        pthread_rwlock_wrlock(&shared_data);
        pthread_barrier_wait(&together);
        return (void *)(long)wait_for_mutex(&lock_a);
    }
    pthread_mutex_lock(&lock_a);
    pthread_barrier_wait(&together);
    return (void *)(long)(argument == (void *)1 ? pthread_rwlock_rdlock(&shared_data)
                                                 : pthread_rwlock_wrlock(&shared_data));
}

static void read_write(long other)
{
    pthread_barrier_init(&together, NULL, 2);
    begin(write_and_lock, 0);
    begin(write_and_lock, other);
    say_ready();
    sleep(1000);
}

static void reader(void) { read_write(1); }

static void writer(void) { read_write(2); }

static void *wait_for_semaphore(void *argument)
{
    sem_wait(&empty);
    return argument;
}

static void *wait_at_gate(void *argument)
{
    pthread_barrier_wait(&gate);
    return argument;
}

static void asleep(void)
{
    sem_init(&empty, 0, 0);
    pthread_barrier_init(&gate, NULL, 3);
    threads[0] = begin(wait_for_semaphore, 0);
    threads[1] = begin(wait_at_gate, 1);
    threads[2] = begin(wait_at_gate, 2);
    say_ready();
    pthread_join(threads[0], NULL);
}

static void *wait_for_condition(void *argument)
{
    pthread_mutex_lock(&lock_b);
    for (;;) {
        pthread_cond_wait(&never, &lock_b);
    }
    return argument;
}

static void condition(void)
{
    threads[0] = begin(wait_for_condition, 0);
    say_ready();
    pthread_join(threads[0], NULL);
}

/* Each of two processes holds a lock that the other one wants. */
static void processes(void)
{
    pthread_mutex_t *both = mmap(NULL, 2 * sizeof *both, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int to_child[2], to_parent[2];
    char byte = 0;
    if (both == MAP_FAILED || pipe(to_child) != 0 || pipe(to_parent) != 0) {
        exit(3);
    }
    make_mutex(&both[0], PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0, PTHREAD_PROCESS_SHARED);
    make_mutex(&both[1], PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, 0, PTHREAD_PROCESS_SHARED);
    pid_t child = fork();
    int own = child == 0, write_to = own ? to_parent[1] : to_child[1];
    int read_from = own ? to_child[0] : to_parent[0];
    begin(wait_for_semaphore, 0); /* the process gets green threads before it takes a lock */
    pthread_mutex_lock(&both[own]);
    if (write(write_to, &byte, 1) != 1 || read(read_from, &byte, 1) != 1) {
        exit(4);
    }
    if (own) {
        alarm(100);
    } else {
        say_ready();
    }
    wait_for_mutex(&both[1 - own]);
}

static const struct {
    const char *name;
    void (*function)(void);
} KINDS[] = {
    {"cycle2", cycle2},           {"cycle5", cycle5},         {"recursive", recursive},
    {"checking", checking},       {"robust", robust},         {"inheriting", inheriting},
    {"c11", c11},                 {"itself", itself},         {"join_cycle", join_cycle},
    {"join_mutex", join_mutex},   {"lost", lost},             {"upgrade", upgrade},
    {"reader", reader},           {"writer", writer},         {"asleep", asleep},
    {"condition", condition},     {"processes", processes},   {"process_shared", process_shared},
};

int main(int count, char **arguments)
{
    for (unsigned i = 0; count > 1 && i < sizeof KINDS / sizeof *KINDS; i++) {
        if (strcmp(KINDS[i].name, arguments[1]) == 0) {
            KINDS[i].function();
            return 0;
        }
    }
    return 5;
}
