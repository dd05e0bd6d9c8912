/* Time limits of sockets: SO_RCVTIMEO and SO_SNDTIMEO, by whatever descriptor of whatever process
 * they were set, and whichever call waits. */
#include "net.h"

#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/un.h>

enum { LIMIT = 150, OTHER = 400, BIG = 8 << 20 };

static char big[BIG];

static void *nothing(void *unused)
{
    return unused;
}

/* From here on threads are green. */
static void be_threaded(void)
{
    join(start(nothing, NULL));
}

static void unix_pair(int *ends)
{
    be_threaded();
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
}

/* A read of `fd` ends after `ms` milliseconds. */
static void read_lasts(int fd, int ms)
{
    char byte;
    int64_t started = now_ns();
    FAILS(read(fd, &byte, 1), EAGAIN);
    check_took(started, ms);
    CHECK(now_ns() - started < (ms + 200) * MS || ms == LIMIT);
}

static void handled(int number)
{
    (void)number;
}

static void handle(int flags)
{
    struct sigaction action = {.sa_handler = handled, .sa_flags = flags};
    GET(sigaction(SIGUSR1, &action, NULL));
}

/* Sends SIGUSR1 after a while. */
static void *interrupt_later(void *thread)
{
    sleep_ms(OTHER);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return NULL;
}

/* A read of `fd` lasts until a signal comes: there is no limit. */
static void read_has_no_limit(int fd)
{
    char byte;
    pthread_t self = pthread_self();
    handle(0);
    pthread_t other = start(interrupt_later, &self);
    FAILS(read(fd, &byte, 1), EINTR);
    join(other);
}

CASE(an_accepted_socket_has_its_listeners_limit)
{
    struct sockaddr_in address;
    be_threaded();
    int listener = listen_anywhere(&address, 4);
    set_timeout(listener, SO_RCVTIMEO, LIMIT);
    int client = connect_to(&address), server = GET(accept(listener, NULL, NULL));
    read_lasts(server, LIMIT);
    char data[8];
    struct iovec piece = {data, sizeof data};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    FAILS(recv(server, data, sizeof data, 0), EAGAIN);
    FAILS(recv(server, data, sizeof data, MSG_WAITALL), EAGAIN);
    FAILS(readv(server, &piece, 1), EAGAIN);
    FAILS(recvmsg(server, &message, 0), EAGAIN);
    FAILS(recvmsg(server, &message, MSG_WAITALL), EAGAIN);
    read_has_no_limit(client);
}

CASE(a_limit_that_is_set_after_a_connection_came_is_not_the_connections)
{
    struct sockaddr_in address;
    be_threaded();
    int listener = listen_anywhere(&address, 4);
    connect_to(&address);
    set_timeout(listener, SO_RCVTIMEO, LIMIT);
    read_has_no_limit(GET(accept(listener, NULL, NULL)));
    connect_to(&address);
    set_timeout(listener, SO_RCVTIMEO, 0);
    read_lasts(GET(accept(listener, NULL, NULL)), LIMIT);
}

CASE(duplicates_share_a_limit)
{
    int ends[2];
    unix_pair(ends);
    read_has_no_limit(ends[0]);
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    read_lasts(ends[0], LIMIT);
    read_lasts(GET(dup(ends[0])), LIMIT);
    read_lasts(GET(dup2(ends[0], 100)), LIMIT);
    read_lasts(GET(dup3(ends[0], 101, O_CLOEXEC)), LIMIT);
    read_lasts(GET(fcntl(ends[0], F_DUPFD, 110)), LIMIT);
    set_timeout(101, SO_RCVTIMEO, OTHER);
    read_lasts(ends[0], OTHER);
    set_timeout(110, SO_RCVTIMEO, 0);
    read_has_no_limit(ends[0]);
}

CASE(a_passed_socket_has_its_limit)
{
    int ends[2], carriers[2], passed;
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = "";
    unix_pair(ends);
    GET(socketpair(AF_UNIX, SOCK_DGRAM, 0, carriers));
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &ends[0], sizeof(int));
    GET(sendmsg(carriers[0], &message, 0));
    GET(recvmsg(carriers[1], &message, 0));
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
    read_lasts(passed, LIMIT);
}

static void wait_for(pid_t child)
{
    int status;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
}

CASE(a_forked_child_has_the_limit)
{
    int ends[2];
    unix_pair(ends);
    read_has_no_limit(ends[0]);
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    pid_t child = GET(fork());
    if (child == 0) {
        be_threaded();
        read_lasts(ends[0], LIMIT);
        _exit(0);
    }
    wait_for(child);
}

CASE(the_limit_outlasts_execve)
{
    int ends[2];
    if (argument_count > 2) {
        be_threaded();
        read_lasts(atoi(arguments[2]), LIMIT);
        return;
    }
    unix_pair(ends);
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    char number[12];
    snprintf(number, sizeof number, "%d", ends[0]);
    fflush(stdout);
    pid_t child = GET(fork());
    if (child == 0) {
        GET(dup2(2, 1)); /* its last line is not ours */
        execl("/proc/self/exe", arguments[0], arguments[1], number, NULL);
        _exit(1);
    }
    wait_for(child);
}

/* In a process of its own. */
static void set_elsewhere(int fd, int option, int ms)
{
    pid_t child = GET(fork());
    if (child == 0) {
        set_timeout(fd, option, ms);
        _exit(0);
    }
    wait_for(child);
}

CASE(another_process_changes_a_limit)
{
    int ends[2];
    unix_pair(ends);
    read_has_no_limit(ends[0]);
    set_elsewhere(ends[0], SO_RCVTIMEO, OTHER);
    read_lasts(ends[0], OTHER);
    set_elsewhere(ends[0], SO_RCVTIMEO, LIMIT);
    read_lasts(ends[0], LIMIT);
    set_elsewhere(ends[0], SO_RCVTIMEO, 0);
    read_has_no_limit(ends[0]);
}

static void *read_byte(void *fd)
{
    char byte;
    int64_t started = now_ns();
    ssize_t got = read((long)fd, &byte, 1);
    return number(got == -1 && errno == EAGAIN ? (now_ns() - started) / MS : -got);
}

CASE(a_wait_under_way_keeps_its_limit)
{
    int ends[2];
    unix_pair(ends);
    set_timeout(ends[0], SO_RCVTIMEO, OTHER);
    pthread_t reader = start(read_byte, number(ends[0]));
    let_others_block();
    set_timeout(ends[0], SO_RCVTIMEO, 5000);
    long ms = (long)join(reader);
    CHECK(ms >= OTHER && ms < 4000);
    set_timeout(ends[0], SO_RCVTIMEO, 0);
    reader = start(read_byte, number(ends[0]));
    let_others_block();
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    sleep_ms(2 * LIMIT);
    GET(write(ends[1], "x", 1));
    IS((long)join(reader), -1);
}

CASE(a_number_has_no_limit_of_the_socket_before)
{
    int ends[2];
    unix_pair(ends);
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    read_lasts(ends[0], LIMIT);
    int old = ends[0];
    close(old);
    close(ends[1]);
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    IS(ends[0], old);
    read_has_no_limit(ends[0]);
}

CASE(a_negative_limit_is_none_to_wait_for)
{
    int ends[2];
    char byte;
    struct timeval limit = {-1, 0};
    unix_pair(ends);
    GET(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    FAILS(read(ends[0], &byte, 1), EAGAIN);
    FAILS(read(GET(dup(ends[0])), &byte, 1), EAGAIN);
    read_has_no_limit(ends[1]);
}

/* How many bytes go out until a limit ends a call, and after what time; then none do. */
static void check_sends(int fd, int ms)
{
    int64_t started = now_ns();
    ssize_t sent = GET(send(fd, big, BIG, 0));
    check_took(started, ms);
    CHECK(sent > 0 && sent < BIG);
    for (int tries = 0; tries < 5; tries++) { /* a buffer may grow */
        sleep_ms(20);
        while (send(fd, big, BIG, MSG_DONTWAIT) > 0) {
        }
    }
    started = now_ns();
    struct iovec pieces[2] = {{big, 10}, {big, BIG / 2}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    FAILS(write(fd, big, BIG), EAGAIN);
    FAILS(send(fd, big, BIG, 0), EAGAIN);
    FAILS(writev(fd, pieces, 2), EAGAIN);
    FAILS(sendmsg(fd, &message, 0), EAGAIN);
    FAILS(sendmmsg(fd, messages, 2, 0), EAGAIN);
    check_took(started, 5 * ms);
}

CASE(sends_have_a_limit)
{
    int ends[2];
    struct sockaddr_in address;
    unix_pair(ends);
    set_timeout(ends[0], SO_SNDTIMEO, LIMIT);
    check_sends(GET(dup(ends[0])), LIMIT);
    int listener = listen_anywhere(&address, 4);
    set_timeout(listener, SO_SNDTIMEO, LIMIT);
    connect_to(&address);
    check_sends(GET(accept(listener, NULL, NULL)), LIMIT);
}

CASE(files_and_pipes_are_sent_within_a_limit)
{
    int ends[2], pipe_ends[2];
    char path[] = "limits-XXXXXX";
    int file = GET(mkstemp(path));
    GET(unlink(path));
    GET(write(file, big, BIG));
    unix_pair(ends);
    GET(pipe(pipe_ends));
    GET(write(pipe_ends[1], big, 10));
    set_timeout(ends[0], SO_SNDTIMEO, LIMIT);
    off_t at = 0;
    ssize_t sent = GET(sendfile(ends[0], file, &at, BIG));
    CHECK(sent > 0 && sent < BIG);
    FAILS(sendfile(ends[0], file, &at, BIG), EAGAIN);
    FAILS(splice(pipe_ends[0], NULL, ends[0], NULL, 10, 0), EAGAIN);
    set_timeout(ends[1], SO_RCVTIMEO, LIMIT);
    while (recv(ends[1], big, BIG, MSG_DONTWAIT) > 0) {
    }
    FAILS(splice(ends[1], NULL, pipe_ends[1], NULL, 10, 0), EAGAIN);
}

CASE(connections_have_a_limit)
{
    struct sockaddr_in address;
    be_threaded();
    int listener = listen_anywhere(&address, 0);
    set_timeout(listener, SO_RCVTIMEO, LIMIT);
    connect_to(&address);
    int client = GET(socket(AF_INET, SOCK_STREAM, 0));
    set_timeout(client, SO_SNDTIMEO, LIMIT);
    int64_t started = now_ns();
    FAILS(connect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    check_took(started, LIMIT);
    FAILS(connect(client, (struct sockaddr *)&address, sizeof address), EALREADY);
    check_took(started, 2 * LIMIT);
    close(client);
    GET(accept(listener, NULL, NULL));
    started = now_ns();
    FAILS(accept(GET(dup(listener)), NULL, NULL), EAGAIN);
    check_took(started, LIMIT);
}

CASE(a_connection_by_name_has_a_limit)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    be_threaded();
    snprintf(name.sun_path + 1, 40, "limits-%d", getpid());
    int listener = GET(socket(AF_UNIX, SOCK_STREAM, 0));
    GET(bind(listener, (struct sockaddr *)&name, sizeof name));
    GET(listen(listener, 0));
    int clients[2];
    for (int i = 0; i < 2; i++) {
        clients[i] = GET(socket(AF_UNIX, SOCK_STREAM, 0));
        set_timeout(clients[i], SO_SNDTIMEO, LIMIT);
    }
    GET(connect(clients[0], (struct sockaddr *)&name, sizeof name));
    int64_t started = now_ns();
    FAILS(connect(clients[1], (struct sockaddr *)&name, sizeof name), EAGAIN);
    check_took(started, LIMIT);
}

CASE(what_came_before_the_end_of_the_limit_is_given)
{
    int ends[2];
    char data[8];
    unix_pair(ends);
    set_timeout(ends[0], SO_RCVTIMEO, LIMIT);
    GET(write(ends[1], "abc", 3));
    int64_t started = now_ns();
    IS(recv(ends[0], data, sizeof data, MSG_WAITALL), 3);
    check_took(started, LIMIT);
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 4);
    int client = connect_to(&address), server = GET(accept(listener, NULL, NULL));
    set_timeout(server, SO_RCVTIMEO, LIMIT);
    GET(write(client, "abc", 3));
    started = now_ns();
    IS(recv(server, data, sizeof data, MSG_WAITALL), 3);
    check_took(started, LIMIT);
}

CASE(no_handler_restarts_a_call_with_a_limit)
{
    int ends[2];
    char byte;
    pthread_t self = pthread_self();
    unix_pair(ends);
    handle(SA_RESTART);
    set_timeout(ends[0], SO_RCVTIMEO, 20000);
    pthread_t other = start(interrupt_later, &self);
    FAILS(read(ends[0], &byte, 1), EINTR);
    join(other);
    other = start(interrupt_later, &self);
    FAILS(recv(ends[0], big, BIG, MSG_WAITALL), EINTR);
    join(other);
    set_timeout(ends[0], SO_RCVTIMEO, 0);
    other = start(interrupt_later, &self);
    pthread_t reader = start(read_byte, number(ends[0]));
    join(other);
    GET(write(ends[1], "x", 1));
    IS((long)join(reader), -1);
}
