/* Vector registers of 256 bits over system calls that code makes by itself: the kernel keeps all
 * registers. */
#include "check.h"

#include <poll.h>

#define THREADS 4
#define ROUNDS 300

/* Makes a call between a load and a store of ymm7. */
static long call_with_wide(long number, long a, long b, long c, const long *before, long *after)
{
    long result;
    __asm__ volatile("vmovdqu (%[before]), %%ymm7\n"
                     "syscall\n"
                     "vmovdqu %%ymm7, (%[after])\n"
                     "vzeroupper\n"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), [before] "r"(before), [after] "r"(after)
                     : "rcx", "r11", "memory", "xmm7");
    return result;
}

/* The same, with other registers in use as long as the thread lives. */
static void use_others(long value)
{
    long all[4] = {value, ~value, value, ~value};
    __asm__ volatile("vmovdqu (%0), %%ymm7\nvmovdqu (%0), %%ymm9\n" ::"r"(all) : "xmm7", "xmm9");
}

static volatile int ended, signals;

static void count(int signal)
{
    signals += signal != 0;
}

static void *call_and_compare(void *argument)
{
    long number = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int is_narrow = (number + i) % 3 == 0;
        long key = number * 1000 + i, after[4];
        long before[4] = {key, -key, is_narrow ? 0 : ~key, is_narrow ? 0 : key + 7};
        struct timespec little = {0, 20000};
        long sleep[] = {SYS_nanosleep, (long)&little, 0, 0}, yield[] = {SYS_sched_yield, 0, 0, 0};
        long wait[] = {SYS_poll, 0, 0, i % 2};
        long *call = i % 3 == 0 ? sleep : i % 3 == 1 ? yield : wait;
        long result = call_with_wide(call[0], call[1], call[2], call[3], before, after);
        CHECK(result == 0 || result == -EINTR);
        IS(memcmp(before, after, sizeof before), 0);
        use_others(key);
    }
    __atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
    return argument;
}

static void compare(int with_signals)
{
    pthread_t threads[THREADS];
    if (!__builtin_cpu_supports("avx")) {
        return;
    }
    struct sigaction action = {.sa_handler = count};
    OK(sigaction(SIGUSR1, &action, NULL));
    for (long i = 0; i < THREADS; i++) {
        OK(pthread_create(&threads[i], NULL, call_and_compare, (void *)(i + 1)));
    }
    for (int i = 0; with_signals && ended < THREADS; i++) {
        pthread_kill(threads[i % THREADS], SIGUSR1);
        usleep(50);
    }
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    CHECK(!with_signals || signals > 0);
}

CASE(wide_registers_are_kept_over_calls)
{
    compare(0);
}

CASE(wide_registers_are_kept_over_calls_that_handlers_interrupt)
{
    compare(1);
}
