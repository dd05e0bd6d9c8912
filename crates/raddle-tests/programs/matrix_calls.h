/* Calls for matrix.c: each of the calls that may wait, with ordinary, short and odd arguments.
 *
 * A call is made by its number, so that arguments reach the kernel as they stand here. It gives the
 * kernel's result, an errno as a negative number.
 */
#ifndef MATRIX_CALLS_H
#define MATRIX_CALLS_H

#include "matrix_kinds.h"

#include <poll.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { BIG = 1 << 20 };

/* The memory that a call reads into and writes from. */
struct memory {
    char data[4096];
    struct iovec pieces[4];
    struct msghdr message;
    struct mmsghdr messages[3];
    struct sockaddr_storage name;
    socklen_t name_length;
    struct pollfd polled;
    struct epoll_event events[4];
    char set[1024]; /* for select, also of numbers beyond FD_SETSIZE */
    struct timespec time;
    struct timeval old_time;
    loff_t place;
    int note; /* what the call says besides its result */
};

static char big[BIG];

/* An address in the kernel's half, and one in the program's half where nothing is. */
static char *const kernel_address = (char *)0xffff800000000000;
static char *const nowhere = (char *)0x1000;

static long made(long number, ...)
{
    va_list list;
    long arguments[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        arguments[i] = va_arg(list, long);
    }
    va_end(list);
    long result = syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                          arguments[4], arguments[5]);
    return result == -1 ? -errno : result;
}

/* Every argument as a long: a shorter one would leave bits of the register undefined. */
#define MAKE6(call, a, b, c, d, e, f)                                                              \
    made(SYS_##call, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define MAKE5(call, a, b, c, d, e) MAKE6(call, a, b, c, d, e, 0)
#define MAKE4(call, a, b, c, d) MAKE5(call, a, b, c, d, 0)
#define MAKE3(call, a, b, c) MAKE4(call, a, b, c, 0)

#define CALL(name, ...)                                                                            \
    static long call_##name(struct subject *s, struct memory *m)                                   \
    {                                                                                              \
        return __VA_ARGS__;                                                                        \
    }

static struct iovec *pieces(struct memory *m, size_t first, size_t second)
{
    m->pieces[0] = (struct iovec){m->data, first};
    m->pieces[1] = (struct iovec){m->data + 1000, second};
    return m->pieces;
}

static struct msghdr *message(struct memory *m, size_t length)
{
    m->message = (struct msghdr){.msg_iov = pieces(m, length, 0), .msg_iovlen = 1};
    return &m->message;
}

static struct mmsghdr *messages(struct memory *m)
{
    pieces(m, 8, 8);
    memset(m->messages, 0, sizeof m->messages);
    for (int i = 0; i < 3; i++) {
        m->messages[i].msg_hdr = (struct msghdr){.msg_iov = m->pieces + i % 2, .msg_iovlen = 1};
    }
    return m->messages;
}

static struct timespec *time_of(struct memory *m, int64_t ns)
{
    m->time = timespec_of(ns);
    return &m->time;
}

CALL(read_0, MAKE3(read, s->fd, m->data, 0))
CALL(read_3, MAKE3(read, s->fd, m->data, 3))
CALL(read_8, MAKE3(read, s->fd, m->data, 8))
CALL(read_64, MAKE3(read, s->fd, m->data, 64))
CALL(read_4096, MAKE3(read, s->fd, m->data, 4096))
CALL(read_negative, MAKE3(read, s->fd, m->data, -1))
CALL(read_to_the_kernel, MAKE3(read, s->fd, kernel_address, 8))
CALL(read_to_nowhere, MAKE3(read, s->fd, nowhere, 8))
CALL(readv_none, MAKE3(readv, s->fd, m->pieces, 0))
CALL(readv_empty, MAKE3(readv, s->fd, pieces(m, 0, 0), 2))
CALL(readv_4_4, MAKE3(readv, s->fd, pieces(m, 4, 4), 2))
CALL(readv_0_8, MAKE3(readv, s->fd, pieces(m, 0, 8), 2))
CALL(readv_too_many, MAKE3(readv, s->fd, pieces(m, 4, 4), 1025))
CALL(readv_negative, MAKE3(readv, s->fd, pieces(m, -1, 4), 2))
CALL(readv_nowhere, MAKE3(readv, s->fd, nowhere, 2))
CALL(pread_8, MAKE4(pread64, s->fd, m->data, 8, 0))
CALL(pread_before, MAKE4(pread64, s->fd, m->data, 8, -1))
CALL(preadv_4_4, MAKE5(preadv, s->fd, pieces(m, 4, 4), 2, 0, 0))
CALL(preadv2_here, MAKE6(preadv2, s->fd, pieces(m, 4, 4), 2, -1, -1, 0))
CALL(preadv2_now, MAKE6(preadv2, s->fd, pieces(m, 4, 4), 2, -1, -1, RWF_NOWAIT))
CALL(preadv2_odd, MAKE6(preadv2, s->fd, pieces(m, 4, 4), 2, -1, -1, 0x40000000))

CALL(write_0, MAKE3(write, s->fd, big, 0))
CALL(write_3, MAKE3(write, s->fd, big, 3))
CALL(write_8, MAKE3(write, s->fd, big, 8))
CALL(write_big, MAKE3(write, s->fd, big, BIG))
CALL(write_negative, MAKE3(write, s->fd, big, -1))
CALL(write_from_the_kernel, MAKE3(write, s->fd, kernel_address, 8))
CALL(write_from_nowhere, MAKE3(write, s->fd, nowhere, 8))
CALL(writev_none, MAKE3(writev, s->fd, m->pieces, 0))
CALL(writev_empty, MAKE3(writev, s->fd, pieces(m, 0, 0), 2))
CALL(writev_4_4, MAKE3(writev, s->fd, pieces(m, 4, 4), 2))
CALL(writev_negative, MAKE3(writev, s->fd, pieces(m, -1, 4), 2))
CALL(writev_nowhere, MAKE3(writev, s->fd, nowhere, 2))
CALL(pwrite_8, MAKE4(pwrite64, s->fd, big, 8, 0))
CALL(pwritev_4_4, MAKE5(pwritev, s->fd, pieces(m, 4, 4), 2, 0, 0))
CALL(pwritev2_here, MAKE6(pwritev2, s->fd, pieces(m, 4, 4), 2, -1, -1, 0))
CALL(pwritev2_now, MAKE6(pwritev2, s->fd, pieces(m, 4, 4), 2, -1, -1, RWF_NOWAIT))

#define RECEIVE(name, length, flags)                                                               \
    CALL(recv_##name, MAKE6(recvfrom, s->fd, m->data, length, flags, 0, 0))
RECEIVE(0, 0, 0)
RECEIVE(8, 8, 0)
RECEIVE(now, 8, MSG_DONTWAIT)
RECEIVE(0_now, 0, MSG_DONTWAIT)
RECEIVE(all, 8, MSG_WAITALL)
RECEIVE(all_there, 5, MSG_WAITALL)
RECEIVE(all_now, 8, MSG_WAITALL | MSG_DONTWAIT)
RECEIVE(peek, 8, MSG_PEEK)
RECEIVE(peek_all, 8, MSG_PEEK | MSG_WAITALL)
RECEIVE(truncated, 2, MSG_TRUNC)
RECEIVE(urgent, 1, MSG_OOB)
RECEIVE(errors, 8, MSG_ERRQUEUE)
RECEIVE(negative, -1, 0)
CALL(recv_to_nowhere, MAKE6(recvfrom, s->fd, nowhere, 8, 0, 0, 0))

static long call_recvfrom(struct subject *s, struct memory *m)
{
    m->name_length = sizeof m->name;
    return MAKE6(recvfrom, s->fd, m->data, 8, 0, &m->name, &m->name_length);
}

#define RECEIVE_MESSAGE(name, length, flags)                                                       \
    CALL(recvmsg_##name, MAKE3(recvmsg, s->fd, message(m, length), flags))
RECEIVE_MESSAGE(0, 0, 0)
RECEIVE_MESSAGE(8, 8, 0)
RECEIVE_MESSAGE(now, 8, MSG_DONTWAIT)
RECEIVE_MESSAGE(all, 8, MSG_WAITALL)
RECEIVE_MESSAGE(peek, 8, MSG_PEEK)
RECEIVE_MESSAGE(truncated, 2, MSG_TRUNC)
RECEIVE_MESSAGE(urgent, 1, MSG_OOB)
RECEIVE_MESSAGE(errors, 8, MSG_ERRQUEUE)
CALL(recvmsg_nowhere, MAKE3(recvmsg, s->fd, nowhere, 0))

#define RECEIVE_MANY(name, count, flags, time)                                                     \
    CALL(recvmmsg_##name, MAKE5(recvmmsg, s->fd, messages(m), count, flags, time))
RECEIVE_MANY(0, 0, 0, 0)
RECEIVE_MANY(1, 1, 0, 0)
RECEIVE_MANY(2, 2, 0, 0)
RECEIVE_MANY(now, 2, MSG_DONTWAIT, 0)
RECEIVE_MANY(for_one, 2, MSG_WAITFORONE, 0)
RECEIVE_MANY(peek, 2, MSG_PEEK, 0)
RECEIVE_MANY(in_no_time, 2, 0, time_of(m, 0))
RECEIVE_MANY(in_bad_time, 2, 0, time_of(m, -SECOND))
RECEIVE_MANY(errors, 2, MSG_ERRQUEUE, 0)
CALL(recvmmsg_nowhere, MAKE5(recvmmsg, s->fd, nowhere, 2, 0, 0))
CALL(recvmmsg_time_nowhere, MAKE5(recvmmsg, s->fd, messages(m), 2, 0, nowhere))

#define SEND(name, length, flags) CALL(send_##name, MAKE6(sendto, s->fd, big, length, flags, 0, 0))
SEND(0, 0, 0)
SEND(8, 8, 0)
SEND(now, 8, MSG_DONTWAIT)
SEND(silently, 8, MSG_NOSIGNAL)
SEND(urgent, 8, MSG_OOB)
SEND(more, 8, MSG_MORE)
SEND(big, BIG, 0)
SEND(big_now, BIG, MSG_DONTWAIT)
SEND(too_big, 1 << 17, 0)
SEND(negative, -1, MSG_DONTWAIT)
CALL(send_from_nowhere, MAKE6(sendto, s->fd, nowhere, 8, 0, 0, 0))

static long call_sendto_its_neighbour(struct subject *s, struct memory *m)
{
    struct sockaddr_un address = unix_address(s);
    return MAKE6(sendto, s->fd, big, 8, 0, &address, sizeof address);
}

static long call_sendto_nobody(struct subject *s, struct memory *m)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return MAKE6(sendto, s->fd, big, 8, 0, &address, sizeof address);
}

CALL(sendmsg_8, MAKE3(sendmsg, s->fd, message(m, 8), 0))
CALL(sendmsg_0, MAKE3(sendmsg, s->fd, message(m, 0), 0))
CALL(sendmsg_now, MAKE3(sendmsg, s->fd, message(m, 8), MSG_DONTWAIT))
CALL(sendmsg_silently, MAKE3(sendmsg, s->fd, message(m, 8), MSG_NOSIGNAL))
CALL(sendmsg_nowhere, MAKE3(sendmsg, s->fd, nowhere, 0))
CALL(sendmmsg_0, MAKE4(sendmmsg, s->fd, messages(m), 0, 0))
CALL(sendmmsg_3, MAKE4(sendmmsg, s->fd, messages(m), 3, 0))
CALL(sendmmsg_now, MAKE4(sendmmsg, s->fd, messages(m), 3, MSG_DONTWAIT))
CALL(sendmmsg_nowhere, MAKE4(sendmmsg, s->fd, nowhere, 2, 0))

#include "matrix_more_calls.h"

#endif
