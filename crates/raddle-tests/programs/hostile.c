/* Hostile pointers, lengths and numbers in every call that the runtime handles.
 *
 * `table` replaces each by each; `random SEED COUNT` up to three in each of COUNT items; `flip SEED
 * SECONDS` makes items while another thread changes what can be accessed, and only has to end;
 * `calls` names the calls. The result of each item is a line. An item that ends its process, or
 * doesn't come back, has a line that says so, and another process goes on behind it. */
#define CHECK_OWN_MAIN
#include "hostile_table.h"

#include <sched.h>
#include <stdatomic.h>

enum { SLOTS = 1024, PATIENCE_MS = 20000, STUCK_MS = 5000, LOOKS = 250 };

struct result {
    long value;
    int error;
    unsigned long sum;
};

/* Shared by the processes that run the items of a chunk. */
struct board {
    atomic_int next; /* the item that runs */
    struct result results[SLOTS];
};

static struct board *board;
static struct item items[SLOTS];
static int item_count;
static atomic_int is_over;
static pthread_t runner;

static void on_unblock(int signal)
{
    (void)signal;
}

/* Interrupts an item that waits. */
static void *unblock(void *unused)
{
    (void)unused;
    for (int seen = -1, looks = 0; !is_over; looks++) {
        int now = board->next;
        looks = now == seen ? looks : 0;
        if (looks == LOOKS) {
            pthread_kill(runner, SIGUSR1);
            looks = 0;
        }
        seen = now;
        sleep_ms(STUCK_MS / LOOKS);
    }
    return NULL;
}

static void *idle(void *unused)
{
    while (!is_over) {
        sleep_ms(20);
    }
    return unused;
}

static long make_child(void)
{
    siginfo_t unused;
    pid_t child = GET(fork());
    if (child == 0) {
        _exit(7);
    }
    while (waitid(P_PID, child, &unused, WEXITED | WNOWAIT) == -1) {
        CHECK(errno == EINTR);
    }
    return child;
}

static long context(long which)
{
    switch (which) {
    case 0:
        return io_context;
    case 1:
        return ring;
    case 2:
        return message_queue;
    default:
        return semaphores;
    }
}

static long argument_of(struct laying *laying, const struct argument *argument)
{
    switch (argument->kind) {
    case POINTER:
        return lay(laying, argument->shape);
    case LENGTH:
        return length_of(laying, argument->value);
    case PROCESS:
        return getpid();
    case THREAD:
        return gettid();
    case CHILD:
        return make_child();
    case CONTEXT:
        return context(argument->value);
    case NUMBER:
    case FILE_NUMBER: {
        long value = argument->value;
        value = argument->kind == FILE_NUMBER ? number_of(value) : value;
        int to = change_of(laying, CHANGE_NUMBER, laying->numbers++);
        return to < 0 ? value : (value & 0xffffffff) | 0x5a5a5a5a00000000;
    }
    default:
        return argument->value;
    }
}

static void make_files(const struct call *call, int is_made)
{
    for (int i = 0; i < 6; i++) {
        if (call->arguments[i].kind == FILE_NUMBER) {
            (is_made ? make_file : close_file)(call->arguments[i].value);
        }
    }
    int needs_pipe = call->number == SYS_poll || call->number == SYS_ppoll ||
                     call->number == SYS_select || call->number == SYS_pselect6;
    if (needs_pipe) {
        (is_made ? make_file : close_file)(FULL_PIPE);
    }
}

static long make_call(const struct call *call, const long *a)
{
    errno = 0;
    return syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* Cleans up after a call, whatever its result. */
static void clean_up(const struct call *call, long value)
{
    if (call->flags & CHANGES_MASK) {
        unsigned long none = 0;
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, 8);
    }
    if (call->after) {
        call->after(value);
    }
    if (call->flags & GIVES_FILE && value >= 0) {
        close(value);
    }
}

/* True if a call does no other thing the second time, and doesn't wait for what the first took. */
static int is_repeatable(const struct call *call)
{
    for (int i = 0; i < 6; i++) {
        enum kind kind = call->arguments[i].kind;
        long file = call->arguments[i].value;
        int is_kept = file == REGULAR || file == EPOLL || file == THREADS || file == NAME;
        if (kind == CHILD || kind == CONTEXT || (kind == FILE_NUMBER && !is_kept)) {
            return 0;
        }
    }
    return 1;
}

static int repeats;

static void run_item(int number)
{
    const struct item *item = &items[number];
    const struct call *call = item->call;
    struct laying laying = {.item = item};
    long arguments[6] = {0};
    make_files(call, 1);
    for (int i = 0; i < PLACES; i++) {
        memset(places[i].page, 0, PAGE);
        /* A PI futex in a page that wasn't touched is found to be read-only at another point. */
        (void)*(volatile char *)places[i].read_only;
    }
    for (int i = 0; i < 6; i++) {
        arguments[i] = argument_of(&laying, &call->arguments[i]);
    }
    long value = make_call(call, arguments);
    struct result *result = &board->results[number];
    result->error = errno;
    result->sum = sum_of(&laying);
    result->value = value;
    clean_up(call, value);
    for (int i = 0; i < repeats && is_repeatable(call); i++) {
        clean_up(call, make_call(call, arguments));
    }
    if ((call->flags & (GIVES_FILE | NOISY_VALUE)) && value > 0) {
        result->value = 1;
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    make_files(call, 0);
}

static void *run_one(void *number)
{
    run_item((long)number);
    return NULL;
}

static void *run_rest(void *unused)
{
    runner = pthread_self();
    know_lists();
    reset_name(0);
    for (int i = board->next; i < item_count; i = ++board->next) {
        if (items[i].call->flags & ON_OWN_THREAD) {
            join(start(run_one, number(i)));
        } else {
            run_item(i);
        }
    }
    return unused;
}

static void be_worker(int is_main)
{
    struct sigaction act = {.sa_handler = on_unblock};
    OK(sigaction(SIGUSR1, &act, NULL));
    prepare_calls();
    pthread_t others[2] = {start(idle, NULL), start(unblock, NULL)};
    if (is_main) {
        run_rest(NULL);
    } else {
        join(start(run_rest, NULL));
    }
    is_over = 1;
    join_all(others, 2);
    forget_calls();
    exit(0);
}

/* Waits for a worker's end; 0 if it doesn't go on. */
static int watch(pid_t worker, int *status)
{
    int64_t since_ns = now_ns();
    for (int seen = board->next;;) {
        if (waitpid(worker, status, WNOHANG) == worker) {
            return 1;
        }
        if (board->next != seen) {
            seen = board->next;
            since_ns = now_ns();
        } else if (now_ns() - since_ns > PATIENCE_MS * MS) {
            kill(worker, SIGKILL);
            waitpid(worker, status, 0);
            return 0;
        }
        sleep_ms(1);
    }
}

static void describe(const struct item *item, char *text, size_t size)
{
    int at = snprintf(text, size, "%s", item->call->name);
    for (int i = 0; i < CHANGES && item->changes[i].what; i++) {
        const struct change *change = &item->changes[i];
        at += snprintf(text + at, size - at, " %c%d=%d", " PLN"[change->what], change->position,
                       change->to);
    }
}

static void print_results(void)
{
    char text[200];
    for (int i = 0; i < item_count; i++) {
        const struct result *result = &board->results[i];
        describe(&items[i], text, sizeof text);
        if (result->value == -2) {
            printf("%s: %s %d\n", text, result->error ? "killed by" : "hangs", result->error);
        } else if (result->value == -1) {
            printf("%s: %s %016lx\n", text, strerrorname_np(result->error), result->sum);
        } else {
            printf("%s: %ld %016lx\n", text, result->value, result->sum);
        }
    }
    fflush(stdout);
}

/* Runs the items there are, in as many processes as that takes. */
static void run_chunk(int is_main)
{
    board->next = 0;
    while (board->next < item_count) {
        int status;
        pid_t worker = GET(fork());
        if (worker == 0) {
            be_worker(is_main);
        }
        int has_ended = watch(worker, &status);
        if (board->next < item_count) {
            struct result *result = &board->results[board->next++];
            result->value = -2;
            result->error = has_ended && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        }
    }
    print_results();
    item_count = 0;
}

static void add_item(const struct item *item, int is_main)
{
    items[item_count++] = *item;
    if (item_count == SLOTS) {
        run_chunk(is_main);
    }
}

static int is_allowed(const struct call *call, const struct change *change)
{
    if (change->what == CHANGE_POINTER) {
        struct laying has = count_call(call);
        return change->to != CONSTANTS || !(has.noisy >> change->position & 1);
    }
    if (change->what != CHANGE_LENGTH) {
        return 1;
    }
    return !(call->flags & FIXED_LENGTHS) && (change->to != 0 || !(call->flags & NEVER_EMPTY));
}

static void add_kind(const struct call *call, int what, int positions, int choices, int is_main)
{
    for (int position = 0; position < positions; position++) {
        for (int to = 0; to < choices; to++) {
            struct item item = {call, {{what, position, to}}};
            if (is_allowed(call, &item.changes[0])) {
                add_item(&item, is_main);
            }
        }
    }
}

static void run_table(int is_main)
{
    for (int i = 0; i < COUNT(calls); i++) {
        if (calls[i].flags & NEVER) {
            continue;
        }
        struct item plain = {&calls[i], {{NO_CHANGE, 0, 0}}};
        struct laying has = count_call(&calls[i]);
        add_item(&plain, is_main);
        add_kind(&calls[i], CHANGE_POINTER, has.pointers, WHERE, is_main);
        add_kind(&calls[i], CHANGE_LENGTH, has.lengths, COUNT(lengths), is_main);
        add_kind(&calls[i], CHANGE_NUMBER, has.numbers, 1, is_main);
    }
    run_chunk(is_main);
}

static unsigned long state;

static int draw(int below)
{
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % below;
}

static struct change draw_change(const struct call *call)
{
    struct laying has = count_call(call);
    struct change change = {NO_CHANGE, 0, 0};
    int kind = draw(8);
    if (kind < 5 && has.pointers) {
        change = (struct change){CHANGE_POINTER, draw(has.pointers), draw(WHERE)};
    } else if (kind < 7 && has.lengths) {
        change = (struct change){CHANGE_LENGTH, draw(has.lengths), draw(COUNT(lengths))};
    } else if (has.numbers) {
        change = (struct change){CHANGE_NUMBER, draw(has.numbers), 0};
    }
    return change;
}

static struct item draw_item(void)
{
    const struct call *call;
    do {
        call = &calls[draw(COUNT(calls))];
    } while (call->flags & NEVER);
    struct item item = {call, {{NO_CHANGE, 0, 0}}};
    int wanted = 1 + draw(CHANGES), count = 0;
    while (wanted-- > 0) {
        struct change change = draw_change(call);
        if (change.what && is_allowed(call, &change)) {
            item.changes[count++] = change;
        }
    }
    return item;
}

static void on_fault(int signal)
{
    (void)signal;
    CHECK(!"a fault is the program's");
}

/* Takes access to what items lead to, and gives it back. */
static void *flip(void *unused)
{
    for (int round = 0; !is_over; round++) {
        for (int i = 0; i < PLACES; i++) {
            char *page = places[i].flipping;
            int flags = MAP_SHARED | MAP_FIXED;
            if (round % 8 == 7) {
                GET(munmap(page, PAGE));
                CHECK(mmap(page, PAGE, PROT_READ | PROT_WRITE, flags, places[i].file, 0) == page);
            } else {
                GET(mprotect(page, PAGE, round % 2 ? PROT_READ | PROT_WRITE : PROT_NONE));
            }
        }
    }
    return unused;
}

static void *run_flipping(void *seconds)
{
    int64_t until_ns = now_ns() + (long)seconds * SECOND;
    runner = pthread_self();
    know_lists();
    reset_name(0);
    while (now_ns() < until_ns) {
        items[0] = draw_item();
        for (int i = 0; i < CHANGES && items[0].changes[i].what; i++) {
            struct change *change = &items[0].changes[i];
            change->to = change->what == CHANGE_POINTER ? FLIPPING : change->to;
        }
        if (items[0].call->flags & ON_OWN_THREAD) {
            join(start(run_one, number(0)));
        } else {
            run_item(0);
        }
        board->next++;
    }
    return NULL;
}

static void run_flips(long seconds)
{
    struct sigaction act = {.sa_handler = on_unblock};
    OK(sigaction(SIGUSR1, &act, NULL));
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    prepare_calls();
    repeats = 200;
    pthread_t others[2] = {start(flip, NULL), start(unblock, NULL)};
    join(start(run_flipping, number(seconds)));
    is_over = 1;
    join_all(others, 2);
    forget_calls();
    say_ok();
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    case_name = mode;
    map_places();
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    if (strcmp(mode, "calls") == 0) {
        for (int i = 0; i < COUNT(calls); i++) {
            printf("%.*s\n", (int)strcspn(calls[i].name, " "), calls[i].name);
        }
    } else if (strcmp(mode, "table") == 0 && argc == 3) {
        run_table(strcmp(argv[2], "main") == 0);
    } else if (strcmp(mode, "flip") == 0 && argc == 4) {
        state = strtoul(argv[2], NULL, 10);
        run_flips(strtol(argv[3], NULL, 10));
    } else if (strcmp(mode, "random") == 0 && argc == 4) {
        state = strtoul(argv[2], NULL, 10);
        for (long left = strtol(argv[3], NULL, 10); left > 0; left--) {
            struct item item = draw_item();
            add_item(&item, left / SLOTS % 2);
        }
        run_chunk(0);
    } else {
        return 2;
    }
    return 0;
}
