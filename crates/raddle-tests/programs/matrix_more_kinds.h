/* More kinds of descriptors for matrix.c: those that are neither files, pipes nor sockets; and the
 * table of all kinds. */

static int timer(struct subject *subject, int64_t ns)
{
    struct itimerspec when = {{0, 0}, timespec_of(ns)};
    int fd = GET(timerfd_create(CLOCK_MONOTONIC, 0));
    GET(timerfd_settime(fd, 0, &when, NULL));
    return is(subject, fd);
}

KIND(counter_semaphore_zero)
{
    return counter(subject, 0, EFD_SEMAPHORE);
}

KIND(timer_disarmed)
{
    return timer(subject, 0);
}

KIND(timer_expired)
{
    int made = timer(subject, 1);
    sleep_ms(1);
    return made;
}

KIND(timer_armed)
{
    return timer(subject, 3600 * SECOND);
}

KIND(signals)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return is(subject, signalfd(-1, &set, 0));
}

static int set_of(struct subject *subject, int member)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = GET(epoll_create1(0));
    GET(epoll_ctl(fd, EPOLL_CTL_ADD, member, &event));
    return is(subject, fd);
}

KIND(epoll_with_nothing)
{
    return set_of(subject, keep(subject, eventfd(0, 0)));
}

KIND(epoll_with_an_event)
{
    return set_of(subject, keep(subject, eventfd(1, 0)));
}

/* A user has few watches: those without an event, which no call changes, are duplicates of one,
 * for each mode. */
KIND(watch_of_nothing)
{
    static int watches[2];
    int *watch = &watches[subject->nonblocking];
    if (*watch == 0) {
        *watch = GET(inotify_init1(0));
    }
    return is(subject, dup(*watch));
}

KIND(watch_with_an_event)
{
    char path[40];
    int fd = GET(inotify_init1(0));
    snprintf(path, sizeof path, "matrix-watch-%d", subject->number);
    close(GET(open(path, O_CREAT | O_RDWR, 0600)));
    GET(inotify_add_watch(fd, path, IN_OPEN));
    close(GET(open(path, O_RDONLY)));
    GET(unlink(path));
    return is(subject, fd);
}

KIND(file_system_watch)
{
    static int watches[2];
    int *watch = &watches[subject->nonblocking];
    if (*watch == 0) {
        *watch = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
    }
    return is(subject, dup(*watch));
}

KIND(process)
{
    return is(subject, syscall(SYS_pidfd_open, getpid(), 0));
}

KIND(page_faults)
{
    struct uffdio_api api = {.api = UFFD_API};
    int fd = syscall(SYS_userfaultfd, 0);
    if (fd >= 0) {
        GET(ioctl(fd, UFFDIO_API, &api));
    }
    return is(subject, fd);
}

KIND(ring)
{
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    return is(subject, syscall(SYS_io_uring_setup, 4, &parameters));
}

static int event_counter(struct subject *subject)
{
    struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attributes};
    attributes.config = PERF_COUNT_SW_DUMMY;
    attributes.exclude_kernel = 1;
    /* Of a CPU: those of a thread end with a kernel thread. */
    return is(subject, syscall(SYS_perf_event_open, &attributes, -1, 0, -1, 0));
}

KIND(events)
{
    return event_counter(subject);
}

KIND(events_with_a_buffer)
{
    if (!event_counter(subject)) {
        return 0;
    }
    size_t length = 2 * sysconf(_SC_PAGESIZE);
    return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, subject->fd, 0) != MAP_FAILED;
}

KIND(queue)
{
    char name[40];
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 8};
    snprintf(name, sizeof name, "/matrix-%d-%d", getpid(), subject->number);
    int made = is(subject, mq_open(name, O_CREAT | O_RDWR, 0600, &attributes));
    mq_unlink(name);
    return made;
}

struct kind {
    const char *group;
    const char *name;
    int (*make)(struct subject *);
};

/* The group of which few can be made at once. */
#define FEW_AT_ONCE "queues"

#define IN(group, name) {group, #name, make_##name}

#define ALL_STATES(group, name)                                                                    \
    IN(group, name##_empty), IN(group, name##_with_data), IN(group, name##_full),                  \
        IN(group, name##_ended), IN(group, name##_deaf), IN(group, name##_mute),                   \
        IN(group, name##_to_the_deaf), IN(group, name##_from_the_mute), IN(group, name##_limited)

static const struct kind kinds[] = {
    IN("files", negative),
    IN("files", closed),
    IN("files", path_only),
    IN("files", folder),
    IN("files", file),
    IN("files", file_to_read),
    IN("files", file_to_write),
    IN("files", memfd),
    IN("files", device_null),
    IN("files", device_zero),
    IN("files", device_full),
    IN("files", device_random),
    IN("pipes", pipe_empty),
    IN("pipes", pipe_with_data),
    IN("pipes", pipe_at_its_end),
    IN("pipes", pipe_with_room),
    IN("pipes", pipe_full),
    IN("pipes", pipe_broken),
    IN("pipes", fifo),
    IN("terminals", terminal),
    IN("terminals", terminal_with_a_line),
    IN("terminals", terminal_for_any_number),
    IN("terminals", terminal_for_a_moment),
    IN("terminals", terminal_for_four),
    IN("terminals", terminal_between_bytes),
    IN("terminals", terminal_master),
    IN("terminals", terminal_master_alone),
    ALL_STATES("streams", stream),
    IN("streams", stream_unconnected),
    IN("streams", stream_listening),
    IN("streams", stream_before_a_full_one),
    ALL_STATES("datagrams", datagram),
    IN("datagrams", datagram_unconnected),
    IN("datagrams", datagram_before_a_full_one),
    ALL_STATES("packets", packet),
    IN("packets", packet_listening),
    ALL_STATES("connections", tcp),
    IN("connections", tcp_reset),
    IN("connections", tcp_urgent),
    IN("connections", tcp_low_water),
    IN("connecting", tcp_unconnected),
    IN("connecting", tcp_listening),
    IN("connecting", tcp_listening_limited),
    IN("connecting", tcp_pending),
    IN("connecting", tcp_connecting),
    IN("connecting", tcp_refused),
    IN("udp", udp_unbound),
    IN("udp", udp_empty),
    IN("udp", udp_with_data),
    IN("udp", udp_deaf),
    IN("udp", udp_mute),
    IN("udp", udp_refused),
    IN("udp", udp_limited),
    IN("udp", netlink),
    IN("counters", counter_zero),
    IN("counters", counter_five),
    IN("counters", counter_full),
    IN("counters", counter_semaphore),
    IN("counters", counter_semaphore_zero),
    IN("counters", timer_disarmed),
    IN("counters", timer_expired),
    IN("counters", timer_armed),
    IN("counters", signals),
    IN("others", epoll_with_nothing),
    IN("others", epoll_with_an_event),
    IN("others", watch_of_nothing),
    IN("others", file_system_watch),
    IN("others", process),
    IN("others", page_faults),
    IN("others", ring),
    IN("others", events),
    IN("others", events_with_a_buffer),
    IN(FEW_AT_ONCE, queue),
    IN(FEW_AT_ONCE, watch_with_an_event),
};
