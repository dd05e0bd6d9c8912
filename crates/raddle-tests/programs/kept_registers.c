/* Vector, mask and x87 registers over system calls that code makes by itself, in the function that
 * uses the registers or in one that it calls: the kernel keeps all registers, and compilers know
 * what a function of the same file changes (`-fipa-ra`). */
#include "check.h"

#include <poll.h>

#define THREADS 4
#define ROUNDS 200

/* A function without vector registers, as a compiler writes it for a static one. */
__asm__(".text\n"
        ".type call_by_function, @function\n"
        "call_by_function:\n"
        ".cfi_startproc\n"
        "syscall\n"
        "cmp $-4095, %rax\n" /* room for a jump to the runtime */
        "ret\n"
        ".cfi_endproc\n"
        ".size call_by_function, . - call_by_function\n");

static volatile int ended, signals;

struct call {
    long number, a, b, c;
};

/* Defines a function that makes a call between a load and a store of registers. The
 * red zone is stepped over, since a function is called. */
#define KEEPS(name, load, how, store, ...)                                                       \
    static long name(const struct call *call, const void *before, void *after)                    \
    {                                                                                             \
        long result;                                                                              \
        register const void *from __asm__("r8") = before;                                         \
        register void *to __asm__("r9") = after;                                                  \
        __asm__ volatile("lea -128(%%rsp), %%rsp\n" load how store "lea 128(%%rsp), %%rsp\n"      \
                         : "=a"(result)                                                           \
                         : "a"(call->number), "D"(call->a), "S"(call->b), "d"(call->c),           \
                           "r"(from), "r"(to)                                                     \
                         : "rcx", "r11", "memory", ##__VA_ARGS__);                                \
        return result;                                                                            \
    }

#define INLINE "syscall\n"
#define BY_FUNCTION "call call_by_function\n"
#define XMM_LOAD "movdqu (%%r8), %%xmm7\n"
#define XMM_STORE "movdqu %%xmm7, (%%r9)\n"
#define YMM_LOAD "vmovdqu (%%r8), %%ymm7\n"
#define YMM_STORE "vmovdqu %%ymm7, (%%r9)\nvzeroupper\n"
/* Half of each register is what another register, or the mask, has: all must be kept. */
#define ZMM_LOAD "vmovdqu64 (%%r8), %%zmm7\nvmovdqu64 (%%r8), %%zmm23\nkmovq (%%r8), %%k3\n"
#define ZMM_STORE                                                                                 \
    "vextracti64x4 $1, %%zmm7, 32(%%r9)\nvmovdqu64 %%ymm23, (%%r9)\n"                             \
    "kmovq %%k3, (%%r9)\nvzeroupper\n"
#define X87_LOAD "fildll (%%r8)\nfildll 8(%%r8)\n"
#define X87_STORE "fistpll 8(%%r9)\nfistpll (%%r9)\n"
#define MMX_LOAD "movq (%%r8), %%mm1\nmovq 8(%%r8), %%mm6\n"
#define MMX_STORE "movq %%mm1, (%%r9)\nmovq %%mm6, 8(%%r9)\nemms\n"

KEEPS(xmm_inline, XMM_LOAD, INLINE, XMM_STORE, "xmm7")
KEEPS(xmm_by_function, XMM_LOAD, BY_FUNCTION, XMM_STORE, "xmm7")
KEEPS(ymm_by_function, YMM_LOAD, BY_FUNCTION, YMM_STORE, "xmm7")
KEEPS(zmm_by_function, ZMM_LOAD, BY_FUNCTION, ZMM_STORE, "xmm7")
KEEPS(x87_inline, X87_LOAD, INLINE, X87_STORE)
KEEPS(x87_by_function, X87_LOAD, BY_FUNCTION, X87_STORE)
KEEPS(mmx_inline, MMX_LOAD, INLINE, MMX_STORE)
KEEPS(mmx_by_function, MMX_LOAD, BY_FUNCTION, MMX_STORE)

static const struct way {
    const char *name;
    long (*call)(const struct call *, const void *, void *);
    int words;
    int needs; /* 1: AVX, 2: AVX-512 */
} ways[] = {
    {"xmm", xmm_inline, 2, 0},           {"xmm by a function", xmm_by_function, 2, 0},
    {"ymm by a function", ymm_by_function, 4, 1},
    {"zmm by a function", zmm_by_function, 8, 2},
    {"x87", x87_inline, 2, 0},           {"x87 by a function", x87_by_function, 2, 0},
    {"MMX", mmx_inline, 2, 0},           {"MMX by a function", mmx_by_function, 2, 0},
};
#define WAYS (int)(sizeof ways / sizeof *ways)

static int can(const struct way *way)
{
    return way->needs == 0 || (way->needs == 1 && __builtin_cpu_supports("avx")) ||
           (way->needs == 2 && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl"));
}

static void count(int signal)
{
    signals += signal != 0;
}

/* A handler that computes with x87 and vector registers of its own. */
static void compute(int signal)
{
    volatile long double number = signal;
    volatile double other = signal;
    for (int i = 0; i < 10; i++) {
        number = number * 3 + 1;
        other = other * 3 + 1;
    }
    count(number > 0 && other > 0 ? signal : 0);
}

static void *call_and_compare(void *argument)
{
    long own = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec little = {0, 20000};
        struct call calls[] = {
            {SYS_nanosleep, (long)&little, 0, 0},
            {SYS_sched_yield, 0, 0, 0},
            {SYS_poll, 0, 0, i % 2},
            {SYS_getpid, 0, 0, 0},
        };
        for (int j = 0; j < WAYS; j++) {
            const struct way *way = &ways[(j + own) % WAYS];
            const struct call *call = &calls[(i + j) % 4];
            long before[8], after[8] = {0};
            for (int k = 0; k < 8; k++) {
                before[k] = own * 1000003 + i * 1009 + k * 97 + 1;
            }
            if (!can(way)) {
                continue;
            }
            long result = way->call(call, before, after);
            CHECK(result == 0 || result == -EINTR || result == getpid());
            if (memcmp(before, after, way->words * 8) != 0) {
                check_failed(__FILE__, __LINE__, way->name, call->number);
            }
        }
    }
    __atomic_fetch_add(&ended, 1, __ATOMIC_SEQ_CST);
    return argument;
}

static void compare(int with_signals)
{
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = compute};
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

CASE(registers_are_kept_over_calls)
{
    compare(0);
}

CASE(registers_are_kept_over_calls_that_handlers_interrupt)
{
    compare(1);
}
