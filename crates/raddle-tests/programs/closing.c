/* Numbers that are closed while a thread waits on them: its call keeps the file. */
#include "check.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>

static int ends[2];
static atomic_int about_to_wait;

static void *read_one(void *expected)
{
    char got = 0;
    about_to_wait++;
    IS(read(ends[0], &got, 1), 1);
    IS(got, (long)expected);
    return NULL;
}

/* Threads that all wait in `run`. */
static void start_waiting(pthread_t *threads, int count, thread_function run, void *argument)
{
    about_to_wait = 0;
    for (int i = 0; i < count; i++) {
        threads[i] = start(run, argument);
    }
    while (about_to_wait < count) {
        sleep_ms(1);
    }
    let_others_block();
}

CASE(a_reader_outlives_its_number)
{
    pthread_t threads[3];
    GET(pipe(ends));
    start_waiting(threads, 3, read_one, number('x'));
    GET(close(ends[0]));
    let_others_block();
    IS(write(ends[1], "xxx", 3), 3);
    join_all(threads, 3);
    signal(SIGPIPE, SIG_IGN);
    FAILS(write(ends[1], "x", 1), EPIPE);
}

CASE(the_number_can_be_another_file_meanwhile)
{
    int others[2];
    char got;
    pthread_t thread;
    GET(pipe(ends));
    start_waiting(&thread, 1, read_one, number('x'));
    GET(pipe(others));
    IS(dup2(others[0], ends[0]), ends[0]);
    IS(write(others[1], "y", 1), 1);
    let_others_block();
    IS(write(ends[1], "x", 1), 1);
    join(thread);
    IS(read(ends[0], &got, 1), 1);
    IS(got, 'y');
}

static void *receive_the_end(void *unused)
{
    char data[10];
    about_to_wait++;
    IS(recv(ends[0], data, sizeof data, 0), 0);
    return unused;
}

CASE(shutdown_of_a_duplicate_wakes_who_waits_by_a_closed_number)
{
    pthread_t threads[2];
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    int copy = GET(dup(ends[0]));
    start_waiting(threads, 2, receive_the_end, NULL);
    GET(close(ends[0]));
    let_others_block();
    GET(shutdown(copy, SHUT_RD));
    join_all(threads, 2);
}

static void *receive_message(void *unused)
{
    char data[10];
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    about_to_wait++;
    IS(recvmsg(ends[0], &message, 0), 4);
    CHECK(memcmp(data, "text", 4) == 0);
    return unused;
}

CASE(a_peer_sees_the_end_when_the_last_reader_has_left)
{
    char data[10];
    pthread_t thread;
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    start_waiting(&thread, 1, receive_message, NULL);
    GET(close(ends[0]));
    let_others_block();
    FAILS(recv(ends[1], data, 1, MSG_DONTWAIT), EAGAIN);
    IS(write(ends[1], "text", 4), 4);
    join(thread);
    IS(read(ends[1], data, sizeof data), 0);
}

static void *write_until_read(void *unused)
{
    static char large[1 << 20];
    about_to_wait++;
    CHECK(write(ends[1], large, 60000) == 60000);
    return unused;
}

CASE(a_writer_outlives_its_number)
{
    static char data[1 << 16];
    pthread_t thread;
    GET(pipe(ends));
    GET(fcntl(ends[1], F_SETPIPE_SZ, 65536));
    IS(write(ends[1], data, 65536), 65536);
    start_waiting(&thread, 1, write_until_read, NULL);
    GET(close(ends[1]));
    long total = 0, count;
    while ((count = GET(read(ends[0], data, sizeof data))) > 0) {
        total += count;
    }
    IS(total, 65536 + 60000);
    join(thread);
}

static void *accept_one(void *listener)
{
    about_to_wait++;
    int fd = GET(accept(*(int *)listener, NULL, NULL));
    IS(write(fd, "x", 1), 1);
    close(fd);
    return NULL;
}

CASE(an_accept_outlives_its_number)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    socklen_t size = sizeof name;
    pthread_t thread;
    char got;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = GET(socket(AF_INET, SOCK_STREAM, 0));
    GET(bind(listener, (void *)&name, size));
    GET(listen(listener, 5));
    GET(getsockname(listener, (void *)&name, &size));
    start_waiting(&thread, 1, accept_one, &listener);
    GET(close(listener));
    let_others_block();
    int client = GET(socket(AF_INET, SOCK_STREAM, 0));
    GET(connect(client, (void *)&name, size));
    IS(read(client, &got, 1), 1);
    join(thread);
}

static void ignore(int signal)
{
    (void)signal;
}

static void *read_until_interrupted(void *unused)
{
    char got;
    about_to_wait++;
    FAILS(read(ends[0], &got, 1), EINTR);
    FAILS(read(ends[0], &got, 1), EBADF);
    return unused;
}

CASE(a_signal_ends_a_wait_by_a_closed_number)
{
    pthread_t thread;
    struct sigaction action = {.sa_handler = ignore};
    GET(sigaction(SIGUSR1, &action, NULL));
    GET(pipe(ends));
    start_waiting(&thread, 1, read_until_interrupted, NULL);
    GET(close(ends[0]));
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

static int free_numbers(void)
{
    int count = 0;
    for (int fd = 0; fd < 1000; fd++) {
        count += fcntl(fd, F_GETFD) == -1;
    }
    return count;
}

static void close_from(int lowest)
{
    struct rlimit limit;
    GET(getrlimit(RLIMIT_NOFILE, &limit));
    for (int fd = lowest; fd < (int)limit.rlim_cur; fd++) {
        close(fd);
    }
}

static void *sleep_a_while(void *unused)
{
    about_to_wait++;
    sleep_ms(100);
    return unused;
}

CASE(closing_all_numbers_leaves_threads_and_new_files_alone)
{
    pthread_t threads[10];
    struct rlimit limit = {2000, 2000};
    GET(setrlimit(RLIMIT_NOFILE, &limit));
    for (int round = 0; round < 3; round++) {
        start_waiting(threads, 10, sleep_a_while, NULL);
        close_from(3);
        GET(pipe(ends));
        join_all(threads, 10);
        start_waiting(threads, 5, read_one, number('z'));
        IS(write(ends[1], "zzzzz", 5), 5);
        join_all(threads, 5);
    }
    close_from(3);
    IS(free_numbers(), 997);
}

/* On one CPU, where no other thread of the process runs by itself. */
CASE(what_is_closed_right_after_the_first_thread_began_is_closed)
{
    cpu_set_t cpus, one;
    GET(sched_getaffinity(0, sizeof cpus, &cpus));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &cpus)) {
            CPU_SET(cpu, &one);
        }
    }
    GET(sched_setaffinity(0, sizeof one, &one));
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            char byte;
            GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
            pthread_t thread = start(sleep_a_while, NULL);
            close(ends[1]);
            IS(recv(ends[0], &byte, 1, MSG_DONTWAIT), 0);
            join(thread);
            _exit(0);
        }
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}

static void pass(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0}, byte = 'p';
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    IS(sendmsg(socket, &message, 0), 1);
}

static int sockets[2];

static void *read_by_a_passed_number(void *unused)
{
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
        .msg_controllen = sizeof control};
    IS(recvmsg(sockets[0], &message, 0), 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    about_to_wait++;
    IS(read(fd, &byte, 1), 1);
    IS(byte, 'q');
    close(fd);
    return unused;
}

CASE(a_passed_number_is_waited_for_while_the_first_is_closed)
{
    pthread_t thread;
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    for (int i = 0; i < 50; i++) {
        GET(pipe(ends));
        pass(sockets[1], ends[0]);
        start_waiting(&thread, 1, read_by_a_passed_number, NULL);
        GET(close(ends[0]));
        IS(write(ends[1], "q", 1), 1);
        join(thread);
        close(ends[1]);
    }
}
