/* Calls that wait for processes, locks, queues and words, each by itself: see the header. */
#include "neighbours.h"
#include <linux/aio_abi.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

/* Processes. */
static pid_t child;
static void make_child(void)
{
    make_pipe();
    child = (pid_t)GET(fork());
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) < 0);
    }
}
#define prepare_child_wait4 make_child
#define release_child_wait4 write_byte
static long block_child_wait4(void)
{
    return waitpid(child, NULL, 0);
}
WAIT(child_wait4, RESTARTS | POINT)

#define prepare_child_waitid make_child
#define release_child_waitid write_byte
static long block_child_waitid(void)
{
    siginfo_t about;
    return waitid(P_PID, (id_t)child, &about, WEXITED);
}
WAIT(child_waitid, RESTARTS | POINT)

#define prepare_child_pidfd make_child
#define release_child_pidfd write_byte
static long block_child_pidfd(void)
{
    struct pollfd wait = {(int)GET(syscall(SYS_pidfd_open, child, 0)), POLLIN, 0};
    return poll(&wait, 1, -1);
}
WAIT(child_pidfd, POINT)

/* Locks of files. */
static int locked;
static void prepare_file_flock(void)
{
    close(locked);
    locked = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(flock(locked, LOCK_EX));
}
static long lock_file(int (*lock)(int))
{
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    int result = lock(fd);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}
static int lock_whole(int fd)
{
    return flock(fd, LOCK_EX);
}
static long block_file_flock(void)
{
    return lock_file(lock_whole);
}
static void release_file_flock(void)
{
    close(locked);
    locked = -1;
}
WAIT(file_flock, RESTARTS)

static int lock_open(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    return fcntl(fd, F_OFD_SETLKW, &lock);
}
static void prepare_file_ofd(void)
{
    close(locked);
    locked = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(lock_open(locked));
}
static long block_file_ofd(void)
{
    return lock_file(lock_open);
}
#define release_file_ofd release_file_flock
WAIT(file_ofd, RESTARTS)

static int lock_record(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    return fcntl(fd, F_SETLKW, &lock);
}
static void prepare_file_record(void)
{
    int told[2];
    make_pipe();
    GET(pipe(told));
    child = (pid_t)GET(fork());
    if (child == 0) {
        int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
        GET(lock_record(fd));
        IS(write(told[1], "x", 1), 1);
        _exit(read(ends[0], &byte, 1) < 0);
    }
    IS(read(told[0], &byte, 1), 1);
    close(told[0]);
    close(told[1]);
}
static long block_file_record(void)
{
    return lock_file(lock_record);
}
static void release_file_record(void)
{
    write_byte();
    GET(waitpid(child, NULL, 0));
}
WAIT(file_record, RESTARTS | POINT)

/* Queues and semaphores. */
static mqd_t box = -1;
static void make_box(void)
{
    char path[40];
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    snprintf(path, sizeof path, "/raddle-neighbours-%d", getpid());
    if (box != -1) {
        mq_close(box);
    }
    box = (mqd_t)GET(mq_open(path, O_CREAT | O_RDWR, 0600, &attributes));
    mq_unlink(path);
}
static void send_to_box(void)
{
    OK(mq_send(box, "x", 1, 0));
}
static void take_from_box(void)
{
    char text[8];
    IS(mq_receive(box, text, sizeof text, NULL), 1);
}
#define prepare_posix_receive make_box
#define release_posix_receive send_to_box
static long block_posix_receive(void)
{
    char text[8];
    return mq_receive(box, text, sizeof text, NULL);
}
WAIT(posix_receive, RESTARTS | POINT)

static void prepare_posix_send(void)
{
    make_box();
    send_to_box();
}
static long block_posix_send(void)
{
    return mq_send(box, "y", 1, 0);
}
#define release_posix_send take_from_box
WAIT(posix_send, RESTARTS | POINT)

struct text {
    long kind;
    char text[8];
};
static int queue = -1;
static void make_queue(void)
{
    if (queue != -1) {
        GET(msgctl(queue, IPC_RMID, NULL));
    }
    queue = (int)GET(msgget(IPC_PRIVATE, 0600));
}
static long send_to_queue(void)
{
    struct text message = {1, "hello"};
    return msgsnd(queue, &message, sizeof message.text, 0);
}
static long take_from_queue(void)
{
    struct text message;
    return msgrcv(queue, &message, sizeof message.text, 1, 0);
}
static void release_queue_receive(void)
{
    GET(send_to_queue());
}
#define prepare_queue_receive make_queue
#define block_queue_receive take_from_queue
WAIT(queue_receive, POINT)

static void prepare_queue_send(void)
{
    struct msqid_ds about;
    make_queue();
    GET(msgctl(queue, IPC_STAT, &about));
    about.msg_qbytes = 8;
    GET(msgctl(queue, IPC_SET, &about));
    GET(send_to_queue());
}
static void release_queue_send(void)
{
    GET(take_from_queue());
}
#define block_queue_send send_to_queue
WAIT(queue_send, POINT)

static int semaphores = -1;
static void make_semaphores(void)
{
    if (semaphores != -1) {
        GET(semctl(semaphores, 0, IPC_RMID));
    }
    semaphores = (int)GET(semget(IPC_PRIVATE, 1, 0600));
    OK(semctl(semaphores, 0, SETVAL, 0));
}
static void raise_semaphore(void)
{
    struct sembuf up = {0, 1, 0};
    GET(semop(semaphores, &up, 1));
}
#define prepare_semaphore_down make_semaphores
#define release_semaphore_down raise_semaphore
static long block_semaphore_down(void)
{
    struct sembuf down = {0, -1, 0};
    return semop(semaphores, &down, 1);
}
WAIT(semaphore_down, 0)

#define prepare_semaphore_timed make_semaphores
#define release_semaphore_timed raise_semaphore
static long block_semaphore_timed(void)
{
    struct sembuf down = {0, -1, 0};
    struct timespec limit = {60, 0};
    return semtimedop(semaphores, &down, 1, &limit);
}
WAIT(semaphore_timed, 0)

/* A futex that other processes may share. */
static atomic_int word;
static void clear_word(void)
{
    atomic_store(&word, 0);
}
static long wait_for_word(void)
{
    /* A handler's end may wake it for nothing. */
    long result = 0;
    while (result == 0 && atomic_load(&word) == 0) {
        result = syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, NULL, NULL, 0);
    }
    return result == -1 && errno == EAGAIN ? 0 : result;
}
static void set_word(void)
{
    atomic_store(&word, 1);
    GET(syscall(SYS_futex, &word, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0));
}
#define prepare_shared_futex clear_word
#define block_shared_futex wait_for_word
#define release_shared_futex set_word
WAIT(shared_futex, RESTARTS)

/* The program's own AIO. */
static aio_context_t context;
static void make_context(void)
{
    if (context != 0) {
        GET(syscall(SYS_io_destroy, context));
    }
    context = 0;
    GET(syscall(SYS_io_setup, 4, &context));
}
static long wait_for_aio(void)
{
    struct io_event event;
    return syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}
static void complete_aio(void)
{
    static char zero[8];
    int file = (int)GET(open("aio", O_CREAT | O_RDWR, 0600));
    struct iocb request = {.aio_fildes = (unsigned)file, .aio_lio_opcode = IOCB_CMD_PWRITE,
                           .aio_buf = (uintptr_t)zero, .aio_nbytes = sizeof zero};
    struct iocb *list = &request;
    IS(syscall(SYS_io_submit, context, 1, &list), 1);
    close(file);
}
#define prepare_aio_events make_context
#define block_aio_events wait_for_aio
#define release_aio_events complete_aio
WAIT(aio_events, 0)
