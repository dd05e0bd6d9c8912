/* Twenty threads compute beside one with the name of a compiler thread. Prints the compiler's CPU
 * time in percent of each other thread's. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <stdatomic.h>

enum { OTHERS = 20 };

static atomic_int stop;

static void *compute(void *name)
{
    OK(pthread_setname_np(pthread_self(), name));
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    }
    return NULL;
}

static double cpu_seconds(pthread_t thread)
{
    clockid_t clock;
    struct timespec used;
    OK(pthread_getcpuclockid(thread, &clock));
    IS(clock_gettime(clock, &used), 0);
    return used.tv_sec + used.tv_nsec * 1e-9;
}

int main(void)
{
    case_name = cases[case_count++].name = "compilers";
    pthread_t threads[OTHERS + 1];
    double before[OTHERS + 1], others = 0;
    for (int i = 0; i <= OTHERS; i++) {
        threads[i] = start(compute, i == 0 ? "C2 CompilerThre" : "http-nio");
    }
    sleep_ms(300);
    for (int i = 0; i <= OTHERS; i++) {
        before[i] = cpu_seconds(threads[i]);
    }
    sleep_ms(1500);
    for (int i = 1; i <= OTHERS; i++) {
        others += cpu_seconds(threads[i]) - before[i];
    }
    double compiler = cpu_seconds(threads[0]) - before[0];
    printf("%.0f percent\n", compiler * OTHERS * 100 / others);
    atomic_store(&stop, 1);
    join_all(threads, OTHERS + 1);
    say_ok();
    return 0;
}
