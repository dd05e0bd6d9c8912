/* Threads that compute on all CPUs for a while; then one that has little to do now and then, as
 * the argument says: at a time (timer), for a request (request), or when a disk has done what it
 * was told (disk). Until SIGTERM. */
#define CHECK_OWN_MAIN
#include "check.h"
#include <sys/socket.h>

enum { BURNERS = 8 };

static const char *kind;
static int ends[2], file;

static void compute(int64_t ns)
{
    for (int64_t from = now_ns(); now_ns() < from + ns;) {}
}

static void *burn(void *unused)
{
    compute(50 * MS);
    return unused;
}

static void *have_little_to_do(void *unused)
{
    char byte = 0;
    for (;;) {
        if (strcmp(kind, "request") == 0) {
            IS(read(ends[1], &byte, 1), 1);
            IS(write(ends[1], &byte, 1), 1);
        } else {
            sleep_ms(3);
        }
        if (strcmp(kind, "disk") == 0) {
            IS(pwrite(file, &byte, 1, 0), 1);
            GET(fsync(file));
        }
        compute(20000);
    }
    return unused;
}

static void ask_now_and_then(void)
{
    char byte = 'x';
    close(ends[1]);
    for (;;) {
        struct timespec pause = timespec_of(3 * MS);
        nanosleep(&pause, NULL);
        if (write(ends[0], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) {
            _exit(0);
        }
    }
}

int main(int count, char **words)
{
    case_name = cases[case_count++].name = "low_load";
    CHECK(count == 2);
    kind = words[1];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    if (strcmp(kind, "request") == 0 && GET(fork()) == 0) {
        ask_now_and_then();
    }
    close(ends[0]);
    file = (int)GET(open("data", O_CREAT | O_RDWR, 0600));
    int signal;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t burners[BURNERS];
    for (int i = 0; i < BURNERS; i++) {
        burners[i] = start(burn, NULL);
    }
    join_all(burners, BURNERS);
    start(have_little_to_do, NULL);
    printf("quiet\n");
    fflush(stdout);
    OK(sigwait(&set, &signal));
    say_ok();
    _exit(0);
}
