/* A process that looks like a Java virtual machine from outside: it has mapped libjvm.so, has a
 * thread "Signal Dispatch", and makes an attach socket at SIGQUIT. What it does there is the first
 * argument. Prints "ready", and "quit" when SIGQUIT has arrived. */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *how;
static int quits[2];
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void quit(int signal)
{
    (void)signal;
    if (write(quits[1], "q", 1) != 1) {
        abort();
    }
}

static int is(const char *name)
{
    return strcmp(how, name) == 0;
}

static void map_library(void)
{
    char path[] = "/tmp/raddle-fake-XXXXXX";
    char file[sizeof path + 16];
    if (mkdtemp(path) == NULL) {
        abort();
    }
    snprintf(file, sizeof file, "%s/libjvm.so", path);
    FILE *library = fopen(file, "w+");
    if (library == NULL || ftruncate(fileno(library), 4096) != 0) {
        abort();
    }
    void *page = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(library), 0);
    if (page == MAP_FAILED) {
        abort();
    }
    fclose(library);
    unlink(file);
    rmdir(path);
}

/* Returns 0 when the client has gone. */
static int put(int client, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t wrote = send(client, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (wrote <= 0) {
            return 0;
        }
        done += (size_t)wrote;
    }
    return 1;
}

static int say(int client, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return put(client, text, (size_t)size);
}

/* So many locks of one thread, of which each is another one. */
static int put_locks(int client, long count)
{
    static char text[1 << 16];
    for (long number = 0; number < count;) {
        size_t size = 0;
        for (; number < count && size < sizeof text - 64; number++) {
            size += (size_t)sprintf(text + size, "\t- locked <0x%lx> (a B)\n", number);
        }
        if (!put(client, text, size)) {
            return 0;
        }
    }
    return 1;
}

static void answer(int client)
{
    static const char header[] = "\"t\" nid=0x1 runnable\n\tat A.b(C.java:1)\n";
    if (is("garbage")) {
        static unsigned char bytes[1 << 22];
        unsigned long long state = 88172645463325252ULL;
        for (size_t i = 0; i < sizeof bytes; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[i] = (unsigned char)state;
        }
        say(client, "0\n");
        put(client, bytes, sizeof bytes);
    } else if (is("endless")) {
        say(client, "0\n");
        for (long number = 0; put(client, header, sizeof header - 1); number++) {
        }
    } else if (is("locks")) {
        say(client, "0\n%s", header);
        put_locks(client, 3000000);
        say(client, "\nJNI global refs: 1\n");
    } else if (is("line")) {
        static char line[1 << 16];
        memset(line, 'a', sizeof line);
        say(client, "0\n\"");
        for (int i = 0; i < 1000; i++) {
            put(client, line, sizeof line);
        }
        say(client, "\nJNI global refs: 1\n");
    } else if (is("drips")) {
        say(client, "0\n");
        while (say(client, "x")) {
            usleep(100000);
        }
    } else if (is("hangs")) {
        pause();
    }
}

static void *dispatch(void *unused)
{
    char byte;
    prctl(PR_SET_NAME, is("undispatched") ? "other" : "Signal Dispatch");
    while (read(quits[0], &byte, 1) == 1) {
        puts("quit");
        fflush(stdout);
        if (is("no_socket")) {
            continue;
        }
        int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        unlink(address.sun_path); /* left behind by a process that had the number before */
        if (bind(listener, (void *)&address, sizeof address) != 0) {
            abort();
        }
        if (is("full")) {
            /* Before it listens, no client finds it. */
            listen(listener, 0);
            int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            while (connect(client, (void *)&address, sizeof address) == 0) {
                client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            }
            pause();
        }
        listen(listener, 5);
        if (is("silent")) {
            pause();
        }
        for (;;) {
            int client = accept(listener, NULL, NULL);
            char request[64];
            if (!is("early") && read(client, request, sizeof request) > 0) {
                answer(client);
            }
            close(client);
        }
    }
    return unused;
}

int main(int count, char **arguments)
{
    pthread_t dispatcher;
    how = count > 1 ? arguments[1] : "silent";
    snprintf(address.sun_path, sizeof address.sun_path, "/tmp/.java_pid%d", getpid());
    if (pipe(quits) != 0) {
        abort();
    }
    if (is("ignores")) {
        signal(SIGQUIT, SIG_IGN);
    } else if (!is("unhandled")) {
        signal(SIGQUIT, quit);
    }
    if (!is("no_library")) {
        map_library();
    }
    pthread_create(&dispatcher, NULL, dispatch, NULL);
    usleep(100000);
    puts("ready");
    fflush(stdout);
    pthread_join(dispatcher, NULL);
}
