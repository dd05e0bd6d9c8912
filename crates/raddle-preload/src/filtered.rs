//! Calls that an inherited filter of system calls refuses to the runtime, or kills for.
//!
//! A filter that was there before the first thread was made for calls of the program's, not of the
//! runtime's. Which calls it lets pass can't be read. Making a call tells, but the kernel kills the
//! process if the filter says so. Therefore a child makes them:
//!
//! 1. A process without a filter is taken over at once, at the price of a look into `/proc`.
//! 2. The process makes a child with memory of its own, and stands still until the child has ended
//!    (`CLONE_VFORK`). The end sends no signal.
//! 3. The child makes each call of [`CALLS`] with arguments that change nothing. Before each it
//!    writes into shared memory which one comes next, and which one was refused. SIGSYS is blocked,
//!    so that a filter that sends it (`SECCOMP_RET_TRAP`) ends the child, too.
//! 4. The child sends itself a signal, returns from the handler by `rt_sigreturn(2)`, and ends.
//!
//! If a call kills, or a [`Kind::Needed`] one hasn't the answer that it has without a filter, the
//! process stays on kernel threads. Where a call of [`Kind::Io`] kills, the runtime makes none.
//!
//! The child is made as libc makes threads: a filter that kills for that lets no thread be made.
//! Rejected: a list of calls from `raddle run`, since programs install filters between `execve` and
//! their first thread; `PTRACE_SECCOMP_GET_FILTER`, which root alone may use; a handler for SIGSYS,
//! which the kernel doesn't call where a filter kills.

use crate::why::Why;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::PROCESS;
use raddle_engine::cpus::{number, read_file};
use raddle_sys::abi::{CloneArgs, SigAction};
use raddle_sys::errno::{EBADF, ECHILD, EINVAL};
use raddle_sys::{change_signal_mask, err, is_err, mem, nr, sys, syscall6};

/// What follows from a call that is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Green threads need it. Without a filter its answer is this error, 0 for none.
    Needed(u32),
    /// The runtime does without the answer.
    Survived,
    /// As that; and the runtime can do without the call.
    Io,
}

struct Call {
    name: &'static str,
    number: u32,
    arguments: [usize; 6],
    kind: Kind,
}

macro_rules! calls {
    ($($name:ident($number:ident $(, $argument:expr)*): $kind:expr;)*) => {
        [$(Call {
            name: stringify!($name),
            number: nr::$number,
            arguments: padded(&[$($argument),*]),
            kind: $kind,
        }),*]
    };
}

const fn padded(arguments: &[usize]) -> [usize; 6] {
    let mut all = [0; 6];
    let mut at = 0;
    while at < arguments.len() {
        all[at] = arguments[at];
        at += 1;
    }
    all
}

/// No descriptor, no process, no id.
const NONE: usize = usize::MAX;
const MASK_BYTES: usize = 8;
/// CLONE_VM | CLONE_THREAD, which the kernel refuses without CLONE_SIGHAND.
const NO_THREAD: usize = 0x100 | 0x10000;
const NOHANG_ALL: usize = 1 | nr::__WALL as usize;
const GET_SECCOMP: usize = 21;

/// A time of nothing.
static AT_ONCE: [u64; 2] = [0; 2];

/// The calls that the runtime makes by itself or in the place of others, but for those that it
/// leaves to the [filters](raddle_engine::filters), and those that libc makes at each start and for
/// each thread.
static CALLS: [Call; 68] = calls! {
    wait4(__NR_wait4, NONE, 0, NOHANG_ALL): Kind::Needed(ECHILD);
    getpid(__NR_getpid): Kind::Needed(0);
    gettid(__NR_gettid): Kind::Needed(0);
    rt_sigaction(__NR_rt_sigaction, nr::SIGUSR1 as usize, 0, 0, MASK_BYTES): Kind::Needed(0);
    rt_sigprocmask(__NR_rt_sigprocmask, 0, 0, 0, MASK_BYTES): Kind::Needed(0);
    tgkill(__NR_tgkill, 0, 0, 0): Kind::Needed(EINVAL);
    clone(__NR_clone, NO_THREAD): Kind::Needed(EINVAL);
    epoll_create1(__NR_epoll_create1, NONE): Kind::Needed(EINVAL);
    epoll_ctl(__NR_epoll_ctl, NONE, nr::EPOLL_CTL_DEL as usize, NONE): Kind::Needed(EBADF);
    eventfd2(__NR_eventfd2, 0, NONE): Kind::Needed(EINVAL);
    ppoll(__NR_ppoll, 0, 0, 0, 0, MASK_BYTES): Kind::Needed(0);
    preadv2(__NR_preadv2, NONE): Kind::Needed(EBADF);
    pwritev2(__NR_pwritev2, NONE): Kind::Needed(EBADF);
    write(__NR_write, NONE): Kind::Needed(EBADF);
    sched_yield(__NR_sched_yield): Kind::Needed(0);
    epoll_wait(__NR_epoll_wait, NONE): Kind::Survived;
    epoll_pwait(__NR_epoll_pwait, NONE): Kind::Survived;
    epoll_pwait2(__NR_epoll_pwait2, NONE): Kind::Survived;
    poll(__NR_poll): Kind::Needed(0);
    fcntl(__NR_fcntl, NONE): Kind::Survived;
    madvise(__NR_madvise): Kind::Survived;
    prctl(__NR_prctl, GET_SECCOMP): Kind::Survived;
    getrandom(__NR_getrandom): Kind::Survived;
    personality(__NR_personality, NONE): Kind::Survived;
    clock_gettime(__NR_clock_gettime, NONE): Kind::Survived;
    process_vm_readv(__NR_process_vm_readv): Kind::Survived;
    process_vm_writev(__NR_process_vm_writev): Kind::Survived;
    sched_getaffinity(__NR_sched_getaffinity): Kind::Survived;
    sched_setaffinity(__NR_sched_setaffinity, NONE): Kind::Survived;
    sched_getattr(__NR_sched_getattr): Kind::Survived;
    sched_setattr(__NR_sched_setattr): Kind::Survived;
    rt_sigpending(__NR_rt_sigpending): Kind::Survived;
    rt_sigtimedwait(__NR_rt_sigtimedwait): Kind::Survived;
    rt_sigqueueinfo(__NR_rt_sigqueueinfo): Kind::Survived;
    rt_tgsigqueueinfo(__NR_rt_tgsigqueueinfo): Kind::Survived;
    sigaltstack(__NR_sigaltstack): Kind::Needed(0);
    pidfd_send_signal(__NR_pidfd_send_signal, NONE): Kind::Survived;
    recvfrom(__NR_recvfrom, NONE): Kind::Needed(EBADF);
    sendto(__NR_sendto, NONE): Kind::Needed(EBADF);
    recvmsg(__NR_recvmsg, NONE): Kind::Survived;
    sendmsg(__NR_sendmsg, NONE): Kind::Survived;
    socket(__NR_socket, NONE): Kind::Survived;
    bind(__NR_bind, NONE): Kind::Survived;
    listen(__NR_listen, NONE): Kind::Survived;
    accept4(__NR_accept4, NONE): Kind::Survived;
    getsockopt(__NR_getsockopt, NONE): Kind::Survived;
    getresuid(__NR_getresuid): Kind::Survived;
    getuid(__NR_getuid): Kind::Survived;
    getpgid(__NR_getpgid): Kind::Survived;
    getrlimit(__NR_getrlimit): Kind::Survived;
    capget(__NR_capget): Kind::Survived;
    fstat(__NR_fstat, NONE): Kind::Survived;
    fstatfs(__NR_fstatfs, NONE): Kind::Survived;
    getdents64(__NR_getdents64, NONE): Kind::Survived;
    close_range(__NR_close_range, 1): Kind::Survived;
    open(__NR_open): Kind::Survived;
    readlink(__NR_readlink): Kind::Survived;
    lseek(__NR_lseek, NONE): Kind::Survived;
    ioctl(__NR_ioctl, NONE): Kind::Survived;
    dup3(__NR_dup3, NONE, NONE): Kind::Survived;
    waitid(__NR_waitid, NONE): Kind::Survived;
    get_robust_list(__NR_get_robust_list, NONE): Kind::Survived;
    io_setup(__NR_io_setup): Kind::Io;
    io_submit(__NR_io_submit): Kind::Io;
    io_destroy(__NR_io_destroy): Kind::Io;
    io_uring_setup(__NR_io_uring_setup): Kind::Io;
    io_uring_enter(__NR_io_uring_enter, NONE): Kind::Io;
    io_uring_register(__NR_io_uring_register, NONE): Kind::Io;
};

/// The place behind [`CALLS`]: the return from a handler.
const RETURN: u32 = CALLS.len() as u32;
const ALL_DONE: u32 = RETURN + 1;

/// What the child tells, in memory that both processes have.
#[repr(C)]
struct Told {
    /// The place of the call that is being made.
    at: AtomicU32,
    /// The place of the first needed call that was refused, and 1; 0 if there is none.
    refused: AtomicU32,
    /// The place at which the child begins.
    from: AtomicU32,
}

/// Returns an error that names a call, if a filter keeps the runtime from making it.
///
/// # Blocking
/// The calling kernel thread: with a filter for some 0.1 ms, and for the copy of the process's page
/// tables.
pub(crate) fn check() -> Result<(), Why> {
    if !has_filter() {
        return Ok(());
    }
    let Some(told) = Told::map() else {
        return Err(Why::NoMemory);
    };
    let result = told.ask();
    // SAFETY: mapped there, and not used any more.
    unsafe { mem::unmap(core::ptr::from_ref(told).cast_mut().cast(), mem::PAGE_SIZE) };
    result
}

/// Returns true if the process has a filter. prctl(2) may kill, so a file tells.
fn has_filter() -> bool {
    let mut text = [0u8; STATUS];
    if let Some(text) = read_file(STATUS_FILE, &mut text) {
        return field(text, b"\nSeccomp:").is_some_and(|value| value != b"0");
    }
    // SAFETY: a query.
    unsafe { sys!(nr::__NR_prctl, GET_SECCOMP) != 0 }
}

/// Returns the id of the calling kernel thread, the process's only one. With a filter a file tells.
pub(crate) fn own_tid() -> Option<u32> {
    let mut text = [0u8; STATUS];
    let text = read_file(STATUS_FILE, &mut text);
    let is_free = text.is_none_or(|text| field(text, b"\nSeccomp:") == Some(b"0"));
    match text {
        // The last of them is that in the process's own namespace.
        Some(text) if !is_free => u32::try_from(number(field(text, b"\nNSpid:")?)?).ok(),
        // SAFETY: a query.
        _ => u32::try_from(unsafe { sys!(nr::__NR_gettid) }).ok(),
    }
}

const STATUS_FILE: &[u8] = b"/proc/self/status\0";
const STATUS: usize = 4096;

/// Returns the last word of a line of a status file.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(name.len()).position(|part| part == name)?;
    let line = text.get(at + name.len()..)?;
    let line = line.split(|&byte| byte == b'\n').next()?;
    line.rsplit(|byte| byte.is_ascii_whitespace()).next()
}

impl Told {
    fn map() -> Option<&'static Told> {
        const ACCESS: usize = (nr::PROT_READ | nr::PROT_WRITE) as usize;
        const SHARED: usize = (nr::MAP_SHARED | nr::MAP_ANONYMOUS) as usize;
        // SAFETY: fresh memory at an address of the kernel's choice; zeros are a valid value.
        unsafe {
            let at = sys!(
                nr::__NR_mmap,
                0usize,
                mem::PAGE_SIZE,
                ACCESS,
                SHARED,
                NONE,
                0usize
            );
            (!is_err(at)).then(|| &*core::ptr::with_exposed_provenance(at as usize))
        }
    }

    fn ask(&self) -> Result<(), Why> {
        loop {
            let child = make_child();
            if child == 0 {
                self.answer();
            }
            if is_err(child) {
                return Ok(()); // no process may be made, so nothing is known
            }
            let at = self.at.load(Ordering::Relaxed);
            if at == 0 {
                return Err(Why::Filter(CALLS[0].name)); // the child can't be waited for
            }
            // SAFETY: a child of this process, which has ended; no status is wanted.
            unsafe { sys!(nr::__NR_wait4, child, 0usize, nr::__WALL, 0usize) };
            let refused = self.refused.load(Ordering::Relaxed);
            if refused != 0 {
                return Err(Why::Filter(name(refused - 1)));
            }
            match CALLS.get(at as usize) {
                Some(call) if call.kind == Kind::Io => {
                    PROCESS.filters.leave_out();
                    self.from.store(at + 1, Ordering::Relaxed);
                }
                _ if at == ALL_DONE => return Ok(()),
                _ => return Err(Why::Filter(name(at))),
            }
        }
    }

    /// Makes the calls, in the child.
    fn answer(&self) -> ! {
        const CORE: usize = 4;
        // SAFETY: the limit and the mask are this process's own, which has one thread. The calls
        // have arguments that change nothing.
        unsafe {
            sys!(nr::__NR_prlimit64, 0usize, CORE, AT_ONCE.as_ptr(), 0usize); // no core file
            change_signal_mask(nr::SIG_SETMASK, u64::MAX);
            let from = self.from.load(Ordering::Relaxed);
            for (at, call) in (0u32..).zip(&CALLS).skip(from as usize) {
                self.at.store(at, Ordering::Relaxed);
                let mut arguments = call.arguments;
                if call.number == nr::__NR_ppoll {
                    arguments[2] = AT_ONCE.as_ptr().expose_provenance();
                }
                let got = syscall6(call.number, arguments);
                let is_refused = match call.kind {
                    Kind::Needed(0) => is_err(got),
                    Kind::Needed(error) => got != err(error),
                    Kind::Survived | Kind::Io => false,
                };
                if is_refused {
                    self.refused.store(at + 1, Ordering::Relaxed);
                    break;
                }
            }
            if self.refused.load(Ordering::Relaxed) == 0 {
                self.at.store(RETURN, Ordering::Relaxed);
                return_from_handler();
                self.at.store(ALL_DONE, Ordering::Relaxed);
            }
            sys!(nr::__NR_exit_group, 0usize);
            self.refused.store(ALL_DONE + 1, Ordering::Relaxed);
            sys!(nr::__NR_exit, 0usize);
            // The process may not end by itself.
            loop {
                let (own, tid) = (sys!(nr::__NR_getpid), sys!(nr::__NR_gettid));
                sys!(nr::__NR_tgkill, own, tid, nr::SIGKILL);
            }
        }
    }
}

fn name(at: u32) -> &'static str {
    match CALLS.get(at as usize) {
        Some(call) => call.name,
        None if at == RETURN => "rt_sigreturn",
        None => "exit_group",
    }
}

/// Makes a child with a copy of the memory, and returns in both when the child has ended: 0 in the
/// child, its id in the parent, or a negated errno.
fn make_child() -> isize {
    let asked = CloneArgs {
        flags: u64::from(nr::CLONE_VFORK),
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: as `fork(2)`, in a process of one thread.
    unsafe {
        let made = sys!(nr::__NR_clone3, &raw const asked, size_of::<CloneArgs>());
        if is_err(made) {
            return sys!(nr::__NR_clone, nr::CLONE_VFORK, 0usize);
        }
        made
    }
}

unsafe extern "C" {
    /// Returns from a handler.
    fn raddle_signal_restorer();
}

extern "C" fn handle(_signal: u32) {}

/// Sends the process a signal with a handler.
///
/// # Safety
/// It changes the signal's action and the mask.
unsafe fn return_from_handler() {
    let action = SigAction {
        handler: handle as *const () as usize,
        flags: u64::from(nr::SA_RESTORER),
        restorer: raddle_signal_restorer as *const () as usize,
        mask: u64::MAX,
    };
    let signal = nr::SIGUSR1;
    // SAFETY: the kernel reads a live structure, and the handler does nothing.
    unsafe {
        sys!(
            nr::__NR_rt_sigaction,
            signal,
            &raw const action,
            0usize,
            MASK_BYTES
        );
        change_signal_mask(nr::SIG_UNBLOCK, 1 << (signal - 1));
        sys!(
            nr::__NR_tgkill,
            sys!(nr::__NR_getpid),
            sys!(nr::__NR_gettid),
            signal
        );
    }
}
