/* A container's filter of system calls. */
#ifndef CONTAINER_H
#define CONTAINER_H

#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

/* What Docker's default list doesn't allow a process without privileges: these, what is newer than
 * the list, and with errors of their own clone3 (libc shall use clone: a filter can see its flags),
 * namespaces by clone, and sockets of virtual machines. */
static const int refused[] = {
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_perf_event_open,
    SYS_userfaultfd, SYS_bpf, SYS_add_key, SYS_keyctl, SYS_request_key, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_unshare, SYS_setns, SYS_move_pages, SYS_migrate_pages, SYS_mbind,
    SYS_set_mempolicy, SYS_get_mempolicy, SYS_kcmp, SYS_open_by_handle_at, SYS_fanotify_init,
    SYS_acct, SYS_quotactl, SYS_lookup_dcookie, SYS_syslog, SYS_vhangup, SYS_iopl, SYS_ioperm,
    SYS_swapon, SYS_swapoff, SYS_reboot, SYS_sethostname, SYS_setdomainname, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_clock_settime,
    SYS_settimeofday, SYS_uselib, SYS_ustat, SYS_sysfs, SYS__sysctl, SYS_nfsservctl,
};
/* Of those that came after rseq, which is the last of a row without gaps. */
static const int allowed[] = {
    424 /* pidfd_send_signal */, 434 /* pidfd_open */, 436 /* close_range */, 437 /* openat2 */,
    439 /* faccessat2 */, 441 /* epoll_pwait2 */, 444 /* landlock_create_ruleset */,
    445 /* landlock_add_rule */, 446 /* landlock_restrict_self */, 447 /* memfd_secret */,
    448 /* process_mrelease */, 449 /* futex_waitv */,
};
enum {
    REFUSED = sizeof refused / sizeof *refused,
    ALLOWED = sizeof allowed / sizeof *allowed,
    NAMESPACES = 0x7e020000, /* all flags of clone that make one, but that of time */
    VSOCK = 40,
};

static struct sock_filter code[2 * (REFUSED + ALLOWED) + 20];
static int length;

static void say(struct sock_filter instruction)
{
    code[length++] = instruction;
}

/* Ends the call with a verdict if the last loaded value is `value`. */
static void answer(unsigned value, unsigned end)
{
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, end));
}

static void load(size_t offset)
{
    say((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void install_filter(void)
{
    const unsigned no = SECCOMP_RET_ERRNO | EPERM;
    load(offsetof(struct seccomp_data, nr));
    for (int i = 0; i < REFUSED; i++) {
        answer((unsigned)refused[i], no);
    }
    for (int i = 0; i < ALLOWED; i++) {
        answer((unsigned)allowed[i], SECCOMP_RET_ALLOW);
    }
    answer(SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_rseq, 0, 1));
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, no));
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4));
    load(offsetof(struct seccomp_data, args[0]));
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1));
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, no));
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    say((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3));
    load(offsetof(struct seccomp_data, args[0]));
    answer(VSOCK, no);
    say((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog filter = {(unsigned short)length, code};
    GET(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    GET(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
}

#endif
