/* Sockets on the loopback address, for the programs that test them. */
#ifndef NET_H
#define NET_H

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* A TCP socket that listens on a free port, which goes to `address`. */
__attribute__((unused)) static int listen_anywhere(struct sockaddr_in *address, int backlog)
{
    socklen_t length = sizeof *address;
    int fd = GET(socket(AF_INET, SOCK_STREAM, 0));
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    GET(bind(fd, (struct sockaddr *)address, sizeof *address));
    GET(listen(fd, backlog));
    GET(getsockname(fd, (struct sockaddr *)address, &length));
    return fd;
}

__attribute__((unused)) static int connect_to(const struct sockaddr_in *address)
{
    int fd = GET(socket(AF_INET, SOCK_STREAM, 0));
    GET(connect(fd, (const struct sockaddr *)address, sizeof *address));
    return fd;
}

__attribute__((unused)) static void write_all(int fd, const void *data, size_t length)
{
    const char *at = data;
    while (length > 0) {
        ssize_t count = GET(write(fd, at, length));
        at += count;
        length -= count;
    }
}

/* Reads exactly `length` bytes; gives what it got before the end. */
__attribute__((unused)) static size_t read_all(int fd, void *data, size_t length)
{
    size_t total = 0;
    while (total < length) {
        ssize_t count = GET(read(fd, (char *)data + total, length - total));
        if (count == 0) {
            break;
        }
        total += count;
    }
    return total;
}

__attribute__((unused)) static void set_timeout(int fd, int option, int ms)
{
    struct timeval limit = {ms / 1000, ms % 1000 * 1000};
    GET(setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit));
}

#endif
