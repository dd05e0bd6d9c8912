/* What belongs to a thread: scheduling attributes and their inheritance, stacks, names, ids. */
#include "check.h"
#include "made_call.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* `struct sched_attr`, first version. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static int get_attributes(pid_t id, struct attributes *to)
{
    return syscall(SYS_sched_getattr, id, to, sizeof *to, 0);
}

static int set_attributes(pid_t id, struct attributes *from)
{
    from->size = sizeof *from;
    return syscall(SYS_sched_setattr, id, from, 0);
}

static atomic_int id_of_sleeper, stop;

static void *sleep_until_stopped(void *argument)
{
    atomic_store(&id_of_sleeper, gettid());
    while (!atomic_load(&stop)) {
        usleep(1000);
    }
    return argument;
}

static pthread_t start_sleeper(void)
{
    pthread_t thread = start(sleep_until_stopped, NULL);
    while (!atomic_load(&id_of_sleeper)) {
        sched_yield();
    }
    return thread;
}

static void stop_sleeper(pthread_t thread)
{
    atomic_store(&stop, 1);
    join(thread);
}

static void *report_policy_and_nice(void *argument)
{
    (void)argument;
    return number(sched_getscheduler(0) * 100 + getpriority(PRIO_PROCESS, 0));
}

static void *children_inherit(void *argument)
{
    struct sched_param none = {0};
    GET(sched_setscheduler(0, SCHED_BATCH, &none));
    GET(setpriority(PRIO_PROCESS, 0, 7));
    IS(join(start(report_policy_and_nice, NULL)), SCHED_BATCH * 100 + 7);
    GET(sched_setscheduler(0, SCHED_IDLE | SCHED_RESET_ON_FORK, &none));
    IS(sched_getscheduler(0), SCHED_IDLE | SCHED_RESET_ON_FORK);
    return argument;
}

CASE(a_new_thread_inherits_policy_and_niceness)
{
    join(start(children_inherit, NULL));
    IS(sched_getscheduler(0), SCHED_OTHER);
    IS(getpriority(PRIO_PROCESS, 0), 0);
}

static void *reset_for_children(void *argument)
{
    struct attributes now;
    GET(get_attributes(0, &now));
    now.flags = 1;
    now.nice = 4;
    GET(set_attributes(0, &now));
    GET(get_attributes(0, &now));
    IS(now.flags, 1);
    IS(now.nice, 4);
    IS(join(start(report_policy_and_nice, NULL)), SCHED_OTHER * 100 + 4);
    return argument;
}

CASE(attributes_are_read_and_written)
{
    pthread_t thread = start_sleeper();
    struct attributes now;
    GET(get_attributes(id_of_sleeper, &now));
    IS(now.policy, SCHED_OTHER);
    IS(now.nice, 0);
    now.policy = SCHED_BATCH;
    now.nice = 5;
    GET(set_attributes(id_of_sleeper, &now));
    memset(&now, 0xff, sizeof now);
    GET(get_attributes(id_of_sleeper, &now));
    IS(now.size, sizeof now);
    IS(now.policy, SCHED_BATCH);
    IS(now.nice, 5);
    IS(now.priority, 0);
    IS(getpriority(PRIO_PROCESS, id_of_sleeper), 5);
    join(start(reset_for_children, NULL));
    stop_sleeper(thread);
}

CASE(wrong_requests_are_refused)
{
    pthread_t thread = start_sleeper();
    struct sched_param none = {0}, one = {1}, hundred = {100};
    struct timespec interval;
    FAILS(sched_setscheduler(id_of_sleeper, SCHED_OTHER, &one), EINVAL);
    FAILS(sched_setscheduler(id_of_sleeper, SCHED_FIFO, &none), EINVAL);
    FAILS(sched_setscheduler(id_of_sleeper, SCHED_RR, &hundred), EINVAL);
    FAILS(sched_setscheduler(id_of_sleeper, 4, &none), EINVAL);
    FAILS(sched_setscheduler(id_of_sleeper, 77, &none), EINVAL);
    FAILS(sched_setscheduler(id_of_sleeper, -1, &none), EINVAL);
    FAILS(sched_setparam(id_of_sleeper, &one), EINVAL);
    FAILS(sched_setscheduler(0x3ffffffe, SCHED_OTHER, &none), ESRCH);
    FAILS(sched_getparam(0x3ffffffe, &none), ESRCH);
    FAILS(sched_rr_get_interval(0x3ffffffe, &interval), ESRCH);
    FAILS(getpriority(PRIO_PROCESS, 0x3ffffffe), ESRCH);
    FAILS(setpriority(PRIO_PROCESS, 0x3ffffffe, 1), ESRCH);
    FAILS(setpriority(17, 0, 1), EINVAL);
    GET(sched_setparam(id_of_sleeper, &none));
    GET(sched_rr_get_interval(id_of_sleeper, &interval));
    GET(setpriority(PRIO_PROCESS, id_of_sleeper, 1000));
    IS(getpriority(PRIO_PROCESS, id_of_sleeper), 19);
    struct attributes now;
    GET(get_attributes(id_of_sleeper, &now));
    now.flags = 1 << 20;
    FAILS(set_attributes(id_of_sleeper, &now), EINVAL);
    now.size = 8;
    FAILS(syscall(SYS_sched_setattr, id_of_sleeper, &now, 0), E2BIG);
    FAILS(syscall(SYS_sched_getattr, id_of_sleeper, &now, 8, 0), EINVAL);
    FAILS(syscall(SYS_sched_setattr, id_of_sleeper, 8L, 0), EFAULT);
    FAILS(syscall(SYS_sched_setscheduler, id_of_sleeper, SCHED_OTHER, 8L), EFAULT);
    FAILS(syscall(SYS_sched_getparam, id_of_sleeper, 8L), EFAULT);
    stop_sleeper(thread);
}

static void *ask_for_more(void *argument)
{
    struct sched_param one = {1}, none = {0};
    FAILS(sched_setscheduler(0, SCHED_FIFO, &one), EPERM);
    IS(pthread_setschedparam(pthread_self(), SCHED_RR, &one), EPERM);
    GET(setpriority(PRIO_PROCESS, 0, 10));
    FAILS(setpriority(PRIO_PROCESS, 0, 9), EACCES);
    IS(getpriority(PRIO_PROCESS, 0), 10);
    GET(sched_setscheduler(0, SCHED_OTHER | SCHED_RESET_ON_FORK, &none));
    FAILS(sched_setscheduler(0, SCHED_OTHER, &none), EPERM);
    return argument;
}

/* In a child, which can give its privileges away before it has threads. */
CASE(an_unprivileged_thread_may_not_have_more)
{
    pid_t child = GET(fork());
    if (child == 0) {
        struct rlimit none = {0, 0};
        GET(setrlimit(RLIMIT_RTPRIO, &none));
        GET(setrlimit(RLIMIT_NICE, &none));
        if (geteuid() == 0) {
            GET(setresgid(65534, 65534, 65534));
            GET(setresuid(65534, 65534, 65534));
        }
        join(start(ask_for_more, NULL));
        _exit(0);
    }
    int status;
    GET(waitpid(child, &status, 0));
    IS(status, 0);
}

/* A real-time request succeeds or is refused as natively: the output is compared. */
static void *become_real_time(void *argument)
{
    struct sched_param five = {5}, none = {0};
    int policy = -1;
    int refused = pthread_setschedparam(pthread_self(), SCHED_FIFO, &five);
    printf("own request: %d\n", refused);
    if (!refused) {
        OK(pthread_getschedparam(pthread_self(), &policy, &five));
        IS(policy, SCHED_FIFO);
        IS(five.sched_priority, 5);
        for (int i = 0; i < 20; i++) {
            usleep(500);
            sched_yield();
        }
        IS(sched_getscheduler(0), SCHED_FIFO);
        GET(sched_setscheduler(0, SCHED_OTHER, &none));
        IS(sched_getscheduler(0), SCHED_OTHER);
    }
    return argument;
}

CASE(a_thread_becomes_real_time)
{
    struct sched_param three = {3};
    join(start(become_real_time, NULL));
    pthread_t thread = start_sleeper();
    int refused = pthread_setschedparam(thread, SCHED_RR, &three);
    printf("another's request: %d\n", refused);
    if (!refused) {
        IS(sched_getscheduler(id_of_sleeper), SCHED_RR);
        sleep_ms(20);
    }
    stop_sleeper(thread);
    pthread_attr_t attributes;
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED));
    OK(pthread_attr_setschedpolicy(&attributes, SCHED_RR));
    OK(pthread_attr_setschedparam(&attributes, &three));
    refused = pthread_create(&thread, &attributes, report_policy_and_nice, NULL);
    printf("a creator's request: %d\n", refused);
    if (!refused) {
        IS(join(thread), SCHED_RR * 100);
    }
}

static void *wait_and_end(void *argument)
{
    while (!atomic_load(&stop)) {
        sched_yield();
    }
    return argument;
}

/* Threads that are made real-time while they run, and end soon after. */
CASE(real_time_threads_end)
{
    enum { THREADS = 10, ROUNDS = 5 };
    struct sched_param one = {1};
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        atomic_store(&stop, 0);
        for (int i = 0; i < THREADS; i++) {
            threads[i] = start(i % 2 ? wait_and_end : sleep_until_stopped, NULL);
            int refused = pthread_setschedparam(threads[i], SCHED_RR, &one);
            CHECK(refused == 0 || refused == EPERM);
        }
        usleep(round * 500);
        atomic_store(&stop, 1);
        join_all(threads, THREADS);
    }
}

/* Makes a thread of a real-time class, or says that this is refused, as it is natively then. */
static int start_real_time(pthread_t *thread, int priority, thread_function run, void *argument)
{
    struct sched_param parameters = {priority};
    pthread_attr_t attributes;
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED));
    OK(pthread_attr_setschedpolicy(&attributes, SCHED_FIFO));
    OK(pthread_attr_setschedparam(&attributes, &parameters));
    int refused = pthread_create(thread, &attributes, run, argument);
    OK(pthread_attr_destroy(&attributes));
    printf("real-time thread: %d\n", refused);
    return refused == 0;
}

/* The kernel's class of this thread, by a system call past the runtime. */
static void *policy_in_the_kernel(void *argument)
{
    long result = made_call(SYS_sched_getscheduler, 0, 0, 0);
    (void)argument;
    return number(result & ~SCHED_RESET_ON_FORK);
}

/* Two of raddle's policies know real-time threads themselves, and keep them green. */
static int real_time_in_the_kernel(void)
{
    const char *policy = getenv("LD_PRELOAD") ? getenv("RADDLE_POLICY") : NULL;
    int knows = policy && (!strcmp(policy, "priority") || !strcmp(policy, "deadline"));
    return knows ? SCHED_OTHER : SCHED_FIFO;
}

static void *wait_for_the_kernel(void *unused)
{
    while (policy_in_the_kernel(unused) != number(SCHED_FIFO) && !atomic_load(&stop)) {}
    return policy_in_the_kernel(unused);
}

/* The thread makes no call, at which the runtime could act. */
CASE(a_thread_that_computes_becomes_real_time_at_once)
{
    struct sched_param two = {2};
    for (int i = 0; i < 10; i++) {
        atomic_store(&stop, 0);
        pthread_t thread = start(wait_for_the_kernel, NULL);
        usleep(i * 700);
        int refused = pthread_setschedparam(thread, SCHED_FIFO, &two);
        if (refused || real_time_in_the_kernel() != SCHED_FIFO) {
            atomic_store(&stop, 1);
        }
        IS(join(thread), refused ? SCHED_OTHER : real_time_in_the_kernel());
    }
}

CASE(a_real_time_thread_is_one_from_its_start)
{
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        if (!start_real_time(&thread, 3, policy_in_the_kernel, NULL)) {
            break;
        }
        IS(join(thread), real_time_in_the_kernel());
    }
    IS(join(start(policy_in_the_kernel, NULL)), SCHED_OTHER);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long order[8];
static int places;

static void *lock_in_turn(void *priority)
{
    OK(pthread_mutex_lock(&lock));
    order[places++] = (long)priority;
    OK(pthread_mutex_unlock(&lock));
    return NULL;
}

CASE(real_time_threads_get_a_lock_by_priority)
{
    static const int priorities[] = {1, 4, 2, 4, 3};
    pthread_t threads[6];
    OK(pthread_mutex_lock(&lock));
    threads[0] = start(lock_in_turn, number(0));
    sleep_ms(150); /* a real-time thread starts on a kernel thread of its own */
    for (int i = 0; i < 5; i++) {
        int priority = priorities[i];
        if (!start_real_time(&threads[i + 1], priority, lock_in_turn, number(priority))) {
            OK(pthread_mutex_unlock(&lock));
            join(threads[0]);
            return;
        }
        sleep_ms(150);
    }
    OK(pthread_mutex_unlock(&lock));
    join_all(threads, 6);
    for (int i = 1; i < 6; i++) {
        CHECK(order[i - 1] >= order[i]);
    }
}

CASE(niceness_of_the_own_group_is_that_of_all_threads)
{
    pthread_t thread = start_sleeper();
    GET(setpgid(0, 0));
    GET(setpriority(PRIO_PGRP, 0, 5));
    IS(getpriority(PRIO_PROCESS, id_of_sleeper), 5);
    IS(getpriority(PRIO_PROCESS, 0), 5);
    GET(setpriority(PRIO_PGRP, getpid(), 100));
    IS(getpriority(PRIO_PROCESS, id_of_sleeper), 19);
    IS(getpriority(PRIO_PGRP, 0), 19);
    stop_sleeper(thread);
}

CASE(calls_about_the_process_take_any_threads_id)
{
    struct rlimit limit, own;
    pthread_t thread = start_sleeper();
    IS(getpgid(id_of_sleeper), getpgid(0));
    IS(getsid(id_of_sleeper), getsid(0));
    GET(kill(id_of_sleeper, 0));
    GET(syscall(SYS_prlimit64, id_of_sleeper, RLIMIT_NOFILE, NULL, &limit));
    GET(getrlimit(RLIMIT_NOFILE, &own));
    IS(limit.rlim_cur, own.rlim_cur);
    FAILS(getpgid(0x3ffffffe), ESRCH);
    stop_sleeper(thread);
}

static void *report_cpus(void *argument)
{
    cpu_set_t *cpus = argument;
    GET(sched_getaffinity(0, sizeof *cpus, cpus));
    return NULL;
}

static void *pin_and_create(void *argument)
{
    cpu_set_t one, seen;
    CPU_ZERO(&one);
    CPU_SET(*(int *)argument, &one);
    GET(sched_setaffinity(0, sizeof one, &one));
    join(start(report_cpus, &seen));
    CHECK(CPU_EQUAL(&one, &seen));
    return NULL;
}

CASE(affinity_is_checked_and_inherited)
{
    cpu_set_t all, wrong, seen;
    unsigned long words[64];
    GET(sched_getaffinity(0, sizeof all, &all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    join(start(pin_and_create, &first));
    join(start(report_cpus, &seen));
    CHECK(CPU_EQUAL(&all, &seen));
    pthread_t thread = start_sleeper();
    CPU_ZERO(&wrong);
    FAILS(sched_setaffinity(id_of_sleeper, sizeof wrong, &wrong), EINVAL);
    CPU_SET(CPU_SETSIZE - 1, &wrong);
    FAILS(sched_setaffinity(id_of_sleeper, sizeof wrong, &wrong), EINVAL);
    CPU_SET(first, &wrong);
    GET(sched_setaffinity(id_of_sleeper, sizeof wrong, &wrong));
    GET(sched_getaffinity(id_of_sleeper, sizeof seen, &seen));
    IS(CPU_COUNT(&seen), 1);
    FAILS(syscall(SYS_sched_getaffinity, id_of_sleeper, 4, words), EINVAL);
    long size = GET(syscall(SYS_sched_getaffinity, id_of_sleeper, sizeof words, words));
    IS(size % 8, 0);
    IS(syscall(SYS_sched_getaffinity, 0, sizeof words, words), size);
    FAILS(sched_setaffinity(0x3ffffffe, sizeof all, &all), ESRCH);
    stop_sleeper(thread);
}

static void *check_own_stack(void *argument)
{
    size_t *wanted = argument;
    pthread_attr_t attributes;
    void *lowest;
    size_t size, guard;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &lowest, &size));
    OK(pthread_attr_getguardsize(&attributes, &guard));
    char *here = (char *)&size;
    CHECK(here > (char *)lowest && here < (char *)lowest + size);
    CHECK(size >= wanted[0]);
    IS(guard, wanted[1]);
    OK(pthread_attr_destroy(&attributes));
    return NULL;
}

CASE(a_threads_stack_is_described)
{
    size_t sizes[][2] = {{128 * 1024, 4096}, {256 * 1024, 0}, {1024 * 1024, 65536}};
    pthread_attr_t attributes;
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        OK(pthread_attr_init(&attributes));
        OK(pthread_attr_setstacksize(&attributes, sizes[i][0] + sizes[i][1]));
        OK(pthread_attr_setguardsize(&attributes, sizes[i][1]));
        OK(pthread_create(&thread, &attributes, check_own_stack, sizes[i]));
        join(thread);
    }
    size_t own[2] = {64 * 1024, 4096}, given[2] = {256 * 1024, 0};
    int access = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *stack = mmap(NULL, 256 * 1024, access, flags, -1, 0);
    CHECK(stack != MAP_FAILED);
    OK(pthread_attr_setstack(&attributes, stack, 256 * 1024));
    OK(pthread_attr_setguardsize(&attributes, 0));
    OK(pthread_create(&thread, &attributes, check_own_stack, given));
    join(thread);
    void *lowest;
    size_t size;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &lowest, &size));
    CHECK((char *)&own > (char *)lowest && (char *)&own < (char *)lowest + size);
    thread = start_sleeper();
    OK(pthread_getattr_np(thread, &attributes));
    OK(pthread_attr_getstack(&attributes, &lowest, &size));
    CHECK(size >= 64 * 1024 && lowest != NULL);
    stop_sleeper(thread);
}

CASE(names_have_15_bytes)
{
    char name[16] = "", longest[] = "fifteen bytes!!";
    pthread_t thread = start_sleeper();
    IS(pthread_setname_np(thread, "sixteen bytes!!!"), ERANGE);
    IS(pthread_setname_np(pthread_self(), "sixteen bytes!!!"), ERANGE);
    OK(pthread_setname_np(thread, longest));
    IS(pthread_getname_np(thread, name, 15), ERANGE);
    OK(pthread_getname_np(thread, name, 16));
    IS(strcmp(name, longest), 0);
    GET(prctl(PR_SET_NAME, "a name that is cut"));
    GET(prctl(PR_GET_NAME, name));
    IS(strcmp(name, "a name that is "), 0);
    OK(pthread_setname_np(thread, ""));
    OK(pthread_getname_np(thread, name, 16));
    IS(name[0], 0);
    stop_sleeper(thread);
}

/* Natively PR_GET_TID_ADDRESS needs CONFIG_CHECKPOINT_RESTORE. */
static void *moved_tid_address(void *main_address)
{
    void *address = NULL;
    int other = 0;
    pid_t tid = gettid();
    if (prctl(PR_GET_TID_ADDRESS, &address) != 0) {
        return main_address;
    }
    CHECK(address != main_address && *(pid_t *)address != 0); /* an id, or glibc 2.43's state */
    IS(syscall(SYS_set_tid_address, &other), tid);
    IS(syscall(SYS_set_tid_address, address), tid);
    return main_address;
}

CASE(every_thread_has_a_tid_address_of_its_own)
{
    void *address = NULL;
    if (prctl(PR_GET_TID_ADDRESS, &address) == 0) {
        CHECK(*(pid_t *)address != 0);
    }
    for (int i = 0; i < 20; i++) {
        pthread_t threads[4];
        for (int j = 0; j < 4; j++) {
            threads[j] = start(moved_tid_address, address);
        }
        for (int j = 0; j < 4; j++) {
            join(threads[j]);
        }
    }
}

static void *fork_and_ask(void *argument)
{
    pthread_t self = pthread_self();
    pid_t before = gettid();
    CHECK(before != getpid());
    GET(prctl(PR_SET_NAME, "forker"));
    struct sched_param none = {0};
    GET(sched_setscheduler(0, SCHED_BATCH, &none));
    pid_t child = GET(fork());
    if (child == 0) {
        char name[16];
        CHECK(pthread_equal(self, pthread_self()));
        IS(gettid(), getpid());
        CHECK(gettid() != before);
        GET(prctl(PR_GET_NAME, name));
        IS(strcmp(name, "forker"), 0);
        IS(sched_getscheduler(0), SCHED_BATCH);
        IS(join(start(report_policy_and_nice, NULL)), SCHED_BATCH * 100);
        IS(sched_getscheduler(0), SCHED_BATCH);
        _exit(0);
    }
    int status;
    GET(waitpid(child, &status, 0));
    IS(status, 0);
    IS(gettid(), before);
    return argument;
}

CASE(a_forked_child_is_its_own_main_thread)
{
    join(start(fork_and_ask, NULL));
}
