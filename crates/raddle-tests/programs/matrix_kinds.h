/* Kinds of descriptors for matrix.c: each is made afresh for each call.
 *
 * A maker sets `fd`, the descriptor that the call is made on. Every descriptor that it makes stands
 * in the subject's list, so that all are closed after the call. A maker returns 0 where the machine
 * has no such descriptor or forbids it.
 */
#ifndef MATRIX_KINDS_H
#define MATRIX_KINDS_H

#include "net.h"

#include <linux/io_uring.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/userfaultfd.h>
#include <mqueue.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>

struct subject {
    int fd;
    int own[8];
    int owned;
    int number; /* tells the subjects of one process apart */
    int nonblocking;
    int file;   /* what a transfer goes from or to: a file and the two ends of a pipe */
    int pipe[2];
};

static int keep(struct subject *subject, int fd)
{
    if (fd >= 0) {
        subject->own[subject->owned++] = fd;
    }
    return fd;
}

static int is(struct subject *subject, int fd)
{
    subject->fd = keep(subject, fd);
    return fd >= 0;
}

#define KIND(name) static int make_##name(struct subject *subject)

KIND(negative)
{
    subject->fd = -1;
    return 1;
}

KIND(closed)
{
    subject->fd = 400000; /* above the limit of descriptors: another thread never gets it */
    return 1;
}

static int temporary_file(const char *content)
{
    char path[] = "matrix-XXXXXX";
    int fd = GET(mkstemp(path));
    GET(unlink(path));
    GET(write(fd, content, strlen(content)));
    GET(lseek(fd, 0, SEEK_SET));
    return fd;
}

KIND(path_only)
{
    return is(subject, open("/dev/null", O_PATH));
}

KIND(folder)
{
    return is(subject, open(".", O_RDONLY | O_DIRECTORY));
}

KIND(file)
{
    return is(subject, temporary_file("0123456789"));
}

static int file_opened(struct subject *subject, int mode)
{
    char path[40];
    snprintf(path, sizeof path, "matrix-file-%d", subject->number);
    close(GET(open(path, O_CREAT | O_RDWR, 0600)));
    int made = is(subject, open(path, mode));
    GET(unlink(path));
    return made;
}

KIND(file_to_read)
{
    return file_opened(subject, O_RDONLY);
}

KIND(file_to_write)
{
    return file_opened(subject, O_WRONLY);
}

KIND(memfd)
{
    return is(subject, memfd_create("matrix", 0));
}

/* A pipe: which end the call is made on, what is in it, which ends stay open. */
static int pipe_with(struct subject *subject, int end, int filled, int is_alone)
{
    int ends[2];
    GET(pipe2(ends, O_NONBLOCK));
    char page[4096] = "";
    for (int pages = 0; filled && write(ends[1], page, filled > 1 ? 4096 : 5) > 0 && filled > 1;
         pages++) {
    }
    GET(fcntl(ends[end], F_SETFL, 0));
    if (is_alone) {
        close(ends[!end]);
    } else {
        keep(subject, ends[!end]);
    }
    return is(subject, ends[end]);
}

KIND(pipe_empty)
{
    return pipe_with(subject, 0, 0, 0);
}

KIND(pipe_with_data)
{
    return pipe_with(subject, 0, 1, 0);
}

KIND(pipe_at_its_end)
{
    return pipe_with(subject, 0, 0, 1);
}

KIND(pipe_with_room)
{
    return pipe_with(subject, 1, 0, 0);
}

KIND(pipe_full)
{
    return pipe_with(subject, 1, 2, 0);
}

KIND(pipe_broken)
{
    return pipe_with(subject, 1, 0, 1);
}

KIND(fifo)
{
    char path[40];
    snprintf(path, sizeof path, "matrix-fifo-%d", subject->number);
    GET(mkfifo(path, 0600));
    int made = is(subject, open(path, O_RDWR));
    GET(unlink(path));
    return made;
}

static int open_terminal(struct subject *subject, int *master)
{
    char name[64];
    int unlock = 0;
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    if (*master < 0) {
        return -1;
    }
    GET(ioctl(*master, TIOCSPTLCK, &unlock));
    GET(ptsname_r(*master, name, sizeof name));
    return GET(open(name, O_RDWR | O_NOCTTY));
}

static int terminal_with(struct subject *subject, const char *text, int least, int tenths)
{
    int master, slave = open_terminal(subject, &master);
    if (slave < 0) {
        return 0;
    }
    keep(subject, master);
    struct termios settings;
    GET(tcgetattr(slave, &settings));
    settings.c_lflag &= ~ECHO;
    if (least >= 0) {
        cfmakeraw(&settings);
        settings.c_cc[VMIN] = least;
        settings.c_cc[VTIME] = tenths;
    }
    GET(tcsetattr(slave, TCSANOW, &settings));
    GET(write(master, text, strlen(text)));
    return is(subject, slave);
}

KIND(terminal)
{
    return terminal_with(subject, "", -1, 0);
}

KIND(terminal_with_a_line)
{
    return terminal_with(subject, "line\n", -1, 0);
}

KIND(terminal_for_any_number)
{
    return terminal_with(subject, "", 0, 0);
}

KIND(terminal_for_a_moment)
{
    return terminal_with(subject, "", 0, 1);
}

KIND(terminal_for_four)
{
    return terminal_with(subject, "ab", 4, 0);
}

KIND(terminal_between_bytes)
{
    return terminal_with(subject, "ab", 4, 1);
}

KIND(terminal_master)
{
    int master, slave = open_terminal(subject, &master);
    keep(subject, slave);
    struct termios settings;
    GET(tcgetattr(slave, &settings));
    cfmakeraw(&settings); /* what isn't read is kept, and there is no more room */
    GET(tcsetattr(slave, TCSANOW, &settings));
    return is(subject, master);
}

KIND(terminal_master_alone)
{
    int made = make_terminal_master(subject);
    close(subject->own[0]);
    subject->own[0] = -1;
    return made;
}

KIND(device_null)
{
    return is(subject, open("/dev/null", O_RDWR));
}

KIND(device_zero)
{
    return is(subject, open("/dev/zero", O_RDWR));
}

KIND(device_full)
{
    return is(subject, open("/dev/full", O_RDWR));
}

KIND(device_random)
{
    return is(subject, open("/dev/urandom", O_RDWR));
}

/* A state of one of two connected sockets. */
enum state { EMPTY, DATA, FULL, ENDED, DEAF, MUTE, PEER_DEAF, PEER_MUTE, LIMITED };

static void fill(int fd)
{
    char page[4096] = "";
    while (send(fd, page, sizeof page, MSG_DONTWAIT) > 0) {
    }
    while (send(fd, page, 1, MSG_DONTWAIT) > 0) {
    }
}

static int socket_in(struct subject *subject, int fd, int peer, enum state state)
{
    switch (state) {
    case DATA:
        GET(send(peer, "hello", 5, 0));
        break;
    case FULL:
        fill(fd);
        break;
    case DEAF:
        shutdown(fd, SHUT_RD);
        break;
    case MUTE:
        shutdown(fd, SHUT_WR);
        break;
    case PEER_DEAF:
        shutdown(peer, SHUT_RD);
        break;
    case PEER_MUTE:
        shutdown(peer, SHUT_WR);
        break;
    case LIMITED:
        fill(fd);
        set_timeout(fd, SO_RCVTIMEO, 40);
        set_timeout(fd, SO_SNDTIMEO, 40);
        break;
    case EMPTY:
    case ENDED:
        break;
    }
    if (state == ENDED) {
        close(peer);
    } else {
        keep(subject, peer);
    }
    return is(subject, fd);
}

static int unix_pair(struct subject *subject, int type, enum state state)
{
    int ends[2];
    GET(socketpair(AF_UNIX, type, 0, ends));
    return socket_in(subject, ends[0], ends[1], state);
}

static int tcp_pair_in(struct subject *subject, int type, enum state state)
{
    (void)type;
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4), peer = connect_to(&address);
    int fd = GET(accept(listener, NULL, NULL));
    close(listener);
    return socket_in(subject, fd, peer, state);
}

#define STATES(name, pair, type)                                                                   \
    KIND(name##_empty) { return pair(subject, type, EMPTY); }                                      \
    KIND(name##_with_data) { return pair(subject, type, DATA); }                                   \
    KIND(name##_full) { return pair(subject, type, FULL); }                                        \
    KIND(name##_ended) { return pair(subject, type, ENDED); }                                      \
    KIND(name##_deaf) { return pair(subject, type, DEAF); }                                        \
    KIND(name##_mute) { return pair(subject, type, MUTE); }                                        \
    KIND(name##_to_the_deaf) { return pair(subject, type, PEER_DEAF); }                            \
    KIND(name##_from_the_mute) { return pair(subject, type, PEER_MUTE); }                          \
    KIND(name##_limited) { return pair(subject, type, LIMITED); }

STATES(stream, unix_pair, SOCK_STREAM)
STATES(datagram, unix_pair, SOCK_DGRAM)
STATES(packet, unix_pair, SOCK_SEQPACKET)
STATES(tcp, tcp_pair_in, SOCK_STREAM)

KIND(tcp_reset)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4), peer = connect_to(&address);
    int fd = GET(accept(listener, NULL, NULL));
    struct linger at_once = {1, 0};
    GET(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    close(listener);
    close(peer);
    return is(subject, fd);
}

KIND(tcp_urgent)
{
    tcp_pair_in(subject, SOCK_STREAM, EMPTY);
    GET(send(subject->own[0], "abc", 3, MSG_OOB));
    return 1;
}

KIND(tcp_low_water)
{
    int least = 20;
    tcp_pair_in(subject, SOCK_STREAM, DATA);
    GET(setsockopt(subject->fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least));
    return 1;
}

KIND(tcp_unconnected)
{
    return is(subject, socket(AF_INET, SOCK_STREAM, 0));
}

KIND(tcp_listening)
{
    struct sockaddr_in address;
    return is(subject, listen_anywhere(&address, 4));
}

KIND(tcp_listening_limited)
{
    struct sockaddr_in address;
    int made = is(subject, listen_anywhere(&address, 4));
    set_timeout(subject->fd, SO_RCVTIMEO, 40);
    return made;
}

KIND(tcp_pending)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4);
    keep(subject, connect_to(&address));
    return is(subject, listener);
}

/* A connection that is never answered: the listener has no room for it. */
KIND(tcp_connecting)
{
    struct sockaddr_in address;
    keep(subject, listen_anywhere(&address, 0));
    keep(subject, connect_to(&address));
    int fd = GET(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    FAILS(connect(fd, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    GET(fcntl(fd, F_SETFL, 0));
    return is(subject, fd);
}

/* A connection that was refused while it was not waited for. */
KIND(tcp_refused)
{
    struct sockaddr_in address;
    close(listen_anywhere(&address, 0));
    int fd = GET(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    FAILS(connect(fd, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    GET(fcntl(fd, F_SETFL, 0));
    return is(subject, fd);
}

static int udp(struct subject *subject, struct sockaddr_in *address)
{
    socklen_t length = sizeof *address;
    int fd = keep(subject, GET(socket(AF_INET, SOCK_DGRAM, 0)));
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    GET(bind(fd, (struct sockaddr *)address, sizeof *address));
    GET(getsockname(fd, (struct sockaddr *)address, &length));
    return fd;
}

static int udp_in(struct subject *subject, enum state state)
{
    struct sockaddr_in first, second;
    int fd = udp(subject, &first), peer = udp(subject, &second);
    GET(connect(fd, (struct sockaddr *)&second, sizeof second));
    GET(connect(peer, (struct sockaddr *)&first, sizeof first));
    subject->owned = 0;
    return socket_in(subject, fd, peer, state);
}

KIND(udp_unbound)
{
    return is(subject, socket(AF_INET, SOCK_DGRAM, 0));
}

KIND(udp_empty)
{
    return udp_in(subject, EMPTY);
}

KIND(udp_with_data)
{
    return udp_in(subject, DATA);
}

KIND(udp_deaf)
{
    return udp_in(subject, DEAF);
}

KIND(udp_mute)
{
    return udp_in(subject, MUTE);
}

KIND(udp_refused)
{
    udp_in(subject, ENDED);
    GET(send(subject->fd, "x", 1, 0));
    return 1;
}

KIND(udp_limited)
{
    udp_in(subject, EMPTY);
    set_timeout(subject->fd, SO_RCVTIMEO, 40);
    return 1;
}

static struct sockaddr_un unix_address(const struct subject *subject)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path + 1, 60, "matrix-%d-%d", getpid(), subject->number);
    return address;
}

static int unix_bound(struct subject *subject, int type)
{
    struct sockaddr_un address = unix_address(subject);
    int fd = keep(subject, GET(socket(AF_UNIX, type, 0)));
    GET(bind(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

KIND(stream_unconnected)
{
    return is(subject, socket(AF_UNIX, SOCK_STREAM, 0));
}

KIND(datagram_unconnected)
{
    return is(subject, socket(AF_UNIX, SOCK_DGRAM, 0));
}

/* An unconnected socket, and one by name that has no room for a datagram more. */
KIND(datagram_before_a_full_one)
{
    struct sockaddr_un address = unix_address(subject);
    unix_bound(subject, SOCK_DGRAM);
    int fd = GET(socket(AF_UNIX, SOCK_DGRAM, 0));
    while (sendto(fd, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&address, sizeof address) > 0) {
    }
    return is(subject, fd);
}

KIND(stream_listening)
{
    int fd = unix_bound(subject, SOCK_STREAM);
    GET(listen(fd, 4));
    subject->fd = fd;
    return 1;
}

KIND(packet_listening)
{
    int fd = unix_bound(subject, SOCK_SEQPACKET);
    GET(listen(fd, 4));
    subject->fd = fd;
    return 1;
}

/* A socket with a connect that would wait: the listener by name has no room for it. */
KIND(stream_before_a_full_one)
{
    struct sockaddr_un address = unix_address(subject);
    GET(listen(unix_bound(subject, SOCK_STREAM), 0));
    int first = keep(subject, GET(socket(AF_UNIX, SOCK_STREAM, 0)));
    GET(connect(first, (struct sockaddr *)&address, sizeof address));
    return is(subject, socket(AF_UNIX, SOCK_STREAM, 0));
}

KIND(netlink)
{
    return is(subject, socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
}

static int counter(struct subject *subject, uint64_t value, int flags)
{
    int fd = eventfd(0, flags);
    if (value != 0) {
        GET(write(fd, &value, sizeof value));
    }
    return is(subject, fd);
}

KIND(counter_zero)
{
    return counter(subject, 0, 0);
}

KIND(counter_five)
{
    return counter(subject, 5, 0);
}

KIND(counter_full)
{
    return counter(subject, UINT64_MAX - 1, 0);
}

KIND(counter_semaphore)
{
    return counter(subject, 2, EFD_SEMAPHORE);
}

#include "matrix_more_kinds.h"

#endif
