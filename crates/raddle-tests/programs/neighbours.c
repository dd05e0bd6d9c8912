/* Calls that wait for descriptors, each by itself: see the header. */
#include "neighbours.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <termios.h>

/* Pipes. */
#define prepare_pipe_read make_pipe
#define release_pipe_read write_byte
static long block_pipe_read(void)
{
    return read(ends[0], &byte, 1);
}
WAIT(pipe_read, RESTARTS | POINT)

#define prepare_pipe_readv make_pipe
#define release_pipe_readv write_byte
static long block_pipe_readv(void)
{
    struct iovec vector = {&byte, 1};
    return readv(ends[0], &vector, 1);
}
WAIT(pipe_readv, RESTARTS | POINT)

#define prepare_pipe_write make_full_pipe
#define release_pipe_write drain_end
static long block_pipe_write(void)
{
    static char bytes[4096];
    return write(ends[1], bytes, sizeof bytes);
}
WAIT(pipe_write, RESTARTS | POINT)

#define prepare_pipe_splice make_pipe
#define release_pipe_splice write_byte
static long block_pipe_splice(void)
{
    static int file = -1;
    if (file < 0) {
        file = (int)GET(open("spliced", O_CREAT | O_RDWR, 0600));
    }
    return splice(ends[0], NULL, file, NULL, 1, 0);
}
WAIT(pipe_splice, RESTARTS | POINT)

#define prepare_pipe_tee make_pipe
#define release_pipe_tee write_byte
static long block_pipe_tee(void)
{
    static int to[2];
    if (to[1] == 0) {
        GET(pipe(to));
    }
    return tee(ends[0], to[1], 1, 0);
}
WAIT(pipe_tee, RESTARTS | POINT)

#define prepare_pipe_vmsplice make_full_pipe
#define release_pipe_vmsplice drain_end
static long block_pipe_vmsplice(void)
{
    static char bytes[4096];
    struct iovec vector = {bytes, sizeof bytes};
    return vmsplice(ends[1], &vector, 1, 0);
}
WAIT(pipe_vmsplice, RESTARTS | POINT)

static int fifo;
static void prepare_fifo_open(void)
{
    close(fifo);
    fifo = -1;
    unlink("fifo");
    GET(mkfifo("fifo", 0600));
}
static long block_fifo_open(void)
{
    return open("fifo", O_RDONLY);
}
static void release_fifo_open(void)
{
    fifo = open("fifo", O_WRONLY | O_NONBLOCK);
}
WAIT(fifo_open, RESTARTS | POINT)

/* Descriptors that count. */
static void prepare_counter_read(void)
{
    close_ends();
    ends[0] = (int)GET(eventfd(0, 0));
    ends[1] = (int)GET(dup(ends[0]));
}
static long block_counter_read(void)
{
    uint64_t value;
    return read(ends[0], &value, sizeof value);
}
static void release_counter_read(void)
{
    IS(eventfd_write(ends[1], 1), 0);
}
WAIT(counter_read, RESTARTS | POINT)

static void prepare_counter_write(void)
{
    prepare_counter_read();
    IS(eventfd_write(ends[1], UINT64_MAX - 1), 0);
}
static long block_counter_write(void)
{
    uint64_t value = 1;
    return write(ends[1], &value, sizeof value);
}
static void release_counter_write(void)
{
    eventfd_t value;
    IS(eventfd_read(ends[0], &value), 0);
}
WAIT(counter_write, RESTARTS | POINT)

static void prepare_timer_read(void)
{
    close_ends();
    ends[0] = (int)GET(timerfd_create(CLOCK_MONOTONIC, 0));
    ends[1] = (int)GET(dup(ends[0]));
}
#define block_timer_read block_counter_read
static void release_timer_read(void)
{
    struct itimerspec at = {.it_value = {0, 1}};
    GET(timerfd_settime(ends[0], 0, &at, NULL));
}
WAIT(timer_read, RESTARTS | POINT)

static void prepare_watch_read(void)
{
    close_ends();
    ends[0] = (int)GET(inotify_init1(0));
    ends[1] = (int)GET(dup(ends[0]));
    GET(inotify_add_watch(ends[0], ".", IN_CREATE));
}
static long block_watch_read(void)
{
    char events[1000];
    return read(ends[0], events, sizeof events);
}
static void release_watch_read(void)
{
    unlink("made");
    close((int)GET(open("made", O_CREAT | O_RDWR, 0600)));
}
WAIT(watch_read, RESTARTS | POINT)

/* Terminals. */
static void prepare_terminal_read(void)
{
    close_ends();
    ends[1] = (int)GET(posix_openpt(O_RDWR | O_NOCTTY));
    OK(grantpt(ends[1]));
    OK(unlockpt(ends[1]));
    ends[0] = (int)GET(open(ptsname(ends[1]), O_RDWR | O_NOCTTY));
}
static long block_terminal_read(void)
{
    return read(ends[0], &byte, 1);
}
static void release_terminal_read(void)
{
    IS(write(ends[1], "x\n", 2), 2);
}
WAIT(terminal_read, RESTARTS | POINT)

static void prepare_terminal_write(void)
{
    prepare_terminal_read();
    OK(tcflow(ends[0], TCOOFF));
}
static long block_terminal_write(void)
{
    return write(ends[0], "x", 1);
}
static void release_terminal_write(void)
{
    OK(tcflow(ends[0], TCOON));
}
WAIT(terminal_write, RESTARTS | POINT)

/* Sockets. */
#define prepare_socket_recv make_sockets
#define release_socket_recv write_byte
static long block_socket_recv(void)
{
    return recv(ends[0], &byte, 1, 0);
}
WAIT(socket_recv, RESTARTS | POINT)

#define prepare_socket_recvmsg make_sockets
#define release_socket_recvmsg write_byte
static long block_socket_recvmsg(void)
{
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    return recvmsg(ends[0], &message, 0);
}
WAIT(socket_recvmsg, RESTARTS | POINT)

#define prepare_socket_send make_full_socket
#define release_socket_send drain_end
static long block_socket_send(void)
{
    static char bytes[4096];
    return send(ends[1], bytes, sizeof bytes, 0);
}
WAIT(socket_send, RESTARTS | POINT)

#define prepare_socket_sendfile make_full_socket
#define release_socket_sendfile drain_end
static long block_socket_sendfile(void)
{
    int file = (int)GET(open("/proc/self/exe", O_RDONLY));
    long sent = sendfile(ends[1], file, NULL, 4096);
    int error = errno;
    close(file);
    errno = error;
    return sent;
}
WAIT(socket_sendfile, RESTARTS)

static struct sockaddr_un name = {AF_UNIX, ""};
enum { NAME_LENGTH = sizeof(sa_family_t) + 20 };
static void listen_at_name(void)
{
    static int made;
    close_ends();
    memset(name.sun_path, 0, sizeof name.sun_path);
    snprintf(name.sun_path + 1, 19, "neigh-%d-%d", getpid(), made++);
    ends[0] = (int)GET(socket(AF_UNIX, SOCK_STREAM, 0));
    GET(bind(ends[0], (struct sockaddr *)&name, NAME_LENGTH));
    GET(listen(ends[0], 0));
    ends[1] = (int)GET(socket(AF_UNIX, SOCK_STREAM, 0));
}
static void connect_end(void)
{
    GET(connect(ends[1], (struct sockaddr *)&name, NAME_LENGTH));
}
#define prepare_socket_accept listen_at_name
#define release_socket_accept connect_end
static long block_socket_accept(void)
{
    return accept(ends[0], NULL, NULL);
}
WAIT(socket_accept, RESTARTS | POINT)

static void prepare_socket_connect(void)
{
    listen_at_name();
    connect_end();
}
static long block_socket_connect(void)
{
    int fd = (int)GET(socket(AF_UNIX, SOCK_STREAM, 0));
    return connect(fd, (struct sockaddr *)&name, NAME_LENGTH);
}
static void release_socket_connect(void)
{
    close((int)GET(accept(ends[0], NULL, NULL)));
}
WAIT(socket_connect, RESTARTS | POINT)

/* Readiness: never restarted. */
#define prepare_poll_pipe make_pipe
#define release_poll_pipe write_byte
static long block_poll_pipe(void)
{
    struct pollfd wait = {ends[0], POLLIN, 0};
    return poll(&wait, 1, -1);
}
WAIT(poll_pipe, POINT)

#define prepare_select_pipe make_pipe
#define release_select_pipe write_byte
static long block_select_pipe(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    return select(ends[0] + 1, &set, NULL, NULL, NULL);
}
WAIT(select_pipe, POINT)

static void prepare_epoll_pipe(void)
{
    int pipe_ends[2];
    close_ends();
    GET(pipe(pipe_ends));
    ends[0] = (int)GET(epoll_create1(0));
    ends[1] = pipe_ends[1];
    struct epoll_event event = {.events = EPOLLIN};
    GET(epoll_ctl(ends[0], EPOLL_CTL_ADD, pipe_ends[0], &event));
}
#define release_epoll_pipe write_byte
static long block_epoll_pipe(void)
{
    struct epoll_event event;
    return epoll_wait(ends[0], &event, 1, -1);
}
WAIT(epoll_pipe, POINT)
