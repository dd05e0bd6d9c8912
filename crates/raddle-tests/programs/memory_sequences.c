/* Random sequences of memory calls over a thread's own stack, its neighbours', a stack that the
 * program provides and ordinary memory. `memory_sequences SEED ROUNDS` prints what each call says
 * and what it leaves behind, without addresses: the same natively and under raddle. */
#define CHECK_OWN_MAIN
#include "check.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 48, CALLS = 40, REGIONS = 5 };
#define READ_WRITE (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static uint64_t random_state;
/* Only calls that move the guard of a stack, or leave access as it is. */
static int is_gentle;

static unsigned pick(unsigned below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)((random_state >> 20) % below);
}

#define ONE_OF(array) (array)[pick(sizeof(array) / sizeof *(array))]

/* The lowest pages of each region; the first is a guard. */
static char *regions[REGIONS];
static int file;

/* The page below the calling thread's stack. */
static char *low_end(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    OK(pthread_getattr_np(pthread_self(), &attributes));
    OK(pthread_attr_getstack(&attributes, &low, &size));
    OK(pthread_attr_destroy(&attributes));
    return (char *)low - PAGE;
}

struct mapping {
    uintptr_t from, to;
    char access[4];
};

static struct mapping mappings[4000];
static int mapping_count;

static void read_mappings(void)
{
    static char text[1 << 20];
    int maps = GET(open("/proc/self/maps", O_RDONLY)), got;
    size_t length = 0;
    while ((got = GET(read(maps, text + length, sizeof text - 1 - length))) > 0) {
        length += got;
    }
    OK(close(maps));
    text[length] = 0;
    mapping_count = 0;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        struct mapping *to = &mappings[mapping_count++];
        IS(sscanf(line, "%lx-%lx %3s", &to->from, &to->to, to->access), 3);
        CHECK(mapping_count < 4000);
    }
}

/* One letter a page: what may be done with it, and a digit of what is in it. A guard region is in
 * the list of mappings as what it would be without; it is no access all the same. */
static void tell_page(char *page)
{
    static char content[PAGE];
    const char *access = "";
    for (int i = 0; i < mapping_count; i++) {
        if (mappings[i].from <= (uintptr_t)page && (uintptr_t)page < mappings[i].to) {
            access = mappings[i].access;
        }
    }
    struct iovec to = {content, PAGE}, from = {page, PAGE};
    unsigned sum = 0;
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == PAGE) {
        for (int i = 0; i < PAGE; i++) {
            sum = sum * 31 + (unsigned char)content[i];
        }
    } else if (*access) {
        access = "---";
    }
    printf(" %s%x", access, sum & 0xffff);
}

static void tell(const char *what, int region, int first, int count, long result, int moved)
{
    printf("%s %d+%d,%d: ", what, region, first, count);
    if (result == -1) {
        printf("%s", strerrorname_np(errno));
    } else {
        printf("%s", moved ? "elsewhere" : "ok");
    }
    read_mappings();
    for (int i = first; i < first + count && i < PAGES; i++) {
        tell_page(regions[region] + i * PAGE);
    }
    printf("\n");
}

static void write_to(char *page, int value)
{
    char text[64];
    memset(text, value, sizeof text);
    struct iovec from = {text, sizeof text}, to = {page + 100, sizeof text};
    process_vm_writev(getpid(), &from, 1, &to, 1, 0);
}

/* Calls of managed runtimes at the low ends of their stacks. */
static void call_gently(int number)
{
    static const int advices[] = {4, 4, 8, 102, 103};
    int region = pick(REGIONS), first = pick(2) ? pick(2) : pick(6), count = 1 + pick(6);
    char *at = regions[region] + first * PAGE;
    size_t size = (size_t)count * PAGE;
    int access = pick(2) ? READ_WRITE : PROT_NONE, advice = ONE_OF(advices);
    int flags = MAP_FIXED | ANONYMOUS | (pick(2) ? MAP_NORESERVE : 0) | (pick(2) ? MAP_STACK : 0);
    errno = 0;
    switch (pick(8)) {
    case 0:
        tell("advice", region, first, count, madvise(at, size, advice), 0);
        break;
    case 1:
    case 2:
        tell("mmap", region, first, count, (long)mmap(at, size, access, flags, -1, 0), 0);
        break;
    case 3:
    case 4:
    case 5:
        tell("mprotect", region, first, count, mprotect(at, size, access), 0);
        break;
    default:
        for (int i = 0; i < count; i++) {
            write_to(at + i * PAGE, number + i);
        }
        tell("write", region, first, count, 0, 0);
    }
}

static void call_once(int number)
{
    static const int accesses[] = {PROT_NONE,  PROT_NONE,  PROT_READ,
                                   READ_WRITE, READ_WRITE, READ_WRITE,
                                   READ_WRITE, READ_WRITE, PROT_READ | PROT_EXEC,
                                   READ_WRITE | PROT_EXEC, 0x40};
    static const int advices[] = {0,  1,  2,  3,  4,  4,  4,  4,  8,   9,   10,  11,   14,  15,
                                  16, 17, 18, 19, 20, 21, 22, 23, 24,  102, 103, 102,  103, 12345,
                                  -1};
    static const int flags[] = {ANONYMOUS,
                                ANONYMOUS,
                                ANONYMOUS | MAP_NORESERVE,
                                ANONYMOUS | MAP_STACK,
                                ANONYMOUS | MAP_POPULATE,
                                MAP_SHARED | MAP_ANONYMOUS,
                                MAP_PRIVATE,
                                MAP_SHARED,
                                ANONYMOUS | MAP_32BIT};
    int region = pick(REGIONS), first = pick(3) ? pick(8) : pick(PAGES), count = 1 + pick(6);
    if (first + count > PAGES) {
        count = PAGES - first;
    }
    char *at = regions[region] + first * PAGE;
    size_t size = (size_t)count * PAGE;
    int access = ONE_OF(accesses), advice = ONE_OF(advices), flag = ONE_OF(flags);
    long result;
    errno = 0;
    switch (pick(12)) {
    case 0:
    case 1:
    case 2:
        result = mprotect(at, size - pick(2), access);
        tell("mprotect", region, first, count, result, 0);
        break;
    case 3:
    case 4:
        result = madvise(at, size - pick(2), advice);
        printf("advice %d ", advice);
        tell("madvise", region, first, count, result, 0);
        break;
    case 5:
        if (flag & MAP_ANONYMOUS) {
            result = (long)mmap(at, size, access & 7, flag | MAP_FIXED, -1, 0);
        } else {
            result = (long)mmap(at, size, access & READ_WRITE, flag | MAP_FIXED, file, 0);
        }
        tell("mmap", region, first, count, result, 0);
        break;
    case 6:
        result = (long)mmap(at, size, READ_WRITE, flag | MAP_FIXED_NOREPLACE, file, 0);
        tell("mmap once", region, first, count, result, 0);
        break;
    case 7:
        if (pick(3) == 0) {
            result = munmap(at, size);
            tell("munmap", region, first, count, result, 0);
        }
        break;
    case 8: {
        int other = pick(REGIONS), second = pick(PAGES);
        result = (long)mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                              regions[other] + second * PAGE);
        tell("mremap from", region, first, 1, result, 0);
        tell("mremap to", other, second, 1, result, 0);
        break;
    }
    case 9:
        switch (pick(5)) {
        case 0: result = mprotect(at + 1, size, access); break;
        case 1: result = madvise(at + 8, size, advice); break;
        case 2: result = munmap(at, 0); break;
        case 3: result = mprotect(at, SIZE_MAX - PAGE, access); break;
        default: result = madvise(at, SIZE_MAX - 8 * PAGE, advice); break;
        }
        tell("wrong", region, first, count, result, 0);
        break;
    case 10:
        result = pick(2) ? mlock(at, size) : munlock(at, size);
        tell("mlock", region, first, count, result, 0);
        break;
    default:
        for (int i = 0; i < count; i++) {
            write_to(at + i * PAGE, number + i);
        }
        tell("write", region, first, count, 0, 0);
    }
}

/* Restores the state: the next thread finds a stack here. */
static void restore(char *region)
{
    int fixed = MAP_FIXED | ANONYMOUS | MAP_STACK;
    CHECK(mmap(region, PAGE, PROT_NONE, fixed, -1, 0) == region);
    region += PAGE;
    CHECK(mmap(region, (PAGES - 1) * PAGE, READ_WRITE, fixed, -1, 0) == region);
}

static void *sequence(void *unused)
{
    regions[0] = low_end();
    for (int i = 0; i < CALLS; i++) {
        if (is_gentle) {
            call_gently(i);
        } else {
            call_once(i);
        }
    }
    read_mappings();
    for (int i = 0; i < REGIONS; i++) {
        printf("region %d:", i);
        for (int page = 0; page < PAGES; page++) {
            tell_page(regions[i] + page * PAGE);
        }
        printf("\n");
        restore(regions[i]);
    }
    return unused;
}

static pthread_barrier_t meets;

static void *lend_stack(void *region)
{
    if (region) {
        *(char **)region = low_end();
    }
    pthread_barrier_wait(&meets);
    pthread_barrier_wait(&meets);
    return NULL;
}

/* Memory where no call without an address maps anything. */
static char *map_at(uintptr_t address, size_t size)
{
    char *at = mmap((void *)address, size, READ_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(at == (char *)address);
    GET(mprotect(at, PAGE, PROT_NONE));
    return at;
}

/* More default stacks at once than libc keeps. */
enum { LENDERS = 8, STACK = 1 << 20 };

int main(int argc, char **argv)
{
    static char output[1 << 16];
    case_name = "memory_sequences";
    random_state = (argc > 1 ? atol(argv[1]) : 1) * 0x9e3779b97f4a7c15ul + 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 1;
    setvbuf(stdout, output, _IOFBF, sizeof output);
    file = GET(memfd_create("file", MFD_CLOEXEC));
    GET(ftruncate(file, PAGES * PAGE));
    IS(pwrite(file, "of the file", 12, 10), 12);
    regions[3] = map_at(0x200000000000, STACK);
    regions[4] = map_at(0x210000000000, STACK);
    OK(pthread_barrier_init(&meets, NULL, LENDERS + 2));
    for (int round = 0; round < rounds; round++) {
        pthread_attr_t attributes;
        pthread_t threads[LENDERS + 1];
        OK(pthread_attr_init(&attributes));
        OK(pthread_attr_setstack(&attributes, regions[3], STACK));
        OK(pthread_create(&threads[LENDERS], &attributes, lend_stack, NULL));
        for (int i = 0; i < LENDERS; i++) {
            threads[i] = start(lend_stack, i < 2 ? &regions[1 + i] : NULL);
        }
        pthread_barrier_wait(&meets);
        is_gentle = pick(3) != 0;
        printf("round %d\n", round);
        join(start(sequence, NULL));
        pthread_barrier_wait(&meets);
        join_all(threads, LENDERS + 1);
    }
    say_ok();
    return 0;
}
