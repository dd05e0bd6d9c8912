/* Threads by clone and clone3: which requests are refused, and threads that share less than
 * pthreads do. */
#include "check.h"

#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/stat.h>

enum { STACK = 64 * 1024 };
static const unsigned long THREAD =
    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
static const unsigned long KERNELS = 0xffff800000000000;

/* The first address that can't be the program's. It depends on the levels of the page tables: with
 * five the kernel maps a page above the reach of four, if it is asked to. */
static unsigned long not_canonical;

static char *stack;

static void *idle(void *unused)
{
    pause();
    return unused;
}

static void begin(void)
{
    stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    void *high = mmap((void *)(1ul << 48), 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(high != MAP_FAILED);
    not_canonical = 1ul << ((unsigned long)high >> 47 ? 56 : 47);
    munmap(high, 4096);
    start(idle, NULL);
}

static struct clone_args request(unsigned long flags)
{
    struct clone_args args = {0};
    args.flags = flags;
    args.stack = (unsigned long)stack;
    args.stack_size = STACK;
    return args;
}

static long clone3_of(struct clone_args *args, size_t size)
{
    return syscall(SYS_clone3, args, size);
}

static void refused(unsigned long flags, int error)
{
    struct clone_args args = request(flags);
    FAILS(clone3_of(&args, sizeof args), error);
}

CASE(flags_that_do_not_go_together)
{
    begin();
    refused(THREAD & ~CLONE_SIGHAND, EINVAL);
    refused(THREAD & ~CLONE_VM, EINVAL);
    refused(THREAD | 1ul << 40, EINVAL);
    refused(THREAD | SIGCHLD, EINVAL);
    refused(THREAD | CLONE_DETACHED, EINVAL);
    refused(THREAD | CLONE_CLEAR_SIGHAND, EINVAL);
    refused(THREAD | CLONE_NEWUSER, EINVAL);
    refused((THREAD & ~CLONE_FS) | CLONE_NEWUSER, EINVAL);
    refused(THREAD | CLONE_NEWPID, EINVAL);
    refused(THREAD | CLONE_NEWNS, EINVAL);
}

/* A case that goes through begins with what `change` does to a good request. */
#define REFUSED(change, size, error)                                                     \
    do {                                                                                 \
        struct clone_args args = request(THREAD);                                        \
        change;                                                                          \
        FAILS(clone3_of(&args, size), error);                                            \
    } while (0)

CASE(arguments_that_make_no_sense)
{
    begin();
    REFUSED(args.exit_signal = SIGCHLD, sizeof args, EINVAL);
    REFUSED(args.exit_signal = 65, sizeof args, EINVAL);
    REFUSED(args.exit_signal = 1ul << 32, sizeof args, EINVAL);
    REFUSED(args.stack = 0, sizeof args, EINVAL);
    REFUSED(args.stack_size = 0, sizeof args, EINVAL);
    REFUSED(args.stack = KERNELS, sizeof args, EINVAL);
    REFUSED(args.stack = not_canonical, sizeof args, EINVAL);
    REFUSED(args.stack_size = -1ul, sizeof args, EINVAL);
    REFUSED(args.set_tid = 1; args.set_tid_size = 1, sizeof args, EFAULT);
    REFUSED(args.set_tid = 0; args.set_tid_size = 1, sizeof args, EINVAL);
    REFUSED(args.set_tid = (unsigned long)&args, sizeof args, EINVAL);
    REFUSED(args.set_tid = (unsigned long)&args; args.set_tid_size = 33, sizeof args, EINVAL);
    REFUSED(args.flags |= CLONE_SETTLS; args.tls = KERNELS, sizeof args, EPERM);
    REFUSED(args.flags |= CLONE_SETTLS; args.tls = not_canonical, sizeof args, EPERM);
    REFUSED(args.flags |= CLONE_INTO_CGROUP; args.cgroup = 9999, sizeof args, EBADF);
    REFUSED(args.flags |= CLONE_INTO_CGROUP; args.cgroup = 1ul << 40, sizeof args, EINVAL);
    REFUSED(args.flags |= CLONE_INTO_CGROUP; args.cgroup = 9999, 80, EINVAL);
}

CASE(sizes_of_the_structure)
{
    begin();
    char large[8192] = {0};
    struct clone_args args = request(THREAD & ~CLONE_SIGHAND);
    memcpy(large, &args, sizeof args);
    FAILS(syscall(SYS_clone3, large, 0), EINVAL);
    FAILS(syscall(SYS_clone3, large, 63), EINVAL);
    FAILS(syscall(SYS_clone3, large, 4096), EINVAL); /* for its flags */
    FAILS(syscall(SYS_clone3, large, 4097), E2BIG);
    FAILS(syscall(SYS_clone3, large, -1ul), E2BIG);
    large[2000] = 1;
    FAILS(syscall(SYS_clone3, large, 2000), EINVAL);
    FAILS(syscall(SYS_clone3, large, 2001), E2BIG);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(edge != MAP_FAILED);
    OK(mprotect(edge + 4096, 4096, PROT_NONE));
    memcpy(edge + 4096 - 64, &args, 64);
    FAILS(syscall(SYS_clone3, edge + 4096 - 64, 64), EINVAL);
    FAILS(syscall(SYS_clone3, edge + 4096 - 64, 65), EFAULT);
    FAILS(syscall(SYS_clone3, edge + 4096 - 64, 200), EFAULT);
    FAILS(syscall(SYS_clone3, edge + 4096 - 63, 64), EFAULT);
}

CASE(requests_of_the_older_call)
{
    begin();
    char *top = stack + STACK;
    FAILS(syscall(SYS_clone, THREAD & ~CLONE_SIGHAND, top, NULL, NULL, 0), EINVAL);
    FAILS(syscall(SYS_clone, THREAD & ~CLONE_VM, top, NULL, NULL, 0), EINVAL);
    FAILS(syscall(SYS_clone, THREAD | CLONE_NEWUSER, top, NULL, NULL, 0), EINVAL);
    FAILS(syscall(SYS_clone, THREAD | CLONE_NEWNS, top, NULL, NULL, 0), EINVAL);
    unsigned long named = THREAD | CLONE_PIDFD;
    FAILS(syscall(SYS_clone, named | CLONE_DETACHED, top, &top, NULL, 0), EINVAL);
    FAILS(syscall(SYS_clone, named | CLONE_PARENT_SETTID, top, &top, NULL, 0), EINVAL);
    FAILS(syscall(SYS_clone, THREAD | CLONE_SETTLS, top, NULL, NULL, KERNELS), EPERM);
}

/* Runs `run` on a thread made by libc's clone, which shares its maker's thread block: so its maker
 * does nothing meanwhile. */
static int run_as(unsigned long flags, int (*run)(void *), void *argument, void *parent,
                  void *child)
{
    static int ends;
    ends = 1;
    void *word = flags & CLONE_CHILD_SETTID ? child : &ends;
    unsigned long all = flags | (word == &ends ? CLONE_CHILD_CLEARTID : 0);
    int made = clone(run, stack + STACK, all, argument, parent, NULL, word);
    if (made == -1) {
        return -1;
    }
    while (word == &ends && __atomic_load_n(&ends, __ATOMIC_ACQUIRE)) {
        syscall(SYS_futex, &ends, FUTEX_WAIT, 1, NULL, NULL, 0);
    }
    return made;
}

static volatile int ran, own_id;

static int count(void *unused)
{
    (void)unused;
    own_id = syscall(SYS_gettid);
    ran++;
    return 0;
}

CASE(places_for_ids_may_be_bad)
{
    begin();
    void *bad[] = {NULL, (void *)64, (void *)KERNELS, (void *)not_canonical};
    for (int i = 0; i < 4; i++) {
        GET(run_as(THREAD | CLONE_PARENT_SETTID, count, NULL, bad[i], NULL));
        IS(ran, 2 * i + 1);
        unsigned long flags = THREAD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        GET(run_as(flags, count, NULL, NULL, bad[i]));
        while (ran != 2 * i + 2) {
            sched_yield();
        }
        let_others_block(); /* it uses the stack until it has ended */
    }
    int parent = 0;
    int made = GET(run_as(THREAD | CLONE_PARENT_SETTID, count, NULL, &parent, NULL));
    IS(parent, made);
    IS(own_id, made);
}

static int close_and_open(void *file)
{
    GET(close(*(int *)file));
    IS(open("/dev/null", O_RDWR), *(int *)file);
    GET(dup2(*(int *)file, 77));
    return 0;
}

CASE(a_thread_with_descriptors_of_its_own)
{
    begin();
    int ends[2];
    GET(pipe(ends));
    for (int i = 0; i < 5; i++) {
        GET(run_as(THREAD & ~CLONE_FILES, close_and_open, &ends[0], NULL, NULL));
        FAILS(fcntl(77, F_GETFD), EBADF);
        char byte = 0;
        IS(write(ends[1], "x", 1), 1);
        IS(read(ends[0], &byte, 1), 1);
        IS(byte, 'x');
    }
}

static int change_folder(void *unused)
{
    (void)unused;
    GET(chdir("/proc"));
    umask(0);
    return 0;
}

CASE(a_thread_with_a_folder_of_its_own)
{
    begin();
    char before[4096], after[4096];
    umask(022);
    CHECK(getcwd(before, sizeof before) != NULL);
    GET(run_as(THREAD & ~CLONE_FS, change_folder, NULL, NULL, NULL));
    CHECK(getcwd(after, sizeof after) != NULL);
    IS(strcmp(before, after), 0);
    IS(umask(022), 022);
    GET(run_as(THREAD, change_folder, NULL, NULL, NULL));
    CHECK(getcwd(after, sizeof after) != NULL);
    IS(strcmp(after, "/proc"), 0);
    IS(umask(022), 0);
    GET(chdir(before));
}

static int take_and_undo(void *set)
{
    struct sembuf take = {0, -1, SEM_UNDO};
    GET(semop(*(int *)set, &take, 1));
    return 0;
}

CASE(a_thread_that_undoes_its_own_operations)
{
    begin();
    int set = GET(semget(IPC_PRIVATE, 1, 0600));
    GET(semctl(set, 0, SETVAL, 5));
    GET(run_as(THREAD & ~CLONE_SYSVSEM, take_and_undo, &set, NULL, NULL));
    int64_t until_ns = now_ns() + 5 * SECOND;
    while (semctl(set, 0, GETVAL) != 5 && now_ns() < until_ns) {
        sched_yield(); /* the end is told before that */
    }
    IS(semctl(set, 0, GETVAL), 5);
    GET(run_as(THREAD, take_and_undo, &set, NULL, NULL));
    IS(semctl(set, 0, GETVAL), 4);
    GET(semctl(set, 0, IPC_RMID));
}

/* Since Linux 6.9. */
CASE(a_descriptor_that_names_a_thread)
{
    begin();
    int file = -1;
    if (run_as(THREAD | CLONE_PIDFD, count, NULL, &file, NULL) == -1) {
        IS(errno, EINVAL);
        IS(file, -1);
        return;
    }
    IS(ran, 1);
    CHECK(file > 2);
    struct pollfd end = {file, POLLIN, 0};
    IS(poll(&end, 1, 20000), 1);
    close(file);
    FAILS(run_as(THREAD | CLONE_PIDFD, count, NULL, NULL, NULL), EFAULT);
    FAILS(run_as(THREAD | CLONE_PIDFD, count, NULL, (void *)KERNELS, NULL), EFAULT);
    IS(ran, 1);
}

CASE(a_thread_on_a_stack_that_is_not_there)
{
    begin();
    unsigned long bad[] = {64, KERNELS, not_canonical};
    int kills[] = {SIGSEGV, SIGSEGV, SIGBUS};
    for (int i = 0; i < 3; i++) {
        pid_t child = GET(fork());
        if (child == 0) {
            start(idle, NULL);
            syscall(SYS_clone, THREAD, bad[i], NULL, NULL, 0);
            pause();
        }
        int status;
        IS(waitpid(child, &status, 0), child);
        CHECK(WIFSIGNALED(status));
        IS(WTERMSIG(status), kills[i]);
    }
}

/* A call changes no register but the result's, rcx and r11. */
CASE(registers_after_a_fork_by_clone3)
{
    begin();
    struct clone_args args = {.exit_signal = SIGCHLD};
    long result, at = (long)&args, size = sizeof args;
    __asm__ volatile("syscall"
                     : "=a"(result), "+D"(at), "+S"(size)
                     : "a"(SYS_clone3)
                     : "rcx", "r11", "memory");
    if (result == 0) {
        _exit(at == (long)&args && size == sizeof args ? 0 : 1);
    }
    CHECK(result > 0 && at == (long)&args && size == sizeof args);
    int status;
    IS(waitpid(result, &status, 0), result);
    IS(status, 0);
}

/* Children of the caller's parent. Each raises a number in the memory that both have. */
static int raise_number(void *number)
{
    __atomic_fetch_add((int *)number, 1, __ATOMIC_SEQ_CST);
    return 7;
}

static void *make_siblings(void *number)
{
    char *own = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED);
    for (int i = 1; i <= 100; i++) {
        int flags = CLONE_VM | CLONE_PARENT | (i % 2 ? CLONE_VFORK : 0) | SIGCHLD;
        int before = __atomic_load_n((int *)number, __ATOMIC_SEQ_CST);
        GET(clone(raise_number, own + STACK, flags, number));
        for (int left = 5000; __atomic_load_n((int *)number, __ATOMIC_SEQ_CST) == before; left--) {
            CHECK(left > 0);
            sleep_ms(1);
        }
        sleep_ms(1); /* the child may still be on its stack */
        FAILS(waitpid(-1, NULL, 0), ECHILD);
    }
    return NULL;
}

CASE(children_of_the_parents_that_share_memory)
{
    int status;
    pid_t child = GET(fork());
    if (child == 0) {
        static int number;
        join(start(make_siblings, &number));
        make_siblings(&number);
        _exit(number == 200 ? 7 : 1);
    }
    for (int ended = 0; ended <= 200; ended++) {
        GET(wait(&status));
        IS(WEXITSTATUS(status), 7);
    }
    FAILS(wait(NULL), ECHILD);
}

/* A process with the table of descriptors of its parent, but memory of its own: it leaves those
 * that the parent's threads wait by. */
static void *wait_in_all_ways(void *ends)
{
    char byte;
    IS(read(*(int *)ends, &byte, 1), 1);
    sleep_ms(5);
    return ends;
}

static void *yield_and_end(void *unused)
{
    sleep_ms(1);
    return unused;
}

static void *make_and_join(void *unused)
{
    join(start(yield_and_end, NULL));
    return unused;
}

CASE(children_that_share_descriptors_leave_those_of_the_runtime)
{
    begin();
    for (int i = 0; i < 20; i++) {
        int ends[2], status;
        GET(pipe(ends));
        pthread_t waiter = start(wait_in_all_ways, ends);
        let_others_block();
        unsigned long flags = CLONE_FILES | SIGCHLD;
        struct clone_args args = {.flags = CLONE_FILES, .exit_signal = SIGCHLD};
        pid_t child = i % 2 ? GET(syscall(SYS_clone, flags, 0, 0, 0, 0))
                            : GET(syscall(SYS_clone3, &args, sizeof args));
        if (child == 0) {
            if (i % 4 > 1) {
                make_and_join(NULL);
            }
            IS(write(ends[1], "x", 1), 1);
            close(ends[1]);
            _exit(7);
        }
        IS(waitpid(child, &status, 0), child);
        IS(WEXITSTATUS(status), 7);
        join(waiter);
        FAILS(close(ends[1]), EBADF);
        close(ends[0]);
    }
}
