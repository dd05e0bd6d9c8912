/* Every call that may wait, on every kind of descriptor, blocking and not.
 *
 * `matrix GROUP` makes each call on each kind of the group, by a thread of its own on a descriptor
 * of its own, and prints one line for each: the result, or the errno, or that the call waits and
 * how it ends when a signal comes. Hundreds of calls are made at once. A call *waits* if it has not
 * returned when no call of its batch has returned for a while. `matrix --only KIND/MODE/CALL...`
 * makes only these calls, with more time; `matrix --list` prints the groups.
 */
#define CHECK_OWN_MAIN
#include "matrix_calls.h"

#include <stdatomic.h>
#include <sys/resource.h>

enum { MOST = 600, FEW = 60, LENGTH = 200 };

struct job {
    const struct kind *kind;
    const struct call *call;
    struct subject subject;
    struct memory memory;
    pthread_t thread;
    atomic_int is_started, is_over;
    int has_waited;
    long result;
    atomic_int pipes; /* how often SIGPIPE came */
};

static struct job *jobs[MOST];
static int job_count;
static int64_t quiet_ns = 200 * 1000000LL;
static _Thread_local struct job *own;

static void interrupted(int number)
{
    (void)number;
}

static void pipe_broken(int number)
{
    (void)number;
    if (own) {
        own->pipes++;
    }
}

static void *make_call(void *argument)
{
    own = argument;
    own->is_started = 1;
    own->result = own->call->make(&own->subject, &own->memory);
    own->is_over = 1;
    return NULL;
}

static const char *result_of(const struct job *job, char *text, size_t size)
{
    if (job->result < 0) {
        snprintf(text, size, "%s", strerrorname_np(-job->result));
    } else if (job->result > 64) {
        /* Where a signal or the room in a buffer has ended it is a matter of moments. */
        snprintf(text, size, "much");
    } else {
        snprintf(text, size, "%ld", job->result);
    }
    return text;
}

static void print_job(struct job *job)
{
    char text[40];
    printf("%s/%s/%s: ", job->kind->name, job->subject.nonblocking ? "nonblocking" : "blocking",
           job->call->name);
    if (!job->is_over) {
        puts("can't be interrupted");
        return;
    }
    printf("%s%s", job->has_waited ? "waits, then " : "", result_of(job, text, sizeof text));
    if (job->memory.note) {
        printf(", %#x", job->memory.note);
    }
    if (job->pipes) {
        printf(", SIGPIPE %d", job->pipes);
    }
    puts("");
}

/* Until all calls have returned, or none has for a while. Returns how many have not. */
static int settle(int64_t quiet)
{
    int before = -1;
    int64_t since = now_ns();
    for (;;) {
        int over = 0, started = 0;
        for (int i = 0; i < job_count; i++) {
            over += jobs[i]->is_over;
            started += jobs[i]->is_started;
        }
        if (over == job_count) {
            return 0;
        }
        if (over + started != before) {
            before = over + started;
            since = now_ns();
        }
        if (started == job_count && now_ns() - since > quiet) {
            return job_count - over;
        }
        sleep_ms(5);
    }
}

static void run_batch(void)
{
    for (int i = 0; i < job_count; i++) {
        jobs[i]->thread = start_small(make_call, jobs[i]);
    }
    int left = settle(quiet_ns);
    for (int i = 0; left && i < job_count; i++) {
        jobs[i]->has_waited = !jobs[i]->is_over;
    }
    for (int tries = 0; left && tries < 20; tries++) {
        for (int i = 0; i < job_count; i++) {
            if (!jobs[i]->is_over) {
                pthread_kill(jobs[i]->thread, SIGUSR1);
            }
        }
        left = settle(100 * MS);
    }
    for (int i = 0; i < job_count; i++) {
        print_job(jobs[i]);
        if (jobs[i]->is_over) {
            join(jobs[i]->thread);
            for (int k = 0; k < jobs[i]->subject.owned; k++) {
                close(jobs[i]->subject.own[k]);
            }
            free(jobs[i]);
        }
    }
    job_count = 0;
}

/* The ends of transfers: a file with a text, and a pipe with three bytes and room. */
static void add_others(struct subject *subject)
{
    subject->file = keep(subject, temporary_file("0123456789"));
    GET(pipe(subject->pipe));
    GET(write(subject->pipe[1], "abc", 3));
    keep(subject, subject->pipe[0]);
    keep(subject, subject->pipe[1]);
}

static void add_job(const struct kind *kind, int nonblocking, const struct call *call)
{
    static int number;
    struct job *job = calloc(1, sizeof *job);
    *job = (struct job){.kind = kind, .call = call};
    job->subject = (struct subject){.number = number++, .nonblocking = nonblocking};
    if (!kind->make(&job->subject)) {
        printf("%s: there is none\n", kind->name);
        free(job);
        return;
    }
    int flags = nonblocking ? fcntl(job->subject.fd, F_GETFL) : -1;
    if (flags >= 0) {
        fcntl(job->subject.fd, F_SETFL, flags | O_NONBLOCK);
    }
    add_others(&job->subject);
    jobs[job_count++] = job;
    if (job_count == (strcmp(kind->group, FEW_AT_ONCE) == 0 ? FEW : MOST)) {
        run_batch();
    }
}

static int is_wanted(int argc, char **argv, const struct kind *kind, int nonblocking,
                     const struct call *call)
{
    char name[LENGTH];
    if (strcmp(argv[1], "--only") != 0) {
        return strcmp(argv[1], kind->group) == 0;
    }
    snprintf(name, sizeof name, "%s/%s/%s", kind->name, nonblocking ? "nonblocking" : "blocking",
             call->name);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return 1;
        }
    }
    return 0;
}

static void list(void)
{
    const char *group = "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(group, kinds[i].group) != 0) {
            puts(group = kinds[i].group);
        }
    }
}

int main(int argc, char **argv)
{
    case_name = argc > 1 ? argv[1] : "";
    if (argc < 2 || strcmp(argv[1], "--list") == 0) {
        list();
        return argc < 2;
    }
    if (strcmp(argv[1], "--only") == 0) {
        quiet_ns *= 5;
    }
    struct rlimit limit;
    GET(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    GET(setrlimit(RLIMIT_NOFILE, &limit));
    struct sigaction action = {.sa_handler = interrupted};
    GET(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = pipe_broken;
    GET(sigaction(SIGPIPE, &action, NULL));
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
            for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
                if (is_wanted(argc, argv, &kinds[kind], nonblocking, &calls[call])) {
                    add_job(&kinds[kind], nonblocking, &calls[call]);
                }
            }
        }
    }
    run_batch();
    return 0;
}
