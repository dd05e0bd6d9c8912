/* Threads that compute in turns for so long that their carriers end the turns by themselves; and
 * all events that break such a rhythm. */
#include "check.h"
#include "made_call.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { BURNERS = 8, WHILE_MS = 80 };

static atomic_int stop;
static volatile long burnt[BURNERS];
static pthread_t burners[BURNERS];

static void *burn(void *count)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        ++*(volatile long *)count;
    }
    return NULL;
}

static void start_burners(void)
{
    atomic_store(&stop, 0);
    for (int i = 0; i < BURNERS; i++) {
        burners[i] = start(burn, (void *)&burnt[i]);
    }
}

static void stop_burners(void)
{
    atomic_store(&stop, 1);
    join_all(burners, BURNERS);
}

/* Until each burner has had a turn. */
static void let_all_burn(void)
{
    long before[BURNERS];
    for (int i = 0; i < BURNERS; i++) {
        before[i] = burnt[i];
    }
    for (int i = 0; i < BURNERS; i++) {
        while (burnt[i] == before[i]) {
            sleep_ms(2);
        }
    }
}

static atomic_int notices;

static void notice(union sigval value)
{
    IS(value.sival_int, 5);
    atomic_fetch_add(&notices, 1);
}

static void on_timer(int signal)
{
    (void)signal;
    atomic_fetch_add(&notices, 1);
}

/* libc's own signal for timers is the one that preempts. */
CASE(timers_of_the_program_expire_beside_burners)
{
    struct sigaction action = {.sa_handler = on_timer};
    GET(sigaction(SIGUSR1, &action, NULL));
    start_burners();
    sleep_ms(WHILE_MS);
    struct itimerspec times = {timespec_of(3 * MS), timespec_of(3 * MS)};
    for (int kind = 0; kind < 2; kind++) {
        struct sigevent event = {.sigev_notify = kind ? SIGEV_SIGNAL : SIGEV_THREAD};
        event.sigev_signo = kind ? SIGUSR1 : 0;
        event.sigev_value.sival_int = 5;
        event.sigev_notify_function = kind ? NULL : notice;
        timer_t timer;
        GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
        atomic_store(&notices, 0);
        GET(timer_settime(timer, 0, &times, NULL));
        while (atomic_load(&notices) < 20) {
            sleep_ms(1);
        }
        GET(timer_delete(timer));
    }
    let_all_burn();
    stop_burners();
}

/* No signal of the old program's comes to the new one. */
CASE(a_program_executes_itself_among_burners)
{
    const char *rounds = getenv("RADDLE_TEST_ROUNDS");
    int round = rounds ? atoi(rounds) : 0;
    if (round == 5) {
        return;
    }
    start_burners();
    sleep_ms(WHILE_MS);
    char next[2] = {(char)('1' + round), 0};
    setenv("RADDLE_TEST_ROUNDS", next, 1);
    GET(execl("/proc/self/exe", "turns", case_name, NULL));
}

static long timers_in_the_kernel(void)
{
    char text[4000];
    int fd = open("/proc/self/timers", O_RDONLY);
    if (fd < 0) {
        return 0; /* the kernel doesn't tell */
    }
    long length = GET(read(fd, text, sizeof text));
    close(fd);
    return length;
}

CASE(no_timer_is_left_when_burners_end)
{
    for (int round = 0; round < 5; round++) {
        start_burners();
        sleep_ms(WHILE_MS);
        stop_burners();
        while (timers_in_the_kernel() != 0) {
            sleep_ms(5);
        }
    }
}

static int ends[2];

static void *burn_and_wait(void *count)
{
    for (char wanted = 'a'; wanted <= 'c'; wanted++) {
        int64_t until_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + WHILE_MS * MS;
        while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < until_ns) {
            ++*(long *)count;
        }
        char got = 0;
        IS(made_call(SYS_read, ends[0], (long)&got, 1), 1);
        IS(got, wanted);
    }
    return NULL;
}

/* Its call can't be seen, and holds its carrier. It is not interrupted for good. */
CASE(burners_go_on_when_one_of_them_waits_in_the_kernel)
{
    GET(pipe(ends));
    start_burners();
    long count = 0;
    pthread_t waiter = start(burn_and_wait, &count);
    for (char c = 'a'; c <= 'c'; c++) {
        sleep_ms(WHILE_MS);
        let_all_burn();
        IS(GET(write(ends[1], &c, 1)), 1);
    }
    join(waiter);
    stop_burners();
}

static void *yield_and_burn(void *count)
{
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 10; i++) {
            sched_yield();
        }
        int64_t until_ns = now_ns() + 20 * MS;
        while (now_ns() < until_ns) {
            ++*(volatile long *)count;
        }
    }
    return NULL;
}

CASE(a_rhythm_that_is_broken_again_and_again_starves_nobody)
{
    start_burners();
    volatile long count = 0;
    pthread_t breaker = start(yield_and_burn, (void *)&count);
    for (int round = 0; round < 5; round++) {
        long before = count;
        let_all_burn();
        while (count == before) {
            sleep_ms(2);
        }
    }
    atomic_store(&stop, 1);
    join(breaker);
    stop_burners();
}

CASE(the_child_of_a_fork_has_a_rhythm_of_its_own)
{
    start_burners();
    sleep_ms(WHILE_MS);
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        IS(timers_in_the_kernel(), 0);
        start_burners();
        sleep_ms(WHILE_MS);
        let_all_burn();
        stop_burners();
        _exit(7);
    }
    let_all_burn();
    int status;
    IS(GET(waitpid(child, &status, 0)), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    stop_burners();
}

/* Without privileges the niceness stays as it is. */
static void *burn_at_high_priority(void *count)
{
    (void)!setpriority(PRIO_PROCESS, 0, -5);
    return burn(count);
}

/* A thread that the others' weights never make wait takes no more than its part: one that has used
 * more than its share for a moment runs again soon. */
CASE(a_burner_of_negative_niceness_starves_nobody)
{
    pthread_t burner = start(burn_at_high_priority, (void *)&burnt[0]);
    let_others_block();
    for (int i = 0; i < 50; i++) {
        int64_t began_ns = now_ns();
        while (now_ns() < began_ns + 5 * MS) { /* computes, so that it is ahead */
        }
        sched_yield();
        CHECK(now_ns() < began_ns + SECOND);
        sleep_ms(1);
        CHECK(now_ns() < began_ns + SECOND);
    }
    atomic_store(&stop, 1);
    join(burner);
}
