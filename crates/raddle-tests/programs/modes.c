/* Reads of descriptors that change between blocking and non-blocking mode, by their own number or
 * behind it. */
#include "check.h"

#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { UNIX_STREAM, UNIX_DATAGRAM, PIPE, COUNTER, KINDS };
enum { READ, READV, RECV, RECVMSG, CALLS };

static void make(int kind, int fds[2])
{
    if (kind == PIPE) {
        OK(pipe(fds));
    } else if (kind == COUNTER) {
        fds[0] = eventfd(0, 0);
        fds[1] = dup(fds[0]);
        CHECK(fds[0] >= 0 && fds[1] >= 0);
    } else {
        OK(socketpair(AF_UNIX, kind == UNIX_STREAM ? SOCK_STREAM : SOCK_DGRAM, 0, fds));
    }
}

static long get(int call, int fd, uint64_t *word)
{
    struct iovec piece = {word, sizeof *word};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    switch (call) {
    case READ:
        return read(fd, word, sizeof *word);
    case READV:
        return readv(fd, &piece, 1);
    case RECV:
        return recv(fd, word, sizeof *word, 0);
    default:
        return recvmsg(fd, &message, 0);
    }
}

static void by_fcntl(int fd, int nonblocking)
{
    OK(fcntl(fd, F_SETFL, nonblocking ? O_RDWR | O_NONBLOCK : O_RDWR));
}

static void by_ioctl(int fd, int nonblocking)
{
    OK(ioctl(fd, FIONBIO, &nonblocking));
}

static void by_another_number(int fd, int nonblocking)
{
    int other = dup(fd);
    CHECK(other >= 0);
    by_fcntl(other, nonblocking);
    OK(close(other));
}

static void by_another_process(int fd, int nonblocking)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        by_fcntl(fd, nonblocking);
        _exit(0);
    }
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

static void (*const changes[])(int, int) = {by_fcntl, by_ioctl, by_another_number,
                                            by_another_process};

static volatile int stop;
static volatile long turns;

static void *takes_turns(void *unused)
{
    while (!stop) {
        turns++;
        usleep(500);
    }
    return unused;
}

static void *writes_later(void *fd)
{
    uint64_t word = 7;
    usleep(15000);
    IS(write((int)(long)fd, &word, sizeof word), (long)sizeof word);
    return NULL;
}

CASE(a_descriptor_that_becomes_blocking_waits_again)
{
    pthread_t other, writer;
    OK(pthread_create(&other, NULL, takes_turns, NULL));
    for (int round = 0; round < KINDS * CALLS * 4; round++) {
        int kind = round % KINDS, call = round / KINDS % CALLS, fds[2];
        void (*change)(int, int) = changes[round / (KINDS * CALLS)];
        uint64_t word = 0;
        if (kind >= PIPE && call >= RECV) {
            continue;
        }
        make(kind, fds);
        change(fds[0], 1);
        for (int i = 0; i < 5; i++) {
            IS(get(call, fds[0], &word), -1);
            IS(errno, EAGAIN);
        }
        change(fds[0], 0);
        long before = turns;
        OK(pthread_create(&writer, NULL, writes_later, (void *)(long)fds[1]));
        IS(get(call, fds[0], &word), (long)sizeof word);
        IS(word, 7);
        CHECK(turns > before + 1);
        OK(pthread_join(writer, NULL));
        change(fds[0], 1);
        IS(get(call, fds[0], &word), -1);
        IS(errno, EAGAIN);
        OK(close(fds[0]));
        OK(close(fds[1]));
    }
    stop = 1;
    OK(pthread_join(other, NULL));
}

CASE(a_number_that_was_non_blocking_is_another_file)
{
    pthread_t other, writer;
    OK(pthread_create(&other, NULL, takes_turns, NULL));
    for (int kind = 0; kind < KINDS; kind++) {
        for (int raw = 0; raw < 2; raw++) {
            int fds[2], next[2];
            uint64_t word = 0;
            make(kind, fds);
            by_fcntl(fds[0], 1);
            IS(get(READ, fds[0], &word), -1);
            make((kind + 1) % KINDS, next);
            CHECK((raw ? syscall(SYS_dup2, next[0], fds[0]) : dup2(next[0], fds[0])) == fds[0]);
            OK(pthread_create(&writer, NULL, writes_later, (void *)(long)next[1]));
            IS(get(READ, fds[0], &word), (long)sizeof word);
            OK(pthread_join(writer, NULL));
            OK(close(fds[0]) | close(fds[1]) | close(next[0]) | close(next[1]));
        }
    }
    stop = 1;
    OK(pthread_join(other, NULL));
}

static volatile int seen;

static void count(int signal)
{
    seen += signal != 0;
}

static void *interrupts(void *target)
{
    usleep(10000);
    pthread_kill(*(pthread_t *)target, SIGUSR1);
    return NULL;
}

CASE(a_read_that_became_blocking_behind_the_number_is_interrupted)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = count, .sa_flags = restarts ? SA_RESTART : 0};
        pthread_t self = pthread_self(), killer, writer;
        int fds[2];
        uint64_t word;
        seen = 0;
        OK(sigaction(SIGUSR1, &action, NULL));
        make(UNIX_STREAM, fds);
        by_fcntl(fds[0], 1);
        IS(get(READ, fds[0], &word), -1);
        by_another_process(fds[0], 0);
        OK(pthread_create(&killer, NULL, interrupts, &self));
        if (restarts) {
            OK(pthread_create(&writer, NULL, writes_later, (void *)(long)fds[1]));
            IS(get(READ, fds[0], &word), (long)sizeof word);
            OK(pthread_join(writer, NULL));
        } else {
            IS(get(READ, fds[0], &word), -1);
            IS(errno, EINTR);
        }
        IS(seen, 1);
        OK(pthread_join(killer, NULL));
        OK(close(fds[0]) | close(fds[1]));
    }
}
