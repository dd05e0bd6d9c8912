/* User-mode scheduling. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <raddle_ums.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64 };

/* A scheduler that executes workers in turn until `left` of them, counted by all that share the
 * number, have ended. */
struct turns {
    raddle_ums_list *list;
    int *left;
    raddle_ums_context *ready[MOST];
    int first, count;
    int starts, yields, calls, kernels, ends, retries;
    uintptr_t sum; /* of what yields passed */
    raddle_ums_context *last; /* that yielded */
    void (*blocked)(struct turns *, uintptr_t by);
};

static __thread struct turns *own;

static void push(struct turns *turns, raddle_ums_context *context) {
    turns->ready[(turns->first + turns->count++) % MOST] = context;
}

static uintptr_t ask(raddle_ums_context *context, int what) {
    uintptr_t value = 77;
    OK(raddle_ums_query(context, what, &value));
    return value;
}

static void take(struct turns *turns, int wait_ms) {
    raddle_ums_context *item = NULL, *after;
    int error = raddle_ums_dequeue(turns->list, wait_ms, &item);
    if (error != 0) {
        IS(error, -ETIMEDOUT);
        return;
    }
    for (; item != NULL; item = after) {
        after = raddle_ums_next_item(item);
        if (ask(item, RADDLE_UMS_HAS_ENDED))
            __sync_fetch_and_sub(turns->left, 1);
        else
            push(turns, item);
    }
}

static void execute_next(struct turns *turns) {
    for (;;) {
        take(turns, turns->count > 0 ? 0 : 2);
        if (turns->count == 0) {
            if (__sync_fetch_and_add(turns->left, 0) == 0) return;
            continue;
        }
        raddle_ums_context *context = turns->ready[turns->first];
        turns->first = (turns->first + 1) % MOST;
        turns->count--;
        IS(raddle_ums_execute(context), -EAGAIN); /* its registers are being saved */
        turns->retries++;
        push(turns, context);
    }
}

static void procedure(int reason, uintptr_t payload, void *parameter) {
    switch (reason) {
    case RADDLE_UMS_STARTUP:
        IS(payload, 0);
        own = parameter;
        own->starts++;
        break;
    case RADDLE_UMS_YIELD:
        own->yields++;
        own->sum += (uintptr_t)parameter;
        own->last = (raddle_ums_context *)payload;
        push(own, own->last);
        break;
    default:
        IS(reason, RADDLE_UMS_BLOCKED);
        IS(parameter == NULL, 1);
        own->calls += payload == RADDLE_UMS_BY_CALL;
        own->kernels += payload == RADDLE_UMS_BY_KERNEL;
        own->ends += payload == RADDLE_UMS_BY_END;
        if (own->blocked != NULL) own->blocked(own, payload);
    }
    execute_next(own);
}

static void *schedule(void *argument) {
    OK(raddle_ums_enter(procedure, argument));
    return NULL;
}

/* Runs a scheduler on a green thread. */
static void run(struct turns *turns) {
    raddle_thread thread;
    OK(raddle_spawn(&thread, NULL, schedule, turns));
    OK(raddle_join(thread, NULL));
}

struct worker {
    raddle_ums_context *context;
    pthread_t thread;
};

static void start(raddle_ums_list *list, struct worker *worker, void *(*main)(void *),
                  void *argument) {
    OK(raddle_ums_context_create(list, &worker->context));
    IS(ask(worker->context, RADDLE_UMS_STATE), 0);
    OK(raddle_ums_thread_create(&worker->thread, NULL, worker->context, main, argument));
}

static void *finish(struct worker *worker) {
    void *result;
    OK(pthread_join(worker->thread, &result));
    IS(ask(worker->context, RADDLE_UMS_STATE), 4);
    OK(raddle_ums_context_delete(worker->context));
    return result;
}

static raddle_ums_list *new_list(void) {
    raddle_ums_list *list;
    OK(raddle_ums_list_create(&list));
    return list;
}

static void *yields_three_times(void *argument) {
    for (intptr_t i = 1; i <= 3; i++) OK(raddle_ums_yield(number(i)));
    return argument;
}

static void schedulers_hear_of_startup_yields_and_ends(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker worker;
    start(turns.list, &worker, yields_three_times, number(7));
    run(&turns);
    IS(turns.starts, 1);
    IS(turns.yields, 3);
    IS(turns.sum, 6);
    IS(turns.ends, 1);
    IS(turns.last == worker.context, 1);
    IS((intptr_t)finish(&worker), 7);
    raddle_ums_list_delete(turns.list);
}

static void *knows_itself(void *argument) {
    raddle_ums_context **context = argument;
    IS(raddle_ums_current() == *context, 1);
    IS(ask(*context, RADDLE_UMS_THREAD_ID), gettid());
    IS(ask(*context, RADDLE_UMS_STATE), 3);
    return NULL;
}

static void contexts_tell_and_keep(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker worker;
    IS(raddle_ums_current() == NULL, 1);
    start(turns.list, &worker, knows_itself, &worker.context);
    IS(ask(worker.context, RADDLE_UMS_THREAD_ID) != 0, 1);
    IS(ask(worker.context, RADDLE_UMS_USER_CONTEXT), 0);
    OK(raddle_ums_set(worker.context, RADDLE_UMS_USER_CONTEXT, 42));
    IS(ask(worker.context, RADDLE_UMS_USER_CONTEXT), 42);
    run(&turns);
    IS(ask(worker.context, RADDLE_UMS_HAS_ENDED), 1);
    IS(ask(worker.context, RADDLE_UMS_USER_CONTEXT), 42);
    finish(&worker);
    raddle_ums_list_delete(turns.list);
}

static void items_come_in_the_order_they_were_listed(void) {
    int left = 3;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker workers[3];
    raddle_ums_context *item;
    IS(raddle_ums_dequeue(turns.list, 0, &item), -ETIMEDOUT);
    IS(raddle_ums_dequeue(turns.list, 3, &item), -ETIMEDOUT);
    for (int i = 0; i < 3; i++) start(turns.list, &workers[i], yields_three_times, NULL);
    OK(raddle_ums_dequeue(turns.list, -1, &item));
    for (int i = 0; i < 3; i++, item = raddle_ums_next_item(item)) {
        IS(item == workers[i].context, 1);
        IS(ask(item, RADDLE_UMS_STATE), 2);
        push(&turns, item);
    }
    IS(item == NULL, 1);
    run(&turns);
    IS(turns.yields, 9);
    for (int i = 0; i < 3; i++) finish(&workers[i]);
    raddle_ums_list_delete(turns.list);
}

static void the_event_is_one_for_poll(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker worker;
    struct pollfd event = {.fd = raddle_ums_list_event(turns.list), .events = POLLIN};
    uint64_t count;
    IS(event.fd >= 0, 1);
    IS(poll(&event, 1, 0), 0);
    start(turns.list, &worker, yields_three_times, NULL);
    IS(poll(&event, 1, 5000), 1);
    IS(read(event.fd, &count, sizeof count), sizeof count);
    IS(poll(&event, 1, 0), 0);
    run(&turns);
    IS(poll(&event, 1, 0), 1); /* it was listed at its end */
    finish(&worker);
    raddle_ums_list_delete(turns.list);
}

static int ends_of_pipe[2];

static void *reads(void *argument) {
    char letter;
    IS(read(ends_of_pipe[0], &letter, 1), 1);
    return number(letter + (intptr_t)argument);
}

static void writes_once(struct turns *turns, uintptr_t by) {
    if (by == RADDLE_UMS_BY_CALL && turns->calls == 1) IS(write(ends_of_pipe[1], "x", 1), 1);
}

static void reads_of_pipes_block(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left, .blocked = writes_once};
    struct worker worker;
    OK(pipe(ends_of_pipe));
    start(turns.list, &worker, reads, number(1));
    run(&turns);
    IS(turns.calls, 1);
    IS((intptr_t)finish(&worker), 'y');
    raddle_ums_list_delete(turns.list);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int holders;

static void *locks(void *argument) {
    OK(pthread_mutex_lock(&mutex));
    IS(holders++, 0);
    OK(raddle_ums_yield(NULL)); /* the other one tries meanwhile */
    IS(holders--, 1);
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

static void mutexes_block(void) {
    int left = 2;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker workers[2];
    for (int i = 0; i < 2; i++) start(turns.list, &workers[i], locks, NULL);
    OK(raddle_ums_dequeue(turns.list, -1, &turns.last));
    for (; turns.last != NULL; turns.last = raddle_ums_next_item(turns.last))
        push(&turns, turns.last);
    run(&turns);
    IS(turns.yields, 2);
    IS(turns.calls, 1);
    for (int i = 0; i < 2; i++) finish(&workers[i]);
    raddle_ums_list_delete(turns.list);
}

/* Reads by a call that the runtime doesn't see, because its code is made here. */
static long read_unseen(int file, void *to, size_t size) {
    /* xor eax, eax (SYS_read); syscall; ret */
    static const unsigned char bytes[] = {0x31, 0xc0, 0x0f, 0x05, 0xc3};
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long (*function)(int, void *, size_t);
    memcpy(code, bytes, sizeof bytes);
    OK(mprotect(code, 4096, PROT_READ | PROT_EXEC));
    memcpy(&function, &code, sizeof code);
    long result = function(file, to, size);
    OK(munmap(code, 4096));
    return result;
}

static void *sits_in_the_kernel(void *argument) {
    char letter;
    IS(read_unseen(ends_of_pipe[0], &letter, 1), 1);
    OK(raddle_ums_yield(number(5)));
    return argument;
}

static void lets_it_go(struct turns *turns, uintptr_t by) {
    if (by == RADDLE_UMS_BY_KERNEL && turns->kernels == 1) IS(write(ends_of_pipe[1], "x", 1), 1);
}

static void calls_that_nobody_knows_block(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left, .blocked = lets_it_go};
    struct worker worker;
    OK(pipe(ends_of_pipe));
    start(turns.list, &worker, sits_in_the_kernel, NULL);
    run(&turns);
    IS(turns.kernels >= 1, 1); /* a page of the program may be away, too */
    IS(turns.sum, 5);
    finish(&worker);
    raddle_ums_list_delete(turns.list);
}

static int faults;
static char *page;

static void *touches(void *argument) {
    (void)argument;
    return number(*(volatile char *)page);
}

static void brings_the_page(struct turns *turns, uintptr_t by) {
    static char text[4096] __attribute__((aligned(4096))) = "z";
    struct uffdio_copy copy = {.dst = (uintptr_t)page, .src = (uintptr_t)text, .len = 4096};
    if (by == RADDLE_UMS_BY_KERNEL && turns->kernels == 1) OK(ioctl(faults, UFFDIO_COPY, &copy));
}

static void page_faults_block(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left, .blocked = brings_the_page};
    struct uffdio_api api = {.api = UFFD_API};
    struct worker worker;
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */);
    if (faults < 0) { /* not allowed here: another block shows it */
        calls_that_nobody_knows_block();
        return;
    }
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(ioctl(faults, UFFDIO_API, &api));
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)page, .len = 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    OK(ioctl(faults, UFFDIO_REGISTER, &range));
    start(turns.list, &worker, touches, NULL);
    run(&turns);
    IS(turns.kernels >= 1, 1); /* a page of the program may be away, too */
    IS((intptr_t)finish(&worker), 'z');
    raddle_ums_list_delete(turns.list);
}

static void *sleeps_and_yields(void *argument) {
    for (int i = 0; i < 50; i++) {
        sleep_ms(0);
        OK(raddle_ums_yield(number(1)));
        usleep(100);
    }
    return argument;
}

static void several_schedulers_share_workers(void) {
    enum { SCHEDULERS = 3, WORKERS = 12 };
    int left = WORKERS, yields = 0;
    raddle_ums_list *list = new_list();
    struct worker workers[WORKERS];
    raddle_thread threads[SCHEDULERS];
    struct turns turns[SCHEDULERS];
    for (int i = 0; i < WORKERS; i++) start(list, &workers[i], sleeps_and_yields, NULL);
    for (int i = 0; i < SCHEDULERS; i++) {
        turns[i] = (struct turns){.list = list, .left = &left};
        OK(raddle_spawn(&threads[i], NULL, schedule, &turns[i]));
    }
    for (int i = 0; i < SCHEDULERS; i++) {
        OK(raddle_join(threads[i], NULL));
        yields += turns[i].yields;
    }
    IS(yields, 50 * WORKERS);
    for (int i = 0; i < WORKERS; i++) finish(&workers[i]);
    raddle_ums_list_delete(list);
}

static void *leaves_early(void *argument) {
    OK(raddle_ums_yield(NULL));
    pthread_exit(argument);
}

static void workers_may_exit_anywhere(void) {
    int left = 1;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker worker;
    start(turns.list, &worker, leaves_early, number(9));
    run(&turns);
    IS((intptr_t)finish(&worker), 9);
    raddle_ums_list_delete(turns.list);
}

static void null_pointers_are_refused(void) {
    raddle_ums_list *list = new_list();
    raddle_ums_context *context;
    pthread_t thread;
    uintptr_t value;
    IS(raddle_ums_list_create(NULL), -EFAULT);
    raddle_ums_list_delete(NULL);
    IS(raddle_ums_list_event(NULL), -EFAULT);
    IS(raddle_ums_dequeue(NULL, 0, &context), -EFAULT);
    IS(raddle_ums_dequeue(list, 0, NULL), -EFAULT);
    IS(raddle_ums_next_item(NULL) == NULL, 1);
    IS(raddle_ums_context_create(NULL, &context), -EFAULT);
    IS(raddle_ums_context_create(list, NULL), -EFAULT);
    OK(raddle_ums_context_create(list, &context));
    IS(raddle_ums_thread_create(NULL, NULL, context, touches, NULL), -EFAULT);
    IS(raddle_ums_thread_create(&thread, NULL, NULL, touches, NULL), -EFAULT);
    IS(raddle_ums_thread_create(&thread, NULL, context, NULL, NULL), -EFAULT);
    IS(raddle_ums_query(NULL, RADDLE_UMS_STATE, &value), -EFAULT);
    IS(raddle_ums_query(context, RADDLE_UMS_STATE, NULL), -EFAULT);
    IS(raddle_ums_set(NULL, RADDLE_UMS_USER_CONTEXT, 1), -EFAULT);
    IS(raddle_ums_enter(NULL, NULL), -EFAULT);
    IS(raddle_ums_execute(NULL), -EFAULT);
    IS(raddle_ums_context_delete(NULL), -EFAULT);
    OK(raddle_ums_context_delete(context));
    raddle_ums_list_delete(list);
}

static void *cannot_schedule(void *argument) {
    IS(raddle_ums_enter(procedure, argument), -EPERM);
    return NULL;
}

static void leaves(int reason, uintptr_t payload, void *parameter) {
    IS(reason, RADDLE_UMS_STARTUP);
    IS(payload, 0);
    IS(raddle_ums_enter(leaves, parameter), -EPERM);
    IS(raddle_ums_yield(NULL), -EPERM);
    ++*(int *)parameter;
}

static void the_wrong_threads_are_refused(void) {
    int left = 1, calls = 0;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker worker;
    raddle_thread thread;
    raddle_thread_options light = RADDLE_THREAD_OPTIONS_INIT;
    light.flags = RADDLE_LIGHT;
    IS(raddle_ums_yield(NULL), -EPERM);
    start(turns.list, &worker, cannot_schedule, NULL);
    IS(raddle_ums_execute(worker.context), -EPERM);
    OK(raddle_spawn(&thread, &light, cannot_schedule, NULL));
    OK(raddle_join(thread, NULL));
    OK(raddle_ums_enter(leaves, &calls));
    OK(raddle_ums_enter(leaves, &calls)); /* it has left */
    IS(calls, 2);
    run(&turns);
    finish(&worker);
    raddle_ums_list_delete(turns.list);
}

static raddle_ums_context *unused;
static struct worker sleeper;
static int steps;

static void *sleeps(void *argument) {
    sleep_ms(30);
    return argument;
}

static void tries_all(int reason, uintptr_t payload, void *parameter) {
    raddle_ums_list *list = parameter;
    static raddle_ums_list *own_list;
    raddle_ums_context *item;
    pthread_t thread;
    uintptr_t value;
    switch (++steps) {
    case 1:
        IS(reason, RADDLE_UMS_STARTUP);
        own_list = list;
        IS(raddle_ums_execute(unused), -EINVAL);
        IS(raddle_ums_execute(sleeper.context), -EINVAL); /* listed */
        IS(raddle_ums_context_delete(sleeper.context), -EBUSY);
        IS(raddle_ums_thread_create(&thread, NULL, sleeper.context, sleeps, NULL), -EBUSY);
        IS(raddle_ums_query(unused, RADDLE_UMS_AFFINITY + 1, &value), -EINVAL);
        IS(raddle_ums_query(unused, -1, &value), -EINVAL);
        IS(raddle_ums_set(unused, RADDLE_UMS_STATE, 0), -EINVAL);
        OK(raddle_ums_dequeue(list, -1, &item));
        raddle_ums_execute(item); /* a new worker is on no CPU: this does not return */
        exit(1);
        break;
    case 2:
        IS(reason, RADDLE_UMS_BLOCKED);
        IS(payload, RADDLE_UMS_BY_CALL);
        IS(raddle_ums_execute(sleeper.context), -EBUSY);
        OK(raddle_ums_dequeue(own_list, -1, &item));
        while (raddle_ums_execute(item) == -EAGAIN) sched_yield();
        break;
    default:
        IS(payload, RADDLE_UMS_BY_END);
        OK(raddle_ums_dequeue(own_list, -1, &item));
        IS(raddle_ums_execute(item), -EINVAL);
    }
}

static void *tries(void *list) {
    OK(raddle_ums_enter(tries_all, list));
    return NULL;
}

static void the_wrong_contexts_are_refused(void) {
    raddle_ums_list *list = new_list();
    raddle_thread thread;
    OK(raddle_ums_context_create(list, &unused));
    start(list, &sleeper, sleeps, NULL);
    OK(raddle_spawn(&thread, NULL, tries, list));
    OK(raddle_join(thread, NULL));
    IS(steps, 3);
    OK(raddle_ums_context_delete(unused));
    finish(&sleeper);
    raddle_ums_list_delete(list);
}

static void kernel_threads_may_schedule(void) {
    int left = 2;
    struct turns turns = {.list = new_list(), .left = &left};
    struct worker workers[2];
    pthread_t thread;
    for (int i = 0; i < 2; i++) start(turns.list, &workers[i], yields_three_times, NULL);
    OK(pthread_create(&thread, NULL, schedule, &turns));
    OK(pthread_join(thread, NULL));
    IS(turns.yields, 6);
    IS(turns.ends, 2);
    for (int i = 0; i < 2; i++) finish(&workers[i]);
    raddle_ums_list_delete(turns.list);
}

static const struct test_case cases[] = {
    {"schedulers_hear_of_startup_yields_and_ends", schedulers_hear_of_startup_yields_and_ends},
    {"contexts_tell_and_keep", contexts_tell_and_keep},
    {"items_come_in_the_order_they_were_listed", items_come_in_the_order_they_were_listed},
    {"the_event_is_one_for_poll", the_event_is_one_for_poll},
    {"reads_of_pipes_block", reads_of_pipes_block},
    {"mutexes_block", mutexes_block},
    {"calls_that_nobody_knows_block", calls_that_nobody_knows_block},
    {"page_faults_block", page_faults_block},
    {"several_schedulers_share_workers", several_schedulers_share_workers},
    {"workers_may_exit_anywhere", workers_may_exit_anywhere},
    {"kernel_threads_may_schedule", kernel_threads_may_schedule},
    {"null_pointers_are_refused", null_pointers_are_refused},
    {"the_wrong_threads_are_refused", the_wrong_threads_are_refused},
    {"the_wrong_contexts_are_refused", the_wrong_contexts_are_refused},
};

int main(int count, char **arguments) {
    (void)count;
    return RUN_CASES(cases, arguments);
}
