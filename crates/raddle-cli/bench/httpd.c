// An HTTP server with a thread for each connection. It prints its port, then serves until killed.
// Two numbers: how many threads compute meanwhile, and how many read a file past the cache. A third
// is the port; without it, and if it is 0, the port is a free one. A fourth number is how many
// threads mostly wait: they sleep, or poll a pipe that stays empty, for half a second to one and a
// half.
#define _GNU_SOURCE
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char response[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

static void *serve(void *argument) {
  int connection = (int)(long)argument;
  char request[4096];
  while (read(connection, request, sizeof request) > 0)
    if (write(connection, response, sizeof response - 1) < 0)
      break;
  close(connection);
  return NULL;
}

static void *accept_all(void *argument) {
  int listener = (int)(long)argument;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 65536);
  while (listener >= 0) {
    int connection = accept(listener, NULL, NULL);
    if (connection < 0)
      continue;
    int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, serve, (void *)(long)connection) != 0)
      close(connection);
  }
  return NULL;
}

static void *compute(void *argument) {
  for (volatile double value = 1;;) value = value * 1.0000001 + 1e-9;
  return argument;
}

enum { BLOCK = 4096, BLOCKS = 4096 };

static void *read_uncached(void *file) {
  char *block = aligned_alloc(BLOCK, BLOCK);
  uint64_t dice = (uintptr_t)block;
  for (;;) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    off_t at = (off_t)((dice >> 33) % BLOCKS) * BLOCK;
    must(pread((int)(long)file, block, BLOCK, at) != BLOCK, "pread");
  }
}

// An unlinked file in TMPDIR, or /tmp, that is read past the cache.
static long open_uncached(void) {
  char path[4096];
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/raddle-httpd-XXXXXX", folder ? folder : "/tmp");
  int file = mkstemp(path);
  must(file < 0, path);
  static char block[BLOCK];
  for (long i = 0; i < BLOCKS; i++) must(write(file, block, BLOCK) != BLOCK, "write");
  must(fsync(file), "fsync");
  int uncached = open(path, O_RDONLY | O_DIRECT);
  must(unlink(path), "unlink");
  must(uncached < 0, "O_DIRECT");
  close(file);
  return uncached;
}

static int never[2]; // a pipe

static void *wait_mostly(void *argument) {
  uint64_t dice = (uintptr_t)argument;
  int sleeps = dice % 2 == 0;
  for (;;) {
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    int ms = 500 + (int)((dice >> 33) % 1000);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    struct pollfd end = {.fd = never[0], .events = POLLIN};
    if (sleeps)
      nanosleep(&time, NULL);
    else
      poll(&end, 1, ms);
  }
}

static void keep_waiting(long count) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  must(pipe(never), "pipe");
  for (long i = 0; i < count; i++) {
    pthread_t thread;
    must(pthread_create(&thread, &attributes, wait_mostly, (void *)i), "pthread_create");
  }
}

static void keep_busy(int argc, char **argv) {
  pthread_t thread;
  long computing = argc > 1 ? atol(argv[1]) : 0, reading = argc > 2 ? atol(argv[2]) : 0;
  void *file = reading > 0 ? (void *)open_uncached() : NULL;
  for (long i = 0; i < computing + reading; i++)
    must(pthread_create(&thread, NULL, i < computing ? compute : read_uncached, file),
         "pthread_create");
}

int main(int argc, char **argv) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(argc > 3 ? (uint16_t)atoi(argv[3]) : 0);
  socklen_t length = sizeof address;
  int on = 1;
  must(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  must(bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
  must(listen(listener, 4096), "listen");
  must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
  keep_busy(argc, argv);
  keep_waiting(argc > 4 ? atol(argv[4]) : 0);
  pthread_t thread;
  must(pthread_create(&thread, NULL, accept_all, (void *)(long)listener), "pthread_create");
  printf("READY %d\n", ntohs(address.sin_port));
  fflush(stdout);
  pthread_join(thread, NULL);
  return 0;
}
