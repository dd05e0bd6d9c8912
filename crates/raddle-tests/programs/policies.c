/* What shows which policy runs: in what order threads run, and how much CPU time each gets.
 *
 *     policies order KEY...          threads with these keys, released at once; prints their order
 *     policies deadlines MS...       the same with deadlines, 0 for none
 *     policies overtake              a thread that is more important than the one that wakes it
 *     policies burn NAME:NICE...     threads that compute for a while; prints their milliseconds
 *     policies wait                  waits until SIGTERM with two threads, a-1 and b-1
 */
#define CHECK_OWN_MAIN
#include "check.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static atomic_int ready, released, stop;

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static void be_nice(int nice)
{
    GET(setpriority(PRIO_PROCESS, gettid(), nice));
}

static void have_deadline(int ms)
{
    struct attributes attributes = {
        .size = sizeof attributes, .policy = 6, .runtime_ns = MS, .deadline_ns = ms * MS};
    GET(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

static void wait_for_release(void)
{
    ready++;
    while (!released) {
        syscall(SYS_futex, &released, FUTEX_WAIT_PRIVATE, 0, NULL);
    }
}

/* Wakes all that wait, at one moment. */
static void release(int count)
{
    while (ready < count) {
        sleep_ms(1);
    }
    sleep_ms(5);
    released = 1;
    IS(syscall(SYS_futex, &released, FUTEX_WAKE_PRIVATE, 1000), count);
}

static int log_of[100], logged;

static void *note_with_nice(void *key)
{
    be_nice((int)(intptr_t)key);
    wait_for_release();
    log_of[logged++] = (int)(intptr_t)key;
    return NULL;
}

static void *note_with_deadline(void *key)
{
    if (key) {
        have_deadline((int)(intptr_t)key);
    }
    wait_for_release();
    log_of[logged++] = (int)(intptr_t)key;
    return NULL;
}

static void order(void *(*note)(void *), int count, char **keys)
{
    pthread_t threads[100];
    for (int i = 0; i < count; i++) {
        threads[i] = start(note, (void *)(intptr_t)atoi(keys[i]));
        while (ready <= i) {
            sleep_ms(1); /* they wait in the order of the keys */
        }
    }
    release(count);
    join_all(threads, count);
    for (int i = 0; i < count; i++) {
        printf("%d ", log_of[i]);
    }
    printf("\n");
}

static void *announce(void *argument)
{
    wait_for_release();
    logged = 1;
    return argument;
}

static void overtake(void)
{
    pthread_t thread = start(announce, NULL);
    be_nice(10);
    release(1);
    printf("it ran %s the call ended\n", logged ? "before" : "after");
    join(thread);
}

struct burner {
    char name[16];
    int nice;
    int64_t used_ns;
};

static void *burn(void *argument)
{
    struct burner *burner = argument;
    GET(prctl(PR_SET_NAME, burner->name));
    be_nice(burner->nice);
    wait_for_release();
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    }
    burner->used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    return NULL;
}

static void burn_all(int count, char **specs)
{
    pthread_t threads[100];
    static struct burner burners[100];
    for (int i = 0; i < count; i++) {
        CHECK(sscanf(specs[i], "%15[^:]:%d", burners[i].name, &burners[i].nice) == 2);
        threads[i] = start(burn, &burners[i]);
    }
    release(count);
    /* The less the machine gives, the longer: what it takes from one carrier must not count. */
    int64_t until_ns = now_ns() + 20 * SECOND;
    int64_t used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + 3 * SECOND;
    while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < used_ns && now_ns() < until_ns) {
        sleep_ms(50);
    }
    atomic_store(&stop, 1);
    join_all(threads, count);
    for (int i = 0; i < count; i++) {
        printf("%ld ", (long)(burners[i].used_ns / MS));
    }
    printf("\n");
}

static void *named(void *name)
{
    GET(prctl(PR_SET_NAME, name));
    wait_for_release();
    return NULL;
}

static void wait_for_signal(void)
{
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    start(named, "a-1");
    start(named, "b-1");
    while (ready < 2) {
        sleep_ms(1);
    }
    printf("waiting\n");
    fflush(stdout);
    OK(sigwait(&set, &signal));
    exit(0);
}

int main(int count, char **words)
{
    CHECK(count > 1);
    case_name = cases[case_count++].name = words[1];
    if (!strcmp(words[1], "order")) {
        order(note_with_nice, count - 2, words + 2);
    } else if (!strcmp(words[1], "deadlines")) {
        order(note_with_deadline, count - 2, words + 2);
    } else if (!strcmp(words[1], "overtake")) {
        overtake();
    } else if (!strcmp(words[1], "burn")) {
        burn_all(count - 2, words + 2);
    } else {
        wait_for_signal();
    }
    return 0;
}
