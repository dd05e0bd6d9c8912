/* One thread gets stuck in the kernel again and again, beside one that wants to go on. Prints when
 * the other has gone on soon once; then goes on until SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"
#include "made_call.h"
#include <stdatomic.h>

enum { STUCK_MS = 20 };

static atomic_llong stuck_ns;
static atomic_int is_told;

static void *get_stuck(void *unused)
{
    for (;;) {
        sleep_ms(2);
        atomic_store(&stuck_ns, now_ns());
        made_call(SYS_poll, 0, 0, STUCK_MS); /* the signal at the end ends it early */
    }
    return unused;
}

static void *go_on(void *soon)
{
    for (;;) {
        long long from_ns = atomic_exchange(&stuck_ns, 0);
        if (from_ns != 0 && now_ns() - from_ns < (intptr_t)soon && !atomic_exchange(&is_told, 1)) {
            printf("soon\n");
            fflush(stdout);
        }
        sched_yield();
    }
    return NULL;
}

int main(int count, char **words)
{
    case_name = cases[case_count++].name = "hand_off";
    CHECK(count == 2);
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    start(go_on, number(atol(words[1]) * 1000));
    start(get_stuck, NULL);
    OK(sigwait(&set, &signal));
    say_ok();
    _exit(0);
}
