//! The table of handled system calls: the only list of them.

use crate::fd::poll::select;
use crate::fd::{connections, descriptors, files, helped, io, messages, poll, transfers, uring};
use crate::frame::Handler;
use crate::kernel_threads;
use crate::signal::{alternate, calls as signals, children, held, pidfd, timers};
use crate::task::{credentials, ids, process, threads};
use crate::words;
use crate::{clocks, futex, memory, procfs, scheduling, time};
use raddle_sys::nr;

/// Numbers below this can be handled.
pub const NUMBERS: usize = 512;

/// A number and its handler.
type Row = (u32, Handler);

/// Calls on descriptors.
const DESCRIPTORS: &[Row] = &[
    (nr::__NR_read, io::read),
    (nr::__NR_write, io::write),
    (nr::__NR_readv, io::readv),
    (nr::__NR_writev, io::writev),
    (nr::__NR_pread64, files::pread),
    (nr::__NR_pwrite64, files::write),
    (nr::__NR_preadv, files::preadv),
    (nr::__NR_preadv2, io::preadv2),
    (nr::__NR_pwritev, files::write),
    (nr::__NR_pwritev2, io::pwritev2),
    (nr::__NR_fsync, helped::sync),
    (nr::__NR_fdatasync, helped::sync),
    (nr::__NR_sync_file_range, helped::sync),
    (nr::__NR_syncfs, helped::sync),
    (nr::__NR_sync, helped::run_on_helper),
    (nr::__NR_msync, helped::msync),
    (nr::__NR_recvfrom, io::recvfrom),
    (nr::__NR_sendto, io::sendto),
    (nr::__NR_recvmsg, messages::recvmsg),
    (nr::__NR_recvmmsg, messages::recvmmsg),
    (nr::__NR_sendmsg, messages::sendmsg),
    (nr::__NR_sendmmsg, messages::sendmmsg),
    (nr::__NR_accept, connections::accept),
    (nr::__NR_accept4, connections::accept),
    (nr::__NR_connect, connections::connect),
    (nr::__NR_close, descriptors::close),
    (nr::__NR_dup2, descriptors::dup_to),
    (nr::__NR_dup3, descriptors::dup_to),
    (nr::__NR_close_range, descriptors::close_range),
    (nr::__NR_setsockopt, descriptors::setsockopt),
    (nr::__NR_poll, poll::poll),
    (nr::__NR_ppoll, poll::ppoll),
    (nr::__NR_select, select::select),
    (nr::__NR_pselect6, select::pselect6),
    (nr::__NR_epoll_wait, poll::epoll_wait),
    (nr::__NR_epoll_pwait, poll::epoll_wait),
    (nr::__NR_epoll_pwait2, poll::epoll_pwait2),
    (nr::__NR_fcntl, helped::fcntl),
    (nr::__NR_ioctl, descriptors::ioctl),
    (nr::__NR_io_uring_enter, uring::io_uring_enter),
    (nr::__NR_io_getevents, helped::io_getevents),
    (nr::__NR_io_pgetevents, helped::io_getevents),
];

/// Threads, time, processes, memory, and what only a helper can wait for.
const THREADS: &[Row] = &[
    (nr::__NR_futex, futex::futex),
    (nr::__NR_futex_waitv, futex::vector::futex_waitv),
    (nr::__NR_exit_group, words::robust::exit_group),
    (nr::__NR_exit, threads::exit),
    (nr::__NR_gettid, ids::gettid),
    (nr::__NR_setuid, credentials::identity),
    (nr::__NR_setgid, credentials::identity),
    (nr::__NR_setreuid, credentials::identity),
    (nr::__NR_setregid, credentials::identity),
    (nr::__NR_setresuid, credentials::identity),
    (nr::__NR_setresgid, credentials::identity),
    (nr::__NR_setgroups, credentials::identity),
    (nr::__NR_setfsuid, credentials::on_own_kernel_thread),
    (nr::__NR_setfsgid, credentials::on_own_kernel_thread),
    (nr::__NR_capget, credentials::capget),
    (nr::__NR_capset, credentials::capset),
    (nr::__NR_unshare, credentials::unshare),
    (nr::__NR_setns, credentials::on_own_kernel_thread),
    (nr::__NR_seccomp, credentials::seccomp),
    (nr::__NR_personality, credentials::personality),
    (nr::__NR_ioprio_get, credentials::ioprio_get),
    (nr::__NR_ioprio_set, credentials::ioprio_set),
    (nr::__NR_set_mempolicy, credentials::set_mempolicy),
    (
        nr::__NR_landlock_restrict_self,
        credentials::on_own_kernel_thread,
    ),
    (nr::__NR_ioperm, credentials::on_own_kernel_thread),
    (nr::__NR_iopl, credentials::on_own_kernel_thread),
    (nr::__NR_set_tid_address, ids::set_tid_address),
    (nr::__NR_set_robust_list, words::robust::set_robust_list),
    (nr::__NR_get_robust_list, words::robust::get_robust_list),
    (nr::__NR_rseq, ids::rseq),
    (nr::__NR_prctl, credentials::prctl),
    (nr::__NR_clock_gettime, clocks::clock_gettime),
    (nr::__NR_clock_getres, clocks::clock_getres),
    (nr::__NR_getrusage, clocks::getrusage),
    (nr::__NR_getpgid, kernel_threads::of_process),
    (nr::__NR_setpgid, ids::setpgid),
    (nr::__NR_getsid, kernel_threads::of_process),
    (nr::__NR_process_vm_readv, kernel_threads::of_process),
    (nr::__NR_process_vm_writev, kernel_threads::of_process),
    (nr::__NR_sched_yield, time::sched_yield),
    (nr::__NR_nanosleep, time::nanosleep),
    (nr::__NR_clock_nanosleep, time::clock_nanosleep),
    (nr::__NR_execve, process::exec),
    (nr::__NR_execveat, process::exec),
    (nr::__NR_ptrace, process::ptrace),
    (nr::__NR_wait4, children::wait),
    (nr::__NR_waitid, children::wait),
    (nr::__NR_flock, helped::flock),
    (nr::__NR_mq_timedsend, helped::mq_timed),
    (nr::__NR_mq_timedreceive, helped::mq_timed),
    (nr::__NR_msgsnd, helped::msgsnd),
    (nr::__NR_msgrcv, helped::msgrcv),
    (nr::__NR_semop, helped::semop),
    (nr::__NR_semtimedop, helped::semop),
    (nr::__NR_sendfile, transfers::sendfile),
    (nr::__NR_splice, transfers::splice),
    (nr::__NR_tee, transfers::of_pipes),
    (nr::__NR_copy_file_range, transfers::copy_file_range),
    (nr::__NR_vmsplice, transfers::of_pipes),
    (nr::__NR_madvise, memory::madvise),
    (nr::__NR_mmap, memory::mmap),
    (nr::__NR_munmap, memory::munmap),
    (nr::__NR_mprotect, memory::mprotect),
];

/// Memory, beside what few programs are without.
const MEMORY: &[Row] = &[
    (nr::__NR_pkey_mprotect, memory::pkey_mprotect),
    (nr::__NR_mremap, memory::mremap),
    (nr::__NR_brk, memory::brk),
    (nr::__NR_shmat, memory::shmat),
    (nr::__NR_process_madvise, memory::process_madvise),
    (nr::__NR_mlockall, memory::mlockall),
    (nr::__NR_mlock, memory::by_range),
    (nr::__NR_mlock2, memory::by_range),
    (nr::__NR_munlock, memory::by_range),
    (nr::__NR_mbind, memory::by_range),
    (nr::__NR_set_mempolicy_home_node, memory::by_range),
    (nr::__NR_mseal, memory::by_range),
    (nr::__NR_setrlimit, memory::setrlimit),
    (nr::__NR_prlimit64, memory::prlimit64),
];

/// Scheduling attributes.
const SCHEDULING: &[Row] = &[
    (nr::__NR_sched_getaffinity, scheduling::sched_getaffinity),
    (nr::__NR_sched_setaffinity, scheduling::sched_setaffinity),
    (nr::__NR_sched_getparam, scheduling::sched_getparam),
    (nr::__NR_sched_setparam, scheduling::sched_setparam),
    (nr::__NR_sched_getscheduler, scheduling::sched_getscheduler),
    (nr::__NR_sched_setscheduler, scheduling::sched_setscheduler),
    (nr::__NR_sched_getattr, scheduling::sched_getattr),
    (nr::__NR_sched_setattr, scheduling::sched_setattr),
    (
        nr::__NR_sched_rr_get_interval,
        scheduling::sched_rr_get_interval,
    ),
    (nr::__NR_getpriority, scheduling::getpriority),
    (nr::__NR_setpriority, scheduling::setpriority),
];

/// Calls that may look at `/proc`.
const PATHS: &[Row] = &[
    (nr::__NR_open, procfs::by_path),
    (nr::__NR_openat, procfs::by_path),
    (nr::__NR_stat, procfs::by_path),
    (nr::__NR_lstat, procfs::by_path),
    (nr::__NR_fstat, procfs::fstat),
    (nr::__NR_newfstatat, procfs::by_path),
    (nr::__NR_statx, procfs::by_path),
    (nr::__NR_access, procfs::by_path),
    (nr::__NR_faccessat, procfs::by_path),
    (nr::__NR_faccessat2, procfs::by_path),
    (nr::__NR_readlink, procfs::by_path),
    (nr::__NR_readlinkat, procfs::by_path),
    (nr::__NR_getdents64, procfs::getdents64),
];

/// Signals.
const SIGNALS: &[Row] = &[
    (nr::__NR_rt_sigaction, signals::rt_sigaction),
    (nr::__NR_rt_sigprocmask, signals::rt_sigprocmask),
    (nr::__NR_rt_sigpending, signals::rt_sigpending),
    (nr::__NR_rt_sigsuspend, signals::rt_sigsuspend),
    (nr::__NR_rt_sigtimedwait, signals::rt_sigtimedwait),
    (nr::__NR_kill, signals::kill),
    (nr::__NR_rt_sigqueueinfo, signals::rt_sigqueueinfo),
    (nr::__NR_rt_tgsigqueueinfo, signals::rt_tgsigqueueinfo),
    (nr::__NR_sigaltstack, alternate::sigaltstack),
    (nr::__NR_signalfd, held::signalfd),
    (nr::__NR_signalfd4, held::signalfd),
    (nr::__NR_timer_create, timers::timer_create),
    (nr::__NR_timer_delete, timers::timer_delete),
    (nr::__NR_timer_getoverrun, timers::timer_getoverrun),
    (nr::__NR_tgkill, signals::tgkill),
    (nr::__NR_tkill, signals::tkill),
    (nr::__NR_pidfd_send_signal, pidfd::pidfd_send_signal),
    (nr::__NR_pause, signals::pause),
];

const fn fill(mut table: [Option<Handler>; NUMBERS], rows: &[Row]) -> [Option<Handler>; NUMBERS] {
    let mut i = 0;
    while i < rows.len() {
        table[rows[i].0 as usize] = Some(rows[i].1);
        i += 1;
    }
    table
}

/// Handlers by number; read by the boundary's assembly.
pub static TABLE: [Option<Handler>; NUMBERS] = {
    let table = fill(fill([None; NUMBERS], DESCRIPTORS), THREADS);
    fill(fill(fill(fill(table, MEMORY), SCHEDULING), PATHS), SIGNALS)
};

/// The numbers that are patched at their sites: those with a handler, and the clones.
pub fn wanted() -> [u64; NUMBERS / 64] {
    let mut set = [0u64; NUMBERS / 64];
    let clones = [
        nr::__NR_clone,
        nr::__NR_clone3,
        nr::__NR_fork,
        nr::__NR_vfork,
    ];
    let handled = TABLE
        .iter()
        .enumerate()
        .filter(|(_, h)| h.is_some())
        .map(|(number, _)| number);
    for number in handled.chain(clones.map(|number| number as usize)) {
        set[number / 64] |= 1 << (number % 64);
    }
    set
}
