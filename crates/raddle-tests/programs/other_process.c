/* Threads that another process wakes: by a semaphore in shared memory, by a pipe, by a pair of Unix
 * sockets, by a TCP connection, and by a pipe that an epoll instance watches. The other process has
 * the name "poster". Prints "poster PID". With an argument it goes on until it is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAYS = 5, SEMAPHORE = 0, PIPE, SOCKET, CONNECTION, WATCHED };
static const char *const names[WAYS] = {"of-semaphore", "of-pipe", "of-socket", "of-connection",
                                        "of-epoll"};
static sem_t *posted;
/* Of each way: what the threads read, and what the poster writes. */
static int near[WAYS], far[WAYS];
static int epoll, turns = 60;
static volatile int sink;

__attribute__((noinline)) static void wait_for_semaphore(void)
{
    sem_wait(posted);
    sink++;
}

__attribute__((noinline)) static void wait_for_pipe(void)
{
    char byte;
    sink += read(near[PIPE], &byte, 1);
}

__attribute__((noinline)) static void wait_for_socket(void)
{
    char byte;
    sink += read(near[SOCKET], &byte, 1);
}

__attribute__((noinline)) static void wait_for_connection(void)
{
    char byte;
    sink += recv(near[CONNECTION], &byte, 1, 0);
}

__attribute__((noinline)) static void wait_for_watched(void)
{
    char byte;
    struct epoll_event event;
    sink += epoll_wait(epoll, &event, 1, -1);
    sink += read(near[WATCHED], &byte, 1);
}

static void (*const wait_by[WAYS])(void) = {wait_for_semaphore, wait_for_pipe, wait_for_socket,
                                            wait_for_connection, wait_for_watched};

static void *wait_each_turn(void *argument)
{
    long way = (long)argument;
    prctl(PR_SET_NAME, names[way]);
    for (int turn = 0; turn < turns; turn++) {
        wait_by[way]();
    }
    return NULL;
}

static void post(int named)
{
    prctl(PR_SET_NAME, "poster");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (write(named, "x", 1) != 1) {
        _exit(1);
    }
    for (int turn = 0; turn < turns; turn++) {
        usleep(20000);
        sem_post(posted);
        for (int way = PIPE; way < WAYS; way++) {
            if (write(far[way], "x", 1) != 1) {
                _exit(1);
            }
        }
    }
    _exit(0);
}

static int connect_by_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    far[CONNECTION] = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *any = (struct sockaddr *)&address;
    if (bind(listener, any, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, any, &length) != 0 || connect(far[CONNECTION], any, length) != 0) {
        return 0;
    }
    near[CONNECTION] = accept(listener, NULL, NULL);
    close(listener);
    return near[CONNECTION] >= 0;
}

static int make_ends(void)
{
    int ends[2];
    for (int way = PIPE; way < WAYS; way++) {
        if (way == CONNECTION) {
            continue;
        }
        if ((way == SOCKET ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) != 0) {
            return 0;
        }
        near[way] = ends[0];
        far[way] = ends[1];
    }
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, near[WATCHED], &event) == 0 && connect_by_tcp();
}

int main(int count, char **arguments)
{
    (void)arguments;
    turns = count > 1 ? 1 << 30 : turns;
    posted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (posted == MAP_FAILED || sem_init(posted, 1, 0) != 0 || !make_ends()) {
        return 1;
    }
    int named[2];
    char byte;
    if (pipe(named) != 0) {
        return 1;
    }
    pid_t poster = fork();
    if (poster == 0) {
        post(named[1]);
    }
    /* From the first wait on, tools look for the process by which it ends. */
    if (read(named[0], &byte, 1) != 1) {
        return 1;
    }
    for (int way = PIPE; way < WAYS; way++) {
        close(far[way]);
    }
    printf("poster %d\n", poster);
    fflush(stdout);
    pthread_t threads[WAYS];
    for (long way = 0; way < WAYS; way++) {
        pthread_create(&threads[way], NULL, wait_each_turn, (void *)way);
    }
    for (int way = 0; way < WAYS; way++) {
        pthread_join(threads[way], NULL);
    }
    return waitpid(poster, NULL, 0) != poster;
}
