/* More calls for matrix.c: connections, transfers, readiness; and the table of all calls. */

static long new_descriptor(struct subject *s, long result)
{
    if (result < 0) {
        return result;
    }
    keep(s, result);
    return 1;
}

CALL(accept, new_descriptor(s, MAKE3(accept, s->fd, 0, 0)))
CALL(accept4_nonblocking, new_descriptor(s, MAKE4(accept4, s->fd, 0, 0, SOCK_NONBLOCK)))
CALL(accept4_odd, new_descriptor(s, MAKE4(accept4, s->fd, 0, 0, 1)))
CALL(accept_nowhere, new_descriptor(s, MAKE3(accept, s->fd, nowhere, nowhere)))

static long connect_to_a_listener(struct subject *s, int number)
{
    struct sockaddr_in address;
    keep(s, listen_anywhere(&address, 4));
    address.sin_port = number ? htons(number) : address.sin_port;
    return MAKE3(connect, s->fd, &address, sizeof address);
}

CALL(connect, connect_to_a_listener(s, 0))
CALL(connect_to_nobody, connect_to_a_listener(s, 1))
CALL(connect_nowhere, MAKE3(connect, s->fd, nowhere, 16))

static long call_connect_to_its_neighbour(struct subject *s, struct memory *m)
{
    struct sockaddr_un address = unix_address(s);
    return MAKE3(connect, s->fd, &address, sizeof address);
}

/* The first call tells what became of a connection under way; the second, what is left of it. */
static long call_connect_twice(struct subject *s, struct memory *m)
{
    long first = connect_to_a_listener(s, 1);
    m->note = first;
    return connect_to_a_listener(s, 1);
}

static long call_disconnect(struct subject *s, struct memory *m)
{
    struct sockaddr address = {.sa_family = AF_UNSPEC};
    return MAKE3(connect, s->fd, &address, sizeof address);
}

CALL(sendfile_to, MAKE4(sendfile, s->fd, s->file, 0, 8))
CALL(sendfile_0, MAKE4(sendfile, s->fd, s->file, 0, 0))
CALL(sendfile_from, MAKE4(sendfile, s->pipe[1], s->fd, 0, 8))
CALL(splice_from, MAKE6(splice, s->fd, 0, s->pipe[1], 0, 8, 0))
CALL(splice_from_now, MAKE6(splice, s->fd, 0, s->pipe[1], 0, 8, SPLICE_F_NONBLOCK))
CALL(splice_to, MAKE6(splice, s->pipe[0], 0, s->fd, 0, 3, 0))
CALL(splice_to_now, MAKE6(splice, s->pipe[0], 0, s->fd, 0, 3, SPLICE_F_NONBLOCK))
CALL(splice_0, MAKE6(splice, s->fd, 0, s->pipe[1], 0, 0, 0))
CALL(splice_odd, MAKE6(splice, s->fd, 0, s->pipe[1], 0, 8, 0x100))
CALL(tee_from, MAKE4(tee, s->fd, s->pipe[1], 8, 0))
CALL(tee_to, MAKE4(tee, s->pipe[0], s->fd, 3, 0))
CALL(vmsplice, MAKE4(vmsplice, s->fd, pieces(m, 8, 0), 1, 0))
CALL(vmsplice_now, MAKE4(vmsplice, s->fd, pieces(m, 8, 0), 1, SPLICE_F_NONBLOCK))
CALL(copy_from, MAKE6(copy_file_range, s->fd, 0, s->file, 0, 8, 0))
CALL(copy_much_from, MAKE6(copy_file_range, s->fd, 0, s->file, 0, BIG, 0))
CALL(copy_to, MAKE6(copy_file_range, s->file, 0, s->fd, 0, 8, 0))

static long polled(struct subject *s, struct memory *m, int events, int64_t ns, int by_ppoll)
{
    m->polled = (struct pollfd){s->fd, events, 0};
    struct timespec *time = ns < 0 ? NULL : time_of(m, ns);
    long result = by_ppoll ? MAKE5(ppoll, &m->polled, 1, time, 0, 8)
                           : MAKE3(poll, &m->polled, 1, ns < 0 ? -1 : ns / MS);
    m->note = m->polled.revents;
    return result;
}

CALL(poll_now, polled(s, m, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0, 0))
CALL(poll_in, polled(s, m, POLLIN, -1, 0))
CALL(poll_out, polled(s, m, POLLOUT, -1, 0))
CALL(poll_nothing, polled(s, m, 0, -1, 0))
CALL(poll_a_moment, polled(s, m, POLLIN, 20 * MS, 0))
CALL(poll_nowhere, MAKE3(poll, nowhere, 1, -1))
CALL(poll_too_many, MAKE3(poll, m->data, 1 << 30, -1))
CALL(ppoll_in, polled(s, m, POLLIN, -1, 1))
CALL(ppoll_now, polled(s, m, POLLIN, 0, 1))
CALL(ppoll_time_nowhere, MAKE5(ppoll, &m->polled, 1, nowhere, 0, 8))
CALL(ppoll_bad_time, MAKE5(ppoll, &m->polled, 1, time_of(m, -SECOND), 0, 8))
CALL(ppoll_bad_size, MAKE5(ppoll, &m->polled, 1, time_of(m, 0), m->data, 4))

enum { READ, WRITE, EXCEPTION };

static long selected(struct subject *s, struct memory *m, int which, int64_t ns, int by_pselect)
{
    char *sets[3] = {NULL, NULL, NULL};
    if (s->fd < 0 || s->fd >= 8 * (int)sizeof m->set) {
        return -ENOANO;
    }
    char *byte = m->set + s->fd / 8, bit = 1 << s->fd % 8;
    memset(m->set, 0, sizeof m->set);
    *byte = bit;
    sets[which] = m->set;
    struct timespec *time = ns < 0 ? NULL : time_of(m, ns);
    m->old_time = (struct timeval){ns / SECOND, ns % SECOND / 1000};
    struct timeval *old_time = ns < 0 ? NULL : &m->old_time;
    long result = by_pselect
                      ? MAKE6(pselect6, s->fd + 1, sets[0], sets[1], sets[2], time, 0)
                      : MAKE5(select, s->fd + 1, sets[0], sets[1], sets[2], old_time);
    m->note = *byte != 0;
    return result;
}

CALL(select_now, selected(s, m, READ, 0, 0))
CALL(select_read, selected(s, m, READ, -1, 0))
CALL(select_write, selected(s, m, WRITE, -1, 0))
CALL(select_exception, selected(s, m, EXCEPTION, -1, 0))
CALL(select_a_moment, selected(s, m, READ, 20 * MS, 0))
CALL(pselect_read, selected(s, m, READ, -1, 1))
CALL(select_nowhere, MAKE5(select, 5, nowhere, 0, 0, 0))
CALL(select_negative, MAKE5(select, -1, m->set, 0, 0, 0))

static long waited(struct subject *s, struct memory *m, long result)
{
    m->note = result > 0 ? m->events[0].events : 0;
    return result;
}

CALL(epoll_wait_now, waited(s, m, MAKE4(epoll_wait, s->fd, m->events, 4, 0)))
CALL(epoll_wait, waited(s, m, MAKE4(epoll_wait, s->fd, m->events, 4, -1)))
CALL(epoll_wait_a_moment, waited(s, m, MAKE4(epoll_wait, s->fd, m->events, 4, 20)))
CALL(epoll_wait_for_0, waited(s, m, MAKE4(epoll_wait, s->fd, m->events, 0, -1)))
CALL(epoll_wait_nowhere, waited(s, m, MAKE4(epoll_wait, s->fd, nowhere, 4, -1)))
CALL(epoll_pwait, waited(s, m, MAKE6(epoll_pwait, s->fd, m->events, 4, -1, 0, 8)))
CALL(epoll_pwait2, waited(s, m, MAKE6(epoll_pwait2, s->fd, m->events, 4, 0, 0, 8)))
CALL(epoll_pwait2_bad, MAKE6(epoll_pwait2, s->fd, m->events, 4, time_of(m, -SECOND), 0, 8))

CALL(mq_receive, MAKE5(mq_timedreceive, s->fd, m->data, 8, 0, 0))
CALL(mq_receive_3, MAKE5(mq_timedreceive, s->fd, m->data, 3, 0, 0))
CALL(mq_receive_now, MAKE5(mq_timedreceive, s->fd, m->data, 8, 0, time_of(m, 0)))
CALL(mq_send, MAKE5(mq_timedsend, s->fd, big, 8, 0, 0))
CALL(mq_send_too_much, MAKE5(mq_timedsend, s->fd, big, 9, 0, 0))
CALL(ring_wait, MAKE6(io_uring_enter, s->fd, 0, 1, 1, 0, 0))
CALL(ring_wait_for_2, MAKE6(io_uring_enter, s->fd, 0, 2, 1, 0, 0))

struct call {
    const char *name;
    long (*make)(struct subject *, struct memory *);
};

#define C(name) {#name, call_##name}

static const struct call calls[] = {
    C(read_0), C(read_3), C(read_8), C(read_64), C(read_4096), C(read_negative),
    C(read_to_the_kernel), C(read_to_nowhere), C(readv_none), C(readv_empty), C(readv_4_4),
    C(readv_0_8), C(readv_too_many), C(readv_negative), C(readv_nowhere), C(pread_8),
    C(pread_before), C(preadv_4_4), C(preadv2_here), C(preadv2_now), C(preadv2_odd), C(write_0),
    C(write_3), C(write_8), C(write_big), C(write_negative), C(write_from_the_kernel),
    C(write_from_nowhere), C(writev_none), C(writev_empty), C(writev_4_4), C(writev_negative),
    C(writev_nowhere), C(pwrite_8), C(pwritev_4_4), C(pwritev2_here), C(pwritev2_now), C(recv_0),
    C(recv_8), C(recv_now), C(recv_0_now), C(recv_all), C(recv_all_there), C(recv_all_now),
    C(recv_peek), C(recv_peek_all), C(recv_truncated), C(recv_urgent), C(recv_errors),
    C(recv_negative), C(recv_to_nowhere), C(recvfrom), C(recvmsg_0), C(recvmsg_8), C(recvmsg_now),
    C(recvmsg_all), C(recvmsg_peek), C(recvmsg_truncated), C(recvmsg_urgent), C(recvmsg_errors),
    C(recvmsg_nowhere), C(recvmmsg_0), C(recvmmsg_1), C(recvmmsg_2), C(recvmmsg_now),
    C(recvmmsg_for_one), C(recvmmsg_peek), C(recvmmsg_in_no_time), C(recvmmsg_in_bad_time),
    C(recvmmsg_errors), C(recvmmsg_nowhere), C(recvmmsg_time_nowhere), C(send_0), C(send_8),
    C(send_now), C(send_silently), C(send_urgent), C(send_more), C(send_big), C(send_big_now),
    C(send_too_big), C(send_negative), C(send_from_nowhere), C(sendto_its_neighbour),
    C(sendto_nobody), C(sendmsg_8), C(sendmsg_0), C(sendmsg_now), C(sendmsg_silently),
    C(sendmsg_nowhere), C(sendmmsg_0), C(sendmmsg_3), C(sendmmsg_now), C(sendmmsg_nowhere),
    C(accept), C(accept4_nonblocking), C(accept4_odd), C(accept_nowhere), C(connect),
    C(connect_to_nobody), C(connect_nowhere), C(connect_to_its_neighbour), C(connect_twice),
    C(disconnect), C(sendfile_to), C(sendfile_0), C(sendfile_from), C(splice_from),
    C(splice_from_now), C(splice_to), C(splice_to_now), C(splice_0), C(splice_odd), C(tee_from),
    C(tee_to), C(vmsplice), C(vmsplice_now), C(copy_from), C(copy_much_from), C(copy_to),
    C(poll_now), C(poll_in), C(poll_out), C(poll_nothing), C(poll_a_moment), C(poll_nowhere),
    C(poll_too_many), C(ppoll_in), C(ppoll_now), C(ppoll_time_nowhere), C(ppoll_bad_time),
    C(ppoll_bad_size), C(select_now), C(select_read), C(select_write), C(select_exception),
    C(select_a_moment), C(pselect_read), C(select_nowhere), C(select_negative),
    C(epoll_wait_now), C(epoll_wait), C(epoll_wait_a_moment), C(epoll_wait_for_0),
    C(epoll_wait_nowhere), C(epoll_pwait), C(epoll_pwait2), C(epoll_pwait2_bad), C(mq_receive),
    C(mq_receive_3), C(mq_receive_now), C(mq_send), C(mq_send_too_much), C(ring_wait),
    C(ring_wait_for_2),
};
