/* Files of a file system that answers late: a call that waits for one holds up no other thread.
 *
 * The file system is a process of this program's (FUSE) which keeps the answer to one kind of
 * request until it may go. It holds one file. The mount is the program's alone: it begins again in
 * a mount namespace of its own. Where that isn't allowed, a case says so and ends.
 */
#include "neighbours.h"
#include <dirent.h>
#include <linux/fuse.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

enum { BLOCK = 4096, FILE_ID = 2 };

/* Memory that the two processes share. */
struct shared {
    atomic_int kept; /* the kind of request that gets no answer yet */
    atomic_int came; /* one has come, and waits for its answer */
    atomic_int goes;
};
static struct shared *shared;

/* The file system. */

struct request {
    struct fuse_in_header header;
    char body[BLOCK + 4096];
};
static int device;

static void reply(const struct request *request, int error, const void *body, size_t size)
{
    static char answer[sizeof(struct fuse_out_header) + BLOCK];
    struct fuse_out_header header = {(uint32_t)(sizeof header + size), error,
                                     request->header.unique};
    memcpy(answer, &header, sizeof header);
    memcpy(answer + sizeof header, body, size);
    /* ENOENT: the asking thread is gone. */
    if (write(device, answer, header.len) < 0 && errno != ENOENT) {
        _exit(1);
    }
}

static struct fuse_attr attributes_of(uint64_t id)
{
    struct fuse_attr about = {.ino = id, .nlink = 1, .blksize = BLOCK};
    about.mode = id == FILE_ID ? S_IFREG | 0600 : S_IFDIR | 0700;
    about.size = id == FILE_ID ? BLOCK : 0;
    return about;
}

static void read_folder(const struct request *request)
{
    struct {
        struct fuse_dirent entry;
        char name[8];
    } list = {{FILE_ID, 1, 4, 8}, "file"};
    const struct fuse_read_in *in = (const void *)request->body;
    reply(request, 0, &list, in->offset == 0 ? sizeof list : 0);
}

static void look_up(const struct request *request)
{
    struct fuse_entry_out entry = {.nodeid = FILE_ID, .attr = attributes_of(FILE_ID)};
    if (strcmp(request->body, "file") == 0) {
        reply(request, 0, &entry, sizeof entry);
    } else {
        reply(request, -ENOENT, NULL, 0);
    }
}

static void answer_about_data(const struct request *request)
{
    static char zeros[BLOCK];
    const struct fuse_read_in *in = (const void *)request->body;
    struct fuse_write_out written = {.size = ((const struct fuse_write_in *)in)->size};
    if (request->header.opcode == FUSE_READ) {
        reply(request, 0, zeros, in->size < BLOCK ? in->size : BLOCK);
    } else {
        reply(request, 0, &written, sizeof written);
    }
}

static void answer(const struct request *request)
{
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = BLOCK};
    struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};
    struct fuse_attr_out about = {.attr = attributes_of(request->header.nodeid)};
    struct fuse_statfs_out size = {.st = {.bsize = BLOCK, .namelen = 255}};
    switch (request->header.opcode) {
    case FUSE_INIT: return reply(request, 0, &init, sizeof init);
    case FUSE_LOOKUP: return look_up(request);
    case FUSE_GETATTR:
    case FUSE_SETATTR: return reply(request, 0, &about, sizeof about);
    case FUSE_OPEN:
    case FUSE_OPENDIR: return reply(request, 0, &opened, sizeof opened);
    case FUSE_READDIR: return read_folder(request);
    case FUSE_READ:
    case FUSE_WRITE: return answer_about_data(request);
    case FUSE_STATFS: return reply(request, 0, &size, sizeof size);
    case FUSE_INTERRUPT:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET: return;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNC:
    case FUSE_FALLOCATE: return reply(request, 0, NULL, 0);
    default: return reply(request, -ENOSYS, NULL, 0);
    }
}

static void serve(void)
{
    static struct request request;
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while (read(device, &request, sizeof request) > 0) {
        if ((int)request.header.opcode == atomic_load(&shared->kept)) {
            atomic_store(&shared->came, 1);
            while (!atomic_load(&shared->goes)) {
                sleep_ms(1);
            }
        }
        answer(&request);
    }
    _exit(0);
}

/* Returns false if this machine or user may not mount. */
static int mount_it(void)
{
    char options[100];
    GET(mkdir("slow", 0700));
    device = open("/dev/fuse", O_RDWR);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%d,group_id=%d", device,
             (int)geteuid(), (int)getegid());
    if (device < 0 || mount("raddle", "slow", "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        return 0;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    if (GET(fork()) == 0) {
        serve();
    }
    close(device);
    return 1;
}

static int begin_again(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return 0;
    }
    execl("/proc/self/exe", "slow_files", case_name, "mounted", NULL);
    CHECK(!"exec");
    return 0;
}

static int is_mounted(void)
{
    int done = argument_count <= 2 ? begin_again() : mount_it();
    if (!done) {
        fprintf(stderr, "there is no FUSE for this user here\n");
    }
    return done;
}

/* The waits. Those that need an open file have one before the answer is kept. */

static int file = -1;
static int kind;
static char block[BLOCK];

static void keep(void)
{
    if (file < 0) {
        file = (int)GET(open("slow/file", O_RDWR));
    }
    OK(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)); /* what an earlier try has read */
    atomic_store(&shared->came, 0);
    atomic_store(&shared->goes, 0);
    atomic_store(&shared->kept, kind);
}

static void let_go(void)
{
    while (!atomic_load(&shared->came)) {
        sleep_ms(1);
    }
    atomic_store(&shared->goes, 1);
    atomic_store(&shared->kept, 0);
}

#define SLOW(name, request, call)                                                        \
    static long block_##name(void)                                                       \
    {                                                                                    \
        return call;                                                                     \
    }                                                                                    \
    CASE(name)                                                                           \
    {                                                                                    \
        static const struct wait wait = {keep, block_##name, let_go, 0};                 \
        kind = request;                                                                  \
        if (is_mounted()) {                                                              \
            check_neighbour(&wait);                                                      \
        }                                                                                \
    }

static long closed(int fd)
{
    return fd < 0 ? fd : close(fd);
}

static long list(void)
{
    long count = 0;
    DIR *folder = opendir("slow");
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count == 1 ? 0 : -1;
}

/* A page of the file that was not touched before. */
static long touch(void)
{
    char *page = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(page != MAP_FAILED);
    long value = *(volatile char *)page;
    GET(munmap(page, BLOCK));
    return value;
}

static long read_whole(int fd)
{
    struct iovec halves[2] = {{block, BLOCK / 2}, {block + BLOCK / 2, BLOCK / 2}};
    return preadv2(fd, halves, 2, 0, 0);
}

static long write_whole(int fd)
{
    struct iovec halves[2] = {{block, BLOCK / 2}, {block + BLOCK / 2, BLOCK / 2}};
    return pwritev2(fd, halves, 2, 0, 0);
}

static long copy(void)
{
    return copy_file_range(file, &(off64_t){0}, file, &(off64_t){2 * BLOCK}, BLOCK, 0);
}

static struct stat about;
static struct statx more;
static struct statvfs room;
static struct iovec vector = {block, BLOCK};

SLOW(slow_open, FUSE_OPEN, closed(open("slow/file", O_RDONLY)))
SLOW(slow_close, FUSE_FLUSH, closed(open("slow/file", O_RDONLY)))
SLOW(slow_lookup, FUSE_LOOKUP, access("slow/file", F_OK))
SLOW(slow_stat, FUSE_GETATTR, stat("slow/file", &about))
SLOW(slow_fstat, FUSE_GETATTR, fstat(file, &about))
SLOW(slow_lstat, FUSE_GETATTR, lstat("slow/file", &about))
SLOW(slow_statx, FUSE_GETATTR, statx(AT_FDCWD, "slow/file", 0, STATX_BASIC_STATS, &more))
SLOW(slow_statfs, FUSE_STATFS, statvfs("slow", &room))
SLOW(slow_getdents, FUSE_READDIR, list())
SLOW(slow_read, FUSE_READ, (lseek(file, 0, SEEK_SET), read(file, block, BLOCK)))
SLOW(slow_readv, FUSE_READ, (lseek(file, 0, SEEK_SET), readv(file, &vector, 1)))
SLOW(slow_pread, FUSE_READ, pread(file, block, BLOCK, 0))
SLOW(slow_preadv, FUSE_READ, read_whole(file))
SLOW(slow_write, FUSE_WRITE, write(file, block, BLOCK))
SLOW(slow_writev, FUSE_WRITE, writev(file, &vector, 1))
SLOW(slow_pwrite, FUSE_WRITE, pwrite(file, block, BLOCK, 0))
SLOW(slow_pwritev, FUSE_WRITE, write_whole(file))
SLOW(slow_fsync, FUSE_FSYNC, fsync(file))
SLOW(slow_fdatasync, FUSE_FSYNC, fdatasync(file))
SLOW(slow_fallocate, FUSE_FALLOCATE, fallocate(file, 0, 0, BLOCK))
SLOW(slow_ftruncate, FUSE_SETATTR, ftruncate(file, BLOCK))
SLOW(slow_copy, FUSE_READ, copy())
SLOW(slow_page_fault, FUSE_READ, touch())

static void keep_if_not_kept(void)
{
    if (atomic_load(&shared->kept) == 0) {
        keep();
    }
}

static long close_duplicate(void)
{
    return closed(dup(file));
}

/* The helper that copies the table of descriptors for the first thread, and closes the copies,
 * waits. */
CASE(a_slow_file_that_was_open_before_the_first_thread)
{
    static const struct wait wait = {keep_if_not_kept, close_duplicate, let_go, 0};
    kind = FUSE_FLUSH;
    if (is_mounted()) {
        keep();
        check_neighbour(&wait);
    }
}
