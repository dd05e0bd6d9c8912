/* Calls that have moved a part of their data when a signal, an error or the end comes: the part is
 * the result, and the next call gets the cause of the end. */
#include "net.h"

#include <sys/uio.h>

enum { BIG = 8 << 20 };

static char big[BIG];

static void handled(int number)
{
    (void)number;
}

static void handle_with_restart(void)
{
    struct sigaction action = {.sa_handler = handled, .sa_flags = SA_RESTART};
    GET(sigaction(SIGUSR1, &action, NULL));
}

struct transfer {
    int fd;
    int kind;
};

enum { WRITE, WRITEV, SEND, SENDMSG, SENDMMSG };

static void *transfer(void *argument)
{
    struct transfer *transfer = argument;
    struct iovec pieces[2] = {{big, 100}, {big, BIG - 100}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    switch (transfer->kind) {
    case WRITE:
        return number(write(transfer->fd, big, BIG));
    case WRITEV:
        return number(writev(transfer->fd, pieces, 2));
    case SEND:
        return number(send(transfer->fd, big, BIG, 0));
    case SENDMSG:
        return number(sendmsg(transfer->fd, &message, 0));
    default:
        return number(sendmmsg(transfer->fd, messages, 2, 0) == 1 ? messages[0].msg_len : -1);
    }
}

/* A handler with SA_RESTART ends a call that has moved a part. */
static void check_kind(int fd, int kind)
{
    struct transfer own = {fd, kind};
    pthread_t writer = start(transfer, &own);
    sleep_ms(100);
    OK(pthread_kill(writer, SIGUSR1));
    long moved = (long)join(writer);
    CHECK(moved > 0 && moved < BIG);
}

CASE(a_handler_ends_a_write_after_a_part)
{
    handle_with_restart();
    for (int kind = WRITE; kind <= SENDMMSG; kind++) {
        int ends[2];
        struct sockaddr_in address;
        if (kind <= WRITEV) {
            GET(pipe(ends));
            check_kind(ends[1], kind);
        }
        GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        check_kind(ends[0], kind);
        int listener = listen_anywhere(&address, 1);
        check_kind(connect_to(&address), kind);
        close(listener);
    }
}

static void *receive_all(void *fd)
{
    static char data[8];
    return number(recv((long)fd, data, sizeof data, MSG_WAITALL));
}

static void tcp_pair(int *ends)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 1);
    ends[0] = connect_to(&address);
    ends[1] = GET(accept(listener, NULL, NULL));
    close(listener);
}

CASE(a_handler_ends_a_receive_of_all_after_a_part)
{
    int ends[2];
    handle_with_restart();
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        if (is_tcp) {
            tcp_pair(ends);
        } else {
            GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        }
        pthread_t receiver = start(receive_all, number(ends[0]));
        let_others_block();
        GET(write(ends[1], "abc", 3));
        sleep_ms(100);
        OK(pthread_kill(receiver, SIGUSR1));
        IS((long)join(receiver), 3);
    }
}

static void reset(int fd)
{
    struct linger at_once = {1, 0};
    GET(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
    close(fd);
}

CASE(a_reset_after_a_received_part_is_the_next_calls)
{
    int ends[2];
    char byte;
    tcp_pair(ends);
    pthread_t receiver = start(receive_all, number(ends[0]));
    GET(write(ends[1], "abc", 3));
    sleep_ms(100);
    reset(ends[1]);
    IS((long)join(receiver), 3);
    FAILS(recv(ends[0], &byte, 1, 0), ECONNRESET);
}

CASE(a_reset_after_a_sent_part_is_the_next_calls)
{
    int ends[2];
    struct sigaction ignored = {.sa_handler = SIG_IGN};
    GET(sigaction(SIGPIPE, &ignored, NULL));
    for (int kind = WRITE; kind <= SENDMSG; kind++) {
        tcp_pair(ends);
        struct transfer own = {ends[0], kind};
        pthread_t writer = start(transfer, &own);
        sleep_ms(100);
        reset(ends[1]);
        long moved = (long)join(writer);
        CHECK(moved > 0 && moved < BIG);
        FAILS(write(ends[0], big, 1), ECONNRESET);
        FAILS(write(ends[0], big, 1), EPIPE);
    }
}

CASE(urgent_data_ends_a_receive_of_all)
{
    int ends[2];
    tcp_pair(ends);
    pthread_t receiver = start(receive_all, number(ends[0]));
    let_others_block();
    GET(send(ends[1], "abc", 3, 0));
    sleep_ms(50);
    GET(send(ends[1], "de", 2, MSG_OOB)); /* the last byte is urgent */
    GET(send(ends[1], "fghijk", 6, 0));
    IS((long)join(receiver), 4);
}

CASE(passed_descriptors_end_a_receive_of_all)
{
    int ends[2];
    char control[CMSG_SPACE(sizeof(int))] = "";
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t receiver = start(receive_all, number(ends[0]));
    struct iovec piece = {"abc", 3};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    let_others_block();
    GET(sendmsg(ends[1], &message, 0));
    GET(write(ends[1], "defgh", 5));
    IS((long)join(receiver), 3);
}
