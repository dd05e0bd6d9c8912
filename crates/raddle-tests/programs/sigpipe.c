/* SIGPIPE: it is for the thread that writes, and comes before the call returns. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static _Thread_local int handled_here;
static atomic_int handled;

static void note(int signal)
{
    IS(signal, SIGPIPE);
    handled_here++;
    handled++;
}

static void handle(void)
{
    struct sigaction action = {.sa_handler = note};
    GET(sigaction(SIGPIPE, &action, NULL));
}

/* A pipe without a reader. */
static int broken_pipe(void)
{
    int ends[2];
    GET(pipe(ends));
    close(ends[0]);
    return ends[1];
}

static int broken_socket(int type)
{
    int ends[2];
    GET(socketpair(AF_UNIX, type, 0, ends));
    close(ends[0]);
    return ends[1];
}

static long by_write(int fd) { return write(fd, "x", 1); }

static long by_writev(int fd)
{
    struct iovec parts[2] = {{"x", 1}, {"y", 1}};
    return writev(fd, parts, 2);
}

static long by_send(int fd) { return send(fd, "x", 1, 0); }

static long by_sendmsg(int fd)
{
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return sendmsg(fd, &message, 0);
}

static long by_sendfile(int fd)
{
    FILE *file = tmpfile();
    CHECK(file != NULL);
    fputs("text", file);
    fflush(file);
    off_t from = 0;
    long result = sendfile(fd, fileno(file), &from, 4);
    int saved = errno;
    fclose(file);
    errno = saved;
    return result;
}

static long by_splice(int fd)
{
    int ends[2];
    GET(pipe(ends));
    IS(write(ends[1], "x", 1), 1);
    long result = splice(ends[0], NULL, fd, NULL, 1, 0);
    int saved = errno;
    close(ends[0]);
    close(ends[1]);
    errno = saved;
    return result;
}

static void *write_in_every_way(void *unused)
{
    int pipe_end = broken_pipe();
    int stream = broken_socket(SOCK_STREAM);
    long (*const ways[])(int) = {by_write,   by_writev,   by_send,
                                 by_sendmsg, by_sendfile, by_splice};
    for (int i = 0; i < 6; i++) {
        int before = handled_here;
        FAILS(ways[i](stream), EPIPE);
        IS(handled_here, before + 1);
        if (ways[i] != by_send && ways[i] != by_sendmsg) {
            FAILS(ways[i](pipe_end), EPIPE);
            IS(handled_here, before + 2);
        }
    }
    close(pipe_end);
    close(stream);
    return unused;
}

CASE(a_handler_runs_on_the_writing_thread_before_the_call_returns)
{
    handle();
    join(start(write_in_every_way, NULL));
    IS(handled_here, 0);
    IS(handled, 10);
}

static void *write_many_times(void *unused)
{
    int fd = broken_pipe();
    for (int i = 1; i <= 500; i++) {
        FAILS(write(fd, "x", 1), EPIPE);
        IS(handled_here, i);
    }
    close(fd);
    return unused;
}

CASE(ten_threads_write_and_each_gets_its_own)
{
    pthread_t threads[10];
    handle();
    for (int i = 0; i < 10; i++) {
        threads[i] = start(write_many_times, NULL);
    }
    join_all(threads, 10);
    IS(handled, 5000);
}

static sigset_t only_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

static int is_pending(void)
{
    sigset_t pending;
    GET(sigpending(&pending));
    return sigismember(&pending, SIGPIPE);
}

static pthread_barrier_t step;

static void *write_while_blocked(void *unused)
{
    sigset_t set = only_sigpipe();
    siginfo_t info;
    struct timespec now = {0, 0};
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int fd = broken_pipe();
    FAILS(write(fd, "x", 1), EPIPE);
    IS(is_pending(), 1);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    IS(sigtimedwait(&set, &info, &now), SIGPIPE);
    IS(info.si_code, SI_USER);
    IS(info.si_pid, getpid());
    IS(is_pending(), 0);
    FAILS(write(fd, "x", 1), EPIPE);
    OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    IS(handled_here, 1);
    close(fd);
    return unused;
}

CASE(a_blocked_one_pends_for_its_thread_alone)
{
    sigset_t set = only_sigpipe();
    struct timespec soon = {0, 20 * MS};
    handle();
    OK(pthread_barrier_init(&step, NULL, 2));
    pthread_t thread = start(write_while_blocked, NULL);
    pthread_barrier_wait(&step);
    IS(is_pending(), 0);
    OK(pthread_sigmask(SIG_BLOCK, &set, NULL));
    FAILS(sigtimedwait(&set, NULL, &soon), EAGAIN);
    IS(is_pending(), 0);
    OK(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    pthread_barrier_wait(&step);
    join(thread);
    IS(handled, 1);
}

static void *read_some_and_close(void *argument)
{
    char data[1000];
    int fd = *(int *)argument;
    CHECK(read(fd, data, sizeof data) > 0);
    let_others_block();
    close(fd);
    return NULL;
}

CASE(after_a_part_a_socket_raises_none)
{
    static char large[4 << 20];
    int ends[2];
    handle();
    GET(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t thread = start(read_some_and_close, &ends[1]);
    long sent = write(ends[0], large, sizeof large);
    CHECK(sent > 0 && sent < (long)sizeof large);
    IS(handled, 0);
    FAILS(write(ends[0], large, sizeof large), EPIPE);
    IS(handled, 1);
    FAILS(send(ends[0], large, 1, MSG_NOSIGNAL), EPIPE);
    IS(handled, 1);
    join(thread);
}

static void *send_a_file(void *unused)
{
    by_sendfile(broken_socket(SOCK_STREAM));
    return unused;
}

CASE(by_default_it_ends_the_process)
{
    int status;
    pid_t child = GET(fork());
    if (child == 0) {
        join(start(send_a_file, NULL));
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    IS(WTERMSIG(status), SIGPIPE);
}
