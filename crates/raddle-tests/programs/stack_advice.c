/* Advice about memory at and below stacks of threads: pages that are given back are empty. */
#include "stack.h"

#include <stdatomic.h>

static char *region;
static const size_t REGION = 64 << 10;

static void *empty_the_region(void *unused)
{
    for (int round = 0; round < 64; round++) {
        memset(region, 0x5a, REGION);
        GET(madvise(region, REGION, MADV_DONTNEED));
        CHECK(is_filled(region, REGION, 0));
    }
    return unused;
}

/* Memory that ends right below the stack of the thread that gives it back. */
CASE(memory_below_a_stack_is_emptied)
{
    pthread_attr_t attributes;
    pthread_t thread;
    region = mmap(NULL, REGION + (64 << 10), READ_WRITE, ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED);
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setstack(&attributes, region + REGION, 64 << 10));
    OK(pthread_create(&thread, &attributes, empty_the_region, NULL));
    join(thread);
}

__attribute__((noinline)) static void empty_own(int advice)
{
    struct stack stack = own_stack();
    char *end = page_below(8);
    size_t size = end - stack.low;
    for (int round = 0; round < 40; round++) {
        memset(stack.low, 0x5a, size);
        GET(madvise(stack.low, size, advice));
        CHECK(is_filled(stack.low, size, 0));
    }
}

static void *empty_own_stack(void *unused)
{
    empty_own(MADV_DONTNEED);
    return unused;
}

CASE(the_own_stack_is_emptied_below_its_frame)
{
    on_threads(empty_own_stack);
}

/* The whole of the low end, guard included, as libc gives it back at a thread's end. */
static void *empty_from_the_guard(void *unused)
{
    struct stack stack = own_stack();
    char *low = stack.low - stack.guard, *end = page_below(8);
    for (int round = 0; round < 40; round++) {
        memset(end - PAGE, 0x5a, PAGE);
        GET(madvise(low, end - low, MADV_DONTNEED));
        CHECK(is_filled(end - PAGE, PAGE, 0));
    }
    return unused;
}

CASE(a_program_that_does_as_libc_does_is_answered_by_the_kernel)
{
    on_threads(empty_from_the_guard);
}

/* A destructor that ends in the call: libc is its caller. */
static void *low_end;
static size_t low_size;
static pthread_key_t first_key, second_key;

static void empty_by_jump(void *unused)
{
    (void)unused;
    madvise(low_end, low_size, MADV_DONTNEED);
}

static void look_at_low_end(void *unused)
{
    (void)unused;
    CHECK(is_filled((char *)low_end + low_size - PAGE, PAGE, 0));
}

static void *leave_values(void *unused)
{
    struct stack stack = own_stack();
    low_end = stack.low - stack.guard;
    low_size = page_below(8) - (char *)low_end;
    memset((char *)low_end + low_size - PAGE, 0x5a, PAGE);
    OK(pthread_setspecific(first_key, low_end));
    OK(pthread_setspecific(second_key, low_end));
    return unused;
}

CASE(a_destructor_that_jumps_to_the_call_is_no_libc)
{
    OK(pthread_key_create(&first_key, empty_by_jump));
    OK(pthread_key_create(&second_key, look_at_low_end));
    for (int i = 0; i < 40; i++) {
        join(start(leave_values, NULL));
    }
}

/* Calls libc with the stack pointer a few bytes above `below`, where the frames of calls are. */
__attribute__((noinline)) static long empty_right_below(char *below, size_t size, int maps)
{
    long function = (long)(maps ? (void *)mmap : (void *)madvise);
    register long fourth __asm__("rcx") = MAP_FIXED | ANONYMOUS;
    register long fifth __asm__("r8") = -1;
    register long sixth __asm__("r9") = 0;
    long second = (long)size, third = maps ? READ_WRITE : MADV_DONTNEED, result;
    char *first = below, *stack = below + size + 64;
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "mov %[stack], %%rsp\n\t"
                     "call *%%rax\n\t"
                     "mov %%rbx, %%rsp"
                     : "=a"(result), "+D"(first), "+S"(second), "+d"(third), "+r"(fourth),
                       "+r"(fifth), "+r"(sixth)
                     : "a"(function), [stack] "r"(stack)
                     : "rbx", "r10", "r11", "memory", "cc");
    return result;
}

static void *empty_below_the_frame(void *unused)
{
    struct stack stack = own_stack();
    char *below = stack.low + 16 * PAGE;
    enum { SIZE = 4 * PAGE, FRAMES = 2048 };
    for (int round = 0; round < 40; round++) {
        memset(below, 0x5a, SIZE + PAGE);
        int maps = round % 2;
        IS(empty_right_below(below, SIZE, maps), maps ? (long)below : 0);
        CHECK(is_filled(below, SIZE - FRAMES, 0));
        CHECK(is_filled(below + SIZE + 64, PAGE - 64, 0x5a));
    }
    return unused;
}

CASE(pages_right_below_the_stack_pointer_are_emptied)
{
    on_threads(empty_below_the_frame);
    empty_below_the_frame(NULL);
}

static atomic_int stop;

static void *empty_below_until_stopped(void *unused)
{
    struct stack stack = own_stack();
    char *below = stack.low + 16 * PAGE;
    memset(below, 0x5a, 5 * PAGE);
    do {
        IS(empty_right_below(below, 4 * PAGE, 0), 0);
    } while (!stop);
    return unused;
}

CASE(children_empty_their_stacks_whatever_other_threads_were_doing)
{
    pthread_t thread = start(empty_below_until_stopped, NULL);
    for (int i = 0; i < 300; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            stop = 1;
            empty_below_until_stopped(NULL);
            _exit(7);
        }
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), 7);
    }
    stop = 1;
    join(thread);
}

/* Pages where the kernel maps nothing that may be anywhere. */
static char *far_pages(int count)
{
    static atomic_uintptr_t next = 0x200000000000;
    void *at = (void *)atomic_fetch_add(&next, 64 * PAGE);
    char *pages = mmap(at, count * PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(pages == at);
    return pages;
}

static void *advise_wrongly(void *unused)
{
    char *page = low_page(16);
    char *hole = far_pages(3);
    GET(munmap(hole + PAGE, PAGE));
    const char *places[] = {page, hole};
    for (int i = 0; i < 2; i++) {
        char *at = (char *)places[i];
        *at = 1;
        FAILS(madvise(at + 1, PAGE, MADV_DONTNEED), EINVAL);
        FAILS(madvise(at, (size_t)-1, MADV_DONTNEED), EINVAL);
        FAILS(madvise(at, -(uintptr_t)at, MADV_DONTNEED), EINVAL);
        FAILS(madvise(at, PAGE, 12345), EINVAL);
        GET(madvise(at, 0, MADV_DONTNEED));
        IS(*at, 1);
        GET(madvise(at, 1, MADV_DONTNEED));
        IS(*at, 0);
    }
    FAILS(madvise(hole, 3 * PAGE, MADV_DONTNEED), ENOMEM);
    return unused;
}

CASE(bad_advice_is_refused_as_the_kernel_does)
{
    on_threads(advise_wrongly);
}
