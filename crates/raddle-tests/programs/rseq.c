/* Restartable sequences: threads have them with the CPU on which they run, or none has them. */
#include "check.h"

#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

static void *look_at_rseq(void *argument)
{
    /* Registered, with the CPU it runs on; or said to be absent. */
    if (&__rseq_size != NULL && __rseq_size != 0) {
        int32_t *area = (int32_t *)((char *)__builtin_thread_pointer() + __rseq_offset);
        CHECK(area[1] >= 0);
    }
    CHECK(GET(sched_getcpu()) >= 0);
    return argument;
}

CASE(restartable_sequences_work_or_are_absent)
{
    look_at_rseq(NULL);
    join(start(look_at_rseq, NULL));
    look_at_rseq(NULL);
}

static struct {
    uint32_t words[8];
} __attribute__((aligned(32))) areas[3];

static long register_area(int which)
{
    areas[which].words[1] = -1u;
    return syscall(SYS_rseq, &areas[which], sizeof areas[which], 0, 0x53053053);
}

static void *is_registered(void *which)
{
    return number(register_area((int)(long)which) == 0);
}

/* An allocator that registers its first thread relies on it that the others can be, too. */
CASE(the_first_thread_registers_only_if_all_can)
{
    long first = register_area(0) == 0;
    IS(join(start(is_registered, number(1))), first);
    IS(join(start(is_registered, number(2))), first);
}

#if __GLIBC_PREREQ(2, 35)
#include <sys/rseq.h>

/* A program that is not position-independent to the last has a copy of the size. */
CASE(a_copy_of_the_size_says_the_same)
{
    extern const unsigned int size __asm__("__rseq_size");
    const volatile unsigned int *copy = &size;
    struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    IS(*copy != 0, (int)area->cpu_id >= 0);
}
#else
CASE(a_copy_of_the_size_says_the_same) {}
#endif
