/* CPU clocks: each thread's own time, and the process's. */
#include "check.h"

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static void burn(int64_t ns)
{
    int64_t until_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < until_ns) {
    }
}

static void *burn_40_ms(void *argument)
{
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    volatile long sum = 0;
    for (long i = 0; i < 20 * 1000 * 1000; i++) {
        sum += i;
    }
    int64_t used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    CHECK(used_ns > 1 * MS);
    burn(40 * MS - used_ns);
    return argument;
}

CASE(a_thread_that_computes_uses_cpu_time)
{
    int64_t process_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int64_t own_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    join(start(burn_40_ms, NULL));
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process_ns >= 39 * MS);
    CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) - own_ns < 30 * MS);
}

static void *sleep_50_ms(void *argument)
{
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    sleep_ms(50);
    CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns < 20 * MS);
    return argument;
}

CASE(a_thread_that_sleeps_uses_none)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(sleep_50_ms, NULL);
    }
    join_all(threads, 10);
}

static void *burn_and_yield(void *argument)
{
    int64_t last_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t until_ns = last_ns + 20 * MS;
    while (last_ns < until_ns) {
        int64_t ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        CHECK(ns >= last_ns);
        last_ns = ns;
        sched_yield();
    }
    return argument;
}

/* The threads' CPU times add up to nearly the process's. */
CASE(times_of_threads_add_up)
{
    int64_t before_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) {
        threads[i] = start(burn_and_yield, NULL);
    }
    join_all(threads, 5);
    int64_t used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before_ns;
    CHECK(used_ns >= 70 * MS);
}

static atomic_int ready, stop;

static void *park_until_stopped(void *argument)
{
    burn(10 * MS);
    atomic_store(&ready, 1);
    while (!atomic_load(&stop)) {
        usleep(2000);
    }
    return argument;
}

CASE(anothers_clock_is_read)
{
    clockid_t clock, own;
    struct timespec time;
    clock_ns(CLOCK_THREAD_CPUTIME_ID);
    pthread_t thread = start(park_until_stopped, NULL);
    OK(pthread_getcpuclockid(thread, &clock));
    OK(pthread_getcpuclockid(pthread_self(), &own));
    while (!atomic_load(&ready)) {
        usleep(1000);
    }
    int64_t ns = clock_ns(clock);
    CHECK(ns >= 10 * MS);
    CHECK(clock_ns(clock) >= ns);
    GET(clock_getres(clock, &time));
    GET(clock_getres(CLOCK_THREAD_CPUTIME_ID, &time));
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t by_id_ns = clock_ns(own);
    int64_t after_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    CHECK(before_ns <= by_id_ns && by_id_ns <= after_ns);
    GET(syscall(SYS_clock_gettime, clock, &time));
    CHECK(time.tv_sec * SECOND + time.tv_nsec >= ns);
    atomic_store(&stop, 1);
    join(thread);
    /* The kernel forgets a thread's id a moment after its joiner has heard of its end. */
    int64_t limit_ns = now_ns() + 20 * SECOND;
    while (clock_gettime(clock, &time) == 0) {
        CHECK(now_ns() < limit_ns);
        usleep(100);
    }
    IS(errno, EINVAL);
}

static void *measure_by_usage(void *argument)
{
    struct rusage before, after;
    GET(getrusage(RUSAGE_THREAD, &before));
    burn(30 * MS);
    for (int i = 0; i < 10; i++) {
        usleep(100);
    }
    GET(getrusage(RUSAGE_THREAD, &after));
    int64_t us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L +
                 after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                 (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
                 after.ru_stime.tv_usec - before.ru_stime.tv_usec;
    CHECK(us >= 28000 && us < 5000000);
    CHECK(after.ru_nvcsw - before.ru_nvcsw >= 5);
    CHECK(after.ru_maxrss > 0);
    return argument;
}

CASE(usage_of_a_thread_is_its_own)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        threads[i] = start(measure_by_usage, NULL);
    }
    join_all(threads, 3);
    struct rusage process;
    GET(getrusage(RUSAGE_SELF, &process));
    CHECK(process.ru_utime.tv_sec * 1000000L + process.ru_utime.tv_usec +
              process.ru_stime.tv_sec * 1000000L + process.ru_stime.tv_usec >= 80000);
}

CASE(a_forked_childs_clock_starts_again)
{
    join(start(burn_40_ms, NULL));
    pid_t child = GET(fork());
    if (child == 0) {
        CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) < 30 * MS);
        join(start(burn_40_ms, NULL));
        CHECK(clock_ns(CLOCK_THREAD_CPUTIME_ID) < 30 * MS);
        _exit(0);
    }
    int status;
    GET(waitpid(child, &status, 0));
    IS(status, 0);
}

static sigjmp_buf behind;

static void on_fault(int signal)
{
    (void)signal;
    siglongjmp(behind, 1);
}

/* Tells whether a reading of the time stamp counter by the program itself faults. */
static int may_not_read_counter(void)
{
    if (sigsetjmp(behind, 1)) {
        return 1;
    }
    __builtin_ia32_rdtsc();
    return 0;
}

static void *use_clocks(void *forbidden)
{
    IS(may_not_read_counter(), (long)forbidden);
    int file = GET(open("/proc/self/exe", O_RDONLY)), state = 0;
    char bytes[16];
    for (int i = 0; i < 20; i++) {
        struct timespec time = {0, 100000};
        OK(syscall(SYS_nanosleep, &time, NULL));
        IS(pread(file, bytes, sizeof bytes, 0), sizeof bytes);
        fsync(file);
        OK(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time));
    }
    close(file);
    GET(prctl(PR_GET_TSC, &state));
    IS(state, forbidden ? PR_TSC_SIGSEGV : PR_TSC_ENABLE);
    return NULL;
}

static void *forbid_counter(void *unused)
{
    GET(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    use_clocks(number(1));
    join(start(use_clocks, number(1)));
    return unused;
}

CASE(a_thread_may_forbid_itself_the_time_stamp_counter)
{
    signal(SIGSEGV, on_fault);
    for (int i = 0; i < 5; i++) {
        join(start(forbid_counter, NULL));
        use_clocks(NULL);
    }
}

CASE(a_place_for_cpu_time_may_be_bad)
{
    struct timespec time;
    join(start(use_clocks, NULL));
    FAILS(clock_gettime(CLOCK_THREAD_CPUTIME_ID, (struct timespec *)64), EFAULT);
    clockid_t own;
    OK(pthread_getcpuclockid(pthread_self(), &own));
    FAILS(clock_gettime(own, (struct timespec *)64), EFAULT);
    OK(clock_gettime(own, &time));
}
