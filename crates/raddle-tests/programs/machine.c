/* State that a switch must preserve: floating-point control, vector registers, stacks, jumps. */
#include "check.h"

#include <fenv.h>
#include <immintrin.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <ucontext.h>

static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

static void *keep_rounding(void *me)
{
    int mode = modes[(long)me % 4];
    volatile double one = 1, three = 3;
    IS(fegetround(), FE_TONEAREST);
    IS(fesetround(mode), 0);
    double expected = one / three;
    for (int i = 0; i < 300; i++) {
        if (i % 100 == 0) {
            usleep(100);
        }
        sched_yield();
        IS(fegetround(), mode);
        CHECK(one / three == expected);
    }
    return NULL;
}

CASE(each_thread_keeps_its_rounding)
{
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) {
        threads[i] = start(keep_rounding, number(i));
    }
    join_all(threads, 16);
    IS(fegetround(), FE_TONEAREST);
}

static void *inherited_rounding(void *argument)
{
    return number(fegetround());
}

/* Linux gives a new thread its creator's floating-point control. */
CASE(a_new_thread_inherits_the_rounding)
{
    IS(fesetround(FE_UPWARD), 0);
    IS(join(start(inherited_rounding, NULL)), FE_UPWARD);
    IS(fesetround(FE_TONEAREST), 0);
    IS(join(start(inherited_rounding, NULL)), FE_TONEAREST);
}

static void *keep_mxcsr(void *me)
{
    unsigned own = _mm_getcsr() | ((long)me % 2 ? _MM_FLUSH_ZERO_ON : 0);
    unsigned short word, own_word;
    __asm__ volatile("fnstcw %0" : "=m"(own_word));
    own_word = (own_word & ~0x300) | ((long)me % 2 ? 0x200 : 0x300);
    __asm__ volatile("fldcw %0" : : "m"(own_word));
    _mm_setcsr(own);
    for (int i = 0; i < 300; i++) {
        sched_yield();
        IS(_mm_getcsr() & _MM_FLUSH_ZERO_MASK, own & _MM_FLUSH_ZERO_MASK);
        __asm__ volatile("fnstcw %0" : "=m"(word));
        IS(word, own_word);
    }
    return NULL;
}

CASE(each_thread_keeps_mxcsr_and_the_x87_control_word)
{
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) {
        threads[i] = start(keep_mxcsr, number(i));
    }
    join_all(threads, 16);
}

/* A system call preserves vector registers; the compiler knows that of inline assembly. */
static long raw_yield_with_xmm(uint64_t value)
{
    uint64_t low, high;
    __asm__ volatile("movq %2, %%xmm5\n\tmovq %2, %%xmm15\n\t"
                     "mov %3, %%eax\n\tsyscall\n\t"
                     "movq %%xmm5, %0\n\tmovq %%xmm15, %1"
                     : "=&r"(low), "=&r"(high)
                     : "r"(value), "i"(SYS_sched_yield)
                     : "rax", "rcx", "r11", "xmm5", "xmm15", "memory");
    return low == value && high == value;
}

static void *keep_xmm(void *me)
{
    for (long i = 0; i < 500; i++) {
        IS(raw_yield_with_xmm((uint64_t)me * 1000 + i), 1);
    }
    return NULL;
}

CASE(a_raw_system_call_preserves_xmm)
{
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(keep_xmm, number(i));
    }
    join_all(threads, 8);
}

static atomic_int stop;

/* Sixteen live sums: a preemption at any instruction must give all of every register back. */
__attribute__((target("avx2"), optimize("O3"))) static void *compute_avx(void *me)
{
    __m256i sums[12], step = _mm256_set1_epi64x((long)me + 1);
    for (int k = 0; k < 12; k++) {
        sums[k] = _mm256_set1_epi64x(k);
    }
    long rounds = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        for (int i = 0; i < 1000; i++) {
            for (int k = 0; k < 12; k++) {
                sums[k] = _mm256_add_epi64(sums[k], step);
            }
        }
        rounds++;
    }
    for (int k = 0; k < 12; k++) {
        long lanes[4];
        _mm256_storeu_si256((__m256i *)lanes, sums[k]);
        for (int lane = 0; lane < 4; lane++) {
            IS(lanes[lane], k + rounds * 1000 * ((long)me + 1));
        }
    }
    return NULL;
}

/* All 32 registers and 7 masks at once, in a loop that touches none of them. */
struct avx512 {
    uint64_t registers[32][8], masks[7];
};

#define EACH_REGISTER(op, z) op(z##0) op(z##1) op(z##2) op(z##3) op(z##4) op(z##5) op(z##6) op(z##7)
#define LOAD(n) "vmovdqu64 " #n "*64(%0), %%zmm" #n "\n\t"
#define SAVE(n) "vmovdqu64 %%zmm" #n ", " #n "*64(%1)\n\t"
#define LOAD_MASK(n) "kmovq 2040+8*" #n "(%0), %%k" #n "\n\t"
#define SAVE_MASK(n) "kmovq %%k" #n ", 2040+8*" #n "(%1)\n\t"
#define MASKS(op) op(1) op(2) op(3) op(4) op(5) op(6) op(7)
#define REGISTERS(op)                                                                    \
    op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) EACH_REGISTER(op, 1)     \
    op(18) op(19) EACH_REGISTER(op, 2) op(28) op(29) op(30) op(31)

__attribute__((target("avx512f,avx512bw"))) static void hold(const struct avx512 *in,
                                                             struct avx512 *out)
{
    long count = 1000000;
    __asm__ volatile(REGISTERS(LOAD) MASKS(LOAD_MASK)
                     "1: cmpl $0, %3\n\t"
                     "jne 2f\n\t"
                     "decq %2\n\t"
                     "jne 1b\n\t"
                     "2:" REGISTERS(SAVE) MASKS(SAVE_MASK)
                     : "+r"(in), "+r"(out), "+r"(count)
                     : "m"(stop)
                     : "memory", "cc", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "xmm0", "xmm1",
                       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                       "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
                       "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",
                       "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");
}

static void *hold_avx512(void *me)
{
    struct avx512 in, out;
    uint64_t *words = (uint64_t *)&in;
    for (unsigned i = 0; i < sizeof in / sizeof *words; i++) {
        words[i] = 0x9e3779b97f4a7c15 * (i + 1) + (uint64_t)me;
    }
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        memset(&out, 0, sizeof out);
        hold(&in, &out);
        IS(memcmp(&in, &out, sizeof in), 0);
    }
    return NULL;
}

static void *disturb_avx(void *argument)
{
    while (!atomic_load(&stop)) {
        char text[100], copy[100];
        memset(text, (int)(long)argument, sizeof text);
        memcpy(copy, text, sizeof copy);
        IS(memcmp(copy, text, sizeof copy), 0);
        sched_yield();
    }
    return NULL;
}

CASE(avx_sums_survive_preemption)
{
    if (!__builtin_cpu_supports("avx2")) {
        return;
    }
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(i % 2 ? disturb_avx : compute_avx, number(i));
    }
    sleep_ms(300);
    atomic_store(&stop, 1);
    join_all(threads, 8);
}

CASE(avx512_registers_survive_preemption)
{
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) {
        return;
    }
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) {
        threads[i] = start(i % 4 ? hold_avx512 : disturb_avx, number(i));
    }
    sleep_ms(300);
    atomic_store(&stop, 1);
    join_all(threads, 8);
}

static void *compute_x87(void *me)
{
    volatile long double step = 1.0L / ((long)me + 3);
    long double sum = 0;
    long rounds = 0;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        sum += step;
        rounds++;
    }
    CHECK(fabsl(sum - rounds * step) < 1e-6L * (sum + 1));
    return NULL;
}

CASE(x87_sums_survive_preemption)
{
    pthread_t threads[6];
    for (long i = 0; i < 6; i++) {
        threads[i] = start(compute_x87, number(i));
    }
    sleep_ms(150);
    atomic_store(&stop, 1);
    join_all(threads, 6);
}

__attribute__((noinline)) static long use_stack(long kilobytes)
{
    volatile char block[1024];
    block[0] = (char)kilobytes;
    block[1023] = 1;
    if (kilobytes == 0) {
        return 0;
    }
    if (kilobytes % 64 == 0) {
        sched_yield();
    }
    return use_stack(kilobytes - 1) + block[1023];
}

static void *use_a_megabyte(void *argument)
{
    return number(use_stack(1024));
}

CASE(twenty_threads_use_a_megabyte_of_stack)
{
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(use_a_megabyte, NULL);
    }
    for (int i = 0; i < 20; i++) {
        IS(join(threads[i]), 1024);
    }
    IS(use_stack(4096), 4096);
}

__attribute__((noinline)) static void jump_back(jmp_buf where, int depth)
{
    if (depth == 0) {
        sched_yield();
        longjmp(where, 7);
    }
    if (depth > 0) {
        jump_back(where, depth - 1);
    }
    __asm__ volatile("");
}

static void *jump_often(void *argument)
{
    for (volatile int i = 0; i < 200; i++) {
        jmp_buf where;
        int value = setjmp(where);
        if (value == 0) {
            jump_back(where, 20);
        }
        IS(value, 7);
        sched_yield();
    }
    return argument;
}

CASE(setjmp_and_longjmp_over_yields)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(jump_often, NULL);
    }
    join_all(threads, 10);
}

struct generator {
    ucontext_t inside, outside;
    long value;
};

static void generate(unsigned low, unsigned high)
{
    struct generator *own = (struct generator *)((uintptr_t)high << 32 | low);
    for (;;) {
        own->value++;
        usleep(10);
        swapcontext(&own->inside, &own->outside);
    }
}

/* Contexts of the program's own, resumed by the thread that made them. */
static void *use_generator(void *argument)
{
    struct generator own = {.value = 0};
    uintptr_t address = (uintptr_t)&own;
    char *stack = malloc(1 << 16);
    GET(getcontext(&own.inside));
    own.inside.uc_stack.ss_sp = stack;
    own.inside.uc_stack.ss_size = 1 << 16;
    own.inside.uc_link = NULL;
    makecontext(&own.inside, (void (*)(void))generate, 2, (unsigned)address,
                (unsigned)(address >> 32));
    for (int i = 1; i <= 100; i++) {
        GET(swapcontext(&own.outside, &own.inside));
        IS(own.value, i);
        sched_yield();
    }
    free(stack);
    return argument;
}

CASE(swapcontext_in_threads)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(use_generator, NULL);
    }
    join_all(threads, 10);
}

static void *_Atomic shelf[64];

static void *allocate(void *seed)
{
    unsigned state = (unsigned)(long)seed + 1;
    for (int i = 0; i < 4000; i++) {
        state = state * 1664525u + 1013904223u;
        size_t size = 1 + (state >> 8) % ((state & 0xff) == 0 ? 300000 : 2000);
        unsigned char *block = malloc(size);
        CHECK(block != NULL);
        memset(block, (int)size, size < 64 ? size : 64);
        block = realloc(block, size + 100);
        IS(block[0], (unsigned char)size);
        free(atomic_exchange(&shelf[(state >> 16) % 64], block));
        if (i % 100 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

CASE(malloc_in_32_threads)
{
    pthread_t threads[32];
    for (long i = 0; i < 32; i++) {
        threads[i] = start(allocate, number(i));
    }
    join_all(threads, 32);
    for (int i = 0; i < 64; i++) {
        free(shelf[i]);
    }
}
