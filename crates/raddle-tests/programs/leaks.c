/* Resources that a long run must not use up: memory, mappings, descriptors, kernel threads.
 *
 * The argument after the case's name is how often things happen, in hundreds. */
#include "check.h"

#include <dirent.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sched.h>

extern char **environ;

struct usage {
    long memory_kib, mappings, descriptors, kernel_threads;
};

static long entries(const char *folder_name, pid_t process)
{
    char path[100];
    long count = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", process, folder_name);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

static FILE *open_file(const char *name, pid_t process)
{
    char path[100];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    return file;
}

/* Another process looks: it sees what the kernel has. */
static struct usage usage(void)
{
    struct usage now = {0};
    pid_t parent = getpid(), child;
    int ends[2];
    GET(pipe(ends));
    if ((child = GET(fork())) == 0) {
        char line[500];
        FILE *file = open_file("maps", parent);
        while (fgets(line, sizeof line, file)) {
            now.mappings++;
        }
        fclose(file);
        file = open_file("status", parent);
        while (fgets(line, sizeof line, file)) {
            sscanf(line, "VmRSS: %ld", &now.memory_kib);
        }
        fclose(file);
        now.descriptors = entries("fd", parent);
        now.kernel_threads = entries("task", parent);
        IS(write(ends[1], &now, sizeof now), sizeof now);
        _exit(0);
    }
    IS(read(ends[0], &now, sizeof now), sizeof now);
    IS(waitpid(child, NULL, 0), child);
    close(ends[0]);
    close(ends[1]);
    return now;
}

static int hundreds(void)
{
    return argument_count > 2 ? atoi(arguments[2]) : 1;
}

/* Kernel threads of what has ended may be about to end. */
static struct usage usage_after(const struct usage *before)
{
    struct usage now = usage();
    for (int i = 0; i < 100 && now.kernel_threads > before->kernel_threads; i++) {
        sleep_ms(20);
        now = usage();
    }
    return now;
}

/* Repeats an action a few times to warm up, then many times, and compares. */
static void repeat(void (*hundred_times)(void))
{
    for (int i = 0; i < 3; i++) {
        hundred_times();
    }
    struct usage before = usage();
    for (int i = 0; i < hundreds(); i++) {
        hundred_times();
    }
    struct usage after = usage_after(&before);
    fprintf(stderr, "%ld times: memory %ld -> %ld KiB, mappings %ld -> %ld, descriptors %ld -> "
                    "%ld, kernel threads %ld -> %ld\n",
            hundreds() * 100L, before.memory_kib, after.memory_kib, before.mappings,
            after.mappings, before.descriptors, after.descriptors, before.kernel_threads,
            after.kernel_threads);
    /* Room for carriers that a backlog makes, and for the heap's way of growing. */
    CHECK(after.memory_kib <= before.memory_kib + 2048);
    CHECK(after.mappings <= before.mappings + 20);
    IS(after.descriptors, before.descriptors);
    CHECK(after.kernel_threads <= before.kernel_threads + 4);
}

static void *give_back(void *argument)
{
    return argument;
}

static void fork_often(void)
{
    for (int i = 0; i < 100; i++) {
        int status;
        pid_t child = GET(fork());
        if (child == 0) {
            _exit(i);
        }
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), i);
    }
}

CASE(forks_leave_nothing_behind)
{
    join(start(give_back, NULL));
    repeat(fork_often);
}

static void spawn_often(void)
{
    for (int i = 0; i < 100; i++) {
        int status;
        pid_t child;
        char *line[] = {"true", NULL};
        OK(posix_spawnp(&child, "true", NULL, NULL, line, environ));
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
}

CASE(spawned_programs_leave_nothing_behind)
{
    join(start(give_back, NULL));
    repeat(spawn_often);
}

static void create_and_join(void)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < 10; j++) {
            threads[j] = start(give_back, NULL);
        }
        join_all(threads, 10);
    }
}

CASE(threads_leave_nothing_behind) { repeat(create_and_join); }

static atomic_long handled;

static void count(int signal)
{
    (void)signal;
    handled++;
}

static atomic_int stop;

static void *yield_until_stopped(void *unused)
{
    while (!stop) {
        sched_yield();
    }
    return unused;
}

static pthread_t target;

static void signal_often(void)
{
    for (int i = 0; i < 100; i++) {
        long seen = handled;
        OK(i % 2 ? pthread_kill(target, SIGUSR1) : kill(getpid(), SIGUSR1));
        while (handled == seen) {
            sched_yield();
        }
    }
}

CASE(signals_leave_nothing_behind)
{
    signal(SIGUSR1, count);
    target = start(yield_until_stopped, NULL);
    repeat(signal_often);
    stop = 1;
    join(target);
}
