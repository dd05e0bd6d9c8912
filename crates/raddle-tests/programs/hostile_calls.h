/* Every call that the runtime handles, with arguments that do something harmless. */
#ifndef HOSTILE_CALLS_H
#define HOSTILE_CALLS_H

#include "hostile.h"
#include "hostile_files.h"

#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/uio.h>

static const struct shape bytes = {.size = 16};
static const struct shape page_of_bytes = {.size = 1000};
static const struct shape word = {.size = 4};
static const struct shape pair_of_words = {.size = 8};
static const struct shape noisy_word = {.size = 4, .is_noisy = 1};
static const struct shape noisy_bytes = {.size = 16, .is_noisy = 1};
static const struct shape address = {.size = 110};
static const struct shape groups = {.size = 8};
static const struct shape nothing_of_time = {.size = 16};

#define FILLS(name_, type_, ...)                                                                   \
    static void fill_##name_(char *at)                                                             \
    {                                                                                              \
        type_ value = __VA_ARGS__;                                                                 \
        memcpy(at, &value, sizeof value);                                                          \
    }

FILLS(address_length, int, 110)
static const struct shape address_length = {.size = 4, .fill = fill_address_length};

FILLS(vector, __typeof__(struct { struct iovec v[2]; }), {{{0, 8}, {0, 8}}})
static const struct shape vector = {
    .size = 32,
    .fill = fill_vector,
    .inner = {{0, &bytes}, {16, &bytes}},
    .lengths = {8, 24, -1},
};

FILLS(message, struct msghdr, {.msg_iovlen = 2, .msg_controllen = 32})
static const struct shape control = {.size = 32};
static const struct shape message_in = {
    .size = 56,
    .fill = fill_message,
    .inner = {{16, &vector}, {32, &control}},
    .lengths = {24, 40, -1},
};
FILLS(message_out, struct msghdr, {.msg_iovlen = 2})
static const struct shape message_out = {
    .size = 56,
    .fill = fill_message_out,
    .inner = {{16, &vector}},
    .lengths = {24, 40, -1},
};
static const struct shape messages_in = {
    .size = 64,
    .fill = fill_message,
    .inner = {{16, &vector}, {32, &control}},
    .lengths = {24, 40, -1},
};
static const struct shape messages_out = {
    .size = 64,
    .fill = fill_message_out,
    .inner = {{16, &vector}},
    .lengths = {24, 40, -1},
};

FILLS(short_time, struct timespec, {0, 1000})
static const struct shape short_time = {
    .size = 16,
    .fill = fill_short_time,
    .is_noisy = 1,
    .is_limit = 1,
};
static const struct shape limit = {.size = 16, .fill = fill_short_time, .is_limit = 1};
FILLS(short_timeval, struct timeval, {0, 10})
static const struct shape short_timeval = {
    .size = 16,
    .fill = fill_short_timeval,
    .is_noisy = 1,
    .is_limit = 1,
};

FILLS(polled, __typeof__(struct { struct pollfd p[3]; }),
      {{{FIRST_FILE + FULL_PIPE, POLLIN, 5}, {-1, POLLIN, 5}, {FIRST_FILE + CLOSED, 0, 5}}})
static const struct shape polled = {.size = 24, .fill = fill_polled};
FILLS(unready, struct pollfd, {FIRST_FILE + FULL_PIPE, POLLOUT, 5})
static const struct shape unready = {.size = 8, .fill = fill_unready};

static void fill_files(char *at)
{
    at[number_of(FULL_PIPE) / 8] |= 1 << number_of(FULL_PIPE) % 8;
}
static const struct shape files = {.size = 8, .fill = fill_files};

static const struct shape signal_set = {.size = 8};
FILLS(usr2, unsigned long, 1ul << (SIGUSR2 - 1))
static const struct shape usr2 = {.size = 8, .fill = fill_usr2};
FILLS(set_size, __typeof__(struct { long a, b; }), {0, 8})
static const struct shape set_argument = {
    .size = 16,
    .fill = fill_set_size,
    .inner = {{0, &signal_set}},
    .lengths = {8, -1},
};

struct kernel_action {
    unsigned long handler, flags, restorer, mask;
};
static volatile int signals_handled;
static void on_signal(int signal)
{
    signals_handled += signal == SIGUSR2;
}
FILLS(action, struct kernel_action, {0, 0xffff08ff, 0, ~0ul})
static const struct shape action = {.size = 32, .fill = fill_action};
static const struct shape old_action = {.size = 32, .is_noisy = 1};

FILLS(stack, stack_t, {.ss_sp = (void *)0x200010000, .ss_size = 8192})
static const struct shape stack = {.size = 24, .fill = fill_stack, .lengths = {16, -1}};

static void fill_info(char *at)
{
    siginfo_t info = {0};
    info.si_signo = SIGUSR2;
    info.si_code = SI_QUEUE;
    info.si_value.sival_int = 5;
    memcpy(at, &info, sizeof info);
}
static const struct shape info = {.size = 128, .fill = fill_info};

FILLS(event, struct sigevent, {.sigev_notify = SIGEV_NONE})
static const struct shape event = {.size = 64, .fill = fill_event};

#define PATH(name_, path_)                                                                         \
    static void fill_##name_(char *at)                                                             \
    {                                                                                              \
        strcpy(at, path_);                                                                         \
    }                                                                                              \
    static const struct shape name_ = {.size = sizeof path_, .fill = fill_##name_}
PATH(tasks, "/proc/self/task");
PATH(own_link, "/proc/thread-self");
PATH(own_name, "/proc/thread-self/comm");
PATH(no_task, "/proc/self/task/1/comm");
PATH(root, "/");
PATH(nowhere, "/nonexistent/program");
PATH(empty, "");
PATH(name, "a name");

static const struct shape status = {.size = 144, .is_noisy = 1};
static const struct shape extended_status = {.size = 256, .is_noisy = 1};
static const struct shape entries = {.size = 1000, .is_noisy = 1};
static const struct shape usage = {.size = 144, .is_noisy = 1};
static const struct shape child_status = {.size = 4};

static void fill_cpus(char *at)
{
    memset(at, 0xff, 128);
}
static const struct shape cpus = {.size = 128, .fill = fill_cpus};
FILLS(attributes, unsigned, 48)
static const struct shape attributes = {.size = 56, .fill = fill_attributes};
static const struct shape attributes_out = {.size = 56, .is_noisy = 1};

FILLS(words, __typeof__(struct { struct futex_waitv v[2]; }),
      {{{.val = 1, .flags = 2 | 128}, {.val = 1, .flags = 2 | 128}}})
static const struct shape words = {
    .size = 48,
    .fill = fill_words,
    .inner = {{8, &word}, {32, &word}},
};

FILLS(operations, __typeof__(struct { struct sembuf s[2]; }), {{{0, 1, 0}, {0, -1, 0}}})
static const struct shape operations = {.size = 12, .fill = fill_operations};
FILLS(typed, __typeof__(struct { long type; char text[16]; }), {3, "text"})
static const struct shape typed = {.size = 24, .fill = fill_typed};
FILLS(lock, struct flock, {.l_type = F_WRLCK})
static const struct shape lock = {.size = 32, .fill = fill_lock};
FILLS(one, long, 1)
static const struct shape one = {.size = 8, .fill = fill_one};
static const struct shape argument_list = {.size = 16, .inner = {{0, &bytes}}};
FILLS(extended, struct io_uring_getevents_arg, {.sigmask_sz = 8})
static const struct shape extended = {
    .size = 24,
    .fill = fill_extended,
    .inner = {{0, &signal_set}, {16, &limit}},
};
FILLS(capability_header, struct __user_cap_header_struct, {_LINUX_CAPABILITY_VERSION_3, 0})
static const struct shape capability_header = {.size = 8, .fill = fill_capability_header};
static const struct shape capabilities = {.size = 24};
static const struct shape filter = {.size = 16};
FILLS(limits, struct rlimit64, {1 << 20, 1 << 20})
static const struct shape limits = {.size = 16, .fill = fill_limits};
static const struct shape old_limits = {.size = 16, .is_noisy = 1};
static const struct shape noisy_pair = {.size = 16, .is_noisy = 1};
static const struct shape robust_head = {.size = 24};

static int message_queue, semaphores, ring;
static unsigned long io_context;
static void *own_list, *own_word; /* the running thread's, as libc has set them */

static void prepare_calls(void)
{
    message_queue = GET(msgget(IPC_PRIVATE, 0600));
    semaphores = GET(semget(IPC_PRIVATE, 1, 0600));
    struct io_uring_params parameters = {0};
    ring = syscall(SYS_io_uring_setup, 4, &parameters);
    GET(syscall(SYS_io_setup, 4, &io_context));
    signal(SIGUSR2, on_signal);
}

static void forget_calls(void)
{
    msgctl(message_queue, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
}

static void drain_messages(long value)
{
    (void)value;
    char buffer[4096];
    while (msgrcv(message_queue, buffer, 64, 0, IPC_NOWAIT | MSG_NOERROR) >= 0) {
    }
}

/* A signal for the process may be another thread's to handle. */
static void await_signal(long value)
{
    static int handled;
    for (int i = 0; value == 0 && signals_handled == handled && i < 10000; i++) {
        usleep(1000);
    }
    handled = signals_handled;
}

static void reset_action(long value)
{
    (void)value;
    signal(SIGUSR2, on_signal);
}

static void reset_stack(long value)
{
    (void)value;
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
}

/* The id lies where the second pointer led, if that can be read now. */
static void delete_timer(long value)
{
    int id;
    struct iovec here = {&id, sizeof id}, there = {(void *)laid[1], sizeof id};
    if (value == 0 && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof id) {
        syscall(SYS_timer_delete, id);
    }
}

static void reset_class(long value)
{
    (void)value;
    struct sched_param plain = {0};
    syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &plain);
    setpriority(PRIO_PROCESS, 0, 0);
}

static void reset_name(long value)
{
    (void)value;
    GET(prctl(PR_SET_NAME, "hostile"));
}

static void know_lists(void)
{
    size_t size;
    GET(syscall(SYS_get_robust_list, 0, &own_list, &size));
    GET(prctl(PR_GET_TID_ADDRESS, &own_word));
}

static void reset_lists(long value)
{
    (void)value;
    syscall(SYS_set_robust_list, own_list, 24);
    syscall(SYS_set_tid_address, own_word);
}

#endif
