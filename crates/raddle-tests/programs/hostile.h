/* Calls with arguments that aim at the kernel's copies: what they do natively is the authority.
 *
 * A *shape* is what a pointer should lead to: bytes, and in them pointers to other shapes. A *call*
 * names the shapes and numbers of its arguments. An *item* is a call with some of its pointers,
 * lengths or numbers replaced. An item's *result* is the call's value or errno, and a sum of all
 * the memory that the shapes lie in.
 *
 * Each shape has a *place*: a page of a file of its own, mapped at a fixed address before a page
 * without access, again for reading only, again before what lies behind the file's end, and once
 * more where another thread may change what can be accessed.
 */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "check.h"

#include <sys/mman.h>

enum { INNER = 3, PLACES = 8, PAGE = 4096, OFFSET = 1024 };

struct shape {
    int size;
    void (*fill)(char *at);
    struct {
        int offset;
        const struct shape *to;
    } inner[INNER];
    /* Lengths in it: offsets of numbers of eight bytes, -1 behind the last. */
    int lengths[INNER];
    int is_noisy; /* what the kernel writes there differs from run to run */
    int is_limit; /* a call without it waits for ever */
};

enum kind { NOTHING, NUMBER, WIDE, LENGTH, FILE_NUMBER, POINTER, PROCESS, THREAD, CHILD, CONTEXT };

struct argument {
    enum kind kind;
    long value;
    const struct shape *shape;
};

enum {
    GIVES_FILE = 1,    /* the value is a descriptor, to be closed */
    NOISY_VALUE = 2,   /* the value differs from run to run */
    ON_OWN_THREAD = 4, /* the thread gets a kernel thread of its own by it */
    NEVER = 8,         /* no pointer among its arguments, or it ends the process */
    NEVER_EMPTY = 16,  /* a length of 0 waits, or not, by another rule */
    CHANGES_MASK = 32, /* the thread's mask is to be restored */
    FIXED_LENGTHS = 64, /* with other lengths it waits for more than there is */
};

struct call {
    const char *name; /* the call's, and behind a blank what it is made on */
    long number;
    struct argument arguments[6];
    int flags;
    void (*after)(long value);
};

#define P(shape_) {POINTER, 0, &shape_}
#define N(value_) {NUMBER, value_, NULL}
#define W(value_) {WIDE, value_, NULL}
#define L(value_) {LENGTH, value_, NULL}
#define F(file_) {FILE_NUMBER, file_, NULL}

/* The places that a replaced pointer leads to. */
enum where {
    GOOD,
    READ_ONLY,
    NO_ACCESS,
    BEHIND_FILE,
    FITS,             /* up to the last byte before a page without access */
    LACKS_BYTE,
    LACKS_HALF,
    HAS_BYTE,
    FILE_LACKS_HALF,  /* as LACKS_HALF, before what lies behind the file's end */
    UNALIGNED,
    FLIPPING,
    CONSTANTS,
};

static const unsigned long constants[] = {
    0,
    1,
    0x7fffffffeffc,
    0x7ffffffff000,
    0x800000000000,
    0x1234567800000000,
    0xffff800000000000,
    0xffffffffff600000,
    -4096ul,
    -8ul,
    -1ul,
};

static const unsigned long lengths[] = {
    0,          1,         7,          1025,     1 << 20,      0x7ffff000, 0x7ffff001,
    0x7fffffff, 1ul << 31, 0xffffffff, 1ul << 32, (1ul << 32) + 8, 1ul << 47,  1ul << 58,
    1ul << 60,  (1ul << 61) + 1, ~0ul >> 1, 1ul << 63, ~0ul,
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
enum { WHERE = CONSTANTS + COUNT(constants) };

/* The replacement in an item: `position` counts pointers, lengths or numbers of the call. */
struct change {
    enum { NO_CHANGE, CHANGE_POINTER, CHANGE_LENGTH, CHANGE_NUMBER } what;
    int position;
    int to;
};

enum { CHANGES = 3 };

struct item {
    const struct call *call;
    struct change changes[CHANGES];
};

struct place {
    char *page, *read_only, *at_end, *flipping;
    int file;
};

static struct place places[PLACES];
static long laid[PLACES]; /* where the pointers of the last item lead */

static void map_places(void)
{
    for (int i = 0; i < PLACES; i++) {
        int file = GET(memfd_create("place", 0));
        OK(ftruncate(file, PAGE));
        char *base = (char *)0x200000000 + i * 0x100000;
        int flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
        struct place *place = &places[i];
        place->page = mmap(base, PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
        place->read_only = mmap(base + 4 * PAGE, PAGE, PROT_READ, flags, file, 0);
        place->at_end = mmap(base + 8 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
        CHECK(place->page == base && place->read_only == base + 4 * PAGE);
        CHECK(place->at_end == base + 8 * PAGE);
        place->flipping = mmap(base + 12 * PAGE, PAGE, PROT_READ, flags, file, 0);
        CHECK(place->flipping == base + 12 * PAGE);
        void *guards[] = {base + PAGE, base + 5 * PAGE};
        for (int g = 0; g < 2; g++) {
            flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
            CHECK(mmap(guards[g], PAGE, PROT_NONE, flags, -1, 0) == guards[g]);
        }
        place->file = fcntl(file, F_DUPFD, 100);
        close(file);
    }
}

/* Where a shape of `size` bytes lies; `*fill_at` is where it is to be filled, if anywhere. */
static char *address_of(const struct place *place, int size, enum where where, char **fill_at)
{
    char *page = place->page, *end = page + PAGE;
    char *at = page + OFFSET;
    *fill_at = NULL;
    if (where >= CONSTANTS) {
        return (char *)constants[where - CONSTANTS];
    }
    switch (where) {
    case READ_ONLY:
        *fill_at = at;
        return place->read_only + OFFSET;
    case FLIPPING:
        *fill_at = at;
        return place->flipping + OFFSET;
    case NO_ACCESS:
        return end + OFFSET;
    case BEHIND_FILE:
        return place->at_end + PAGE + OFFSET;
    case FITS:
        at = end - size;
        break;
    case LACKS_BYTE:
        at = end - size + 1;
        break;
    case LACKS_HALF:
        at = end - size / 2;
        break;
    case HAS_BYTE:
        at = end - 1;
        break;
    case FILE_LACKS_HALF:
        *fill_at = end - size / 2;
        return place->at_end + PAGE - size / 2;
    case UNALIGNED:
        at++;
        break;
    default:
        break;
    }
    *fill_at = at;
    return at;
}

struct laying {
    const struct item *item;
    int pointers, lengths, numbers, noisy;
};

static int change_of(const struct laying *laying, int what, int position)
{
    for (int i = 0; i < CHANGES; i++) {
        const struct change *change = &laying->item->changes[i];
        if ((int)change->what == what && change->position == position) {
            return change->to;
        }
    }
    return -1;
}

static unsigned long length_of(struct laying *laying, unsigned long value)
{
    int to = change_of(laying, CHANGE_LENGTH, laying->lengths++);
    return to < 0 ? value : lengths[to];
}

/* Fills a shape, and what its pointers lead to, where the item wants them. */
static long lay(struct laying *laying, const struct shape *shape)
{
    char whole[1024] = {0}, *fill_at;
    int number = laying->pointers++;
    CHECK(number < PLACES);
    struct place *place = &places[number];
    int to = change_of(laying, CHANGE_POINTER, number);
    char *at = address_of(place, shape->size, to < 0 ? GOOD : (enum where)to, &fill_at);
    if (shape->fill) {
        shape->fill(whole);
    }
    for (int i = 0; i < INNER && shape->inner[i].to; i++) {
        long inner = lay(laying, shape->inner[i].to);
        memcpy(whole + shape->inner[i].offset, &inner, sizeof inner);
    }
    for (int i = 0; i < INNER && shape->lengths[i] > 0; i++) {
        unsigned long value;
        memcpy(&value, whole + shape->lengths[i], sizeof value);
        value = length_of(laying, value);
        memcpy(whole + shape->lengths[i], &value, sizeof value);
    }
    if (fill_at) {
        long room = place->page + PAGE - fill_at;
        memcpy(fill_at, whole, shape->size < room ? shape->size : room);
    }
    laying->noisy |= shape->is_noisy << number;
    return laid[number] = (long)at;
}

static unsigned long sum_of(const struct laying *laying)
{
    unsigned long sum = 0xcbf29ce484222325;
    for (int i = 0; i < laying->pointers; i++) {
        const unsigned long *word = (const unsigned long *)places[i].page;
        for (int w = 0; w < PAGE / 8 && !(laying->noisy >> i & 1); w++) {
            sum = (sum ^ word[w]) * 0x100000001b3;
        }
    }
    return sum;
}

/* How many pointers, lengths or numbers a shape or a call has; `noisy` has a bit for each pointer
 * to a limit here. */
static void count_shape(struct laying *laying, const struct shape *shape)
{
    laying->noisy |= shape->is_limit << laying->pointers++;
    for (int i = 0; i < INNER && shape->inner[i].to; i++) {
        count_shape(laying, shape->inner[i].to);
    }
    for (int i = 0; i < INNER && shape->lengths[i] > 0; i++) {
        laying->lengths++;
    }
}

static struct laying count_call(const struct call *call)
{
    struct laying laying = {0};
    for (int i = 0; i < 6; i++) {
        enum kind kind = call->arguments[i].kind;
        if (kind == POINTER) {
            count_shape(&laying, call->arguments[i].shape);
        }
        laying.lengths += kind == LENGTH;
        laying.numbers += kind == NUMBER || kind == FILE_NUMBER;
    }
    return laying;
}

#endif
