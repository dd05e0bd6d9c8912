/* Memory calls about stacks of threads: their content, access and errors are the kernel's. */
#include "stack.h"

static char *region;

static void *protect_upper_part(void *unused)
{
    struct stack stack = own_stack();
    char *low = stack.low + 4 * PAGE, *upper = page_below(4);
    strcpy(low, "kept");
    GET(mprotect(upper, stack.low + stack.size - upper, READ_WRITE));
    OK(strcmp(low, "kept"));
    CHECK(can_write(stack.low));
    return unused;
}

CASE(access_that_is_given_again_takes_none_away)
{
    catch_faults();
    on_threads(protect_upper_part);
}

static void *change_access(void *unused)
{
    static const struct {
        int access;
        const char *text;
        int reads, writes;
    } steps[] = {
        {PROT_READ, "r--", 1, 0},
        {READ_WRITE, "rw-", 1, 1},
        {PROT_READ | PROT_EXEC, "r-x", 1, 0},
        {READ_WRITE, "rw-", 1, 1},
        {PROT_NONE, "---", 0, 0},
        {PROT_READ, "r--", 1, 0},
        {READ_WRITE | PROT_EXEC, "rwx", 1, 1},
        {PROT_NONE, "---", 0, 0},
        {READ_WRITE, "rw-", 1, 1},
    };
    for (int place = 0; place < 2; place++) {
        char *page = low_page(place * 16);
        strcpy(page, "kept");
        strcpy(page + PAGE, "next");
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            GET(mprotect(page, PAGE, steps[i].access));
            HAS_ACCESS(page, steps[i].text);
            HAS_ACCESS(page + PAGE, "rw-");
            IS(can_read(page), steps[i].reads);
            IS(can_write(page), steps[i].writes);
            OK(strcmp(page + PAGE, "next"));
        }
        OK(strcmp(page, "kept"));
    }
    return unused;
}

CASE(access_changes_and_content_stays)
{
    catch_faults();
    on_threads(change_access);
}

/* As managed runtimes guard their stacks: no access to the low end, then access again. */
static void *guard_low_end(void *unused)
{
    char *low = low_page(0);
    for (int round = 0; round < 3; round++) {
        GET(mprotect(low, 4 * PAGE, PROT_NONE));
        CHECK(!can_read(low));
        CHECK(!can_write(low + 4 * PAGE - 1));
        CHECK(can_write(low + 4 * PAGE));
        GET(mprotect(low + PAGE, 3 * PAGE, READ_WRITE));
        CHECK(!can_write(low));
        CHECK(can_write(low + PAGE));
        low[3 * PAGE] = round;
        GET(mprotect(low + PAGE, 3 * PAGE, PROT_NONE));
        CHECK(!can_write(low + PAGE));
        GET(mprotect(low, 4 * PAGE, READ_WRITE));
        IS(low[3 * PAGE], round);
        CHECK(can_write(low));
        low[3 * PAGE] = 0;
        GET(madvise(low, 4 * PAGE, MADV_DONTNEED));
    }
    return unused;
}

CASE(the_low_end_is_guarded_and_opened)
{
    catch_faults();
    on_threads(guard_low_end);
}

/* The same by mappings, as HotSpot does it. */
static void *map_low_end(void *unused)
{
    char *low = low_page(0);
    int fixed = MAP_FIXED | ANONYMOUS;
    for (int round = 0; round < 3; round++) {
        strcpy(low, "old");
        IS(mmap(low, 4 * PAGE, READ_WRITE, fixed, -1, 0) == low, 1);
        CHECK(is_filled(low, 4 * PAGE, 0));
        GET(mprotect(low, 4 * PAGE, PROT_NONE));
        CHECK(!can_write(low + 3 * PAGE));
        IS(mmap(low, 4 * PAGE, PROT_NONE, fixed | MAP_NORESERVE, -1, 0) == low, 1);
        CHECK(!can_write(low + 3 * PAGE));
        CHECK(can_write(low + 4 * PAGE));
        IS(mmap(low, 8 * PAGE, READ_WRITE, fixed, -1, 0) == low, 1);
        CHECK(can_write(low));
        CHECK(is_filled(low, 8 * PAGE, 0));
    }
    return unused;
}

CASE(the_low_end_is_mapped_anew)
{
    catch_faults();
    on_threads(map_low_end);
}

static void *map_over_pages(void *unused)
{
    char *page = low_page(16);
    int file = GET(open("content", O_RDWR | O_CREAT | O_TRUNC, 0600));
    IS(write(file, "of the file", 12), 12);
    int fixed = MAP_FIXED | MAP_PRIVATE;
    strcpy(page, "old");
    FAILS(mmap(page, PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
    OK(strcmp(page, "old"));
    IS(mmap(page, PAGE, READ_WRITE, fixed | MAP_ANONYMOUS, -1, 0) == page, 1);
    CHECK(is_filled(page, PAGE, 0));
    IS(mmap(page, PAGE, PROT_READ, fixed | MAP_ANONYMOUS, -1, 0) == page, 1);
    CHECK(can_read(page) && !can_write(page));
    IS(mmap(page, PAGE, READ_WRITE, MAP_FIXED | MAP_SHARED, file, 0) == page, 1);
    OK(strcmp(page, "of the file"));
    strcpy(page, "by the map!");
    char text[12];
    IS(pread(file, text, 12, 0), 12);
    OK(strcmp(text, "by the map!"));
    IS(mmap(page, PAGE, PROT_NONE, fixed | MAP_ANONYMOUS, -1, 0) == page, 1);
    CHECK(!can_read(page));
    IS(mmap(page, PAGE, READ_WRITE, fixed | MAP_ANONYMOUS, -1, 0) == page, 1);
    CHECK(can_write(page));
    OK(close(file));
    return unused;
}

CASE(pages_are_mapped_over)
{
    catch_faults();
    on_threads(map_over_pages);
}

static void *unmap_pages(void *unused)
{
    char *page = low_page(16);
    strcpy(page, "old");
    GET(munmap(page, PAGE));
    HAS_ACCESS(page, "");
    CHECK(!can_read(page));
    CHECK(can_write(page - PAGE) && can_write(page + PAGE));
    FAILS(mprotect(page, PAGE, READ_WRITE), ENOMEM);
    FAILS(madvise(page, PAGE, MADV_DONTNEED), ENOMEM);
    GET(munmap(page, PAGE));
    IS(mmap(page, PAGE, READ_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page, 1);
    CHECK(is_filled(page, PAGE, 0));
    return unused;
}

CASE(pages_are_unmapped)
{
    catch_faults();
    on_threads(unmap_pages);
}

static void *move_pages_away(void *unused)
{
    char *page = low_page(16);
    strcpy(page, "moved");
    char *moved = mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED);
    OK(strcmp(moved, "moved"));
    if (moved != page) {
        CHECK(!can_read(page));
        IS(mremap(moved, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page, 1);
    }
    OK(strcmp(page, "moved"));
    FAILS(mremap(page + 1, PAGE, PAGE, 0), EINVAL);
    return unused;
}

CASE(pages_are_moved)
{
    catch_faults();
    on_threads(move_pages_away);
}

static void *map_stacks(void *unused)
{
    enum { SIZE = 256 << 10 };
    int stack = ANONYMOUS | MAP_STACK;
    char *first = mmap(NULL, SIZE, PROT_NONE, stack, -1, 0);
    HAS_ACCESS(first, "---");
    CHECK(!can_read(first) && !can_read(first + SIZE - 1));
    GET(mprotect(first + PAGE, SIZE - PAGE, READ_WRITE));
    CHECK(!can_read(first) && can_write(first + PAGE));
    char *other = mmap(first, SIZE, READ_WRITE, stack, -1, 0);
    CHECK(other != first && can_write(other));
    GET(munmap(other, SIZE));
    /* Where no call without an address maps anything. */
    char *far = (char *)0x220000000000;
    for (int i = 0; i < 2; i++) {
        CHECK(mmap(far, SIZE, READ_WRITE, stack, -1, 0) == far);
        CHECK(can_write(far + SIZE - 1));
        GET(munmap(far, SIZE));
        CHECK(!can_read(far));
    }
    char *low = mmap(NULL, SIZE, READ_WRITE, stack | MAP_32BIT, -1, 0);
    CHECK((uintptr_t)low < 1ul << 31);
    char *shared = mmap(NULL, SIZE, READ_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    *shared = 1;
    if (fork() == 0) {
        *shared = 2;
        _exit(0);
    }
    GET(wait(NULL));
    IS(*shared, 2);
    char *populated = mmap(NULL, SIZE, READ_WRITE, stack | MAP_POPULATE, -1, 0);
    unsigned char resident[SIZE / PAGE];
    GET(mincore(populated, SIZE, resident));
    CHECK(is_filled((char *)resident, sizeof resident, 1));
    char *grows = mmap(NULL, SIZE, READ_WRITE, stack | MAP_GROWSDOWN, -1, 0);
    CHECK(can_write(grows));
    char *locked = mmap(NULL, PAGE, READ_WRITE, stack | MAP_LOCKED | MAP_NORESERVE, -1, 0);
    if (locked != MAP_FAILED) {
        FAILS(madvise(locked, PAGE, MADV_DONTNEED), EINVAL);
        GET(munmap(locked, PAGE));
    }
    GET(munmap(grows, SIZE));
    GET(munmap(populated, SIZE));
    GET(munmap(shared, SIZE));
    GET(munmap(low, SIZE));
    GET(munmap(first, SIZE));
    return unused;
}

CASE(what_a_program_maps_as_a_stack_is_as_it_asked)
{
    catch_faults();
    on_threads(map_stacks);
}

static void *lock_pages(void *unused)
{
    char *page = low_page(16);
    *page = 1;
    GET(mlock(page, 2 * PAGE));
    FAILS(madvise(page, PAGE, MADV_DONTNEED), EINVAL);
    IS(*page, 1);
    GET(munlock(page, 2 * PAGE));
    GET(madvise(page, PAGE, MADV_DONTNEED));
    IS(*page, 0);
    GET(madvise(page, PAGE, MADV_DONTFORK));
    int status, child = GET(fork());
    if (child == 0) {
        _exit(can_read(page) ? 1 : 2);
    }
    IS(waitpid(child, &status, 0), child);
    IS(WEXITSTATUS(status), 2);
    GET(madvise(page, PAGE, MADV_DOFORK));
    return unused;
}

CASE(pages_are_locked_and_kept_from_children)
{
    catch_faults();
    on_threads(lock_pages);
}

static pthread_barrier_t meets;

static void *lend_a_page(void *unused)
{
    region = low_page(16);
    strcpy(region, "lent");
    pthread_barrier_wait(&meets);
    pthread_barrier_wait(&meets);
    IS(*region, 0);
    strcpy(region, "back");
    (void)unused;
    return NULL;
}

/* A thread changes the stack of another one, which waits. */
CASE(a_neighbour_changes_a_stack)
{
    catch_faults();
    for (int i = 0; i < 4; i++) {
        OK(pthread_barrier_init(&meets, NULL, 2));
        pthread_t thread = start(lend_a_page, NULL);
        pthread_barrier_wait(&meets);
        GET(mprotect(region, PAGE, PROT_READ));
        OK(strcmp(region, "lent"));
        CHECK(!can_write(region));
        GET(mprotect(region, PAGE, READ_WRITE));
        CHECK(can_write(region));
        IS(mmap(region, PAGE, READ_WRITE, MAP_FIXED | ANONYMOUS, -1, 0) == region, 1);
        pthread_barrier_wait(&meets);
        join(thread);
    }
}

static void *touch_guard(void *unused)
{
    char *low = low_page(0);
    CHECK(can_write(low));
    CHECK(!can_write(low - 1));
    return unused;
}

static void *is_fresh(void *unused)
{
    struct stack stack = own_stack();
    HAS_ACCESS(stack.low, "rw-");
    CHECK(can_write(stack.low) && can_write(stack.low + 32 * PAGE));
    CHECK(!can_read(stack.low - 1));
    return unused;
}

/* Stacks that were changed, and given back by libc, don't come back as they were left. */
CASE(stacks_are_fresh_after_all_that)
{
    enum { MANY = 64 };
    static thread_function const changes[] = {change_access, map_over_pages, unmap_pages,
                                              guard_low_end, map_low_end, lock_pages};
    pthread_t threads[MANY];
    catch_faults();
    for (int round = 0; round < 12; round++) {
        join(start(changes[round % 6], NULL));
        for (int i = 0; i < MANY; i++) {
            threads[i] = start(touch_guard, NULL);
        }
        join_all(threads, MANY);
        join(start(is_fresh, NULL));
    }
}

static void *grow_down(void *unused)
{
    struct stack stack = own_stack();
    /* A protected page before glibc 2.42, since then a guard region where the kernel has these. */
    GET(mprotect(stack.low - PAGE, PAGE, READ_WRITE));
    madvise(stack.low - PAGE, PAGE, 103 /* MADV_GUARD_REMOVE */);
    CHECK(can_write(stack.low - PAGE));
    GET(mprotect(stack.low - PAGE, 2 * PAGE, PROT_NONE));
    CHECK(!can_read(stack.low));
    GET(mprotect(stack.low, PAGE, READ_WRITE));
    CHECK(can_write(stack.low) && !can_read(stack.low - 1));
    return unused;
}

CASE(a_guard_is_opened_and_closed)
{
    catch_faults();
    on_threads(grow_down);
}

static void *stack_in_child(void *unused)
{
    char *low = low_page(0);
    int status, child = GET(fork());
    if (child == 0) {
        CHECK(!can_read(low - 1));
        GET(mprotect(low + PAGE, PAGE, PROT_READ));
        CHECK(!can_write(low + PAGE) && can_write(low));
        join(start(touch_guard, NULL));
        join(start(is_fresh, NULL));
        _exit(0);
    }
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    CHECK(can_write(low + PAGE));
    return unused;
}

CASE(a_child_changes_the_stacks_that_it_inherits)
{
    catch_faults();
    on_threads(stack_in_child);
}

enum { LENT = 12, LENT_PAGES = 24 };
static char *lent[LENT];

static void *lend_low_end(void *to)
{
    *(char **)to = own_stack().low - PAGE;
    pthread_barrier_wait(&meets);
    pthread_barrier_wait(&meets);
    return NULL;
}

static void *change_at_random(void *seed)
{
    static const int accesses[] = {PROT_NONE,  PROT_READ,  READ_WRITE, READ_WRITE,
                                   READ_WRITE, READ_WRITE, PROT_READ | PROT_EXEC};
    static const int advices[] = {4, 4, 8, 102, 103, 16, 17, 20};
    unsigned state = (unsigned)(uintptr_t)seed;
    for (int i = 0; i < 300; i++) {
        int pages = 1 + rand_r(&state) % 6;
        char *at = lent[rand_r(&state) % LENT] + rand_r(&state) % LENT_PAGES * PAGE;
        int access = accesses[rand_r(&state) % 7], advice = advices[rand_r(&state) % 8];
        int status, child;
        switch (rand_r(&state) % 8) {
        case 0:
        case 1:
        case 2: mprotect(at, pages * PAGE, access); break;
        case 3: madvise(at, pages * PAGE, advice); break;
        case 4: mmap(at, pages * PAGE, access, ANONYMOUS | MAP_FIXED, -1, 0); break;
        case 5: join(start(touch_guard, NULL)); break;
        case 6:
            if (i % 5 == 0) {
                child = GET(fork());
                if (child == 0) {
                    mprotect(at, pages * PAGE, access);
                    _exit(0);
                }
                IS(waitpid(child, &status, 0), child);
                IS(status, 0);
            }
            break;
        default: mprotect(at, pages * PAGE, READ_WRITE);
        }
    }
    return NULL;
}

CASE(stacks_are_changed_by_four_threads_at_once)
{
    catch_faults();
    OK(pthread_barrier_init(&meets, NULL, LENT + 1));
    for (int round = 0; round < 3; round++) {
        pthread_t lenders[LENT], others[4];
        for (int i = 0; i < LENT; i++) {
            lenders[i] = start(lend_low_end, &lent[i]);
        }
        pthread_barrier_wait(&meets);
        for (int i = 0; i < 4; i++) {
            others[i] = start(change_at_random, number(round * 4 + i));
        }
        join_all(others, 4);
        for (int i = 0; i < LENT; i++) {
            int fixed = MAP_FIXED | ANONYMOUS | MAP_STACK;
            char *low = lent[i] + PAGE;
            CHECK(mmap(lent[i], PAGE, PROT_NONE, fixed, -1, 0) == lent[i]);
            CHECK(mmap(low, (LENT_PAGES + 6) * PAGE, READ_WRITE, fixed, -1, 0) == low);
        }
        pthread_barrier_wait(&meets);
        join_all(lenders, LENT);
        for (int i = 0; i < 30; i++) {
            join(start(is_fresh, NULL));
        }
    }
}
