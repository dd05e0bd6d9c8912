/* Two hundred threads are stuck in the kernel at once, in calls that no helper makes, until a file
 * "let go" appears; then all is quiet until a file "again" appears. Then once more, with the file
 * "let go again". Until SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"
#include "made_call.h"

enum { STUCK = 200 };

static int ends[2], told[2];

static void *get_stuck(void *unused)
{
    char byte;
    GET(write(told[1], "x", 1));
    IS(made_call(SYS_read, ends[0], (long)&byte, 1), 1);
    return unused;
}

static void await_file(const char *name)
{
    while (access(name, F_OK) != 0) {
        sleep_ms(20);
    }
}

static void stick(const char *end)
{
    pthread_t threads[STUCK];
    pthread_attr_t small;
    OK(pthread_attr_init(&small));
    OK(pthread_attr_setstacksize(&small, 64 * 1024));
    for (int i = 0; i < STUCK; i++) {
        OK(pthread_create(&threads[i], &small, get_stuck, NULL));
    }
    /* Stuck threads hold up no other thread: all get there. */
    for (int i = 0; i < STUCK; i++) {
        char byte;
        IS(read(told[0], &byte, 1), 1);
    }
    printf("stuck\n");
    fflush(stdout);
    await_file(end);
    for (int i = 0; i < STUCK; i++) {
        IS(write(ends[1], "x", 1), 1);
    }
    join_all(threads, STUCK);
    printf("free\n");
    fflush(stdout);
}

static void *run(void *unused)
{
    stick("let go");
    await_file("again");
    stick("let go again");
    return unused;
}

int main(void)
{
    case_name = cases[case_count++].name = "many_stuck";
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    GET(pipe(ends));
    GET(pipe(told));
    start(run, NULL);
    OK(sigwait(&set, &signal));
    say_ok();
    _exit(0);
}
