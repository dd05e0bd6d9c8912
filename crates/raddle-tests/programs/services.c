/* Parts of libc with threads, locks or descriptors inside: loader, resolver, timers, streams. */
#include "net.h"

#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <mqueue.h>
#include <netdb.h>
#include <pwd.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef long (*library_function)(long);

static const char *library_path(void)
{
    CHECK(argument_count > 2);
    return arguments[2];
}

static void *nothing(void *argument)
{
    return argument;
}

static void *load_and_call(void *me)
{
    void *library = dlopen(library_path(), RTLD_NOW);
    CHECK(library != NULL);
    library_function add = (library_function)dlsym(library, "add_to_local");
    library_function wait = (library_function)dlsym(library, "sleep_in_library");
    CHECK(add && wait);
    for (long i = 1; i <= 100; i++) {
        IS(add((long)me), i * (long)me + 1000);
        if (i % 20 == 0) {
            IS(wait(200), 0);
        }
        sched_yield();
    }
    dlclose(library);
    return NULL;
}

CASE(a_library_with_thread_local_variables_is_loaded_by_a_thread)
{
    join(start(load_and_call, number(3)));
    join(start(load_and_call, number(4)));
}

CASE(twenty_threads_load_a_library_at_once)
{
    pthread_t threads[20];
    for (long i = 0; i < 20; i++) {
        threads[i] = start(load_and_call, number(i));
    }
    join_all(threads, 20);
}

/* The library makes its system calls itself, by an instruction of its own text. */
CASE(a_library_that_is_loaded_late_may_make_raw_system_calls)
{
    void *library = dlopen(library_path(), RTLD_NOW);
    CHECK(library != NULL);
    library_function id = (library_function)dlsym(library, "raw_thread_id");
    library_function wait = (library_function)dlsym(library, "raw_sleep");
    IS(id(0), gettid());
    int64_t started_ns = now_ns();
    IS(wait(20 * MS), 0);
    check_took(started_ns, 20);
}

typedef long (*two_arguments)(long, long);

static two_arguments late_wait, late_read;
static atomic_int words[20], arrived;
static int pipe_ends[2];

static void *wait_in_library(void *me)
{
    arrived++;
    while (words[(long)me] == 0) {
        late_wait((long)&words[(long)me], 0);
    }
    return NULL;
}

static void *read_in_library(void *unused)
{
    char byte;
    arrived++;
    IS(late_read(pipe_ends[0], (long)&byte), 1);
    return unused;
}

/* Counts as another process sees it. */
static int kernel_threads(void)
{
    char path[100];
    int count = 0, ends[2];
    pid_t parent = getpid(), child;
    GET(pipe(ends));
    if ((child = GET(fork())) == 0) {
        snprintf(path, sizeof path, "/proc/%d/task", parent);
        DIR *folder = opendir(path);
        while (folder && readdir(folder)) {
            count++;
        }
        IS(write(ends[1], &count, sizeof count), sizeof count);
        _exit(0);
    }
    IS(read(ends[0], &count, sizeof count), sizeof count);
    IS(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
    return count - 2;
}

/* Threads that wait by the library's own instructions hold no kernel thread under raddle, and are
 * woken by libc's calls. */
CASE(threads_wait_in_a_library_that_is_loaded_late)
{
    pthread_t waiters[20], readers[20];
    join(start(nothing, NULL));
    void *library = dlopen(library_path(), RTLD_NOW);
    CHECK(library != NULL);
    late_wait = (two_arguments)dlsym(library, "raw_wait");
    late_read = (two_arguments)dlsym(library, "raw_read");
    GET(pipe(pipe_ends));
    for (long i = 0; i < 20; i++) {
        waiters[i] = start(wait_in_library, number(i));
        readers[i] = start(read_in_library, NULL);
    }
    while (arrived < 40) {
        sleep_ms(1);
    }
    let_others_block();
    CHECK(getenv("LD_PRELOAD") == NULL || kernel_threads() < 15);
    for (long i = 0; i < 20; i++) {
        words[i] = 1;
        IS(syscall(SYS_futex, &words[i], 129, 1, NULL, NULL, 0), 1);
        IS(write(pipe_ends[1], "x", 1), 1);
    }
    join_all(waiters, 20);
    join_all(readers, 20);
    OK(dlclose(library));
}

/* Repeats more often than there is room for stubs, if they weren't given back. */
CASE(a_library_is_loaded_and_unloaded_often)
{
    join(start(nothing, NULL));
    for (int i = 0; i < 300; i++) {
        void *library = dlopen(library_path(), RTLD_NOW);
        CHECK(library != NULL);
        library_function id = (library_function)dlsym(library, "raw_thread_id");
        IS(id(0), gettid());
        OK(dlclose(library));
    }
}

static void *know_own_id(void *unused)
{
    void *library = dlopen(library_path(), RTLD_NOW);
    CHECK(library != NULL);
    library_function id = (library_function)dlsym(library, "raw_thread_id");
    for (int i = 0; i < 20; i++) {
        IS(id(0), gettid());
        sched_yield();
    }
    OK(dlclose(library));
    return unused;
}

/* The id that the library's own instruction gets is the thread's, not a carrier's. */
CASE(a_library_comes_and_goes_while_threads_use_it)
{
    pthread_t threads[10];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++) {
            threads[i] = start(know_own_id, NULL);
        }
        join_all(threads, 10);
    }
}

static atomic_int stop;

static void *map_and_unmap(void *unused)
{
    while (!stop) {
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED);
        GET(munmap(page, 4096));
    }
    return unused;
}

/* Each munmap looks for libraries that were loaded late. */
CASE(children_unmap_whatever_other_threads_were_doing)
{
    pthread_t thread = start(map_and_unmap, NULL);
    void *library = dlopen(library_path(), RTLD_NOW);
    CHECK(library != NULL);
    for (int i = 0; i < 500; i++) {
        int status;
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pid_t child = GET(fork());
        if (child == 0) {
            _exit(munmap(page, 4096) == 0 ? 7 : 1);
        }
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), 7);
        GET(munmap(page, 4096));
    }
    stop = 1;
    join(thread);
    OK(dlclose(library));
}

static void *resolve(void *argument)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    IS(getaddrinfo("localhost", "80", &hints, &found), 0);
    struct sockaddr_in *address = (struct sockaddr_in *)found->ai_addr;
    IS(address->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    IS(address->sin_port, htons(80));
    freeaddrinfo(found);
    return argument;
}

CASE(getaddrinfo_from_50_threads)
{
    pthread_t threads[50];
    for (int i = 0; i < 50; i++) {
        threads[i] = start(resolve, NULL);
    }
    join_all(threads, 50);
}

static atomic_int fired, fired_by, value_seen;

static void on_timer(union sigval value)
{
    atomic_store(&value_seen, value.sival_int);
    atomic_store(&fired_by, gettid());
    atomic_fetch_add(&fired, 1);
}

CASE(a_timer_runs_a_function_in_a_thread)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD,
                             .sigev_notify_function = on_timer,
                             .sigev_value.sival_int = 55};
    struct itimerspec often = {{0, 10 * MS}, {0, 10 * MS}};
    timer_t timer;
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    GET(timer_settime(timer, 0, &often, NULL));
    while (atomic_load(&fired) < 5) {
        sleep_ms(5);
    }
    GET(timer_delete(timer));
    IS(value_seen, 55);
    CHECK(fired_by != gettid());
}

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&fired, 1);
}

CASE(a_timer_sends_a_signal)
{
    signal(SIGRTMIN + 1, on_signal);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
    struct itimerspec once = {{0, 0}, {0, 20 * MS}};
    timer_t timer;
    GET(timer_create(CLOCK_MONOTONIC, &event, &timer));
    GET(timer_settime(timer, 0, &once, NULL));
    while (!atomic_load(&fired)) {
        sleep_ms(5);
    }
    GET(timer_delete(timer));
}

static void *use_aio(void *argument)
{
    char data[100] = "";
    struct aiocb request = {.aio_fildes = (int)(long)argument, .aio_buf = data, .aio_nbytes = 5};
    const struct aiocb *list[] = {&request};
    GET(aio_read(&request));
    while (aio_error(&request) == EINPROGRESS) {
        aio_suspend(list, 1, NULL);
    }
    IS(aio_return(&request), 5);
    IS(strcmp(data, "hello"), 0);
    return NULL;
}

CASE(aio_reads)
{
    int fd = GET(open("aio", O_RDWR | O_CREAT | O_TRUNC, 0600));
    write_all(fd, "hello", 5);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        threads[i] = start(use_aio, number(fd));
    }
    join_all(threads, 8);
    unlink("aio");
}

static void *use_streams(void *me)
{
    char name[40], line[100];
    snprintf(name, sizeof name, "stream-%ld", (long)me);
    FILE *stream = fopen(name, "w+");
    CHECK(stream != NULL);
    for (int i = 0; i < 500; i++) {
        fprintf(stream, "%ld %d %s\n", (long)me, i, "some words to fill the buffer");
    }
    rewind(stream);
    for (int i = 0; i < 500; i++) {
        long who;
        int what;
        CHECK(fgets(line, sizeof line, stream) != NULL);
        IS(sscanf(line, "%ld %d", &who, &what), 2);
        IS(who, (long)me);
        IS(what, i);
    }
    fclose(stream);
    unlink(name);
    return NULL;
}

CASE(streams_of_16_threads)
{
    pthread_t threads[16];
    for (long i = 0; i < 16; i++) {
        threads[i] = start(use_streams, number(i));
    }
    join_all(threads, 16);
}

static void *look_around(void *argument)
{
    struct stat status;
    int entries = 0;
    GET(stat("/proc/self/maps", &status));
    DIR *directory = opendir("/etc");
    CHECK(directory != NULL);
    while (readdir(directory)) {
        entries++;
        if (entries % 20 == 0) {
            sched_yield();
        }
    }
    closedir(directory);
    CHECK(entries > 5);
    CHECK(getpwuid(0) != NULL);
    struct rusage usage;
    GET(getrusage(RUSAGE_SELF, &usage));
    CHECK(usage.ru_maxrss > 0);
    return argument;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *look_around_in_turn(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    look_around(argument);
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

CASE(directories_and_users)
{
    pthread_t threads[20];
    for (int i = 0; i < 20; i++) {
        threads[i] = start(look_around_in_turn, NULL);
    }
    join_all(threads, 20);
}

static void *map_and_protect(void *argument)
{
    for (int i = 0; i < 100; i++) {
        char *pages = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(pages != MAP_FAILED);
        memset(pages, i, 16384);
        GET(mprotect(pages + 4096, 4096, PROT_NONE));
        GET(madvise(pages + 8192, 4096, MADV_DONTNEED));
        IS(pages[8192], 0);
        GET(munmap(pages, 16384));
    }
    return argument;
}

CASE(memory_is_mapped_and_unmapped_in_10_threads)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        threads[i] = start(map_and_protect, NULL);
    }
    join_all(threads, 10);
}

static void *receive_message(void *queue)
{
    char message[64];
    return number(GET(mq_receive((mqd_t)(long)queue, message, sizeof message, NULL)));
}

CASE(message_queues_block_and_wake)
{
    char name[40];
    snprintf(name, sizeof name, "/check-%d", getpid());
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 64};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    if (queue == (mqd_t)-1 && (errno == ENOSYS || errno == EMFILE)) {
        return;
    }
    CHECK(queue != (mqd_t)-1);
    GET(mq_unlink(name));
    pthread_t thread = start(receive_message, number(queue));
    let_others_block();
    GET(mq_send(queue, "hello", 5, 0));
    IS(join(thread), 5);
}
