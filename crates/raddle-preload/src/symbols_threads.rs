//! The symbol layer for threads themselves: creation, names, CPU clocks, cancellation.

use crate::original;
use crate::start;
use crate::symbols::{call_original, green, set_errno};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::Ordering;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_kernel::rules::{self, exclusion, shares};
use raddle_kernel::task::ids;
use raddle_kernel::user::User;
use raddle_kernel::{clocks, memory};
use raddle_sched::Wake;
use raddle_sys::abi::Timespec;
use raddle_sys::errno;

/// `pthread_create(3)`: glibc's, after a look at the rules about threads.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_create(
    thread: *mut u64,
    attributes: *const c_void,
    entry: usize,
    argument: *mut c_void,
) -> c_int {
    start::ensure();
    if exclusion::any() && is_excluded(entry) {
        let carrier = Carrier::current();
        if carrier.raw.get() == 0 {
            carrier.thread().bind_next.set(true);
        }
    }
    if shares::any() {
        choose_share(entry);
    }
    memory::expect_thread();
    call_original!(
        original::CREATE,
        fn(*mut u64, *const c_void, usize, *mut c_void) -> c_int,
        thread,
        attributes,
        entry,
        argument
    )
}

/// The group of the thread that is about to be created, by the library of its start function.
#[cold]
fn choose_share(start: usize) {
    let carrier = Carrier::current();
    if carrier.raw.get() == 0
        && let Some(object) = original::object_of(start)
        && let Some(group) = shares::of_library(original::path_of(object))
    {
        carrier.thread().share_next.set(group);
    }
}

/// True if a rule names the start function or the library that it is in.
#[cold]
fn is_excluded(start: usize) -> bool {
    let Some(object) = original::object_of(start) else {
        return false;
    };
    let path = original::path_of(object);
    if exclusion::patterns(b"lib:").any(|glob| rules::matches_library(glob, path)) {
        return true;
    }
    exclusion::patterns(b"start:").any(|symbol| {
        let mut name = [0u8; 256];
        let Some(to) = name.get_mut(..symbol.len()) else {
            return false;
        };
        to.copy_from_slice(symbol);
        CStr::from_bytes_until_nul(&name).is_ok_and(|name| {
            // SAFETY: an entry of ld.so's list.
            unsafe { original::symbol(object, name) == start }
        })
    })
}

/// `pthread_setname_np(3)` of another thread; glibc would look for its id in `/proc`.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_setname_np(thread: u64, name: *const c_char) -> c_int {
    if let Some(target) = other_thread(thread) {
        // SAFETY: the caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        if name.len() > 15 {
            return errno::ERANGE as c_int;
        }
        ids::set_name(target, name);
        return 0;
    }
    call_original!(
        original::SETNAME,
        fn(u64, *const c_char) -> c_int,
        thread,
        name
    )
}

/// `pthread_getname_np(3)` of another thread.
///
/// # Safety
/// As glibc says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_getname_np(
    thread: u64,
    to: *mut c_char,
    len: usize,
) -> c_int {
    if let Some(target) = other_thread(thread) {
        let name = target.name();
        if len < name.len() {
            return errno::ERANGE as c_int;
        }
        // SAFETY: the caller's buffer of `len` bytes.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), name.len()) };
        return 0;
    }
    call_original!(
        original::GETNAME,
        fn(u64, *mut c_char, usize) -> c_int,
        thread,
        to,
        len
    )
}

/// The green thread with this thread block, if it isn't the running one.
fn other_thread<'a>(block: u64) -> Option<&'a Thread> {
    let (_, own) = green()?;
    (own.fs.get() != block)
        .then(|| {
            PROCESS
                .threads
                .iter()
                .find(|thread| thread.fs.get() == block)
        })
        .flatten()
}

/// `clock_gettime(2)`: the vDSO's, but for the CPU clocks of threads.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: c_int, to: *mut Timespec) -> c_int {
    if clocks::may_be_threads(clock as u32)
        && green().is_some()
        && let Some(time) = clocks::read(clock as u32)
    {
        // As by the system call that the vDSO makes for these clocks.
        return match User::at(to.expose_provenance()).write(&time) {
            Ok(()) => 0,
            Err(errno) => set_errno(-errno as u32),
        };
    }
    call_original!(
        original::CLOCK_GETTIME,
        fn(c_int, *mut Timespec) -> c_int,
        clock,
        to
    )
}

/// `clock_getres(2)`: likewise; all CPU clocks have one resolution.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_getres(clock: c_int, to: *mut Timespec) -> c_int {
    const THREAD_CPU: c_int = 3;
    let is_ours = green().is_some() && clocks::owner(clock as u32).is_some();
    call_original!(
        original::CLOCK_GETRES,
        fn(c_int, *mut Timespec) -> c_int,
        if is_ours { THREAD_CPU } else { clock },
        to
    )
}

/// `pthread_cancel(3)`: glibc's, and then a wait of ours is told.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pthread_cancel(thread: u64) -> c_int {
    let result = call_original!(original::CANCEL, fn(u64) -> c_int, thread);
    if result == 0 && green().is_some() {
        wake_cancelled(thread);
    }
    result
}

/// A thread parked in a condition variable or a semaphore looks at its cancellation state.
fn wake_cancelled(block: u64) {
    let kinds = [WaitKind::CONDVAR.0, WaitKind::SEMAPHORE.0];
    let target = PROCESS
        .threads
        .iter()
        .find(|thread| thread.fs.get() == block);
    let Some(thread) = target else { return };
    thread.cancelled.store(1, Ordering::SeqCst);
    if kinds.contains(&thread.wait_kind.load(Ordering::SeqCst)) && thread.claim(Wake::Signalled) {
        PROCESS.unpark(thread.task_ref());
    }
}
