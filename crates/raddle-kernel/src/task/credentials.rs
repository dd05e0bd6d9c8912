//! Credentials, and the other attributes that the kernel keeps for each of its threads.
//!
//! Three kinds of calls:
//!
//! - *of the process*: libc's `setuid` and its family. Every kernel thread must change
//!   ([`raddle_engine::roster`]).
//! - *of the calling thread*: `capset`, `setfsuid`, `unshare`, a filter of `seccomp`, and the same
//!   `setuid` by a raw system call. The thread is bound, and its carrier is *apart* from then on.
//! - *of one kernel thread*: the kernel keeps the process's value in a single kernel thread.
//!
//! libc's `setuid` sends every thread a signal with a handler that makes the raw call, and then
//! makes the call itself. The first of these calls changes all kernel threads. A call that repeats
//! the last one does nothing and gets the same result; made again it would change nothing, since
//! credentials are absolute values.

use crate::callers::is_libcs;
use crate::frame::{Frame, Outcome};
use crate::kernel_threads::kernel_thread_of;
use crate::signal::fatal;
use crate::task::ids;
use crate::{memory, scheduling};
use core::sync::atomic::Ordering;
use raddle_engine::inspect::tracer;
use raddle_engine::roster::Differs;
use raddle_engine::{Carrier, PROCESS, switch};
use raddle_sched::SpinLock;
use raddle_sys::{err, errno, is_err, mem, nr, prctl, sys};

/// The last call that changed all kernel threads: its number, its arguments and its result.
static LAST: SpinLock<Option<(u32, [usize; 3], isize)>> = SpinLock::new(None);

/// Returns true if libc makes the call for the whole process: not `syscall`, not another library.
fn is_of_process(frame: &Frame) -> bool {
    is_libcs(frame.site())
}

/// `setuid(2)`, `setgid(2)`, `setreuid(2)`, `setregid(2)`, `setresuid(2)`, `setresgid(2)`,
/// `setgroups(2)`.
pub extern "C" fn identity(frame: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    if !is_of_process(frame) {
        return on_own_kernel_thread(frame);
    }
    let [a, b, c, ..] = frame.args();
    let call = (frame.number(), [a, b, c]);
    let by_address = frame.number() == nr::__NR_setgroups;
    let last = *LAST.lock();
    if let Some((number, arguments, result)) = last
        && (number, arguments) == call
        && !by_address
    {
        return Outcome::of(result);
    }
    let result = if by_address {
        set_groups(frame)
    } else {
        // SAFETY: the program's own call.
        unsafe { PROCESS.roster.everywhere(frame.number(), frame.args()) }
    };
    let Ok(result) = result else {
        fatal::abort();
    };
    if !is_err(result) {
        *LAST.lock() = (!by_address).then_some((call.0, call.1, result));
    }
    Outcome::of(result)
}

/// `setgroups(2)` on all kernel threads. Each gets the same list, copied once from the caller's
/// memory.
fn set_groups(frame: &Frame) -> Result<isize, Differs> {
    const MOST: usize = 65536;
    let (count, from) = (frame.word(0) as usize, frame.user::<u32>(1));
    let mut args = frame.args();
    let bytes = count * size_of::<u32>();
    let list = match count {
        1..=MOST => match mem::map(bytes) {
            Ok(list) => list.cast::<u32>(),
            Err(errno) => return Ok(errno),
        },
        _ => core::ptr::null_mut(), // none, or too many: the kernel doesn't read the list
    };
    args[1] = list.expose_provenance();
    if !list.is_null() {
        // SAFETY: a fresh mapping of so many numbers.
        let groups = unsafe { core::slice::from_raw_parts_mut(list, count) };
        if from.read_all(groups).is_err() {
            args[1] = usize::MAX; // bad address: EFAULT, or an earlier error of the kernel's
        }
    }
    // SAFETY: the program's own call, with a list that is the same for all.
    let result = unsafe { PROCESS.roster.everywhere(frame.number(), args) };
    if !list.is_null() {
        // SAFETY: mapped above; every kernel thread has read it.
        unsafe { mem::unmap(list.cast(), bytes) };
    }
    result
}

/// Makes a call that changes the calling thread alone, on a kernel thread of the thread's own.
pub extern "C" fn on_own_kernel_thread(_: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    match become_apart() {
        Ok(()) => Outcome::PASS,
        Err(errno) => Outcome::of(errno),
    }
}

/// `unshare(2)`: as [`on_own_kernel_thread`]. A thread that gets its own table of descriptors
/// doesn't use the pump's rows any more.
pub extern "C" fn unshare(frame: &Frame) -> Outcome {
    const CLONE_FILES: u64 = nr::CLONE_FILES as u64;
    let outcome = on_own_kernel_thread(frame);
    if !outcome.is_pass() || frame.arg(0) as u64 & CLONE_FILES == 0 || !PROCESS.is_started() {
        return outcome;
    }
    // SAFETY: the program's own call, on its own kernel thread.
    let result = unsafe { frame.raw() };
    if !is_err(result) {
        Carrier::current().own_files.set(1);
    }
    Outcome::of(result)
}

/// Gives the running thread a kernel thread with a table of descriptors of its own, as
/// `unshare(CLONE_FILES)` does.
///
/// # Errors
/// The kernel's error, or EAGAIN.
pub fn unshare_files() -> Result<(), isize> {
    const CLONE_FILES: usize = nr::CLONE_FILES as usize;
    become_apart()?;
    // SAFETY: the program asked for it; this is the kernel thread of the calling thread alone.
    let result = unsafe { sys!(nr::__NR_unshare, CLONE_FILES) };
    if is_err(result) {
        return Err(result);
    }
    Carrier::current().own_files.set(1);
    Ok(())
}

/// Gives the running thread a kernel thread of its own that may differ from the others.
fn become_apart() -> Result<(), isize> {
    if !Carrier::current().is_bound() {
        switch::bind_current();
    }
    let carrier = Carrier::current();
    if !carrier.is_bound() {
        return Err(err(errno::EAGAIN));
    }
    carrier.apart.set(1);
    carrier.lent.store(0, Ordering::Relaxed);
    // The next change by libc must reach this kernel thread, even if it repeats the last one.
    *LAST.lock() = None;
    Ok(())
}

/// `set_mempolicy(2)`. Libraries probe at their start which policies the kernel knows, and then set
/// the default again. A thread that was bound for this alone becomes green again.
pub extern "C" fn set_mempolicy(frame: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    let carrier = Carrier::current();
    if !carrier.is_apart() && has_default_memory_policy() {
        if frame.word(0) as usize == MPOL_DEFAULT {
            return Outcome::PASS;
        }
        let is_green = !carrier.is_bound();
        if let Err(errno) = become_apart() {
            return Outcome::of(errno);
        }
        Carrier::current()
            .lent
            .store(is_green.into(), Ordering::Relaxed);
    } else if carrier.lent.load(Ordering::Relaxed) == 0 {
        return on_own_kernel_thread(frame);
    }
    // SAFETY: the program's own call, on its own kernel thread.
    let result = unsafe { raddle_sys::syscall6(frame.number(), frame.args()) };
    if has_default_memory_policy() {
        switch::unbind_current();
    }
    Outcome::of(result)
}

const MPOL_DEFAULT: usize = 0;

/// Returns true if this kernel thread has the default policy for memory, or the kernel has no
/// other.
fn has_default_memory_policy() -> bool {
    let mut mode = 0_i32;
    // SAFETY: the kernel fills a live word.
    unsafe {
        let to = core::ptr::from_mut(&mut mode).expose_provenance();
        sys!(nr::__NR_get_mempolicy, to, 0usize, 0usize, 0usize, 0usize);
    }
    mode as usize == MPOL_DEFAULT
}

/// `struct __user_cap_header_struct`: the version, and a thread's id.
type CapHeader = [u32; 2];

/// `capget(2)` of a green thread.
pub extern "C" fn capget(frame: &Frame) -> Outcome {
    let Ok([version, id]) = frame.user::<CapHeader>(0).read() else {
        return Outcome::PASS; // the kernel finds the right errno
    };
    let Some(kernel_tid) = kernel_thread_of(id) else {
        return Outcome::PASS;
    };
    with_header(frame, [version, kernel_tid])
}

/// Executes `capget(2)` or `capset(2)` with `header` instead of the program's. The kernel may
/// answer with the version that it wants.
fn with_header(frame: &Frame, mut header: CapHeader) -> Outcome {
    let version = header[0];
    let mut args = frame.args();
    args[0] = header.as_mut_ptr().expose_provenance();
    // SAFETY: the program's own call, with a header that lives.
    let result = unsafe { raddle_sys::syscall6(frame.number(), args) };
    if header[0] != version
        && let Err(errno) = frame.user::<u32>(0).write(&header[0])
    {
        return Outcome::of(errno);
    }
    Outcome::of(result)
}

/// `capset(2)`, for the calling thread alone, which it may name.
pub extern "C" fn capset(frame: &Frame) -> Outcome {
    let own = Carrier::current().thread().tid();
    let header = frame.user::<CapHeader>(0).read();
    let outcome = on_own_kernel_thread(frame);
    let Ok([version, id]) = header else {
        return outcome;
    };
    if !outcome.is_pass() || id != own || !PROCESS.is_started() {
        return outcome;
    }
    with_header(frame, [version, 0])
}

/// `ioprio_get(2)` of a green thread.
pub extern "C" fn ioprio_get(frame: &Frame) -> Outcome {
    if frame.word(0) as usize != IOPRIO_WHO_PROCESS {
        return Outcome::PASS;
    }
    let Some(kernel_tid) = kernel_thread_of(frame.word(1)) else {
        return Outcome::PASS;
    };
    // SAFETY: a plain query.
    Outcome::of(unsafe { sys!(frame.number(), IOPRIO_WHO_PROCESS, kernel_tid) })
}

const IOPRIO_WHO_PROCESS: usize = 1;

/// `ioprio_set(2)`: for the calling thread, unless the call names another one.
pub extern "C" fn ioprio_set(frame: &Frame) -> Outcome {
    let who = frame.arg(1) as u32;
    let own = who == 0 || who == Carrier::current().thread().tid();
    if frame.word(0) as usize != IOPRIO_WHO_PROCESS || !own || !PROCESS.is_started() {
        return Outcome::PASS;
    }
    if let Err(errno) = become_apart() {
        return Outcome::of(errno);
    }
    let mut args = frame.args();
    args[1] = 0;
    // SAFETY: the program's own call, on its own kernel thread.
    Outcome::of(unsafe { raddle_sys::syscall6(frame.number(), args) })
}

/// `seccomp(2)`. For a filter of all threads the runtime prepares itself, and the kernel gives the
/// filter to all kernel threads.
pub extern "C" fn seccomp(frame: &Frame) -> Outcome {
    const STRICT: usize = 0;
    const FILTER: usize = 1;
    const TSYNC: usize = 1;
    match frame.word(0) as usize {
        FILTER if frame.arg(1) & TSYNC != 0 && PROCESS.is_started() => {
            // SAFETY: the program's own call; it changes no memory.
            Outcome::of(unsafe { PROCESS.filters.install(frame.number(), frame.args()) })
        }
        STRICT | FILTER => on_own_kernel_thread(frame),
        _ => Outcome::PASS,
    }
}

/// `personality(2)`.
pub extern "C" fn personality(frame: &Frame) -> Outcome {
    const QUERY: u32 = u32::MAX;
    if frame.arg(0) as u32 == QUERY {
        Outcome::PASS
    } else {
        on_own_kernel_thread(frame)
    }
}

/// `prctl(2)`.
pub extern "C" fn prctl(frame: &Frame) -> Outcome {
    let option = frame.word(0);
    match option {
        prctl::PR_SET_NAME => return ids::prctl_set_name(frame),
        prctl::PR_SET_VMA => return memory::name_mapping(frame),
        prctl::PR_SET_PTRACER => tracer::program_declares(frame.args()[1]),
        _ => {}
    }
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    let (nr, args) = (frame.number(), frame.args());
    match option {
        prctl::PR_GET_NAME => ids::prctl_get_name(frame),
        prctl::PR_GET_TID_ADDRESS => {
            let word = Carrier::current().thread().clear_tid.get();
            Outcome::of(frame.user(1).put(word).err().unwrap_or(0))
        }
        prctl::PR_SET_PDEATHSIG | prctl::PR_GET_PDEATHSIG => {
            // SAFETY: the program's own call, which asks about or changes nothing but a value.
            Outcome::of(unsafe { PROCESS.roster.on_first(nr, args) })
        }
        prctl::PR_SET_TIMERSLACK => scheduling::set_slack(frame).unwrap_or_else(|_| fatal::abort()),
        prctl::PR_GET_TIMERSLACK => scheduling::get_slack(),
        _ if changes_thread(option, frame.arg(1)) => on_own_kernel_thread(frame),
        _ => Outcome::PASS,
    }
}

/// Returns true for options that change the calling thread, and nothing of the process.
fn changes_thread(option: u32, second: usize) -> bool {
    const IS_SET: usize = prctl::PR_CAP_AMBIENT_IS_SET as usize;
    match option {
        prctl::PR_SET_UNALIGN
        | prctl::PR_SET_KEEPCAPS
        | prctl::PR_SET_FPEMU
        | prctl::PR_SET_FPEXC
        | prctl::PR_SET_SECCOMP
        | prctl::PR_CAPBSET_DROP
        | prctl::PR_SET_TSC
        | prctl::PR_SET_SECUREBITS
        | prctl::PR_MCE_KILL
        | prctl::PR_SET_NO_NEW_PRIVS
        | prctl::PR_SET_SPECULATION_CTRL
        | prctl::PR_SET_IO_FLUSHER
        | prctl::PR_SET_SYSCALL_USER_DISPATCH
        | prctl::PR_SCHED_CORE => true,
        prctl::PR_CAP_AMBIENT => second != IS_SET,
        _ => false,
    }
}

/// Forgets the last call that changed all threads, in the child of a fork.
pub fn in_child() {
    // SAFETY: the child has one thread.
    unsafe {
        // A child writes to as few of its parent's pages as it can.
        if LAST.break_lock() || LAST.peek().is_some() {
            *LAST.lock() = None;
        }
    }
}
