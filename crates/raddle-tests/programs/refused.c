/* Runs a command under a filter that refuses performance events, as a kernel with a
 * perf_event_paranoid of 3 does; behind the word memfd_create, one that refuses memory files;
 * behind words such as 39=1 and 441=kill, one that answers these calls by an error or kills. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 2000 };
static struct sock_filter code[MOST + 4];
static unsigned short length;

static void say(struct sock_filter instruction)
{
    code[length++] = instruction;
}

static void answer(unsigned call, unsigned verdict)
{
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict));
}

/* Adds what a word asks for; 0 if it is another word. */
static int understand(const char *word)
{
    char *end;
    unsigned call = (unsigned)strtoul(word, &end, 10);
    if (end == word || *end != '=' || length >= MOST) {
        return 0;
    }
    int kills = strcmp(end + 1, "kill") == 0;
    answer(call, kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (unsigned)atoi(end + 1));
    return 1;
}

int main(int count, char **words)
{
    say((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    if (count > 1 && strcmp(words[1], "memfd_create") == 0) {
        answer(SYS_memfd_create, SECCOMP_RET_ERRNO | EACCES);
        words++;
    }
    while (words[1] != NULL && understand(words[1])) {
        words++;
    }
    if (length == 1) {
        answer(SYS_perf_event_open, SECCOMP_RET_ERRNO | EACCES);
    }
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog filter = {length, code};
    if (words[1] == NULL || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        perror("refused");
        return 1;
    }
    execv(words[1], words + 1);
    perror(words[1]);
    return 1;
}
