/* Limits on address space: a limit that is enough natively is enough. */
#include "check.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB (1ul << 20)

static void limit(int which, rlim_t bytes)
{
    struct rlimit limit;
    OK(getrlimit(which, &limit));
    limit.rlim_cur = bytes;
    OK(setrlimit(which, &limit));
    OK(getrlimit(which, &limit));
    CHECK(limit.rlim_cur == bytes);
}

static int can_map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        IS(errno, ENOMEM);
        return 0;
    }
    GET(munmap(at, bytes));
    return 1;
}

static int can_allocate(size_t bytes)
{
    char *volatile memory = malloc(bytes);
    free(memory);
    return memory != NULL;
}

static void *nothing(void *unused)
{
    return unused;
}

static void *wait_for_ever(void *unused)
{
    pause();
    return unused;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_mutex(void *unused)
{
    OK(pthread_mutex_lock(&held));
    OK(pthread_mutex_unlock(&held));
    return unused;
}

/* Starts `count` threads with default stacks, or as many as there may be; returns their number. */
static int run_threads(int count)
{
    pthread_t threads[64];
    int made = 0, error = 0;
    OK(pthread_mutex_lock(&held));
    while (made < count && error == 0) {
        error = pthread_create(&threads[made], NULL, wait_for_mutex, NULL);
        made += error == 0;
    }
    CHECK(error == 0 || error == EAGAIN);
    OK(pthread_mutex_unlock(&held));
    join_all(threads, made);
    return made;
}

static void check_limited(void)
{
    IS(run_threads(12), 12);
    CHECK(can_map(150 * MIB));
    CHECK(can_allocate(150 * MIB));
    CHECK(!can_map(400 * MIB));
    int most = run_threads(64);
    CHECK(most > 30 && most < 60);
    CHECK(can_map(150 * MIB));
    IS(run_threads(12), 12);
}

CASE(a_limit_is_set_before_the_first_thread)
{
    limit(RLIMIT_AS, 400 * MIB);
    check_limited();
}

CASE(a_limit_is_set_while_threads_run)
{
    start(wait_for_ever, NULL);
    start(wait_for_ever, NULL);
    limit(RLIMIT_AS, 400 * MIB);
    check_limited();
}

CASE(a_limit_is_set_after_many_threads)
{
    IS(run_threads(60), 60);
    limit(RLIMIT_AS, 400 * MIB);
    check_limited();
}

CASE(a_limit_on_data_is_set)
{
    IS(run_threads(60), 60);
    limit(RLIMIT_DATA, 400 * MIB);
    check_limited();
}

CASE(a_limit_is_inherited)
{
    if (getenv("SECOND_LIFE")) {
        check_limited();
        return;
    }
    limit(RLIMIT_AS, 400 * MIB);
    OK(setenv("SECOND_LIFE", "1", 1));
    join(start(nothing, NULL));
    execl("/proc/self/exe", "address_space", case_name, NULL);
    CHECK(!"reached");
}

static void *wait_for_byte(void *unused)
{
    char byte;
    IS(read(0, &byte, 1), 1);
    return unused;
}

/* Another process sets the limit: nothing that this one calls. */
CASE(a_limit_is_set_by_another_process)
{
    int ends[2], status;
    GET(pipe(ends));
    join(start(nothing, NULL));
    int child = GET(fork());
    if (child == 0) {
        GET(dup2(ends[0], 0));
        IS(run_threads(60), 60);
        join(start(wait_for_byte, NULL));
        CHECK(can_map(150 * MIB));
        IS(run_threads(12), 12);
        CHECK(can_map(150 * MIB));
        CHECK(can_allocate(150 * MIB));
        CHECK(!can_map(400 * MIB));
        _exit(0);
    }
    sleep_ms(300);
    struct rlimit limit = {400 * MIB, RLIM_INFINITY};
    GET(prlimit(child, RLIMIT_AS, &limit, NULL));
    IS(write(ends[1], "x", 1), 1);
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

CASE(a_limit_that_is_too_small_can_be_raised)
{
    start(wait_for_ever, NULL);
    limit(RLIMIT_AS, 24 * MIB);
    CHECK(run_threads(8) < 8);
    CHECK(!can_map(24 * MIB));
    limit(RLIMIT_AS, 400 * MIB);
    check_limited();
}

static long kib_of(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = atol(line + strlen(name) + 1);
        }
    }
    OK(fclose(status));
    return kib;
}

/* A thread takes its stack, and little else. */
CASE(a_thread_takes_its_stack_of_address_space)
{
    long before = kib_of("VmSize");
    CHECK(before < 16 << 10);
    for (int i = 1; i <= 3; i++) {
        start(wait_for_ever, NULL);
        long took = kib_of("VmSize") - before;
        CHECK(took >= i * (8 << 10));
        CHECK(took < i * (8 << 10) + (4 << 10));
    }
}

/* The remains of ended threads don't count as locked. */
CASE(memory_is_locked)
{
    enum { SMALL = 64 };
    pthread_t threads[SMALL];
    for (int i = 0; i < SMALL; i++) {
        threads[i] = start_small(nothing, NULL);
    }
    join_all(threads, SMALL);
    GET(mlockall(MCL_CURRENT | MCL_FUTURE));
    for (int i = 0; i < SMALL; i++) {
        threads[i] = start_small(nothing, NULL);
    }
    join_all(threads, SMALL);
    GET(munlockall());
    for (int i = 0; i < SMALL; i++) {
        threads[i] = start_small(nothing, NULL);
    }
    join_all(threads, SMALL);
}
