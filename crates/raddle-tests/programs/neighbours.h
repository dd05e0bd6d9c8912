/* Every call that waits, by itself: the others go on meanwhile, and it ends as in Linux, by what it
 * waits for, by signals with and without SA_RESTART, and by cancellation.
 *
 * A wait has three parts: `prepare` makes what it waits for, `block` waits, `release` ends the
 * wait. What is expected of each is checked natively too.
 */
#ifndef NEIGHBOURS_H
#define NEIGHBOURS_H

#include "check.h"
#include <stdatomic.h>
#include <sys/socket.h>

enum {
    RESTARTS = 1, /* after a handler with SA_RESTART */
    POINT = 2,    /* of cancellation */
};

struct wait {
    void (*prepare)(void);
    long (*block)(void);
    void (*release)(void);
    int is;
};

static int ends[2];
__attribute__((unused)) static char byte;
static atomic_int blocks, over;
static atomic_long longest_ns;

/* One thread waits; `end` ends it. */
__attribute__((unused)) static void *run_block(void *wait)
{
    atomic_store(&blocks, 1);
    long result = ((struct wait *)wait)->block();
    return number(result == -1 ? -errno : 0);
}

__attribute__((unused)) static pthread_t start_blocking(const struct wait *wait)
{
    wait->prepare();
    atomic_store(&blocks, 0);
    pthread_t thread = start(run_block, (void *)wait);
    while (!atomic_load(&blocks)) {
        sleep_ms(1);
    }
    sleep_ms(20);
    return thread;
}

__attribute__((unused)) static void end(const struct wait *wait, pthread_t thread)
{
    wait->release();
    IS(join(thread), 0);
}

/* How much later than planned the thread wakes, at most. */
__attribute__((unused)) static void *sleep_often(void *unused)
{
    while (!atomic_load(&over)) {
        int64_t before_ns = now_ns();
        sleep_ms(1);
        long took_ns = now_ns() - before_ns;
        if (took_ns > atomic_load(&longest_ns)) {
            atomic_store(&longest_ns, took_ns);
        }
    }
    return unused;
}

/* On a busy machine all may be late at times; a thread that is held up is late each time. */
__attribute__((unused)) static void check_neighbour(const struct wait *wait)
{
    enum { TRIES = 40, WAIT_MS = 60, LIMIT_MS = 15 };
    long best_ns = SECOND;
    for (int i = 0; i < TRIES && best_ns > LIMIT_MS * MS; i++) {
        atomic_store(&over, 0);
        atomic_store(&longest_ns, 0);
        pthread_t neighbour = start(sleep_often, NULL);
        pthread_t thread = start_blocking(wait);
        sleep_ms(WAIT_MS);
        atomic_store(&over, 1);
        join(neighbour);
        end(wait, thread);
        if (atomic_load(&longest_ns) < best_ns) {
            best_ns = atomic_load(&longest_ns);
        }
    }
    CHECK(best_ns <= LIMIT_MS * MS);
}

static atomic_int handled;

__attribute__((unused)) static void count(int unused)
{
    (void)unused;
    atomic_fetch_add(&handled, 1);
}

__attribute__((unused)) static void check_signals(const struct wait *wait)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sigaction action = {.sa_handler = count, .sa_flags = restarts ? SA_RESTART : 0};
        GET(sigaction(SIGUSR1, &action, NULL));
        atomic_store(&handled, 0);
        pthread_t thread = start_blocking(wait);
        void *result;
        if (restarts && wait->is & RESTARTS) {
            for (int i = 0; i < 3; i++) {
                OK(pthread_kill(thread, SIGUSR1));
                while (atomic_load(&handled) <= i) {
                    sleep_ms(1);
                }
                sleep_ms(5);
                IS(pthread_tryjoin_np(thread, &result), EBUSY);
            }
            end(wait, thread);
            continue;
        }
        /* One that comes before the wait begins doesn't end it. */
        while (pthread_tryjoin_np(thread, &result) == EBUSY) {
            OK(pthread_kill(thread, SIGUSR1));
            sleep_ms(10);
        }
        IS((long)result, -EINTR);
        wait->release();
    }
}

__attribute__((unused)) static void check_cancel(const struct wait *wait)
{
    pthread_t thread = start_blocking(wait);
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
    wait->release();
}

__attribute__((unused)) static void check(const struct wait *wait)
{
    check_neighbour(wait);
    check_signals(wait);
    if (wait->is & POINT) {
        check_cancel(wait);
    }
}

#define WAIT(name, is)                                                                   \
    CASE(name)                                                                           \
    {                                                                                    \
        static const struct wait wait = {prepare_##name, block_##name, release_##name,   \
                                         is};                                            \
        check(&wait);                                                                    \
    }

__attribute__((unused)) static void close_ends(void)
{
    if (ends[1] != 0) {
        close(ends[0]);
        close(ends[1]);
    }
}

__attribute__((unused)) static void make_pipe(void)
{
    close_ends();
    GET(pipe(ends));
}

__attribute__((unused)) static void set_blocking(int fd, int blocks)
{
    GET(fcntl(fd, F_SETFL, blocks ? 0 : O_NONBLOCK));
}

__attribute__((unused)) static void fill_end(void)
{
    static char zeros[65536];
    set_blocking(ends[1], 0);
    while (write(ends[1], zeros, sizeof zeros) > 0) {}
    IS(errno, EAGAIN);
    set_blocking(ends[1], 1);
}

__attribute__((unused)) static void drain_end(void)
{
    static char bytes[65536];
    set_blocking(ends[0], 0);
    for (int i = 0; i < 20; i++) {
        while (read(ends[0], bytes, sizeof bytes) > 0) {}
        sleep_ms(1);
    }
    set_blocking(ends[0], 1);
}

__attribute__((unused)) static void make_full_pipe(void)
{
    make_pipe();
    fill_end();
}

__attribute__((unused)) static void make_sockets(void)
{
    close_ends();
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
}

__attribute__((unused)) static void make_full_socket(void)
{
    make_sockets();
    fill_end();
}

__attribute__((unused)) static void write_byte(void)
{
    IS(write(ends[1], "x", 1), 1);
}

#endif
