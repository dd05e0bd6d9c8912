/* Threads with more names than an exporter of metrics shows: `change` has threads that live on and
 * change their names, `come` has threads that end and come again. Ends with 0 on SIGTERM.
 */
#define CHECK_OWN_MAIN
#include "check.h"

enum { LIVING = 80, NAMES = 90, GROUPS = 60, COMING = 2 * GROUPS };

static int is_over;

static int goes_on(void)
{
    return !__atomic_load_n(&is_over, __ATOMIC_RELAXED);
}

/* Without digits, which are no difference between groups. */
static void take_name(int number)
{
    char name[] = {'n', 'a' + number / 10, 'a' + number % 10, 0};
    OK(pthread_setname_np(pthread_self(), name));
}

static void *change(void *argument)
{
    for (long step = 0; goes_on(); step++) {
        take_name(((long)argument * 7 + step * 13) % NAMES);
        sleep_ms(60);
    }
    return NULL;
}

static void *live_for_a_while(void *argument)
{
    take_name((long)argument);
    for (int i = 0; i < 30 && goes_on(); i++) {
        sleep_ms(10);
    }
    return NULL;
}

static void *come_again(void *argument)
{
    pthread_t threads[COMING];
    for (long round = 0; goes_on(); round++) {
        for (long i = 0; i < COMING; i++) {
            long name = (round * (GROUPS / 2) + i / 2) % NAMES;
            threads[i] = start_small(live_for_a_while, (void *)name);
        }
        join_all(threads, COMING);
    }
    return argument;
}

int main(int argc, char **argv)
{
    case_name = cases[case_count++].name = "group_names";
    int changes = argc > 1 && strcmp(argv[1], "change") == 0, status;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t threads[LIVING];
    int count = changes ? LIVING : 1;
    for (long i = 0; i < count; i++) {
        threads[i] = start_small(changes ? change : come_again, (void *)i);
    }
    printf("waiting\n");
    fflush(stdout);
    OK(sigwait(&set, &status));
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < count; i++) {
        join(threads[i]);
    }
    say_ok();
    return 0;
}
