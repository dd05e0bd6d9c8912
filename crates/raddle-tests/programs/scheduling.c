/* Calls that name a thread by its id or handle: affinity, priority, clocks, names, procfs. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static atomic_int thread_id, stop;

static void *run_until_stopped(void *argument)
{
    atomic_store(&thread_id, gettid());
    while (!atomic_load(&stop)) {
        usleep(1000);
    }
    return argument;
}

static pthread_t start_and_learn_id(void)
{
    pthread_t thread = start(run_until_stopped, NULL);
    while (!atomic_load(&thread_id)) {
        sched_yield();
    }
    return thread;
}

static void stop_and_join(pthread_t thread)
{
    atomic_store(&stop, 1);
    join(thread);
}

CASE(affinity_is_read_and_written_by_handle)
{
    cpu_set_t all, one, now;
    pthread_t thread = start_and_learn_id();
    OK(pthread_getaffinity_np(pthread_self(), sizeof all, &all));
    CHECK(CPU_COUNT(&all) >= 1);
    OK(pthread_getaffinity_np(thread, sizeof now, &now));
    CHECK(CPU_EQUAL(&all, &now));
    int first = 0;
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    OK(pthread_setaffinity_np(thread, sizeof one, &one));
    OK(pthread_getaffinity_np(thread, sizeof now, &now));
    CHECK(CPU_EQUAL(&one, &now));
    OK(pthread_getaffinity_np(pthread_self(), sizeof now, &now));
    CHECK(CPU_EQUAL(&all, &now));
    stop_and_join(thread);
}

CASE(affinity_is_read_and_written_by_id)
{
    cpu_set_t all, now;
    pthread_t thread = start_and_learn_id();
    GET(sched_getaffinity(0, sizeof all, &all));
    GET(sched_getaffinity(thread_id, sizeof now, &now));
    CHECK(CPU_EQUAL(&all, &now));
    GET(sched_setaffinity(thread_id, sizeof all, &all));
    FAILS(sched_getaffinity(0x3ffffffe, sizeof now, &now), ESRCH);
    CHECK(GET(sched_getcpu()) >= 0);
    stop_and_join(thread);
}

CASE(scheduling_policy_is_read_and_written)
{
    struct sched_param parameters = {0};
    int policy = -1;
    pthread_t thread = start_and_learn_id();
    OK(pthread_getschedparam(thread, &policy, &parameters));
    IS(policy, SCHED_OTHER);
    IS(parameters.sched_priority, 0);
    OK(pthread_setschedparam(thread, SCHED_BATCH, &parameters));
    OK(pthread_getschedparam(thread, &policy, &parameters));
    IS(policy, SCHED_BATCH);
    IS(sched_getscheduler(thread_id), SCHED_BATCH);
    IS(sched_getscheduler(0), SCHED_OTHER);
    GET(sched_getparam(thread_id, &parameters));
    FAILS(sched_getscheduler(0x3ffffffe), ESRCH);
    stop_and_join(thread);
}

CASE(priorities_belong_to_threads)
{
    pthread_t thread = start_and_learn_id();
    int before = getpriority(PRIO_PROCESS, 0);
    GET(setpriority(PRIO_PROCESS, thread_id, before + 3));
    IS(getpriority(PRIO_PROCESS, thread_id), before + 3);
    IS(getpriority(PRIO_PROCESS, 0), before);
    stop_and_join(thread);
}

CASE(what_was_set_before_the_first_thread_is_inherited)
{
    struct sched_param parameters = { .sched_priority = 0 };
    GET(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 4));
    int niceness = getpriority(PRIO_PROCESS, 0);
    GET(sched_setscheduler(0, SCHED_BATCH, &parameters));
    pthread_t thread = start_and_learn_id();
    IS(getpriority(PRIO_PROCESS, thread_id), niceness);
    IS(sched_getscheduler(thread_id), SCHED_BATCH);
    IS(getpriority(PRIO_PROCESS, 0), niceness);
    IS(sched_getscheduler(0), SCHED_BATCH);
    stop_and_join(thread);
}

static void *burn_until_stopped(void *argument)
{
    atomic_store(&thread_id, gettid());
    while (!atomic_load(&stop)) {
    }
    return argument;
}

CASE(anothers_cpu_clock_advances)
{
    clockid_t clock;
    pthread_t thread = start(burn_until_stopped, NULL);
    OK(pthread_getcpuclockid(thread, &clock));
    int64_t limit_ns = now_ns() + 20 * SECOND;
    while (clock_ns(clock) < 30 * MS) {
        CHECK(now_ns() < limit_ns);
        sleep_ms(5);
    }
    struct rusage usage;
    GET(getrusage(RUSAGE_THREAD, &usage));
    CHECK(usage.ru_utime.tv_sec < 5);
    stop_and_join(thread);
}

CASE(anothers_name_is_read_and_written)
{
    char name[16] = "";
    pthread_t thread = start_and_learn_id();
    OK(pthread_setname_np(thread, "renamed"));
    OK(pthread_getname_np(thread, name, sizeof name));
    IS(strcmp(name, "renamed"), 0);
    GET(prctl(PR_SET_NAME, "own"));
    GET(prctl(PR_GET_NAME, name));
    IS(strcmp(name, "own"), 0);
    OK(pthread_getname_np(pthread_self(), name, sizeof name));
    IS(strcmp(name, "own"), 0);
    stop_and_join(thread);
}

CASE(procfs_knows_threads_by_their_ids)
{
    char path[64], name[40] = "";
    pthread_t thread = start_and_learn_id();
    OK(pthread_setname_np(thread, "in procfs"));
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", atomic_load(&thread_id));
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgets(name, sizeof name, file) != NULL);
    IS(strcmp(name, "in procfs\n"), 0);
    fclose(file);
    stop_and_join(thread);
}

CASE(a_signal_is_sent_by_id)
{
    pthread_t thread = start_and_learn_id();
    IS(syscall(SYS_tgkill, getpid(), thread_id, 0), 0);
    IS(syscall(SYS_tkill, thread_id, 0), 0);
    FAILS(syscall(SYS_tgkill, getpid() + 1, thread_id, 0), ESRCH);
    int id = thread_id;
    stop_and_join(thread);
    /* After the join its id names no thread; the kernel may need a moment for that. */
    int64_t limit_ns = now_ns() + 10 * SECOND;
    while (syscall(SYS_tgkill, getpid(), id, 0) == 0) {
        CHECK(now_ns() < limit_ns);
        sleep_ms(1);
    }
    IS(errno, ESRCH);
}
