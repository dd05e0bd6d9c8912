/* Calls that wait, beside computing and a timer's signals: no call ends with EINTR unless a handler
 * ran in its thread, and each signal is handled. A program that is sampled by signals must not
 * notice it. */
#include "check.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <ucontext.h>

#define LASTS (2 * SECOND)

static int64_t end_ns;
static volatile uint64_t sink;

static int is_over(void)
{
    return now_ns() > end_ns;
}

static void compute(int64_t ns)
{
    int64_t until = now_ns() + ns;
    while (now_ns() < until) {
        for (int i = 0; i < 1000; i++) {
            sink = sink * 6364136223846793005u + 1442695040888963407u;
        }
    }
}

static void *naps(void *unused)
{
    while (!is_over()) {
        struct timespec time = timespec_of(300000);
        OK(nanosleep(&time, NULL));
        IS(poll(NULL, 0, 1), 0);
        compute(200000);
    }
    return unused;
}

static void *waits_for_events(void *unused)
{
    int epoll = GET(epoll_create1(0));
    struct epoll_event event;
    sigset_t set;
    OK(sigemptyset(&set));
    OK(sigaddset(&set, SIGUSR2));
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    while (!is_over()) {
        struct timespec time = timespec_of(MS);
        IS(epoll_wait(epoll, &event, 1, 1), 0);
        FAILS(sigtimedwait(&set, NULL, &time), EAGAIN);
        compute(200000);
    }
    OK(close(epoll));
    return unused;
}

static void *times_out(void *unused)
{
    int pair[2];
    sem_t semaphore;
    OK(sem_init(&semaphore, 0, 0));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    struct timeval limit = {0, 1000};
    OK(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    while (!is_over()) {
        char byte;
        struct timespec until = from_now(CLOCK_REALTIME, MS);
        FAILS(recv(pair[0], &byte, 1, 0), EAGAIN);
        FAILS(sem_timedwait(&semaphore, &until), ETIMEDOUT);
        compute(200000);
    }
    return unused;
}

static void *waits_for_system_v(void *unused)
{
    int semaphores = GET(semget(IPC_PRIVATE, 1, 0600));
    int messages = GET(msgget(IPC_PRIVATE, 0600));
    struct sembuf down = {0, -1, 0};
    struct { long kind; char text[8]; } message = {1, "message"};
    while (!is_over()) {
        struct timespec time = timespec_of(MS);
        FAILS(semtimedop(semaphores, &down, 1, &time), EAGAIN);
        OK(msgsnd(messages, &message, sizeof message.text, 0));
        IS(msgrcv(messages, &message, sizeof message.text, 0, 0), sizeof message.text);
        compute(200000);
    }
    OK(semctl(semaphores, 0, IPC_RMID));
    OK(msgctl(messages, IPC_RMID, NULL));
    return unused;
}

static int bytes[2];

static void *writes(void *unused)
{
    while (!is_over()) {
        compute(100000);
        IS(write(bytes[1], "", 1), 1);
    }
    OK(close(bytes[1]));
    return unused;
}

static void *reads(void *unused)
{
    char byte;
    long got;
    while ((got = read(bytes[0], &byte, 1)) == 1) {
        compute(20000);
    }
    IS(got, 0);
    return unused;
}

static atomic_int handled;

static void handle(int signal)
{
    (void)signal;
    handled++;
}

/* Sends itself a signal that a handler takes, again and again: none is lost. */
static void *is_signalled(void *unused)
{
    int sent = 0;
    while (!is_over()) {
        OK(pthread_kill(pthread_self(), SIGUSR1));
        sent++;
        IS(handled, sent);
        compute(50000);
    }
    return unused;
}

static ucontext_t outside, inside;
static char *coroutine_stack;

static void coroutine(void)
{
    for (;;) {
        compute(100000);
        OK(swapcontext(&inside, &outside));
    }
}

/* Computes at the upper end of a stack behind which nothing is mapped. */
static void *switches(void *unused)
{
    while (!is_over()) {
        OK(swapcontext(&outside, &inside));
    }
    return unused;
}

/* Computes with a stack pointer that is no address, or leads to memory that is not there. */
static void *strays(void *unused)
{
    static const uint64_t places[] = {8, 0x7ffffffff000, 0x8000000000000000, UINT64_MAX - 7};
    for (int turn = 0; !is_over(); turn++) {
        uint64_t count = 300000;
        __asm__ volatile("mov %%rsp, %%r12\n"
                         "mov %1, %%rsp\n"
                         "1: dec %0\n"
                         "jnz 1b\n"
                         "mov %%r12, %%rsp\n"
                         : "+r"(count)
                         : "r"(places[turn % 4])
                         : "r12", "memory", "cc");
    }
    return unused;
}

CASE(no_call_is_interrupted)
{
    struct sigaction action = {.sa_handler = handle};
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pipe(bytes));
    long page = sysconf(_SC_PAGESIZE);
    coroutine_stack = mmap(NULL, 17 * page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(coroutine_stack != MAP_FAILED);
    OK(mprotect(coroutine_stack + 16 * page, page, PROT_NONE));
    OK(getcontext(&inside));
    inside.uc_stack.ss_sp = coroutine_stack;
    inside.uc_stack.ss_size = 16 * page;
    makecontext(&inside, coroutine, 0);
    end_ns = now_ns() + LASTS;
    void *(*const all[])(void *) = {
        naps, waits_for_events, times_out, waits_for_system_v, writes,
        reads, is_signalled, switches, strays,
    };
    enum { COUNT = sizeof all / sizeof *all };
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++) {
        OK(pthread_create(&threads[i], NULL, all[i], NULL));
    }
    for (int i = 0; i < COUNT; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    CHECK(handled != 0);
}
