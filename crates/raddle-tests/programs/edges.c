/* Events that a blocking read must notice although the last one emptied the socket: ends, urgent
 * data, other readers, other names of the same socket. */
#include "made_call.h"
#include "net.h"

#include <poll.h>
#include <sched.h>

static int pair[2];

static void tcp_pair(void)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4);
    pair[0] = connect_to(&address);
    pair[1] = GET(accept(listener, NULL, NULL));
    close(listener);
    int one = 1;
    for (int i = 0; i < 2; i++) {
        GET(setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    }
}

/* Reads until the end, with a buffer that nothing fills; gives the number of bytes. */
static void *count_bytes(void *fd)
{
    char data[4096];
    long total = 0, count;
    while ((count = GET(read((int)(long)fd, data, sizeof data))) > 0) {
        total += count;
    }
    return number(total);
}

CASE(an_end_that_came_with_the_data_is_read)
{
    for (int i = 0; i < 50; i++) {
        tcp_pair();
        pthread_t reader = start(count_bytes, number(pair[1]));
        if (i % 2) {
            sleep_ms(1);
        }
        GET(send(pair[0], "a", 1, 0));
        sched_yield();
        GET(send(pair[0], "bc", 2, 0));
        GET(shutdown(pair[0], SHUT_WR));
        IS(join(reader), 3);
        close(pair[0]);
        close(pair[1]);
    }
}

CASE(an_end_that_came_after_a_short_read_is_read)
{
    char data[100];
    tcp_pair();
    GET(send(pair[0], "abc", 3, 0));
    IS(read(pair[1], data, sizeof data), 3);
    pthread_t reader = start(count_bytes, number(pair[1]));
    let_others_block();
    close(pair[0]);
    IS(join(reader), 0);
}

CASE(data_behind_urgent_data_is_read)
{
    for (int i = 0; i < 20; i++) {
        tcp_pair();
        pthread_t reader = start(count_bytes, number(pair[1]));
        let_others_block();
        GET(send(pair[0], "abc", 3, 0));
        GET(send(pair[0], "!", 1, MSG_OOB));
        GET(send(pair[0], "def", 3, 0));
        sleep_ms(i % 3);
        GET(send(pair[0], "ghi", 3, 0));
        GET(shutdown(pair[0], SHUT_WR));
        IS(join(reader), 9);
        close(pair[0]);
        close(pair[1]);
    }
}

static void *read_two_letters(void *fd)
{
    char data[100];
    IS(read((int)(long)fd, data, sizeof data), 3);
    IS(read((int)(long)fd, data, sizeof data), 3);
    IS(memcmp(data, "def", 3), 0);
    return NULL;
}

CASE(a_read_that_ends_at_passed_descriptors_leaves_the_rest)
{
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t reader = start(read_two_letters, number(pair[1]));
    let_others_block();
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {"abc", 3};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pair[0], sizeof(int));
    IS(sendmsg(pair[0], &message, 0), 3);
    IS(send(pair[0], "def", 3, 0), 3);
    join(reader);
}

static void answer_all(int fd)
{
    char data[64];
    long count;
    while ((count = GET(read(fd, data, sizeof data))) > 0) {
        write_all(fd, data, count);
    }
}

static void *ask_often(void *fd)
{
    for (int i = 0; i < 5000; i++) {
        char out[3] = {(char)i, 1, 2}, in[64];
        write_all((int)(long)fd, out, sizeof out);
        size_t got = 0;
        while (got < sizeof out) {
            got += GET(read((int)(long)fd, in + got, sizeof in - got));
        }
        IS(got, sizeof out);
        IS(memcmp(in, out, sizeof out), 0);
    }
    return NULL;
}

CASE(answers_that_come_between_a_short_read_and_the_wait_are_seen)
{
    pthread_t threads[4];
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        tcp_pair();
        children[i] = GET(fork());
        if (children[i] == 0) {
            close(pair[0]);
            answer_all(pair[1]);
            _exit(0);
        }
        close(pair[1]);
        GET(fcntl(pair[0], F_SETFD, FD_CLOEXEC));
        threads[i] = start(ask_often, number(pair[0]));
        join(threads[i]);
        GET(shutdown(pair[0], SHUT_WR));
    }
    for (int i = 0; i < 4; i++) {
        int status;
        IS(waitpid(children[i], &status, 0), children[i]);
        IS(status, 0);
    }
}

static void *sleeper(void *argument)
{
    sleep_ms(5);
    return argument;
}

CASE(a_time_limit_ends_a_read_after_a_short_one)
{
    char data[100];
    tcp_pair();
    set_timeout(pair[1], SO_RCVTIMEO, 40);
    pthread_t other = start(sleeper, NULL);
    for (int i = 0; i < 3; i++) {
        GET(send(pair[0], "abc", 3, 0));
        IS(read(pair[1], data, sizeof data), 3);
        int64_t started_ns = now_ns();
        FAILS(read(pair[1], data, sizeof data), EAGAIN);
        check_took(started_ns, 40);
    }
    set_timeout(pair[1], SO_RCVTIMEO, 0);
    join(other);
    pthread_t reader = start(count_bytes, number(pair[1]));
    sleep_ms(60);
    GET(send(pair[0], "abc", 3, 0));
    close(pair[0]);
    IS(join(reader), 3);
}

static void *set_nonblocking(void *fd)
{
    int flags = GET(fcntl((int)(long)fd, F_GETFL));
    GET(fcntl((int)(long)fd, F_SETFL, flags | O_NONBLOCK));
    return NULL;
}

CASE(a_mode_that_another_thread_sets_counts_for_the_next_read)
{
    char data[100];
    tcp_pair();
    pthread_t reader = start(count_bytes, number(pair[1]));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    let_others_block();
    join(start(set_nonblocking, number(GET(dup(pair[1])))));
    GET(shutdown(pair[0], SHUT_WR)); /* the read that waits already still waits */
    IS(join(reader), 3);
    tcp_pair();
    GET(send(pair[0], "abc", 3, 0));
    IS(read(pair[1], data, sizeof data), 3);
    join(start(set_nonblocking, number(GET(dup(pair[1])))));
    FAILS(read(pair[1], data, sizeof data), EAGAIN);
}

CASE(a_mode_that_another_process_sets_counts_too)
{
    char data[100];
    int status;
    tcp_pair();
    join(start(sleeper, NULL));
    GET(send(pair[0], "abc", 3, 0));
    IS(read(pair[1], data, sizeof data), 3);
    pid_t child = GET(fork());
    if (child == 0) {
        set_nonblocking(number(pair[1]));
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    FAILS(read(pair[1], data, sizeof data), EAGAIN);
}

static void *read_once(void *fd)
{
    char data[100];
    return number(GET(read((int)(long)fd, data, sizeof data)));
}

CASE(a_read_that_must_not_wait_gets_what_has_just_come)
{
    char data[100];
    tcp_pair();
    pthread_t reader = start(read_once, number(pair[1]));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    IS(join(reader), 3);
    set_nonblocking(number(pair[1]));
    for (int i = 0; i < 100; i++) {
        struct pollfd ask = {pair[1], POLLIN, 0};
        GET(send(pair[0], "abc", 3, 0));
        while (poll(&ask, 1, 0) == 0) {
        }
        IS(read(pair[1], data, sizeof data), 3);
        if (i % 2) {
            FAILS(read(pair[1], data, sizeof data), EAGAIN);
        }
    }
}

CASE(several_readers_of_one_socket_share_all_bytes_and_all_see_the_end)
{
    pthread_t readers[4];
    long total = 0;
    tcp_pair();
    for (int i = 0; i < 4; i++) {
        readers[i] = start(count_bytes, number(pair[1]));
    }
    for (int i = 0; i < 3000; i++) {
        GET(send(pair[0], "abcdefg", 7, 0));
        if (i % 100 == 0) {
            sleep_ms(1);
        }
    }
    GET(shutdown(pair[0], SHUT_WR));
    for (int i = 0; i < 4; i++) {
        total += (long)join(readers[i]);
    }
    IS(total, 21000);
}

CASE(duplicates_are_emptied_for_each_other)
{
    char data[100];
    tcp_pair();
    join(start(sleeper, NULL));
    int first = pair[1], second = GET(dup(first));
    for (int i = 0; i < 20; i++) {
        GET(send(pair[0], "abc", 3, 0));
        IS(read(i % 2 ? first : second, data, sizeof data), 3);
    }
    close(first);
    pthread_t reader = start(count_bytes, number(second));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    IS(GET(dup2(second, first)), first); /* the old number, the same socket */
    pthread_t other = start(count_bytes, number(first));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    GET(shutdown(pair[0], SHUT_WR));
    IS((long)join(reader) + (long)join(other), 6);
}

CASE(a_process_that_shares_the_socket_takes_what_it_reads)
{
    char data[100];
    int status;
    tcp_pair();
    pid_t child = GET(fork());
    if (child == 0) {
        for (int i = 0; i < 10; i++) {
            IS(GET(read(pair[1], data, 3)), 3);
        }
        _exit(0);
    }
    for (int i = 0; i < 10; i++) {
        GET(send(pair[0], "abc", 3, 0));
        sleep_ms(1);
    }
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    pthread_t reader = start(count_bytes, number(pair[1]));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    GET(shutdown(pair[0], SHUT_WR));
    IS(join(reader), 3);
}

CASE(a_read_waits_for_the_low_water_mark)
{
    char data[100];
    int mark = 6;
    tcp_pair();
    GET(setsockopt(pair[1], SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    pthread_t reader = start(count_bytes, number(pair[1]));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    let_others_block();
    struct pollfd ask = {pair[1], POLLIN, 0};
    IS(poll(&ask, 1, 0), 0);
    IS(recv(pair[1], data, sizeof data, MSG_DONTWAIT | MSG_PEEK), 3); /* they were not taken */
    GET(send(pair[0], "defg", 4, 0));
    GET(shutdown(pair[0], SHUT_WR));
    IS(join(reader), 7);
}

/* A system call that the runtime doesn't see. */
static long raw_close(long fd)
{
    return made_call(SYS_close, fd, 0, 0);
}

/* The number of a TCP socket that a thread has read from, closed without libc. */
static int closed_number(void)
{
    tcp_pair();
    int old = GET(fcntl(pair[1], F_DUPFD, 200));
    pthread_t reader = start(count_bytes, number(old));
    let_others_block();
    GET(send(pair[0], "abc", 3, 0));
    GET(shutdown(pair[0], SHUT_WR));
    IS(join(reader), 3);
    IS(raw_close(old), 0);
    close(pair[0]);
    close(pair[1]);
    return old;
}

/* Data written to `ends[1]` arrives at `ends[0]` under its other, old number. */
static void arrives(int old, const int *ends)
{
    IS(GET(fcntl(ends[0], F_DUPFD, old)), old);
    pthread_t reader = start(count_bytes, number(old));
    let_others_block();
    IS(GET(write(ends[1], "abcd", 4)), 4);
    close(ends[1]);
    IS(join(reader), 4);
    close(ends[0]);
    close(old);
}

CASE(a_number_closed_by_a_raw_system_call_is_another_socket)
{
    int ends[2], old = closed_number();
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    arrives(old, ends);
    old = closed_number();
    tcp_pair();
    arrives(old, pair);
}

CASE(a_number_closed_by_a_raw_system_call_is_a_pipe)
{
    int ends[2], old = closed_number();
    GET(pipe(ends));
    arrives(old, ends);
}
