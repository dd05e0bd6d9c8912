/* Calls that wait for locks, queues and semaphores, and how they end. */
#include "check.h"
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/stat.h>

static void do_nothing(int unused)
{
    (void)unused;
}

static void handle(int signal, int flags)
{
    struct sigaction action = {.sa_handler = do_nothing, .sa_flags = flags};
    GET(sigaction(signal, &action, NULL));
}

static int locked(void)
{
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(flock(fd, LOCK_EX));
    return fd;
}

static void *lock_and_unlock(void *unused)
{
    (void)unused;
    close(locked());
    return number(1);
}

CASE(a_lock_is_handed_over)
{
    pthread_t threads[8];
    int fd = locked();
    for (int i = 0; i < 8; i++) {
        threads[i] = start(lock_and_unlock, NULL);
    }
    let_others_block();
    GET(flock(fd, LOCK_UN));
    join_all(threads, 8);
}

static void *lock_a_record(void *command)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(fcntl(fd, (int)(long)command, &lock));
    close(fd);
    return number(1);
}

CASE(record_locks_wait_for_their_owner)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    GET(fcntl(fd, F_OFD_SETLKW, &lock));
    pthread_t thread = start(lock_a_record, number(F_OFD_SETLKW));
    let_others_block();
    lock.l_type = F_UNLCK;
    GET(fcntl(fd, F_OFD_SETLKW, &lock));
    join(thread);

    int ends[2];
    char byte;
    GET(pipe(ends));
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        lock.l_type = F_WRLCK;
        GET(fcntl(fd, F_SETLKW, &lock));
        IS(write(ends[1], "x", 1), 1);
        sleep_ms(50);
        _exit(0);
    }
    IS(read(ends[0], &byte, 1), 1);
    IS(join(start(lock_a_record, number(F_SETLKW))), 1);
    IS(GET(waitpid(child, NULL, 0)), child);
}

static int queue;
static int semaphores;

struct text {
    long kind;
    char text[8];
};

static void make_queues(void)
{
    queue = (int)GET(msgget(IPC_PRIVATE, 0600));
    semaphores = (int)GET(semget(IPC_PRIVATE, 2, 0600));
    OK(semctl(semaphores, 0, SETVAL, 0));
    OK(semctl(semaphores, 1, SETVAL, 0));
}

static void remove_queues(void)
{
    GET(msgctl(queue, IPC_RMID, NULL));
    GET(semctl(semaphores, 0, IPC_RMID));
}

static long change(int which, int by)
{
    struct sembuf operation = {(unsigned short)which, (short)by, 0};
    return semop(semaphores, &operation, 1);
}

static void *answer(void *unused)
{
    struct text message;
    (void)unused;
    for (int i = 0; i < 200; i++) {
        IS(GET(msgrcv(queue, &message, sizeof message.text, 1, 0)), 5);
        GET(change(0, -1));
        message.kind = 2;
        GET(msgsnd(queue, &message, 5, 0));
        GET(change(1, 1));
    }
    return NULL;
}

CASE(queues_and_semaphores_wake_each_other)
{
    make_queues();
    pthread_t thread = start(answer, NULL);
    struct text message = {1, "hello"};
    for (int i = 0; i < 200; i++) {
        message.kind = 1;
        GET(msgsnd(queue, &message, 5, 0));
        GET(change(0, 1));
        IS(GET(msgrcv(queue, &message, sizeof message.text, 2, 0)), 5);
        GET(change(1, -1));
    }
    join(thread);
    FAILS(msgrcv(queue, &message, sizeof message.text, 1, IPC_NOWAIT), ENOMSG);
    struct sembuf now = {0, -1, IPC_NOWAIT};
    FAILS(semop(semaphores, &now, 1), EAGAIN);
    struct timespec limit = timespec_of(20 * MS);
    now.sem_flg = 0;
    int64_t started = now_ns();
    FAILS(semtimedop(semaphores, &now, 1, &limit), EAGAIN);
    check_took(started, 20);
    FAILS(semop(semaphores, NULL, 1), EFAULT);
    remove_queues();
}

static void *take_message(void *unused)
{
    struct text message;
    (void)unused;
    return number(msgrcv(queue, &message, sizeof message.text, 9, 0) == -1 ? errno : 0);
}

static void *take_semaphore(void *unused)
{
    (void)unused;
    return number(change(0, -1) == -1 ? errno : 0);
}

static void *take_lock(void *unused)
{
    (void)unused;
    int fd = (int)GET(open("lock", O_CREAT | O_RDWR, 0600));
    long result = flock(fd, LOCK_EX) == -1 ? errno : 0;
    close(fd);
    return number(result);
}

/* Signals until the call ends, with this. */
static long interrupted(thread_function wait)
{
    void *value;
    pthread_t thread = start(wait, NULL);
    while (pthread_tryjoin_np(thread, &value) == EBUSY) {
        OK(pthread_kill(thread, SIGUSR1));
        sleep_ms(5);
    }
    return (long)value;
}

CASE(each_call_restarts_or_not_as_in_linux)
{
    make_queues();
    int fd = locked();
    handle(SIGUSR1, 0);
    IS(interrupted(take_lock), EINTR);
    IS(interrupted(take_message), EINTR);
    IS(interrupted(take_semaphore), EINTR);
    handle(SIGUSR1, SA_RESTART);
    IS(interrupted(take_message), EINTR);
    IS(interrupted(take_semaphore), EINTR);
    pthread_t thread = start(take_lock, NULL);
    for (int i = 0; i < 10; i++) {
        OK(pthread_kill(thread, SIGUSR1));
        sleep_ms(5);
    }
    GET(flock(fd, LOCK_UN));
    IS(join(thread), 0);
    remove_queues();
}

static void *read_fifo(void *unused)
{
    char byte;
    (void)unused;
    int fd = (int)GET(open("fifo", O_RDWR));
    return number(read(fd, &byte, 1));
}

static void *open_fifo(void *unused)
{
    (void)unused;
    return number(open("fifo", O_RDONLY));
}

static void cancel(thread_function wait)
{
    pthread_t thread = start(wait, NULL);
    let_others_block();
    OK(pthread_cancel(thread));
    CHECK(join(thread) == PTHREAD_CANCELED);
}

CASE(waits_are_cancelled)
{
    make_queues();
    GET(mkfifo("fifo", 0600));
    cancel(open_fifo);
    cancel(read_fifo);
    cancel(take_message);
    remove_queues();
}

static void *fill_at_random(void *unused)
{
    unsigned char bytes[1000] = {0};
    int counts[256] = {0};
    (void)unused;
    for (int i = 0; i < 50; i++) {
        IS(GET(getrandom(bytes, sizeof bytes, i % 2 ? GRND_NONBLOCK : 0)), sizeof bytes);
        for (size_t k = 0; k < sizeof bytes; k++) {
            counts[bytes[k]]++;
        }
    }
    for (int i = 0; i < 256; i++) {
        CHECK(counts[i] > 50 && counts[i] < 500);
    }
    return NULL;
}

CASE(random_bytes_in_four_threads)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        threads[i] = start(fill_at_random, NULL);
    }
    join_all(threads, 4);
}
