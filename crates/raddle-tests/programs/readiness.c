/* poll, ppoll, select, pselect: time limits, several descriptors, ends, errors, signals. */
#include "net.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/select.h>

static int ends[10][2];

static void make_pipes(int count)
{
    for (int i = 0; i < count; i++) {
        GET(pipe(ends[i]));
    }
}

static void *write_to(void *which)
{
    sleep_ms(20);
    IS(write(ends[(long)which][1], "x", 1), 1);
    return NULL;
}

CASE(poll_times_out)
{
    make_pipes(1);
    struct pollfd fd = {ends[0][0], POLLIN, 0};
    int64_t started_ns = now_ns();
    IS(poll(&fd, 1, 50), 0);
    check_took(started_ns, 50);
    IS(fd.revents, 0);
    IS(poll(&fd, 1, 0), 0);
    started_ns = now_ns();
    IS(poll(NULL, 0, 30), 0);
    check_took(started_ns, 30);
}

CASE(poll_tells_which_of_ten_is_ready)
{
    struct pollfd fds[10];
    make_pipes(10);
    for (long ready = 0; ready < 10; ready++) {
        for (int i = 0; i < 10; i++) {
            fds[i] = (struct pollfd){ends[i][0], POLLIN, 0};
        }
        pthread_t thread = start(write_to, number(ready));
        IS(poll(fds, 10, 20000), 1);
        for (int i = 0; i < 10; i++) {
            IS(fds[i].revents, i == ready ? POLLIN : 0);
        }
        char byte;
        IS(read(ends[ready][0], &byte, 1), 1);
        join(thread);
    }
}

CASE(poll_ignores_negative_and_tells_bad_descriptors)
{
    make_pipes(1);
    struct pollfd fds[3] = {{-1, POLLIN, 7}, {9999, POLLIN, 0}, {ends[0][1], POLLOUT, 0}};
    IS(poll(fds, 3, -1), 2);
    IS(fds[0].revents, 0);
    IS(fds[1].revents, POLLNVAL);
    IS(fds[2].revents, POLLOUT);
    FAILS(syscall(SYS_poll, fds, 0x7fffffff, 0), EINVAL);
}

CASE(poll_tells_hang_up_and_error)
{
    make_pipes(2);
    close(ends[0][1]);
    struct pollfd fd = {ends[0][0], POLLIN, 0};
    IS(poll(&fd, 1, -1), 1);
    IS(fd.revents, POLLHUP);
    close(ends[1][0]);
    fd = (struct pollfd){ends[1][1], POLLOUT, 0};
    IS(poll(&fd, 1, -1), 1);
    IS(fd.revents, POLLOUT | POLLERR);
}

static void *close_later(void *which)
{
    sleep_ms(20);
    close(ends[(long)which][1]);
    return NULL;
}

CASE(poll_wakes_when_the_writer_goes)
{
    make_pipes(1);
    pthread_t thread = start(close_later, number(0));
    struct pollfd fd = {ends[0][0], POLLIN, 0};
    IS(poll(&fd, 1, 20000), 1);
    IS(fd.revents, POLLHUP);
    join(thread);
}

CASE(poll_of_plain_files_is_ready_at_once)
{
    struct pollfd fds[2] = {{GET(open("/dev/null", O_RDWR)), POLLIN | POLLOUT, 0},
                            {GET(open(".", O_RDONLY)), POLLIN, 0}};
    IS(poll(fds, 2, -1), 2);
    IS(fds[0].revents, POLLIN | POLLOUT);
    IS(fds[1].revents, POLLIN);
}

CASE(poll_for_writing_waits_for_room)
{
    static char data[1 << 16];
    make_pipes(1);
    GET(fcntl(ends[0][1], F_SETFL, O_NONBLOCK));
    while (write(ends[0][1], data, sizeof data) > 0) {
    }
    struct pollfd fd = {ends[0][1], POLLOUT, 0};
    IS(poll(&fd, 1, 20), 0);
    while (read(ends[0][0], data, sizeof data) == (ssize_t)sizeof data) {
        if (poll(&fd, 1, 0) == 1) {
            break;
        }
    }
    IS(poll(&fd, 1, 20000), 1);
    IS(fd.revents, POLLOUT);
}

static void *poll_forever(void *which)
{
    struct pollfd fds[2] = {{ends[(long)which % 10][0], POLLIN, 0}, {ends[9][0], POLLIN, 0}};
    return number(poll(fds, 2, -1));
}

CASE(many_threads_poll_the_same_descriptors)
{
    pthread_t threads[60];
    make_pipes(10);
    for (long i = 0; i < 60; i++) {
        threads[i] = start(poll_forever, number(i % 9));
    }
    let_others_block();
    IS(write(ends[9][1], "x", 1), 1);
    for (int i = 0; i < 60; i++) {
        IS(join(threads[i]), 1);
    }
}

CASE(ppoll_takes_nanoseconds)
{
    make_pipes(1);
    struct pollfd fd = {ends[0][0], POLLIN, 0};
    struct timespec limit = timespec_of(30 * MS), invalid = {0, 1000000000};
    int64_t started_ns = now_ns();
    IS(ppoll(&fd, 1, &limit, NULL), 0);
    check_took(started_ns, 30);
    IS(limit.tv_nsec, 30 * MS);
    FAILS(ppoll(&fd, 1, &invalid, NULL), EINVAL);
    pthread_t thread = start(write_to, number(0));
    IS(ppoll(&fd, 1, NULL, NULL), 1);
    join(thread);
}

CASE(select_tells_which_are_ready)
{
    fd_set readable, writable;
    make_pipes(3);
    pthread_t thread = start(write_to, number(1));
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    for (int i = 0; i < 3; i++) {
        FD_SET(ends[i][0], &readable);
    }
    struct timeval limit = {20, 0};
    IS(select(ends[2][1] + 1, &readable, &writable, NULL, &limit), 1);
    CHECK(!FD_ISSET(ends[0][0], &readable) && FD_ISSET(ends[1][0], &readable));
    CHECK(!FD_ISSET(ends[2][0], &readable));
    CHECK(limit.tv_sec < 20);
    FD_SET(ends[0][1], &writable);
    IS(select(ends[2][1] + 1, &readable, &writable, NULL, NULL), 2);
    join(thread);
}

CASE(select_times_out_and_clears_its_sets)
{
    fd_set readable;
    make_pipes(1);
    FD_ZERO(&readable);
    FD_SET(ends[0][0], &readable);
    struct timeval limit = {0, 40000};
    int64_t started_ns = now_ns();
    IS(select(ends[0][0] + 1, &readable, NULL, NULL, &limit), 0);
    check_took(started_ns, 40);
    CHECK(!FD_ISSET(ends[0][0], &readable));
    IS(limit.tv_sec + limit.tv_usec, 0);
    limit.tv_usec = 20000;
    started_ns = now_ns();
    IS(select(0, NULL, NULL, NULL, &limit), 0);
    check_took(started_ns, 20);
    FD_SET(50, &readable);
    FAILS(select(51, &readable, NULL, NULL, &limit), EBADF);
    FAILS(select(-1, NULL, NULL, NULL, &limit), EINVAL);
}

static atomic_int handled;

static void count_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *interrupt(void *thread)
{
    sleep_ms(30);
    OK(pthread_kill(*(pthread_t *)thread, SIGUSR1));
    return NULL;
}

CASE(an_interrupted_select_leaves_its_sets)
{
    fd_set readable, writable;
    struct timeval limit = {20, 0};
    pthread_t self = pthread_self();
    make_pipes(1);
    GET(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_signal}, NULL));
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(ends[0][0], &readable);
    pthread_t thread = start(interrupt, &self);
    FAILS(select(ends[0][0] + 1, &readable, &writable, NULL, &limit), EINTR);
    CHECK(FD_ISSET(ends[0][0], &readable));
    CHECK(!FD_ISSET(ends[0][0], &writable));
    IS(write(ends[0][1], "x", 1), 1);
    IS(select(ends[0][0] + 1, &readable, &writable, NULL, &limit), 1);
    join(thread);
}

static void *pselect_with_mask(void *argument)
{
    sigset_t empty;
    fd_set readable;
    sigemptyset(&empty);
    FD_ZERO(&readable);
    FD_SET(ends[0][0], &readable);
    IS(pselect(ends[0][0] + 1, &readable, NULL, NULL, NULL, &empty), -1);
    IS(errno, EINTR);
    IS(handled, 1);
    return argument;
}

/* The signal is blocked all the time but inside pselect: a pending one ends it at once. */
CASE(pselect_opens_its_mask_only_while_it_waits)
{
    sigset_t blocked;
    make_pipes(1);
    signal(SIGUSR1, count_signal);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    OK(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
    OK(pthread_kill(pthread_self(), SIGUSR1));
    IS(handled, 0);
    pselect_with_mask(NULL);
    handled = 0;
    pthread_t thread = start(pselect_with_mask, NULL);
    let_others_block();
    OK(pthread_kill(thread, SIGUSR1));
    join(thread);
}

static void *poll_interrupted(void *argument)
{
    struct pollfd fd = {ends[0][0], POLLIN, 0};
    IS(poll(&fd, 1, 20000), -1);
    return number(errno);
}

CASE(a_signal_interrupts_poll_even_with_sa_restart)
{
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    GET(sigaction(SIGUSR1, &action, NULL));
    make_pipes(1);
    pthread_t thread = start(poll_interrupted, NULL);
    void *result;
    do {
        sleep_ms(10);
        pthread_kill(thread, SIGUSR1);
    } while (pthread_tryjoin_np(thread, &result) == EBUSY);
    IS(result, EINTR);
}

CASE(poll_serves_a_server_of_one_thread)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address, 16), clients[8];
    struct pollfd fds[9] = {{listener, POLLIN, 0}};
    int count = 1;
    for (int i = 0; i < 8; i++) {
        clients[i] = connect_to(&address);
        IS(poll(fds, count, 20000), 1);
        IS(fds[0].revents, POLLIN);
        fds[count++] = (struct pollfd){GET(accept(listener, NULL, NULL)), POLLIN, 0};
    }
    for (int i = 0; i < 8; i++) {
        char byte;
        write_all(clients[i], "x", 1);
        IS(poll(fds, count, 20000), 1);
        IS(fds[i + 1].revents, POLLIN);
        IS(read(fds[i + 1].fd, &byte, 1), 1);
    }
}

static int64_t until_ns;

static void *ask(void *which)
{
    int fd = ends[(long)which][0];
    for (long i = 0; i % 64 != 0 || now_ns() < until_ns; i++) {
        struct pollfd poll_fd = {fd, POLLIN, 0};
        struct timeval at_once = {0, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        IS(poll(&poll_fd, 1, 0), 0);
        IS(select(fd + 1, &set, NULL, NULL, &at_once), 0);
        IS(ppoll(&poll_fd, 1, &(struct timespec){0, 1}, NULL), 0);
    }
    return NULL;
}

/* Threads that take turns, however that is done, and of which none gets a signal. */
CASE(no_question_is_interrupted_without_a_signal)
{
    pthread_t threads[6];
    make_pipes(6);
    until_ns = now_ns() + SECOND;
    for (long i = 0; i < 6; i++) {
        threads[i] = start(ask, number(i));
    }
    join_all(threads, 6);
}

static void *write_often(void *unused)
{
    char byte = 1;
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        IS(write(ends[0][1], &byte, 1), 1);
    }
    return unused;
}

CASE(poll_for_a_class_of_data_is_woken)
{
    static const short reads[] = {POLLRDNORM, POLLRDNORM | POLLRDBAND, POLLRDBAND | POLLIN};
    pthread_t writer;
    make_pipes(2);
    OK(pthread_create(&writer, NULL, write_often, NULL));
    for (int i = 0; i < 20; i++) {
        struct pollfd polls[] = {{ends[0][0], reads[i % 3], 0}, {ends[1][0], POLLRDNORM, 0}};
        char byte;
        IS(poll(polls, 1 + i % 2, -1), 1);
        IS(polls[0].revents, reads[i % 3] & (POLLIN | POLLRDNORM));
        IS(read(ends[0][0], &byte, 1), 1);
    }
    OK(pthread_join(writer, NULL));
}

static void *drain_later(void *which)
{
    static char bytes[1 << 16];
    usleep(2000);
    CHECK(read(ends[(long)which][0], bytes, sizeof bytes) > 0);
    return NULL;
}

CASE(poll_for_room_for_a_class_of_data_is_woken)
{
    static char bytes[1 << 16];
    make_pipes(1);
    OK(fcntl(ends[0][1], F_SETFL, O_WRONLY | O_NONBLOCK));
    for (int i = 0; i < 5; i++) {
        struct pollfd poll_write = {ends[0][1], POLLWRNORM, 0};
        pthread_t drains;
        while (write(ends[0][1], bytes, sizeof bytes) > 0) {
        }
        OK(pthread_create(&drains, NULL, drain_later, (void *)0L));
        IS(poll(&poll_write, 1, -1), 1);
        IS(poll_write.revents, POLLWRNORM);
        OK(pthread_join(drains, NULL));
    }
}
