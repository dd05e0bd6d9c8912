/* A shared object that services.c loads: thread-local variables, libc calls, raw system calls. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static __thread long local = 1000;
static __thread char padding[5000];

long add_to_local(long amount)
{
    padding[amount % 5000]++;
    return local += amount;
}

long sleep_in_library(long microseconds)
{
    return usleep(microseconds);
}

static long raw(long number, long first, long second)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second)
                     : "rcx", "r11", "memory");
    return result;
}

long raw_thread_id(long unused)
{
    (void)unused;
    return raw(SYS_gettid, 0, 0);
}

long raw_sleep(long ns)
{
    struct timespec time = {ns / 1000000000, ns % 1000000000};
    return raw(SYS_nanosleep, (long)&time, 0);
}

/* Waits for `*word` to change from `value`, without limit. */
long raw_wait(long word, long value)
{
    enum { WAIT_PRIVATE = 128 };
    long result;
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_futex), "D"(word), "S"((long)WAIT_PRIVATE), "d"(value), "r"(timeout)
                     : "rcx", "r11", "memory");
    return result;
}

long raw_read(long descriptor, long buffer)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_read), "D"(descriptor), "S"(buffer), "d"(1L)
                     : "rcx", "r11", "memory");
    return result;
}
