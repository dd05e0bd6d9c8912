/* A server with a thread for each connection, as simple as such servers are.
 *
 * Prints its port, answers every request with a greeting, and ends with 0 on SIGTERM.
 */
#define CHECK_OWN_MAIN
#include "net.h"

static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                             "Content-Length: 13\r\n\r\nHello, World!";

static void *serve(void *argument)
{
    int fd = (int)(long)argument;
    char request[4096];
    while (read(fd, request, sizeof request) > 0) {
        if (write(fd, ANSWER, sizeof ANSWER - 1) < 0) {
            break;
        }
    }
    close(fd);
    return NULL;
}

static void *accept_clients(void *listener)
{
    for (;;) {
        int one = 1, fd = GET(accept((int)(long)listener, NULL, NULL));
        GET(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
        OK(pthread_detach(start_small(serve, number(fd))));
    }
    return NULL;
}

static void end(int signal)
{
    (void)signal;
    _exit(0);
}

int main(void)
{
    struct sockaddr_in address;
    case_name = "http_server";
    cases[0].name = case_name;
    case_count = 1;
    signal(SIGTERM, end);
    signal(SIGPIPE, SIG_IGN);
    int listener = listen_anywhere(&address, 4096);
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    join(start(accept_clients, number(listener)));
    return 1;
}
