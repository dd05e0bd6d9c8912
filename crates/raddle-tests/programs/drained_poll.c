/* poll behind a read that found nothing: it waits for what comes next, and for nothing else. */
#include "net.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>

static int own, other;
static atomic_int handled;

static void connect_both(void)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 1);
    other = connect_to(&address);
    own = GET(accept(listener, NULL, NULL));
    close(listener);
}

/* Reads until nothing is left, after a first wait, which makes the runtime know the socket. */
static void drain(void)
{
    char byte;
    struct pollfd poll_for = {own, POLLIN, 0};
    write_all(other, "x", 1);
    IS(poll(&poll_for, 1, 20000), 1);
    IS(recv(own, &byte, 1, MSG_DONTWAIT), 1);
    FAILS(recv(own, &byte, 1, MSG_DONTWAIT), EAGAIN);
}

static int wait_for(short events, int ms)
{
    struct pollfd poll_for = {own, events, 0};
    int count = GET(poll(&poll_for, 1, ms));
    IS(count, poll_for.revents != 0);
    return poll_for.revents;
}

static void *send_later(void *unused)
{
    sleep_ms(20);
    write_all(other, "y", 1);
    return unused;
}

static void *shut_down_later(void *unused)
{
    sleep_ms(20);
    GET(shutdown(own, SHUT_RD));
    return unused;
}

static void *close_later(void *unused)
{
    sleep_ms(20);
    close(other);
    return unused;
}

static void *urge_later(void *unused)
{
    sleep_ms(20);
    IS(send(other, "!", 1, MSG_OOB), 1);
    return unused;
}

static void *reset_later(void *unused)
{
    struct linger none = {1, 0};
    sleep_ms(20);
    GET(setsockopt(other, SOL_SOCKET, SO_LINGER, &none, sizeof none));
    close(other);
    return unused;
}

static short after(void *(*act)(void *), short events)
{
    connect_both();
    drain();
    pthread_t thread = start(act, NULL);
    short found = wait_for(events, 20000);
    OK(pthread_join(thread, NULL));
    close(own);
    return found;
}

CASE(what_comes_later_ends_it)
{
    for (int i = 0; i < 5; i++) {
        IS(after(send_later, POLLIN), POLLIN);
        IS(after(send_later, POLLIN | POLLPRI), POLLIN);
        IS(after(shut_down_later, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
        IS(after(close_later, POLLIN), POLLIN);
        IS(after(close_later, POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
        IS(after(urge_later, POLLIN | POLLPRI), POLLPRI);
        IS(after(reset_later, POLLIN) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
    }
}

CASE(what_came_before_is_found)
{
    char byte;
    connect_both();
    for (int i = 0; i < 200; i++) {
        drain();
        write_all(other, "z", 1);
        IS(wait_for(POLLIN, i % 2 ? 1 : -1), POLLIN);
        IS(recv(own, &byte, 1, MSG_DONTWAIT), 1);
    }
}

CASE(nothing_is_found_where_nothing_came)
{
    connect_both();
    for (int i = 0; i < 5; i++) {
        drain();
        int64_t started_ns = now_ns();
        IS(wait_for(POLLIN, 30), 0);
        check_took(started_ns, 30);
        IS(wait_for(POLLIN, 0), 0);
    }
    IS(wait_for(POLLOUT | POLLIN, -1), POLLOUT);
}

CASE(a_socket_in_non_blocking_mode_is_no_different)
{
    char bytes[8];
    connect_both();
    GET(fcntl(own, F_SETFL, O_NONBLOCK));
    for (int i = 0; i < 50; i++) {
        drain();
        FAILS(read(own, bytes, sizeof bytes), EAGAIN);
        pthread_t thread = start(send_later, NULL);
        IS(wait_for(POLLIN, 20000), POLLIN);
        IS(read(own, bytes, sizeof bytes), 1);
        OK(pthread_join(thread, NULL));
    }
}

static void handle(int signal)
{
    (void)signal;
    handled++;
}

/* Data that is there goes before a signal that is let in by the call. */
CASE(data_goes_before_a_signal)
{
    struct sigaction action = {.sa_handler = handle};
    sigset_t set, old;
    char byte;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(sigaction(SIGUSR1, &action, NULL));
    connect_both();
    for (int i = 0; i < 50; i++) {
        struct pollfd poll_for = {own, POLLIN, 0};
        drain();
        OK(pthread_sigmask(SIG_BLOCK, &set, &old));
        OK(pthread_kill(pthread_self(), SIGUSR1));
        write_all(other, "s", 1);
        IS(ppoll(&poll_for, 1, NULL, &old), 1);
        IS(poll_for.revents, POLLIN);
        OK(pthread_sigmask(SIG_SETMASK, &old, NULL));
        IS(recv(own, &byte, 1, MSG_DONTWAIT), 1);
        IS(handled, i + 1);
    }
}
