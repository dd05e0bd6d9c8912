/* Threads that wait in the kernel by calls without readiness to watch: the others go on. */
#include "check.h"
#include "made_call.h"
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>

/* A system call that the runtime doesn't see. */
static long raw_read(int fd, void *to, size_t size)
{
    return made_call(SYS_read, fd, (long)to, size);
}

static int pipes[16][2];

static void *read_raw(void *me)
{
    char got = 0;
    for (char wanted = 'a'; wanted <= 'c'; wanted++) {
        IS(raw_read(pipes[(long)me][0], &got, 1), 1);
        IS(got, wanted);
    }
    return NULL;
}

static void answer_raw_reads(int count)
{
    pthread_t threads[16];
    for (int i = 0; i < count; i++) {
        GET(pipe(pipes[i]));
    }
    for (long i = 0; i < count; i++) {
        threads[i] = start(read_raw, number(i));
    }
    for (char c = 'a'; c <= 'c'; c++) {
        let_others_block();
        for (int i = 0; i < count; i++) {
            IS(write(pipes[i][1], &c, 1), 1);
        }
    }
    join_all(threads, count);
}

CASE(a_raw_read_does_not_stop_who_writes)
{
    answer_raw_reads(1);
}

CASE(sixteen_raw_reads_do_not_stop_who_writes)
{
    answer_raw_reads(16);
}

static char fifo[100];

static void *open_fifo(void *unused)
{
    (void)unused;
    int fd = (int)GET(open(fifo, O_RDONLY));
    char got = 0;
    IS(read(fd, &got, 1), 1);
    close(fd);
    return number(got);
}

CASE(opening_a_fifo_waits_alone)
{
    pthread_t threads[8];
    snprintf(fifo, sizeof fifo, "/tmp/raddle-test-fifo-%d", getpid());
    GET(mkfifo(fifo, 0600));
    for (int i = 0; i < 8; i++) {
        threads[i] = start(open_fifo, NULL);
    }
    let_others_block();
    int fd = (int)GET(open(fifo, O_WRONLY));
    IS(write(fd, "xxxxxxxx", 8), 8);
    for (int i = 0; i < 8; i++) {
        IS(join(threads[i]), 'x');
    }
    close(fd);
    unlink(fifo);
}

enum { WRITERS = 4, WRITTEN = 30000 };

static void *write_to_terminal(void *fd)
{
    static const char text[WRITTEN];
    for (size_t done = 0; done < sizeof text;) {
        done += (size_t)GET(write((int)(long)fd, text + done, sizeof text - done));
    }
    /* POSIX lets it end so; see draining_a_terminal_is_seldom_interrupted. */
    while (tcdrain((int)(long)fd) != 0) {
        IS(errno, EINTR);
    }
    return fd;
}

/* The first writer waits for room, the others for the first: a lock of the kernel's. */
CASE(writers_to_a_full_terminal_wait_alone)
{
    struct termios attributes;
    pthread_t writers[WRITERS];
    int master = (int)GET(posix_openpt(O_RDWR | O_NOCTTY));
    GET(grantpt(master));
    GET(unlockpt(master));
    int terminal = (int)GET(open(ptsname(master), O_RDWR | O_NOCTTY));
    GET(tcgetattr(terminal, &attributes));
    cfmakeraw(&attributes);
    GET(tcsetattr(terminal, TCSANOW, &attributes));
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = start(write_to_terminal, number(terminal));
    }
    let_others_block();
    static char got[WRITTEN];
    for (int left = WRITERS * WRITTEN; left > 0;) {
        left -= (int)GET(read(master, got, sizeof got));
    }
    for (int i = 0; i < WRITERS; i++) {
        IS(join(writers[i]), terminal);
    }
    close(terminal);
    close(master);
}

static volatile int drained_enough;

static void *drain(void *fd)
{
    long failures = 0;
    while (!drained_enough) {
        failures += tcdrain((int)(long)fd) != 0;
    }
    return number(failures);
}

static void *compute_beside(void *unused)
{
    while (!drained_enough) {
    }
    return unused;
}

/* The kernel restarts no tcdrain: a signal that isn't the program's must not end one. Work that the
 * kernel itself has for a thread may, a few times in ten million. */
CASE(draining_a_terminal_is_seldom_interrupted)
{
    pthread_t drainers[2], computing[2];
    int master = (int)GET(posix_openpt(O_RDWR | O_NOCTTY));
    GET(grantpt(master));
    GET(unlockpt(master));
    int terminal = (int)GET(open(ptsname(master), O_RDWR | O_NOCTTY));
    for (int i = 0; i < 2; i++) {
        drainers[i] = start(drain, number(terminal));
        computing[i] = start(compute_beside, NULL);
    }
    sleep(2);
    drained_enough = 1;
    for (int i = 0; i < 2; i++) {
        IS((long)join(drainers[i]) <= 3, 1);
        join(computing[i]);
    }
    close(terminal);
    close(master);
}

enum { PAGE = 4096, PAGES = 8 };
static char *pages;

static void *touch(void *which)
{
    return number(*(volatile char *)(pages + (long)which * PAGE));
}

/* Threads fault on pages that another thread brings. Without permission nothing is shown. */
CASE(who_waits_for_a_page_waits_alone)
{
    struct uffdio_api api = {.api = UFFD_API};
    int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (faults < 0) {
        return;
    }
    GET(ioctl(faults, UFFDIO_API, &api));
    int access = PROT_READ | PROT_WRITE;
    pages = mmap(NULL, PAGES * PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    struct uffdio_register range = {
        .range = {(uintptr_t)pages, PAGES * PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING,
    };
    GET(ioctl(faults, UFFDIO_REGISTER, &range));
    pthread_t threads[PAGES];
    for (int i = 0; i < PAGES; i++) {
        threads[i] = start(touch, number(i));
    }
    let_others_block();
    for (int i = 0; i < PAGES; i++) {
        static char content[PAGE];
        struct uffd_msg fault;
        IS(read(faults, &fault, sizeof fault), sizeof fault);
        memset(content, 'x', PAGE);
        struct uffdio_copy copy = {
            .dst = fault.arg.pagefault.address & ~(uintptr_t)(PAGE - 1),
            .src = (uintptr_t)content,
            .len = PAGE,
        };
        GET(ioctl(faults, UFFDIO_COPY, &copy));
    }
    for (int i = 0; i < PAGES; i++) {
        IS(join(threads[i]), 'x');
    }
    close(faults);
    munmap(pages, PAGES * PAGE);
}

static atomic_int turns;

static void *take_turns(void *unused)
{
    (void)unused;
    while (atomic_load(&turns) < 100) {
        sleep_ms(1);
        atomic_fetch_add(&turns, 1);
    }
    IS(write(pipes[0][1], "abc", 3), 3);
    return NULL;
}

CASE(sleepers_go_on_beside_a_raw_read)
{
    GET(pipe(pipes[0]));
    pthread_t sleepers[2] = {start(take_turns, NULL), start(read_raw, number(0))};
    join_all(sleepers, 2);
}

static atomic_int computes;

static void *compute(void *unused)
{
    while (atomic_load_explicit(&computes, memory_order_relaxed)) {
    }
    return unused;
}

static void *nothing(void *unused)
{
    return unused;
}

static atomic_int some_are_started;

static void *start_some_and_read_raw(void *some)
{
    char c;
    for (int i = 0; i < 4; i++) {
        ((pthread_t *)some)[i] = start(nothing, NULL);
    }
    atomic_store(&some_are_started, 1);
    IS(raw_read(pipes[0][0], &c, 1), 1);
    return NULL;
}

/* The thread that takes the reader's place is runnable already. */
CASE(who_waits_behind_a_raw_read_runs_beside_threads_that_compute)
{
    enum { BURNERS = 4 };
    pthread_t burners[BURNERS], some[4];
    GET(pipe(pipes[0]));
    atomic_store(&computes, 1);
    for (int i = 0; i < BURNERS; i++) {
        burners[i] = start(compute, NULL);
    }
    sleep_ms(10);
    pthread_t reader = start(start_some_and_read_raw, some);
    do {
        sleep_ms(50);
    } while (!atomic_load(&some_are_started));
    join_all(some, 4);
    IS(write(pipes[0][1], "x", 1), 1);
    join(reader);
    atomic_store(&computes, 0);
    join_all(burners, BURNERS);
}

/* Each comes back to fewer carriers than there are threads by then. */
CASE(blocked_threads_come_back_and_compute)
{
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    for (int round = 0; round < 5; round++) {
        answer_raw_reads(THREADS);
        atomic_store(&turns, 0);
        for (int i = 0; i < THREADS; i++) {
            GET(close(pipes[i][0]));
            GET(close(pipes[i][1]));
        }
        GET(pipe(pipes[0]));
        for (int i = 0; i < THREADS; i++) {
            threads[i] = start(take_turns, NULL);
        }
        join_all(threads, THREADS);
    }
}

CASE(fork_while_others_block)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) {
        GET(pipe(pipes[i]));
        threads[i] = start(read_raw, number(i));
    }
    let_others_block();
    pid_t child = (pid_t)GET(fork());
    if (child == 0) {
        answer_raw_reads(3);
        _exit(5);
    }
    int status;
    IS(GET(waitpid(child, &status, 0)), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    for (int i = 0; i < 4; i++) {
        IS(write(pipes[i][1], "abc", 3), 3);
    }
    join_all(threads, 4);
}

CASE(a_child_process_waits_for_its_exec_alone)
{
    for (int i = 0; i < 20; i++) {
        IS(system("sleep 0.01"), 0);
    }
}
