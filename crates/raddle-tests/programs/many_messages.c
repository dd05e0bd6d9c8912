/* recvmmsg and sendmmsg wait for each message, and tell of errors when no message is lost by that;
 * and datagrams to a receiver without room. */
#include "net.h"

#include <sys/un.h>

enum { MANY = 64 };

static int ends[2];
static char data[MANY][8];
static struct iovec pieces[MANY];
static struct mmsghdr messages[MANY];

/* Room for messages of at most 8 bytes. */
static struct mmsghdr *room(void)
{
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < MANY; i++) {
        pieces[i] = (struct iovec){data[i], sizeof data[i]};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &pieces[i], .msg_iovlen = 1};
    }
    return messages;
}

static void *send_one_later(void *unused)
{
    sleep_ms(300);
    GET(send(ends[1], "later", 5, 0));
    return unused;
}

static void *send_each_later(void *unused)
{
    for (int i = 0; i < 3; i++) {
        send_one_later(unused);
    }
    return unused;
}

CASE(recvmmsg_waits_for_all)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    GET(send(ends[1], "first", 5, 0));
    int64_t started = now_ns();
    pthread_t sender = start(send_one_later, NULL);
    IS(recvmmsg(ends[0], room(), 2, 0, NULL), 2);
    check_took(started, 300);
    IS(messages[1].msg_len, 5);
    IS(memcmp(data[1], "later", 5), 0);
    join(sender);
}

CASE(each_message_has_the_sockets_limit)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    set_timeout(ends[0], SO_RCVTIMEO, 700);
    int64_t started = now_ns();
    pthread_t sender = start(send_each_later, NULL);
    IS(recvmmsg(ends[0], room(), 4, 0, NULL), 3);
    check_took(started, 900 + 700);
    join(sender);
    FAILS(recvmmsg(ends[0], room(), 4, 0, NULL), EAGAIN);
}

CASE(the_time_of_recvmmsg_is_looked_at_after_each_message)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    GET(send(ends[1], "first", 5, 0));
    struct timespec time = timespec_of(100 * MS);
    int64_t started = now_ns();
    pthread_t sender = start(send_one_later, NULL);
    IS(recvmmsg(ends[0], room(), 3, 0, &time), 2);
    check_took(started, 300);
    IS(time.tv_sec, 0);
    IS(time.tv_nsec, 0);
    join(sender);
    time = timespec_of(20 * SECOND);
    GET(send(ends[1], "first", 5, 0));
    sender = start(send_one_later, NULL);
    IS(recvmmsg(ends[0], room(), 2, 0, &time), 2);
    CHECK(time.tv_sec <= 19 && time.tv_sec > 5);
    join(sender);
}

CASE(recvmmsg_for_one_takes_what_is_there)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    pthread_t sender = start(send_one_later, NULL);
    IS(recvmmsg(ends[0], room(), 4, MSG_WAITFORONE, NULL), 1);
    join(sender);
    for (int i = 0; i < 3; i++) {
        GET(send(ends[1], "x", 1, 0));
    }
    IS(recvmmsg(ends[0], room(), 8, MSG_WAITFORONE, NULL), 3);
    FAILS(recvmmsg(ends[0], room(), 8, MSG_DONTWAIT, NULL), EAGAIN);
}

/* A UDP socket that is connected to a port without a receiver. */
static int udp_to_nobody(struct sockaddr_in *own)
{
    struct sockaddr_in nobody;
    socklen_t length = sizeof nobody;
    int other = GET(socket(AF_INET, SOCK_DGRAM, 0)), fd = GET(socket(AF_INET, SOCK_DGRAM, 0));
    memset(own, 0, sizeof *own);
    own->sin_family = AF_INET;
    own->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    GET(bind(other, (struct sockaddr *)own, sizeof *own));
    GET(getsockname(other, (struct sockaddr *)&nobody, &length));
    GET(bind(fd, (struct sockaddr *)own, sizeof *own));
    GET(getsockname(fd, (struct sockaddr *)own, &length));
    ends[1] = other;
    GET(connect(other, (struct sockaddr *)own, sizeof *own));
    GET(connect(fd, (struct sockaddr *)&nobody, sizeof nobody));
    return fd;
}

static void *be_refused_later(void *fd)
{
    sleep_ms(300);
    close(ends[1]);
    GET(send((long)fd, "x", 1, 0));
    return NULL;
}

CASE(an_error_after_a_message_is_the_next_calls)
{
    struct sockaddr_in own;
    int fd = udp_to_nobody(&own);
    GET(send(ends[1], "first", 5, 0));
    pthread_t sender = start(be_refused_later, number(fd));
    IS(recvmmsg(fd, room(), 3, 0, NULL), 1);
    join(sender);
    FAILS(recv(fd, data, sizeof data, MSG_DONTWAIT), ECONNREFUSED);
    FAILS(recv(fd, data, sizeof data, MSG_DONTWAIT), EAGAIN);
}

CASE(an_error_before_a_message_is_told)
{
    struct sockaddr_in own;
    int fd = udp_to_nobody(&own);
    pthread_t sender = start(be_refused_later, number(fd));
    FAILS(recvmmsg(fd, room(), 3, 0, NULL), ECONNREFUSED);
    join(sender);
}

static void handled(int number)
{
    (void)number;
}

static void *interrupt_later(void *thread)
{
    sleep_ms(300);
    OK(pthread_kill(*(pthread_t *)thread, SIGUSR1));
    return NULL;
}

CASE(a_handler_ends_recvmmsg_after_a_message)
{
    pthread_t self = pthread_self();
    for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
        struct sigaction action = {.sa_handler = handled, .sa_flags = flags};
        GET(sigaction(SIGUSR1, &action, NULL));
        GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
        GET(send(ends[1], "first", 5, 0));
        pthread_t other = start(interrupt_later, &self);
        IS(recvmmsg(ends[0], room(), 3, 0, NULL), 1);
        join(other);
    }
}

/* Receives all messages, late and slowly. */
static void *take_late(void *fd)
{
    long count = 0;
    char byte[16];
    sleep_ms(600);
    while (recv((long)fd, byte, sizeof byte, 0) > 0) {
        count++;
        if (count % 16 == 0) {
            sleep_ms(1);
        }
    }
    return number(count);
}

static void fill(int fd)
{
    while (send(fd, "x", 1, MSG_DONTWAIT) > 0) {
    }
}

CASE(sendmmsg_waits_for_room_for_all)
{
    int types[] = {SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 2; i++) {
        GET(socketpair(AF_UNIX, types[i], 0, ends));
        fill(ends[0]);
        pthread_t receiver = start(take_late, number(ends[1]));
        IS(sendmmsg(ends[0], room(), MANY, 0), MANY);
        IS(messages[MANY - 1].msg_len, 8);
        GET(send(ends[0], "", 0, 0));
        join(receiver);
    }
}

static void *count_bytes(void *fd)
{
    static char page[65536];
    long count = 0;
    ssize_t got;
    sleep_ms(200);
    while ((got = GET(recv((long)fd, page, sizeof page, 0))) > 0) {
        count += got;
    }
    return number(count);
}

CASE(sendmmsg_completes_each_message_of_a_stream)
{
    enum { LARGE = 4 << 20, COUNT = 3 };
    static char large[LARGE];
    struct iovec piece = {large, LARGE};
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t receiver = start(count_bytes, number(ends[1]));
    room();
    for (int i = 0; i < COUNT; i++) {
        messages[i].msg_hdr.msg_iov = &piece;
    }
    IS(sendmmsg(ends[0], messages, COUNT, 0), COUNT);
    IS(messages[COUNT - 1].msg_len, LARGE);
    GET(shutdown(ends[0], SHUT_WR));
    IS((long)join(receiver), COUNT * LARGE);
}

CASE(sendmmsg_gives_how_many_went_out_before_a_bad_one)
{
    int types[] = {SOCK_DGRAM, SOCK_STREAM};
    for (int i = 0; i < 2; i++) {
        GET(socketpair(AF_UNIX, types[i], 0, ends));
        room()[2].msg_hdr.msg_iov = (struct iovec *)16;
        IS(sendmmsg(ends[0], messages, 4, 0), 2);
        FAILS(sendmmsg(ends[0], messages + 2, 2, 0), EFAULT);
    }
}

static void bind_name(int fd, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name->sun_path + 1, 40, "many-%d", getpid());
    GET(bind(fd, (struct sockaddr *)name, sizeof *name));
}

CASE(a_datagram_waits_for_room_at_its_receiver)
{
    struct sockaddr_un name;
    int receiver = GET(socket(AF_UNIX, SOCK_DGRAM, 0)), fd = GET(socket(AF_UNIX, SOCK_DGRAM, 0));
    bind_name(receiver, &name);
    int filler = GET(socket(AF_UNIX, SOCK_DGRAM, 0));
    while (sendto(filler, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&name, sizeof name) > 0) {
    }
    pthread_t taker = start(take_late, number(receiver));
    int64_t started = now_ns(), used = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    IS(sendto(fd, "x", 1, 0, (struct sockaddr *)&name, sizeof name), 1);
    check_took(started, 300);
    CHECK(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - used < 150 * MS); /* a waiting thread doesn't poll */
    for (int i = 1; i < 1000; i++) {
        IS(sendto(fd, "x", 1, 0, (struct sockaddr *)&name, sizeof name), 1);
    }
    GET(sendto(fd, "", 0, 0, (struct sockaddr *)&name, sizeof name));
    CHECK((long)join(taker) >= 1000);
}

static void *receive(void *fd)
{
    char byte;
    return number(recv((long)fd, &byte, 1, 0));
}

CASE(a_datagram_socket_that_is_shut_down_gives_0)
{
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
    pthread_t receiver = start(receive, number(ends[0]));
    let_others_block();
    GET(shutdown(ends[0], SHUT_RD));
    IS((long)join(receiver), 0);
    IS((long)join(start(receive, number(ends[0]))), 0);
    IS((long)join(start(receive, number(GET(dup(ends[0]))))), 0);
}
