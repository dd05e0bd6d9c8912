/* Threads with known work, which `raddle top` shows. The first argument is the kind, the second the
 * number of threads. Prints "ready" once all has begun, and ends with SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"
#include "made_call.h"
#include <stdatomic.h>
#include <sys/prctl.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t waited = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int ends[2], told[2];
static atomic_long begun;

static void name_it(const char *kind, long number)
{
    char name[32];
    snprintf(name, sizeof name, "%s-%ld", kind, number);
    prctl(PR_SET_NAME, name);
    atomic_fetch_add(&begun, 1);
}

static void await_begun(long threads)
{
    while (atomic_load(&begun) != threads) {
        sleep_ms(1);
    }
}

static void compute_ms(int64_t ms)
{
    int64_t end = now_ns() + ms * MS;
    while (now_ns() < end) {
    }
}

static void *spin(void *number)
{
    name_it("spin", (long)number);
    for (volatile long turns = 0;; turns++) {
    }
    return NULL;
}

/* Wakes the main thread, says that it runs, and never lets go. */
static void *hog(void *unused)
{
    name_it("hog", 0);
    GET(write(told[1], "x", 1));
    printf("ready\n");
    fflush(stdout);
    for (volatile long turns = 0;; turns++) {
    }
    return unused;
}

static void *tick(void *number)
{
    name_it("tick", (long)number);
    for (;;) {
        sleep_ms(5);
    }
    return NULL;
}

static void *rest(void *number)
{
    name_it("rest", (long)number);
    OK(pthread_mutex_lock(&waited));
    for (;;) {
        pthread_cond_wait(&turn, &waited);
    }
    return NULL;
}

/* Holds the lock most of its time. */
static void *queue(void *number)
{
    name_it("queue", (long)number);
    for (;;) {
        OK(pthread_mutex_lock(&lock));
        compute_ms(30);
        OK(pthread_mutex_unlock(&lock));
    }
    return NULL;
}

static void *keep(void *unused)
{
    OK(pthread_mutex_lock(&lock));
    name_it("keep", 0);
    sleep(100000);
    return unused;
}

static void *get_stuck(void *unused)
{
    char byte;
    name_it("stuck", 0);
    made_call(SYS_read, ends[0], (long)&byte, 1);
    return unused;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1);
    const char *kind = argv[1];
    long count = argc > 2 ? atol(argv[2]) : 4;
    case_name = kind;
    OK(pipe(ends));
    OK(pipe(told));
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (strcmp(kind, "mixed") == 0) {
        start(spin, number(0));
        for (long i = 0; i < count; i++) {
            start_small(tick, number(i));
            start_small(rest, number(i));
        }
        await_begun(1 + 2 * count);
    } else if (strcmp(kind, "convoy") == 0) {
        for (long i = 0; i < count; i++) {
            start_small(queue, number(i));
        }
        await_begun(count);
    } else if (strcmp(kind, "held") == 0) {
        start(keep, NULL);
        await_begun(1);
        for (long i = 0; i < count; i++) {
            start_small(queue, number(i));
        }
        await_begun(1 + count);
    } else if (strcmp(kind, "hogged") == 0) {
        /* Main waits for the hog's word; with one carrier and no quantum it never runs again. */
        start(hog, NULL);
        char byte;
        IS(read(told[0], &byte, 1), 1);
    } else if (strcmp(kind, "stuck") == 0) {
        start(get_stuck, NULL);
        start_small(tick, number(0));
        await_begun(2);
    } else if (strcmp(kind, "crowd") == 0) {
        for (long i = 0; i < count; i++) {
            start_small(spin, number(i));
        }
        await_begun(count);
    } else if (strcmp(kind, "again") == 0) {
        /* At SIGUSR1 it executes itself, with other threads. */
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
        for (long i = 0; i < count; i++) {
            start_small(tick, number(i));
        }
        await_begun(count);
        printf("ready\n");
        fflush(stdout);
        int signal;
        OK(sigwait(&set, &signal));
        execl("/proc/self/exe", argv[0], "resting", argc > 2 ? argv[2] : "4", NULL);
        return 1;
    } else {
        CHECK(strcmp(kind, "resting") == 0);
        for (long i = 0; i < count; i++) {
            start_small(rest, number(i));
        }
        await_begun(count);
    }
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
