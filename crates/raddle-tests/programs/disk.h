/* A file of known blocks, and threads that read it. */
#ifndef DISK_H
#define DISK_H

#include "check.h"
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { BLOCK = 4096, BLOCKS = 512 };

static int file;

__attribute__((unused)) static void fill(char *block, long index)
{
    for (long i = 0; i < BLOCK / (long)sizeof(long); i++) {
        ((long *)block)[i] = index * 1000 + i;
    }
}

__attribute__((unused)) static void check_block(const char *block, long index)
{
    for (long i = 0; i < BLOCK / (long)sizeof(long); i++) {
        IS(((const long *)block)[i], index * 1000 + i);
    }
}

__attribute__((unused)) static void make_file(void)
{
    static char block[BLOCK];
    int fd = (int)GET(open("data", O_CREAT | O_TRUNC | O_WRONLY, 0600));
    for (long i = 0; i < BLOCKS; i++) {
        fill(block, i);
        IS(write(fd, block, BLOCK), BLOCK);
    }
    GET(fsync(fd));
    close(fd);
}

/* Past the cache where the file system can. */
__attribute__((unused)) static int open_direct(int flags)
{
    int fd = open("data", flags | O_DIRECT);
    return fd >= 0 ? fd : (int)GET(open("data", flags));
}

__attribute__((unused)) static void forget_cached(int fd)
{
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}

__attribute__((unused)) static void *read_at_random(void *me)
{
    char *block = aligned_alloc(BLOCK, BLOCK);
    unsigned long dice = (unsigned long)me + 1;
    for (int i = 0; i < 40; i++) {
        dice = dice * 6364136223846793005u + 1442695040888963407u;
        long index = (long)((dice >> 33) % BLOCKS);
        IS(pread(file, block, BLOCK, index * BLOCK), BLOCK);
        check_block(block, index);
        if (i % 8 == 0) {
            forget_cached(file);
        }
    }
    free(block);
    return NULL;
}

__attribute__((unused)) static void read_by_many(int fd, int count)
{
    pthread_t threads[64];
    file = fd;
    for (long i = 0; i < count; i++) {
        threads[i] = start(read_at_random, number(i));
    }
    join_all(threads, count);
    close(fd);
}

static _Atomic pthread_t signalled;

__attribute__((unused)) static void note_thread(int unused)
{
    (void)unused;
    signalled = pthread_self();
}

/* Files end after `bytes` bytes: a write beyond raises a signal, which is noted. */
__attribute__((unused)) static void limit_files(rlim_t bytes)
{
    struct rlimit limit = {bytes, bytes};
    signal(SIGXFSZ, note_thread);
    GET(setrlimit(RLIMIT_FSIZE, &limit));
}

static atomic_int over;

__attribute__((unused)) static void *read_until_over(void *unused)
{
    (void)unused;
    char *block = aligned_alloc(BLOCK, BLOCK);
    for (long i = 0; !atomic_load(&over); i++) {
        IS(pread(file, block, BLOCK, i % BLOCKS * BLOCK), BLOCK);
        check_block(block, i % BLOCKS);
    }
    free(block);
    return NULL;
}

#endif
