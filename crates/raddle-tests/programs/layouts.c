/* A program with a note that a script of the linker's can put anywhere, and an entry of its own for
 * when it is linked as a shared object and executed all the same. Uses a thread and prints so. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Where it lies between tables, it is no entry of any of them. */
__attribute__((section(".filler"), used)) static const char filler[4096] = {[0 ... 4095] = 'X'};

#ifdef SHARED
const char interpreter[] __attribute__((section(".interp"))) = "/lib64/ld-linux-x86-64.so.2";
#endif

static void *use(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return lock;
}

static int run(void)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    if (pthread_create(&thread, NULL, use, &lock) || pthread_join(thread, NULL)) {
        return 1;
    }
    printf("a thread has ended\n");
    return 3;
}

#ifdef SHARED
__attribute__((force_align_arg_pointer)) void start_here(void)
{
    exit(run());
}
#else
int main(void)
{
    return run();
}
#endif
