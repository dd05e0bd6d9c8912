/* sendmsg and its family: flags, vectors, several messages at once, passed descriptors. */
#include "net.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/uio.h>

static int pair[2];

static void *send_in_pieces(void *argument)
{
    for (int i = 0; i < 10; i++) {
        IS(send(pair[1], "0123456789", 10, 0), 10);
        sleep_ms(3);
    }
    return argument;
}

CASE(msg_waitall_waits_for_everything)
{
    char data[100];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t thread = start(send_in_pieces, NULL);
    IS(recv(pair[0], data, 100, MSG_WAITALL), 100);
    IS(memcmp(data + 90, "0123456789", 10), 0);
    join(thread);
}

static void *send_half_and_close(void *argument)
{
    IS(send(pair[1], "half", 4, 0), 4);
    sleep_ms(10);
    close(pair[1]);
    return argument;
}

CASE(msg_waitall_gives_what_came_before_the_end)
{
    char data[100];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t thread = start(send_half_and_close, NULL);
    IS(recv(pair[0], data, 100, MSG_WAITALL), 4);
    join(thread);
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4);
    pair[0] = connect_to(&address);
    pair[1] = GET(accept(listener, NULL, NULL));
    thread = start(send_half_and_close, NULL);
    IS(recv(pair[0], data, 100, MSG_WAITALL), 4);
    join(thread);
}

static void *peek(void *data)
{
    return number(GET(recv(pair[0], data, 3, MSG_PEEK)));
}

CASE(msg_peek_waits_and_leaves_the_data)
{
    char data[10];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t thread = start(peek, data);
    let_others_block();
    IS(send(pair[1], "abcdef", 6, 0), 6);
    IS(join(thread), 3);
    IS(memcmp(data, "abc", 3), 0);
    IS(recv(pair[0], data, 10, 0), 6);
    FAILS(recv(pair[0], data, 10, MSG_PEEK | MSG_DONTWAIT), EAGAIN);
}

CASE(msg_nosignal_says_epipe)
{
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    close(pair[0]);
    FAILS(send(pair[1], "x", 1, MSG_NOSIGNAL), EPIPE);
}

static void *receive_vectors(void *argument)
{
    char a[3], b[20] = {0};
    struct iovec parts[2] = {{a, 3}, {b, sizeof b - 1}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    IS(recvmsg(pair[0], &message, 0), 11);
    IS(memcmp(a, "hel", 3), 0);
    IS(strcmp(b, "lo there"), 0);
    IS(message.msg_flags & MSG_TRUNC, 0);
    return argument;
}

CASE(sendmsg_gathers_and_recvmsg_scatters)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    pthread_t thread = start(receive_vectors, NULL);
    let_others_block();
    struct iovec parts[3] = {{"hello", 5}, {" ", 1}, {"there", 5}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    IS(sendmsg(pair[1], &message, 0), 11);
    join(thread);
}

CASE(a_truncated_datagram_is_told)
{
    char data[4];
    struct iovec part = {data, 4};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    IS(send(pair[1], "longer", 6, 0), 6);
    IS(recvmsg(pair[0], &message, 0), 4);
    IS(message.msg_flags & MSG_TRUNC, MSG_TRUNC);
    IS(send(pair[1], "longer", 6, 0), 6);
    IS(recv(pair[0], data, 4, MSG_TRUNC), 6);
}

union control {
    char space[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static void *receive_descriptor(void *argument)
{
    char byte;
    struct iovec part = {&byte, 1};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    IS(recvmsg(pair[0], &message, MSG_CMSG_CLOEXEC), 1);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    CHECK(header && header->cmsg_type == SCM_RIGHTS);
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    IS(read(fd, &byte, 1), 1);
    IS(byte, 'z');
    return argument;
}

CASE(descriptors_are_passed)
{
    int ends[2];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    GET(pipe(ends));
    pthread_t thread = start(receive_descriptor, NULL);
    let_others_block();
    struct iovec part = {"x", 1};
    union control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof control.space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    IS(sendmsg(pair[1], &message, 0), 1);
    let_others_block();
    IS(write(ends[1], "z", 1), 1);
    join(thread);
}

enum { BATCH = 8 };

static void *receive_many(void *flags)
{
    char data[BATCH][8];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){data[i], sizeof data[i]};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int count = 0;
    while (count < BATCH) {
        int got =
            (int)GET(recvmmsg(pair[0], messages + count, BATCH - count, (int)(long)flags, NULL));
        CHECK(got >= 1);
        count += got;
    }
    for (int i = 0; i < BATCH; i++) {
        IS(messages[i].msg_len, i % 8 + 1);
        IS(data[i][0], 'a' + i);
    }
    return NULL;
}

static void send_many(void)
{
    char data[BATCH][8];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH] = {0};
    for (int i = 0; i < BATCH; i++) {
        memset(data[i], 'a' + i, 8);
        parts[i] = (struct iovec){data[i], i % 8 + 1};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    for (int count = 0; count < BATCH;) {
        count += (int)GET(sendmmsg(pair[1], messages + count, BATCH - count, 0));
    }
}

CASE(several_messages_at_once)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    pthread_t thread = start(receive_many, number(MSG_WAITFORONE));
    let_others_block();
    send_many();
    join(thread);
    thread = start(receive_many, number(0));
    let_others_block();
    send_many();
    join(thread);
}

CASE(recvmmsg_ends_with_its_time_limit_between_messages)
{
    char byte;
    struct iovec part = {&byte, 1};
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                                  {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    IS(send(pair[1], "x", 1, 0), 1);
    /* The limit is looked at after each message only; one that is over stops the call there. */
    struct timespec none = {0, 0};
    IS(recvmmsg(pair[0], messages, 2, 0, &none), 1);
}

CASE(sequenced_packets_keep_their_boundaries)
{
    char data[100];
    GET(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    pthread_t thread = start(send_in_pieces, NULL);
    for (int i = 0; i < 10; i++) {
        IS(recv(pair[0], data, sizeof data, 0), 10);
    }
    join(thread);
    close(pair[1]);
    IS(recv(pair[0], data, sizeof data, 0), 0);
}

static void *drain(void *expected)
{
    static char data[10000];
    long total = 0, count;
    while ((count = GET(recv(pair[0], data, sizeof data, 0))) > 0) {
        for (long i = 0; i < count; i++) {
            IS(data[i], (char)((total + i) % 251));
        }
        total += count;
    }
    IS(total, expected);
    return NULL;
}

CASE(sendfile_sends_more_than_a_socket_holds)
{
    enum { SIZE = 2 << 20 };
    char *data = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) {
        data[i] = (char)(i % 251);
    }
    int file = GET(open("sent", O_RDWR | O_CREAT | O_TRUNC, 0600));
    write_all(file, data, SIZE);
    free(data);
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t thread = start(drain, number(SIZE));
    off_t offset = 0;
    while (offset < SIZE) {
        CHECK(GET(sendfile(pair[1], file, &offset, SIZE - offset)) > 0);
    }
    close(pair[1]);
    join(thread);
    unlink("sent");
}

static long sleeps(void)
{
    struct rusage usage;
    GET(getrusage(RUSAGE_SELF, &usage));
    return usage.ru_nvcsw;
}

static _Thread_local int own_signals;

static void count_own(int signal)
{
    IS(signal, SIGPIPE);
    own_signals++;
}

/* Sends a file to a socket that isn't waited for, and reads what came. */
static void send_by_turns(int from, int to, int back)
{
    char sent[4096], got[4096];
    long before = 0;
    for (int i = 0; i < (int)sizeof sent; i++) {
        sent[i] = (char)(i % 251);
    }
    IS(pwrite(from, sent, sizeof sent, 0), sizeof sent);
    for (int i = 0; i < 2100; i++) {
        off_t offset = 0;
        if (i == 100) {
            before = sleeps();
        }
        IS(sendfile(to, from, &offset, sizeof sent), sizeof sent);
        IS(offset, sizeof sent);
        IS(recv(back, got, sizeof got, MSG_WAITALL), sizeof got);
        IS(memcmp(sent, got, sizeof got), 0);
    }
    CHECK(sleeps() - before < 1000);
}

static void *send_without_waiting(void *argument)
{
    int ends[2];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    GET(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    int kept = GET(open("sent", O_RDWR | O_CREAT | O_TRUNC, 0600));
    int in_memory = GET(memfd_create("sent", MFD_CLOEXEC));
    send_by_turns(kept, ends[0], ends[1]);
    send_by_turns(in_memory, ends[0], ends[1]);
    off_t offset = 0;
    while (sendfile(ends[0], kept, &offset, 4096) > 0) {
        offset = 0;
    }
    IS(errno, EAGAIN);
    close(ends[1]);
    FAILS(sendfile(ends[0], kept, &offset, 1), EPIPE);
    IS(own_signals, 1);
    close(ends[0]);
    close(kept);
    close(in_memory);
    return argument;
}

CASE(sendfile_to_what_is_not_waited_for_is_made_at_once)
{
    struct sigaction action = {.sa_handler = count_own};
    GET(sigaction(SIGPIPE, &action, NULL));
    join(start(send_without_waiting, NULL));
    unlink("sent");
}

static void *carry_without_waiting(void *argument)
{
    int a[2], b[2], ends[2];
    char byte = 'x';
    struct iovec vector = {&byte, 1};
    GET(pipe(a));
    GET(pipe(b));
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    GET(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    FAILS(splice(a[0], NULL, b[1], NULL, 10, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(splice(ends[0], NULL, b[1], NULL, 10, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(tee(a[0], b[1], 10, SPLICE_F_NONBLOCK), EAGAIN);
    IS(vmsplice(a[1], &vector, 1, SPLICE_F_NONBLOCK), 1);
    IS(tee(a[0], b[1], 10, SPLICE_F_NONBLOCK), 1);
    IS(splice(a[0], NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK), 1);
    IS(splice(b[0], NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK), 1);
    IS(send(ends[1], "yz", 2, 0), 2);
    IS(splice(ends[0], NULL, a[1], NULL, 10, SPLICE_F_NONBLOCK), 2);
    char got[2];
    IS(recv(ends[1], got, 2, MSG_WAITALL), 2);
    IS(memcmp(got, "xx", 2), 0);
    IS(read(a[0], got, 2), 2);
    IS(memcmp(got, "yz", 2), 0);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
        close(ends[i]);
    }
    return argument;
}

CASE(splice_says_that_it_would_wait)
{
    join(start(carry_without_waiting, NULL));
}

static void *splice_through(void *ends)
{
    int *fds = ends;
    long total = 0, count;
    while ((count = GET(splice(fds[0], NULL, fds[3], NULL, 65536, 0))) > 0) {
        total += count;
    }
    close(fds[3]);
    return number(total);
}

CASE(splice_waits_for_data)
{
    int fds[4];
    GET(pipe(fds));
    GET(pipe(fds + 2));
    pthread_t thread = start(splice_through, fds);
    for (int i = 0; i < 100; i++) {
        char byte = (char)i, back;
        write_all(fds[1], &byte, 1);
        IS(read(fds[2], &back, 1), 1);
        IS(back, byte);
    }
    close(fds[1]);
    IS(join(thread), 100);
}
