/* The descriptors that hostile calls are made on: made anew for each item. */
#ifndef HOSTILE_FILES_H
#define HOSTILE_FILES_H

#include "check.h"

#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

enum file {
    FULL_PIPE, /* 64 bytes to read */
    WRITE_END,
    STREAM, /* 64 bytes to read */
    DATAGRAM,
    REGULAR,
    COUNTER,
    TIMER, /* has expired */
    EPOLL, /* of a pipe with something to read */
    THREADS, /* the folder of threads */
    NAME, /* the file with the main thread's name */
    LISTENER, /* has a connection */
    QUEUE,
    ROOT,
    CLOSED,
    FILES,
};

enum { FIRST_FILE = 40 }; /* and behind them their other ends */

/* The files opened by a path, with any numbers: two that are no duplicates. */
static int by_path[FILES];

static int number_of(enum file file)
{
    return by_path[file] ? by_path[file] : FIRST_FILE + file;
}

static void put(int from, int number)
{
    if (from != number) {
        CHECK(dup2(from, number) == number);
        close(from);
    }
}

static void put_pair(const int *pair, enum file file)
{
    put(pair[0], number_of(file));
    put(pair[1], number_of(file) + FILES);
}

static void give_bytes(int to, int count)
{
    char bytes[64];
    for (int i = 0; i < count; i++) {
        bytes[i] = 'a' + i % 26;
    }
    IS(write(to, bytes, count), count);
}

static int make_listener(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int listener = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(bind(listener, (void *)&name, sizeof(sa_family_t)));
    OK(listen(listener, 5));
    socklen_t length = sizeof name;
    OK(getsockname(listener, (void *)&name, &length));
    int other = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    OK(connect(other, (void *)&name, length));
    put(other, number_of(LISTENER) + FILES);
    return listener;
}

static int make_queue(void)
{
    char name[40];
    snprintf(name, sizeof name, "/hostile-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 64};
    int queue = GET(mq_open(name, O_RDWR | O_CREAT, 0600, &attributes));
    mq_unlink(name);
    OK(mq_send(queue, "message", 7, 1));
    return queue;
}

static int make_timer(void)
{
    struct itimerspec soon = {.it_value = {0, 1}};
    int timer = GET(timerfd_create(CLOCK_MONOTONIC, 0));
    OK(timerfd_settime(timer, TFD_TIMER_ABSTIME, &soon, NULL));
    return timer;
}

static int make_epoll(void)
{
    int pipe_ends[2];
    OK(pipe(pipe_ends));
    give_bytes(pipe_ends[1], 8);
    put(pipe_ends[0], number_of(EPOLL) + FILES);
    close(pipe_ends[1]);
    int epoll = GET(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = 7}};
    OK(epoll_ctl(epoll, EPOLL_CTL_ADD, number_of(EPOLL) + FILES, &event));
    return epoll;
}

static int make_regular(void)
{
    int file = GET(open(".", O_TMPFILE | O_RDWR, 0600));
    for (int i = 0; i < 8; i++) {
        give_bytes(file, 64);
    }
    GET(lseek(file, 0, SEEK_SET));
    return file;
}

static int make_name(void)
{
    char path[60];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", getpid());
    return GET(open(path, O_RDWR));
}

static void make_pair(enum file file, int type)
{
    int pair[2];
    OK(socketpair(AF_UNIX, type, 0, pair));
    give_bytes(pair[1], 64);
    put_pair(pair, file);
}

static void make_file(enum file file)
{
    int pair[2];
    switch (file) {
    case FULL_PIPE:
    case WRITE_END:
        OK(pipe(pair));
        give_bytes(pair[1], 64);
        put(pair[0], number_of(file) + (file == WRITE_END ? FILES : 0));
        put(pair[1], number_of(file) + (file == WRITE_END ? 0 : FILES));
        break;
    case STREAM:
        return make_pair(file, SOCK_STREAM);
    case DATAGRAM:
        return make_pair(file, SOCK_DGRAM);
    case REGULAR:
        return put(make_regular(), number_of(file));
    case COUNTER:
        return put(GET(eventfd(5, 0)), number_of(file));
    case TIMER:
        return put(make_timer(), number_of(file));
    case EPOLL:
        return put(make_epoll(), number_of(file));
    case THREADS:
        by_path[file] = GET(open("/proc/self/task", O_RDONLY | O_DIRECTORY));
        break;
    case NAME:
        by_path[file] = make_name();
        break;
    case LISTENER:
        return put(make_listener(), number_of(file));
    case QUEUE:
        return put(make_queue(), number_of(file));
    case ROOT:
        return put(GET(open("/", O_RDONLY | O_DIRECTORY)), number_of(file));
    default:
        break;
    }
}

static void close_file(enum file file)
{
    close(number_of(file));
    by_path[file] = 0;
    close(number_of(file) + FILES);
}

#endif
