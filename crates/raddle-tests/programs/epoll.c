/* epoll as programs use it: level and edge, one shot, shared, nested, while descriptors close. */
#include "net.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

static int poller;

static void add(int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = {events, {.u64 = data}};
    GET(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event));
}

static void modify(int fd, unsigned events, uint64_t data)
{
    struct epoll_event event = {events, {.u64 = data}};
    GET(epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event));
}

static void make_poller(void)
{
    poller = GET(epoll_create1(EPOLL_CLOEXEC));
}

static void *add_one_later(void *fd)
{
    sleep_ms(20);
    GET(eventfd_write((int)(long)fd, 1));
    return NULL;
}

CASE(epoll_wait_times_out)
{
    struct epoll_event event;
    make_poller();
    int64_t started_ns = now_ns();
    IS(epoll_wait(poller, &event, 1, 50), 0);
    check_took(started_ns, 50);
    IS(epoll_wait(poller, &event, 1, 0), 0);
    FAILS(epoll_wait(poller, &event, 0, 0), EINVAL);
    FAILS(epoll_wait(0, &event, 1, 0), EINVAL);
    FAILS(epoll_wait(9999, &event, 1, 0), EBADF);
}

CASE(level_triggered_tells_until_it_is_read)
{
    struct epoll_event event;
    uint64_t value;
    make_poller();
    int fd = GET(eventfd(0, 0));
    add(fd, EPOLLIN, 77);
    pthread_t thread = start(add_one_later, number(fd));
    for (int i = 0; i < 3; i++) {
        IS(epoll_wait(poller, &event, 1, 20000), 1);
        IS(event.events, EPOLLIN);
        IS(event.data.u64, 77);
    }
    GET(eventfd_read(fd, &value));
    IS(epoll_wait(poller, &event, 1, 0), 0);
    join(thread);
}

CASE(edge_triggered_tells_once_for_each_arrival)
{
    struct epoll_event event;
    make_poller();
    int fd = GET(eventfd(0, 0));
    add(fd, EPOLLIN | EPOLLET, 1);
    for (int i = 0; i < 5; i++) {
        pthread_t thread = start(add_one_later, number(fd));
        IS(epoll_wait(poller, &event, 1, 20000), 1);
        IS(epoll_wait(poller, &event, 1, 0), 0);
        join(thread);
    }
}

CASE(one_shot_is_silent_until_rearmed)
{
    struct epoll_event event;
    make_poller();
    int fd = GET(eventfd(1, 0));
    add(fd, EPOLLIN | EPOLLONESHOT, 1);
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    GET(eventfd_write(fd, 1));
    IS(epoll_wait(poller, &event, 1, 30), 0);
    modify(fd, EPOLLIN | EPOLLONESHOT, 2);
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    IS(event.data.u64, 2);
}

CASE(control_errors_are_told)
{
    struct epoll_event event = {EPOLLIN, {0}};
    make_poller();
    int fd = GET(eventfd(0, 0));
    add(fd, EPOLLIN, 0);
    FAILS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event), EEXIST);
    GET(epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL));
    FAILS(epoll_ctl(poller, EPOLL_CTL_DEL, fd, NULL), ENOENT);
    FAILS(epoll_ctl(poller, EPOLL_CTL_MOD, fd, &event), ENOENT);
    FAILS(epoll_ctl(poller, EPOLL_CTL_ADD, 9999, &event), EBADF);
    FAILS(epoll_ctl(poller, EPOLL_CTL_ADD, poller, &event), EINVAL);
    FAILS(epoll_ctl(poller, EPOLL_CTL_ADD, GET(open("/", O_RDONLY)), &event), EPERM);
}

static atomic_int received;

static void *wait_and_take(void *total)
{
    while (atomic_load(&received) < (long)total) {
        struct epoll_event event;
        int count = GET(epoll_wait(poller, &event, 1, 50));
        uint64_t value;
        if (count == 1 && eventfd_read((int)event.data.u64, &value) == 0) {
            atomic_fetch_add(&received, (int)value);
        }
    }
    return NULL;
}

CASE(several_threads_wait_on_one_epoll)
{
    pthread_t threads[8];
    int fds[20];
    make_poller();
    for (int i = 0; i < 20; i++) {
        fds[i] = GET(eventfd(0, EFD_NONBLOCK));
        add(fds[i], EPOLLIN | EPOLLET, fds[i]);
    }
    for (int i = 0; i < 8; i++) {
        threads[i] = start(wait_and_take, number(1000));
    }
    for (int i = 0; i < 1000; i++) {
        GET(eventfd_write(fds[i % 20], 1));
        if (i % 10 == 0) {
            sched_yield();
        }
    }
    join_all(threads, 8);
    IS(received, 1000);
}

static void *wait_on_poller(void *argument)
{
    struct epoll_event event;
    IS(epoll_wait(poller, &event, 1, -1), 1);
    return number((long)event.data.u64);
}

CASE(adding_a_ready_descriptor_wakes_a_waiter)
{
    make_poller();
    pthread_t thread = start(wait_on_poller, NULL);
    let_others_block();
    add(GET(eventfd(1, 0)), EPOLLIN, 5);
    IS(join(thread), 5);
}

CASE(modifying_wakes_a_waiter)
{
    make_poller();
    int fd = GET(eventfd(0, 0));
    add(fd, EPOLLIN, 6);
    pthread_t thread = start(wait_on_poller, NULL);
    let_others_block();
    modify(fd, EPOLLIN | EPOLLOUT, 7);
    IS(join(thread), 7);
}

CASE(one_epoll_inside_another)
{
    make_poller();
    int inner = poller, fd = GET(eventfd(0, 0));
    add(fd, EPOLLIN, 1);
    make_poller();
    add(inner, EPOLLIN, 2);
    struct epoll_event event;
    IS(epoll_wait(poller, &event, 1, 10), 0);
    pthread_t thread = start(add_one_later, number(fd));
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    IS(event.data.u64, 2);
    IS(epoll_wait(inner, &event, 1, 0), 1);
    IS(event.data.u64, 1);
    join(thread);
    struct pollfd of_inner = {inner, POLLIN, 0};
    IS(poll(&of_inner, 1, -1), 1);
}

CASE(a_closed_descriptor_leaves)
{
    struct epoll_event event;
    make_poller();
    int fd = GET(eventfd(1, 0));
    add(fd, EPOLLIN, 1);
    close(fd);
    IS(epoll_wait(poller, &event, 1, 10), 0);
    int again = GET(eventfd(1, 0));
    IS(again, fd);
    IS(epoll_wait(poller, &event, 1, 10), 0);
    add(again, EPOLLIN, 3);
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    IS(event.data.u64, 3);
}

CASE(hang_up_is_told_unasked)
{
    struct epoll_event event;
    int pair[2];
    make_poller();
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    add(pair[0], EPOLLRDHUP, 1);
    GET(shutdown(pair[1], SHUT_WR));
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    IS(event.events, EPOLLRDHUP);
    close(pair[1]);
    IS(epoll_wait(poller, &event, 1, 20000), 1);
    IS(event.events & (EPOLLHUP | EPOLLRDHUP), EPOLLHUP | EPOLLRDHUP);
}

CASE(timers_and_events_together)
{
    struct epoll_event events[4];
    make_poller();
    int timer = GET(timerfd_create(CLOCK_MONOTONIC, 0)), event = GET(eventfd(0, 0));
    struct itimerspec spec = {{0, 0}, {0, 30 * MS}};
    add(timer, EPOLLIN, 1);
    add(event, EPOLLIN, 2);
    GET(timerfd_settime(timer, 0, &spec, NULL));
    pthread_t thread = start(add_one_later, number(event));
    unsigned seen = 0;
    while (seen != 3) {
        int count = GET(epoll_wait(poller, events, 4, 20000));
        CHECK(count >= 1);
        for (int i = 0; i < count; i++) {
            seen |= 1u << (events[i].data.u64 - 1);
        }
    }
    join(thread);
}

CASE(events_come_in_turn_when_the_array_is_small)
{
    struct epoll_event event;
    unsigned seen = 0;
    make_poller();
    for (int i = 0; i < 5; i++) {
        add(GET(eventfd(1, 0)), EPOLLIN, i);
    }
    for (int i = 0; i < 5; i++) {
        IS(epoll_wait(poller, &event, 1, 0), 1);
        seen |= 1u << event.data.u64;
    }
    IS(seen, 31);
}

static struct sockaddr_in address;

static void *client(void *argument)
{
    int fd = connect_to(&address);
    for (int i = 0; i < 50; i++) {
        char out[64], in[64];
        memset(out, i, sizeof out);
        write_all(fd, out, sizeof out);
        IS(read_all(fd, in, sizeof in), sizeof in);
        IS(in[63], i);
    }
    close(fd);
    return argument;
}

static int serve_event(int fd)
{
    char data[256];
    ssize_t count;
    while ((count = read(fd, data, sizeof data)) > 0) {
        write_all(fd, data, count);
    }
    if (count == 0) {
        close(fd);
        return 1;
    }
    IS(errno, EAGAIN);
    return 0;
}

static void *event_loop(void *listener)
{
    int closed = 0;
    while (closed < 40) {
        struct epoll_event events[8];
        int count = GET(epoll_wait(poller, events, 8, 20000));
        CHECK(count > 0);
        for (int i = 0; i < count; i++) {
            int fd = (int)events[i].data.u64;
            if (fd == (int)(long)listener) {
                int peer = GET(accept4(fd, NULL, NULL, SOCK_NONBLOCK));
                add(peer, EPOLLIN | EPOLLET, peer);
            } else {
                closed += serve_event(fd);
            }
        }
    }
    return NULL;
}

CASE(an_event_loop_serves_40_clients)
{
    pthread_t clients[40];
    make_poller();
    int listener = listen_anywhere(&address, 64);
    add(listener, EPOLLIN, listener);
    pthread_t loop = start(event_loop, number(listener));
    for (int i = 0; i < 40; i++) {
        clients[i] = start(client, NULL);
    }
    join_all(clients, 40);
    join(loop);
}

static atomic_int handled;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

CASE(epoll_pwait_opens_its_mask)
{
    struct epoll_event event;
    sigset_t blocked, empty;
    make_poller();
    signal(SIGUSR1, count_signal);
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    OK(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    IS(epoll_wait(poller, &event, 1, 10), 0);
    IS(handled, 0);
    FAILS(epoll_pwait(poller, &event, 1, 20000, &empty), EINTR);
    IS(handled, 1);
    struct timespec limit = timespec_of(20 * MS);
    int64_t started_ns = now_ns();
    IS(syscall(441 /* epoll_pwait2 */, poller, &event, 1, &limit, &blocked, 8), 0);
    check_took(started_ns, 20);
}
