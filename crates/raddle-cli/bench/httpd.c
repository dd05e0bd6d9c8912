// An HTTP server with a thread for each connection. It prints its port, then serves until killed.
#include "common.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
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

int main(void) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  must(bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
  must(listen(listener, 4096), "listen");
  must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
  pthread_t thread;
  must(pthread_create(&thread, NULL, accept_all, (void *)(long)listener), "pthread_create");
  printf("READY %d\n", ntohs(address.sin_port));
  fflush(stdout);
  pthread_join(thread, NULL);
  return 0;
}
