/* What shows which policy runs: in what order threads run, and how much CPU time each gets.
 *
 *     policies order KEY...          threads with these keys, released at once; prints their order
 *     policies deadlines MS...       the same with deadlines, 0 for none
 *     policies overtake              a thread that is more important than the one that wakes it
 *     policies burn NAME:NICE...     threads that compute for a while; prints their milliseconds
 *     policies during MS NAME:NICE...  threads that compute for so long; prints their milliseconds
 *     policies pair                  one computes, two pass a byte by pipes; prints milliseconds of
 *                                    the first, and of both others
 *     policies across                threads called a and b wait for each other in many ways
 *     policies stuck                 of two threads called a one sits in the kernel
 *     policies alone                 a thread ends, and the first one sleeps again and again
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

static void *note_when_released(void *key)
{
    wait_for_release();
    log_of[logged++] = (int)(intptr_t)key;
    return NULL;
}

static void *note_with_nice(void *key)
{
    be_nice((int)(intptr_t)key);
    return note_when_released(key);
}

static void *note_with_deadline(void *key)
{
    if (key) {
        have_deadline((int)(intptr_t)key);
    }
    return note_when_released(key);
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

/* Burns so much CPU time in all. The less the machine gives, the longer: what it takes from one
 * carrier must not count. */
static void use(int64_t time_ns)
{
    int64_t until_ns = now_ns() + 20 * SECOND;
    int64_t used_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + time_ns;
    while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < used_ns && now_ns() < until_ns) {
        sleep_ms(50);
    }
}

static void last(int64_t time_ns)
{
    sleep_ms(time_ns / MS);
}

/* Threads compute until `wait` returns. */
static void burn_all(void (*wait)(int64_t time_ns), int64_t time_ns, int count, char **specs)
{
    pthread_t threads[100];
    static struct burner burners[100];
    for (int i = 0; i < count; i++) {
        CHECK(sscanf(specs[i], "%15[^:]:%d", burners[i].name, &burners[i].nice) == 2);
        threads[i] = start(burn, &burners[i]);
    }
    release(count);
    wait(time_ns);
    atomic_store(&stop, 1);
    join_all(threads, count);
    for (int i = 0; i < count; i++) {
        printf("%ld ", (long)(burners[i].used_ns / MS));
    }
    printf("\n");
}

#define TURNS 2000

static atomic_int turn, word;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int pipes[2][2];
static long counted;

static int64_t passed_ns[2];

static void *pass_a_byte(void *argument)
{
    int own = argument ? 1 : 0;
    char byte = 0;
    wait_for_release();
    int64_t before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (!stop) {
        if (own) {
            IS(write(pipes[0][1], &byte, 1), 1);
        }
        IS(read(pipes[own][0], &byte, 1), 1);
        if (!own) {
            IS(write(pipes[1][1], &byte, 1), 1);
        }
    }
    passed_ns[own] = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    IS(write(pipes[!own][1], &byte, 1), 1); /* the other one may wait */
    return argument;
}

static void pair(void)
{
    static struct burner burner = {.name = "computes"};
    OK(pipe(pipes[0]));
    OK(pipe(pipes[1]));
    pthread_t threads[] = {
        start(burn, &burner), start(pass_a_byte, NULL), start(pass_a_byte, "b")};
    release(3);
    use(SECOND);
    stop = 1;
    join_all(threads, 3);
    printf("%ld %ld\n", (long)(burner.used_ns / MS), (long)((passed_ns[0] + passed_ns[1]) / MS));
}

/* Pairs that take turns by a condition variable, by a futex, by pipes, and count together. */
static void *take_turns(void *argument)
{
    int own = argument ? 1 : 0;
    char byte = 0;
    GET(prctl(PR_SET_NAME, own ? "b" : "a"));
    for (int i = 0; i < TURNS; i++) {
        OK(pthread_mutex_lock(&lock));
        while (turn % 2 != own) {
            OK(pthread_cond_wait(&changed, &lock));
        }
        turn++;
        OK(pthread_cond_signal(&changed));
        OK(pthread_mutex_unlock(&lock));
    }
    for (int i = 0; i < TURNS; i++) {
        for (int now; (now = word) % 2 != own;) {
            syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, NULL);
        }
        word++;
        syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
    }
    for (int i = 0; i < TURNS; i++) {
        if (own) {
            IS(write(pipes[0][1], &byte, 1), 1);
        }
        IS(read(pipes[own][0], &byte, 1), 1);
        if (!own) {
            IS(write(pipes[1][1], &byte, 1), 1);
        }
    }
    for (int i = 0; i < TURNS; i++) {
        OK(pthread_mutex_lock(&lock));
        counted++;
        OK(pthread_mutex_unlock(&lock));
        if (i % 64 == 0) {
            sched_yield();
        }
        if (i % 512 == 0) {
            sleep_ms(1);
        }
    }
    return argument;
}

static void *makes_another(void *argument)
{
    GET(prctl(PR_SET_NAME, "b"));
    pthread_t thread = start(take_turns, argument);
    CHECK(join(thread) == argument);
    return argument;
}

static void across(void)
{
    OK(pipe(pipes[0]));
    OK(pipe(pipes[1]));
    pthread_t threads[] = {start(take_turns, NULL), start(makes_another, "b")};
    join_all(threads, 2);
    IS(turn, 2 * TURNS);
    IS(word, 2 * TURNS);
    IS(counted, 2 * TURNS);
    printf("done\n");
}

/* In the kernel for a second, by a call that the runtime doesn't see: the program's own. */
static void *sit_in_kernel(void *argument)
{
    struct timespec time = {1, 0};
    long result = SYS_nanosleep;
    GET(prctl(PR_SET_NAME, "a"));
    sched_yield();
    ready++;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(&time), "S"(0)
                     : "rcx", "r11", "memory");
    stop = 1;
    return argument;
}

static void *note_time(void *argument)
{
    int64_t worst_ns = 0;
    GET(prctl(PR_SET_NAME, "a"));
    while (!ready) {
        sleep_ms(1);
    }
    for (int i = 0; i < 100; i++) {
        int64_t before_ns = now_ns();
        sleep_ms(1);
        int64_t took_ns = now_ns() - before_ns;
        worst_ns = took_ns > worst_ns ? took_ns : worst_ns;
    }
    printf("%s %ld\n", stop ? "after" : "meanwhile", (long)(worst_ns / MS));
    return argument;
}

static void stuck(void)
{
    pthread_t threads[] = {start(note_time, NULL), start(sit_in_kernel, NULL)};
    join_all(threads, 2);
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

static void *nothing(void *unused)
{
    return unused;
}

/* Longer sleeps than sysmon's linger, so that it sleeps, too. */
static void alone(void)
{
    OK(pthread_join(start(nothing, NULL), NULL));
    for (int i = 0; i < 40; i++) {
        sleep_ms(20);
    }
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
        burn_all(use, 3 * SECOND, count - 2, words + 2);
    } else if (!strcmp(words[1], "during")) {
        burn_all(last, atoi(words[2]) * MS, count - 3, words + 3);
    } else if (!strcmp(words[1], "pair")) {
        pair();
    } else if (!strcmp(words[1], "across")) {
        across();
    } else if (!strcmp(words[1], "stuck")) {
        stuck();
    } else if (!strcmp(words[1], "alone")) {
        alone();
    } else {
        wait_for_signal();
    }
    return 0;
}
