/* Threads as /proc shows them: the folder of threads, and the files of each. */
#include "check.h"

#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { THREADS = 20 };

static atomic_int ids[THREADS], stop;

static void *sleep_until_stopped(void *me)
{
    char name[16];
    snprintf(name, sizeof name, "sleeper %ld", (long)me);
    GET(prctl(PR_SET_NAME, name));
    atomic_store(&ids[(long)me], gettid());
    while (!atomic_load(&stop)) {
        usleep(2000);
    }
    return NULL;
}

static void start_sleepers(pthread_t *threads, int count)
{
    for (long i = 0; i < count; i++) {
        threads[i] = start_small(sleep_until_stopped, number(i));
    }
    for (int i = 0; i < count; i++) {
        while (!atomic_load(&ids[i])) {
            usleep(500);
        }
    }
}

static void stop_sleepers(pthread_t *threads, int count)
{
    atomic_store(&stop, 1);
    join_all(threads, count);
}

static int read_file(const char *path, char *text, size_t size)
{
    int fd = GET(open(path, O_RDONLY | O_CLOEXEC));
    size_t len = 0;
    ssize_t got;
    while ((got = GET(read(fd, text + len, size - 1 - len))) > 0) {
        len += got;
    }
    text[len] = 0;
    close(fd);
    return len;
}

/* Counts the entries of an open folder; notes which of our threads are among them. */
static int list(DIR *folder, int *seen)
{
    int count = 0;
    struct dirent *entry;
    memset(seen, 0, (THREADS + 1) * sizeof *seen);
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        count++;
        int id = atoi(entry->d_name);
        CHECK(entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN);
        for (int i = 0; i < THREADS; i++) {
            seen[i] += id == ids[i];
        }
        seen[THREADS] += id == getpid();
    }
    return count;
}

CASE(the_folder_lists_every_thread_once)
{
    pthread_t threads[THREADS];
    int seen[THREADS + 1];
    start_sleepers(threads, THREADS);
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    for (int round = 0; round < 2; round++) {
        IS(list(folder, seen), THREADS + 1);
        for (int i = 0; i <= THREADS; i++) {
            IS(seen[i], 1);
        }
        rewinddir(folder);
    }
    struct stat about;
    GET(fstat(dirfd(folder), &about));
    IS(about.st_nlink, THREADS + 1 + 2);
    int fd = GET(openat(dirfd(folder), "..", O_RDONLY | O_DIRECTORY));
    close(fd);
    char path[64], name[40];
    snprintf(path, sizeof path, "%d/comm", ids[3]);
    fd = GET(openat(dirfd(folder), path, O_RDONLY));
    CHECK(GET(read(fd, name, sizeof name)) > 5);
    close(fd);
    closedir(folder);
    GET(stat("/proc/self/task", &about));
    IS(about.st_nlink, THREADS + 1 + 2);
    snprintf(path, sizeof path, "/proc/%d/task/", getpid());
    folder = opendir(path);
    CHECK(folder != NULL);
    IS(list(folder, seen), THREADS + 1);
    closedir(folder);
    stop_sleepers(threads, THREADS);
}

CASE(a_small_buffer_lists_in_parts)
{
    pthread_t threads[THREADS];
    char buffer[64];
    start_sleepers(threads, THREADS);
    int fd = GET(open("/proc/self/task", O_RDONLY | O_DIRECTORY));
    FAILS(syscall(SYS_getdents64, fd, buffer, 8), EINVAL);
    int count = 0;
    long got;
    while ((got = GET(syscall(SYS_getdents64, fd, buffer, sizeof buffer))) > 0) {
        for (long at = 0; at < got; at += *(unsigned short *)(buffer + at + 16)) {
            count++;
        }
    }
    IS(count, THREADS + 1 + 2);
    close(fd);
    fd = GET(open("/", O_RDONLY | O_DIRECTORY));
    CHECK(GET(syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0);
    close(fd);
    stop_sleepers(threads, THREADS);
}

CASE(names_are_read_and_written_by_file)
{
    pthread_t threads[2];
    char path[64], name[40];
    start_sleepers(threads, 2);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", ids[1]);
    read_file(path, name, sizeof name);
    IS(strcmp(name, "sleeper 1\n"), 0);
    int fd = GET(open(path, O_RDWR | O_CLOEXEC));
    IS(fcntl(fd, F_GETFD), FD_CLOEXEC);
    IS(write(fd, "written", 7), 7);
    close(fd);
    read_file(path, name, sizeof name);
    IS(strcmp(name, "written\n"), 0);
    OK(pthread_getname_np(threads[1], name, sizeof name));
    IS(strcmp(name, "written"), 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", getpid());
    OK(pthread_setname_np(pthread_self(), "the main one"));
    read_file(path, name, sizeof name);
    IS(strcmp(name, "the main one\n"), 0);
    read_file("/proc/self/comm", name, sizeof name);
    IS(strcmp(name, "the main one\n"), 0);
    stop_sleepers(threads, 2);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", ids[1]);
    /* Natively a thread that has been joined is there for another moment. */
    while ((fd = open(path, O_RDONLY)) != -1) {
        close(fd);
        sleep_ms(1);
    }
    IS(errno, ENOENT);
}

static void *rename_main(void *block)
{
    char name[40];
    OK(pthread_setname_np(*(pthread_t *)block, "by another"));
    read_file("/proc/self/comm", name, sizeof name);
    IS(strcmp(name, "by another\n"), 0);
    return NULL;
}

CASE(the_main_threads_name_is_the_processs)
{
    pthread_t self = pthread_self();
    for (int i = 0; i < 20; i++) {
        join(start(rename_main, &self));
        sched_yield();
        GET(prctl(PR_SET_NAME, "by itself"));
        char name[40];
        read_file("/proc/self/comm", name, sizeof name);
        IS(strcmp(name, "by itself\n"), 0);
    }
}

static long field(const char *stat, int wanted)
{
    const char *at = strrchr(stat, ')') + 2;
    for (int i = 3; i < wanted; i++) {
        at = strchr(at, ' ') + 1;
    }
    return strtol(at, NULL, 10);
}

static int count_fields(const char *stat)
{
    int count = 2;
    for (const char *at = strrchr(stat, ')'); *at; at++) {
        count += *at == ' ';
    }
    return count;
}

CASE(stat_and_status_tell_of_the_thread)
{
    pthread_t threads[3];
    char path[64], text[4096], whole[4096], wanted[64];
    start_sleepers(threads, 3);
    struct sched_param none = {0};
    GET(sched_setscheduler(ids[2], SCHED_BATCH, &none));
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", ids[2]);
    read_file(path, text, sizeof text);
    IS(atoi(text), ids[2]);
    CHECK(strstr(text, "(sleeper 2)") != NULL);
    char state = strrchr(text, ')')[2];
    CHECK(state == 'S' || state == 'R');
    IS(field(text, 4), getppid());
    IS(field(text, 41), SCHED_BATCH);
    IS(field(text, 19), 0);
    CHECK(field(text, 14) < 100);
    read_file("/proc/self/stat", whole, sizeof whole);
    IS(count_fields(text), count_fields(whole));
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", getpid(), ids[1]);
    read_file(path, text, sizeof text);
    CHECK(strncmp(text, "Name:\tsleeper 1\n", 16) == 0);
    snprintf(wanted, sizeof wanted, "\nPid:\t%d\n", ids[1]);
    CHECK(strstr(text, wanted) != NULL);
    snprintf(wanted, sizeof wanted, "\nTgid:\t%d\n", getpid());
    CHECK(strstr(text, wanted) != NULL);
    CHECK(strstr(text, "\nThreads:\t4\n") != NULL);
    CHECK(strstr(text, "\nVmRSS:\t") != NULL);
    CHECK(strstr(text, "\nvoluntary_ctxt_switches:\t") != NULL);
    stop_sleepers(threads, 3);
}

static void *look_at_myself(void *argument)
{
    char link[64] = "", wanted[64], text[4096];
    GET(prctl(PR_SET_NAME, "myself"));
    GET(readlink("/proc/thread-self", link, sizeof link - 1));
    snprintf(wanted, sizeof wanted, "%d/task/%d", getpid(), gettid());
    IS(strcmp(link, wanted), 0);
    read_file("/proc/thread-self/comm", text, sizeof text);
    IS(strcmp(text, "myself\n"), 0);
    read_file("/proc/thread-self/stat", text, sizeof text);
    IS(atoi(text), gettid());
    CHECK(read_file("/proc/thread-self/maps", text, sizeof text) > 0);
    return argument;
}

CASE(a_thread_finds_itself)
{
    join(start(look_at_myself, NULL));
}

CASE(the_rest_of_a_threads_folder_is_there)
{
    pthread_t threads[1];
    char path[64], text[4096];
    struct stat about;
    start_sleepers(threads, 1);
    snprintf(path, sizeof path, "/proc/self/task/%d", ids[0]);
    GET(stat(path, &about));
    CHECK(S_ISDIR(about.st_mode));
    GET(access(path, R_OK));
    int folder = GET(open(path, O_RDONLY | O_DIRECTORY));
    int fd = GET(openat(folder, "comm", O_RDONLY));
    memset(text, 0, 40);
    CHECK(GET(read(fd, text, 40)) > 0);
    IS(strcmp(text, "sleeper 0\n"), 0);
    close(fd);
    close(folder);
    snprintf(path, sizeof path, "/proc/self/task/%d/maps", ids[0]);
    GET(access(path, R_OK));
    CHECK(read_file(path, text, sizeof text) > 0);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", ids[0]);
    GET(stat(path, &about));
    CHECK(S_ISREG(about.st_mode));
    snprintf(path, sizeof path, "/proc/self/task/%d/nothing", ids[0]);
    FAILS(access(path, R_OK), ENOENT);
    FAILS(open("/proc/self/task/1073741822/comm", O_RDONLY), ENOENT);
    FAILS(access("/proc/self/task/1073741822", F_OK), ENOENT);
    FAILS(open("/proc/self/tas", O_RDONLY), ENOENT);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(open((char *)8, O_RDONLY), EFAULT);
    FAILS(access((char *)8, F_OK), EFAULT);
    FAILS(readlink((char *)8, text, 8), EFAULT);
    stop_sleepers(threads, 1);
}
