/* Programs in good health that look like deadlocks for a moment, or to a careless eye, by the first
 * argument. Prints "ready" once it goes on, or waits, for the given number of seconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t data = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t round_of;
static sem_t first, second;
static int ends[2];
static volatile int goes_on = 1;
static double seconds = 3;

static void say_ready(void)
{
    printf("ready\n");
    fflush(stdout);
}

static void sleep_well(double for_seconds)
{
    struct timespec left = {(time_t)for_seconds, (long)((for_seconds - (long)for_seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0) {
    }
}

static pthread_t begin(void *(*function)(void *), long number)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, function, (void *)number) != 0) {
        exit(1);
    }
    return thread;
}

/* After a time, or at once, lets go what the others wait for. */
static void rest(void)
{
    say_ready();
    sleep_well(seconds);
    goes_on = 0;
}

static struct timespec later(long by_seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += by_seconds;
    return until;
}

/* Two threads want each other's locks, but not for ever. */
static void *take_two_for_a_while(void *argument)
{
    pthread_mutex_t *own = argument == NULL ? &lock_a : &lock_b;
    pthread_mutex_t *other = argument == NULL ? &lock_b : &lock_a;
    struct timespec until = later(argument == NULL ? (long)seconds : (long)seconds + 1);
    pthread_mutex_lock(own);
    pthread_barrier_wait(&round_of);
    if (pthread_mutex_timedlock(other, &until) == 0) {
        pthread_mutex_unlock(other);
    }
    pthread_mutex_unlock(own);
    return NULL;
}

static void timed_cycle(void)
{
    pthread_barrier_init(&round_of, NULL, 2);
    pthread_t one = begin(take_two_for_a_while, 0), two = begin(take_two_for_a_while, 1);
    say_ready();
    pthread_join(one, NULL);
    pthread_join(two, NULL);
}

static void *wait_for_work(void *argument)
{
    pthread_mutex_lock(&lock_a);
    while (goes_on) {
        pthread_cond_wait(&work, &lock_a);
    }
    pthread_mutex_unlock(&lock_a);
    return argument;
}

static void end_work(pthread_t thread)
{
    pthread_mutex_lock(&lock_a);
    goes_on = 0;
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&lock_a);
    pthread_join(thread, NULL);
}

static void idle_pool(void)
{
    pthread_t thread = begin(wait_for_work, 0);
    begin(wait_for_work, 1);
    say_ready();
    sleep_well(seconds);
    end_work(thread);
}

/* All threads wait; a signal ends that. */
static void on_signal(int signal)
{
    (void)signal;
    sem_post(&first);
}

static void signal_wakes(void)
{
    sem_init(&first, 0, 0);
    signal(SIGALRM, on_signal);
    pthread_t thread = begin(wait_for_work, 0);
    alarm((unsigned)seconds);
    say_ready();
    while (sem_wait(&first) != 0) {
    }
    end_work(thread);
}

static void timer_wakes(void)
{
    sem_init(&first, 0, 0);
    signal(SIGUSR1, on_signal);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec when = {.it_value = {(time_t)seconds, 0}};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    pthread_t thread = begin(wait_for_work, 0);
    timer_settime(timer, 0, &when, NULL);
    say_ready();
    while (sem_wait(&first) != 0) {
    }
    end_work(thread);
}

static void on_timer(union sigval value)
{
    (void)value;
    sem_post(&first);
}

static void timer_thread_wakes(void)
{
    sem_init(&first, 0, 0);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
    struct itimerspec when = {.it_value = {(time_t)seconds, 0}};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    pthread_t thread = begin(wait_for_work, 0);
    timer_settime(timer, 0, &when, NULL);
    say_ready();
    while (sem_wait(&first) != 0) {
    }
    end_work(thread);
}

static void *wait_for_signal(void *argument)
{
    sigset_t *set = argument;
    int signal;
    sigwait(set, &signal);
    sem_post(&first);
    return NULL;
}

static void sigwait_wakes(void)
{
    static sigset_t set;
    sem_init(&first, 0, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    begin(wait_for_signal, (long)&set);
    alarm((unsigned)seconds);
    say_ready();
    sem_wait(&first);
}

/* Another process wakes this one, in which all threads wait. */
static void process_wakes(void)
{
    sem_t *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
    sem_init(shared, 1, 0);
    if (fork() == 0) {
        sleep_well(seconds);
        sem_post(shared);
        _exit(0);
    }
    pthread_t thread = begin(wait_for_work, 0);
    say_ready();
    while (sem_wait(shared) != 0) {
    }
    end_work(thread);
    wait(NULL);
}

static void *read_pipe(void *argument)
{
    char byte;
    return read(ends[0], &byte, 1) == 1 ? argument : NULL;
}

static void pipe_wakes(void)
{
    if (pipe(ends) != 0) {
        exit(2);
    }
    if (fork() == 0) {
        sleep_well(seconds);
        _exit(write(ends[1], "x", 1) != 1);
    }
    pthread_t thread = begin(read_pipe, 0);
    say_ready();
    pthread_join(thread, NULL);
    wait(NULL);
}

static void child_wakes(void)
{
    pthread_t thread = begin(wait_for_work, 0);
    if (fork() == 0) {
        sleep_well(seconds);
        _exit(0);
    }
    say_ready();
    wait(NULL);
    end_work(thread);
}

/* Many threads take two locks in one order, again and again. */
static void *take_in_order(void *argument)
{
    while (goes_on) {
        pthread_mutex_lock(&lock_a);
        pthread_mutex_lock(&lock_b);
        for (volatile int i = 0; i < 1000; i++) {
        }
        pthread_mutex_unlock(&lock_b);
        pthread_mutex_unlock(&lock_a);
    }
    return argument;
}

static void contended(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = begin(take_in_order, i);
    }
    rest();
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* Tries to take the second lock, and gives the first one back. */
static void *try_two(void *argument)
{
    pthread_mutex_t *own = argument == NULL ? &lock_a : &lock_b;
    pthread_mutex_t *other = argument == NULL ? &lock_b : &lock_a;
    while (goes_on) {
        pthread_mutex_lock(own);
        if (pthread_mutex_trylock(other) == 0) {
            pthread_mutex_unlock(other);
        }
        pthread_mutex_unlock(own);
    }
    return NULL;
}

static void backing_off(void)
{
    pthread_t one = begin(try_two, 0), two = begin(try_two, 1);
    rest();
    pthread_join(one, NULL);
    pthread_join(two, NULL);
}

static void *answer(void *argument)
{
    while (goes_on) {
        sem_wait(&first);
        sem_post(&second);
    }
    return argument;
}

static void ping_pong(void)
{
    sem_init(&first, 0, 0);
    sem_init(&second, 0, 0);
    pthread_t thread = begin(answer, 0);
    say_ready();
    struct timespec until = later((long)seconds), now;
    do {
        sem_post(&first);
        sem_wait(&second);
        clock_gettime(CLOCK_REALTIME, &now);
    } while (now.tv_sec < until.tv_sec);
    goes_on = 0;
    sem_post(&first);
    pthread_join(thread, NULL);
}

/* A lock that is held for long, by a thread that sleeps; others wait for it, and for these. */
static void *hold_long(void *argument)
{
    pthread_mutex_lock(&lock_a);
    pthread_barrier_wait(&round_of);
    sleep_well(seconds);
    pthread_mutex_unlock(&lock_a);
    return argument;
}

static void *want_lock(void *argument)
{
    pthread_mutex_lock(&lock_b);
    pthread_mutex_lock(&lock_a);
    pthread_mutex_unlock(&lock_a);
    pthread_mutex_unlock(&lock_b);
    return argument;
}

static void long_chain(void)
{
    pthread_barrier_init(&round_of, NULL, 2);
    pthread_t holder = begin(hold_long, 0);
    pthread_barrier_wait(&round_of);
    pthread_t one = begin(want_lock, 1), two = begin(want_lock, 2);
    say_ready();
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    pthread_join(holder, NULL);
}

static void *read_and_write(void *argument)
{
    while (goes_on) {
        if (argument == NULL) {
            pthread_rwlock_wrlock(&data);
        } else {
            pthread_rwlock_rdlock(&data);
        }
        for (volatile int i = 0; i < 1000; i++) {
        }
        pthread_rwlock_unlock(&data);
    }
    return argument;
}

static void readers_and_writers(void)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) {
        threads[i] = begin(read_and_write, i / 2);
    }
    rest();
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void *meet(void *argument)
{
    for (int i = 0; i < 20; i++) {
        pthread_barrier_wait(&round_of);
        sleep_well(argument == NULL ? seconds / 20 : 0);
    }
    return argument;
}

static void barriers(void)
{
    pthread_t threads[4];
    pthread_barrier_init(&round_of, NULL, 4);
    for (int i = 0; i < 4; i++) {
        threads[i] = begin(meet, i);
    }
    say_ready();
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* The owner of a robust lock ends: the next one gets it. */
static pthread_mutex_t strong;

static void *end_with_lock(void *argument)
{
    pthread_mutex_lock(&strong);
    sleep_well(seconds);
    return argument;
}

static void owner_dies(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&strong, &attributes);
    pthread_t thread = begin(end_with_lock, 0);
    sleep_well(0.1);
    say_ready();
    if (pthread_mutex_lock(&strong) != EOWNERDEAD) {
        exit(3);
    }
    pthread_mutex_consistent(&strong);
    pthread_mutex_unlock(&strong);
    pthread_join(thread, NULL);
}

/* A child that was forked with a lock held, which its thread wants until it is released. */
static void *want_inherited(void *argument)
{
    pthread_mutex_lock(&lock_a);
    pthread_mutex_unlock(&lock_a);
    return argument;
}

static void *fork_with_lock(void *argument)
{
    pthread_mutex_lock(&lock_a);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread = begin(want_inherited, 0);
        sleep_well(seconds);
        pthread_mutex_unlock(&lock_a);
        pthread_join(thread, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    pthread_mutex_unlock(&lock_a);
    return argument;
}

static void inherited(void)
{
    pthread_t thread = begin(fork_with_lock, 0);
    say_ready();
    pthread_join(thread, NULL);
}

static void *join_next(void *argument)
{
    if (argument != NULL) {
        pthread_join(begin(join_next, (long)argument - 1), NULL);
    } else {
        sleep_well(seconds);
    }
    return NULL;
}

static void chain_of_joins(void)
{
    pthread_t thread = begin(join_next, 10);
    say_ready();
    pthread_join(thread, NULL);
}

static void *post_event(void *argument)
{
    unsigned long one = 1;
    sleep_well(seconds);
    return write(ends[0], &one, sizeof one) < 0 ? NULL : argument;
}

static void event_wakes(void)
{
    unsigned long count;
    ends[0] = eventfd(0, 0);
    pthread_t thread = begin(post_event, 0);
    say_ready();
    if (read(ends[0], &count, sizeof count) < 0) {
        exit(4);
    }
    pthread_join(thread, NULL);
}

static void computing(void)
{
    pthread_t thread = begin(want_lock, 1);
    struct timespec until = later((long)seconds), now;
    say_ready();
    do {
        clock_gettime(CLOCK_REALTIME, &now);
    } while (now.tv_sec < until.tv_sec);
    pthread_join(thread, NULL);
}

static const struct {
    const char *name;
    void (*function)(void);
} KINDS[] = {
    {"timed_cycle", timed_cycle},
    {"idle_pool", idle_pool},
    {"signal_wakes", signal_wakes},
    {"timer_wakes", timer_wakes},
    {"timer_thread_wakes", timer_thread_wakes},
    {"sigwait_wakes", sigwait_wakes},
    {"process_wakes", process_wakes},
    {"pipe_wakes", pipe_wakes},
    {"child_wakes", child_wakes},
    {"contended", contended},
    {"backing_off", backing_off},
    {"ping_pong", ping_pong},
    {"long_chain", long_chain},
    {"readers_and_writers", readers_and_writers},
    {"barriers", barriers},
    {"owner_dies", owner_dies},
    {"inherited", inherited},
    {"chain_of_joins", chain_of_joins},
    {"event_wakes", event_wakes},
    {"computing", computing},
};

int main(int count, char **arguments)
{
    seconds = count > 2 ? atof(arguments[2]) : seconds;
    for (unsigned i = 0; count > 1 && i < sizeof KINDS / sizeof *KINDS; i++) {
        if (strcmp(KINDS[i].name, arguments[1]) == 0) {
            KINDS[i].function();
            return 0;
        }
    }
    return 5;
}
