/* Stream and datagram sockets: servers of many threads, connecting, time limits, shutdown. */
#include "net.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/un.h>

static struct sockaddr_in address;
static int listener;

static void *echo(void *fd)
{
    char data[4096];
    ssize_t count;
    while ((count = GET(read((int)(long)fd, data, sizeof data))) > 0) {
        write_all((int)(long)fd, data, count);
    }
    close((int)(long)fd);
    return NULL;
}

static void *accept_and_echo(void *connections)
{
    for (long i = 0; i < (long)connections; i++) {
        pthread_detach(start_small(echo, number(GET(accept(listener, NULL, NULL)))));
    }
    return NULL;
}

static void *talk_to_echo(void *me)
{
    int fd = connect_to(&address);
    for (int i = 0; i < 30; i++) {
        char out[100], in[100];
        memset(out, (int)(long)me + i, sizeof out);
        write_all(fd, out, sizeof out);
        IS(read_all(fd, in, sizeof in), sizeof in);
        IS(memcmp(in, out, sizeof in), 0);
    }
    GET(shutdown(fd, SHUT_WR));
    char rest;
    IS(read(fd, &rest, 1), 0);
    close(fd);
    return NULL;
}

CASE(tcp_echo_with_200_clients_and_a_thread_for_each)
{
    static pthread_t clients[200];
    listener = listen_anywhere(&address, 512);
    pthread_t server = start(accept_and_echo, number(200));
    for (long i = 0; i < 200; i++) {
        clients[i] = start_small(talk_to_echo, number(i));
    }
    join_all(clients, 200);
    join(server);
}

static void *accept_one(void *argument)
{
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    int fd = GET(accept4(listener, (struct sockaddr *)&peer, &length, SOCK_CLOEXEC));
    IS(peer.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    IS(GET(fcntl(fd, F_GETFD)), FD_CLOEXEC);
    IS(GET(fcntl(fd, F_GETFL)) & O_NONBLOCK, 0);
    write_all(fd, "x", 1);
    close(fd);
    return argument;
}

CASE(ten_threads_accept_on_one_socket)
{
    pthread_t threads[10];
    listener = listen_anywhere(&address, 64);
    for (int i = 0; i < 10; i++) {
        threads[i] = start(accept_one, NULL);
    }
    let_others_block();
    for (int i = 0; i < 10; i++) {
        int fd = connect_to(&address);
        char byte;
        IS(read(fd, &byte, 1), 1);
        close(fd);
    }
    join_all(threads, 10);
}

CASE(connecting_to_nobody_is_refused)
{
    listener = listen_anywhere(&address, 1);
    close(listener);
    int fd = GET(socket(AF_INET, SOCK_STREAM, 0));
    FAILS(connect(fd, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
}

CASE(a_nonblocking_connect_is_in_progress)
{
    listener = listen_anywhere(&address, 16);
    int fd = GET(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == -1) {
        IS(errno, EINPROGRESS);
    }
    int peer = GET(accept(listener, NULL, NULL));
    write_all(peer, "x", 1);
    while (connect(fd, (struct sockaddr *)&address, sizeof address) == -1 && errno != EISCONN) {
        sched_yield();
    }
    int error = 1;
    socklen_t length = sizeof error;
    GET(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
    IS(error, 0);
    char byte;
    while (read(fd, &byte, 1) != 1) {
        IS(errno, EAGAIN);
        sched_yield();
    }
}

CASE(a_nonblocking_accept_says_again)
{
    listener = listen_anywhere(&address, 16);
    GET(fcntl(listener, F_SETFL, O_NONBLOCK));
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    int pair[2];
    char byte;
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    FAILS(recv(pair[0], &byte, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(accept(pair[0], NULL, NULL), EINVAL);
    FAILS(send(0x7ffffff, &byte, 1, 0), EBADF);
}

static int pair[2];

static void *read_from_pair(void *argument)
{
    char byte;
    return number(read(pair[0], &byte, 1));
}

CASE(shutdown_wakes_a_reader)
{
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t thread = start(read_from_pair, NULL);
    let_others_block();
    GET(shutdown(pair[0], SHUT_RD));
    IS(join(thread), 0);
    listener = listen_anywhere(&address, 4);
    pair[0] = connect_to(&address);
    thread = start(read_from_pair, NULL);
    let_others_block();
    GET(shutdown(pair[0], SHUT_RDWR));
    IS(join(thread), 0);
}

static void *accept_until_shut(void *argument)
{
    int result = accept(listener, NULL, NULL);
    return number(result == -1 ? errno : 0);
}

CASE(shutdown_wakes_an_accept)
{
    listener = listen_anywhere(&address, 4);
    pthread_t thread = start(accept_until_shut, NULL);
    let_others_block();
    GET(shutdown(listener, SHUT_RDWR));
    IS(join(thread), EINVAL);
}

CASE(receive_and_send_time_limits)
{
    char byte;
    static char data[1 << 16];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    set_timeout(pair[0], SO_RCVTIMEO, 60);
    int64_t started_ns = now_ns();
    FAILS(read(pair[0], &byte, 1), EAGAIN);
    check_took(started_ns, 55);
    started_ns = now_ns();
    FAILS(recv(pair[0], &byte, 1, 0), EAGAIN);
    check_took(started_ns, 55);
    set_timeout(pair[1], SO_SNDTIMEO, 60);
    while (write(pair[1], data, sizeof data) > 0) {
    }
    IS(errno, EAGAIN);
    started_ns = now_ns();
    FAILS(send(pair[1], data, sizeof data, 0), EAGAIN);
    check_took(started_ns, 55);
}

CASE(accept_has_a_time_limit)
{
    listener = listen_anywhere(&address, 4);
    set_timeout(listener, SO_RCVTIMEO, 60);
    int64_t started_ns = now_ns();
    FAILS(accept(listener, NULL, NULL), EAGAIN);
    check_took(started_ns, 55);
}

static void *stream_out(void *fd)
{
    char data[5000];
    for (int i = 0; i < 500; i++) {
        memset(data, i, sizeof data);
        write_all((int)(long)fd, data, sizeof data);
    }
    GET(shutdown((int)(long)fd, SHUT_WR));
    return NULL;
}

static void *stream_in(void *fd)
{
    char data[5000];
    for (int i = 0; i < 500; i++) {
        IS(read_all((int)(long)fd, data, sizeof data), sizeof data);
        IS(data[0], (char)i);
        IS(data[4999], (char)i);
    }
    IS(read((int)(long)fd, data, 1), 0);
    return NULL;
}

CASE(one_socket_carries_both_directions_at_once)
{
    listener = listen_anywhere(&address, 4);
    int here = connect_to(&address), there = GET(accept(listener, NULL, NULL));
    pthread_t threads[] = {start(stream_out, number(here)), start(stream_in, number(there)),
                           start(stream_out, number(there)), start(stream_in, number(here))};
    join_all(threads, 4);
}

static void *udp_echo(void *fd)
{
    char data[100];
    struct sockaddr_in peer;
    for (int i = 0; i < 200; i++) {
        socklen_t length = sizeof peer;
        ssize_t count =
            GET(recvfrom((int)(long)fd, data, sizeof data, 0, (struct sockaddr *)&peer, &length));
        IS(sendto((int)(long)fd, data, count, 0, (struct sockaddr *)&peer, length), count);
    }
    return NULL;
}

static int udp_socket(struct sockaddr_in *where)
{
    socklen_t length = sizeof *where;
    int fd = GET(socket(AF_INET, SOCK_DGRAM, 0));
    *where = (struct sockaddr_in){.sin_family = AF_INET};
    where->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    GET(bind(fd, (struct sockaddr *)where, sizeof *where));
    GET(getsockname(fd, (struct sockaddr *)where, &length));
    return fd;
}

CASE(udp_datagrams_keep_their_size)
{
    struct sockaddr_in server, client;
    int there = udp_socket(&server), here = udp_socket(&client);
    pthread_t thread = start(udp_echo, number(there));
    GET(connect(here, (struct sockaddr *)&server, sizeof server));
    for (int i = 0; i < 200; i++) {
        char data[100];
        IS(send(here, data, i % 90 + 1, 0), i % 90 + 1);
        IS(recv(here, data, sizeof data, 0), i % 90 + 1);
    }
    join(thread);
    set_timeout(here, SO_RCVTIMEO, 30);
    char byte;
    FAILS(recv(here, &byte, 1, 0), EAGAIN);
}

CASE(a_unix_socket_by_name)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    unlink("socket");
    listener = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    GET(bind(listener, (struct sockaddr *)&name, sizeof name));
    GET(listen(listener, 64));
    pthread_t server = start(accept_and_echo, number(5));
    for (int i = 0; i < 5; i++) {
        int fd = GET(socket(AF_UNIX, SOCK_STREAM, 0));
        GET(connect(fd, (struct sockaddr *)&name, sizeof name));
        char in[4];
        write_all(fd, "echo", 4);
        IS(read_all(fd, in, 4), 4);
        close(fd);
    }
    join(server);
    unlink("socket");
}

static atomic_int connected;

static void *connect_and_count(void *argument)
{
    struct sockaddr_un *name = argument;
    int fd = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    GET(connect(fd, (struct sockaddr *)name, sizeof *name));
    atomic_fetch_add(&connected, 1);
    close(fd);
    return NULL;
}

/* On a Unix socket connect blocks while the backlog is full. */
CASE(connect_waits_for_room_in_the_backlog)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "full"};
    pthread_t threads[20];
    unlink("full");
    listener = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    GET(bind(listener, (struct sockaddr *)&name, sizeof name));
    GET(listen(listener, 2));
    for (int i = 0; i < 20; i++) {
        threads[i] = start(connect_and_count, &name);
    }
    let_others_block();
    CHECK(atomic_load(&connected) <= 4);
    for (int i = 0; i < 20; i++) {
        close(GET(accept(listener, NULL, NULL)));
    }
    join_all(threads, 20);
    unlink("full");
}

static void *one_request(void *argument)
{
    int fd = connect_to(&address);
    char byte;
    IS(read(fd, &byte, 1), 1);
    close(fd);
    return argument;
}

CASE(a_thousand_short_connections)
{
    pthread_t clients[10], servers[10];
    listener = listen_anywhere(&address, 128);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 10; i++) {
            servers[i] = start(accept_one, NULL);
            clients[i] = start(one_request, NULL);
        }
        join_all(clients, 10);
        join_all(servers, 10);
    }
}

static void *fill(void *fd)
{
    char data[4096] = {0};
    while (write((int)(long)fd, data, sizeof data) > 0) {
    }
    return number(errno);
}

/* SIGPIPE would end the process: the waiting write returns the reset. */
CASE(a_waiting_write_is_told_that_unread_data_is_lost)
{
    int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        int fds[2];
        GET(socketpair(AF_UNIX, types[i], 0, fds));
        pthread_t writer = start(fill, number(fds[0]));
        let_others_block();
        close(fds[1]);
        IS((long)join(writer), ECONNRESET);
        FAILS(send(fds[0], "x", 1, MSG_NOSIGNAL), EPIPE);
        close(fds[0]);
    }
}
