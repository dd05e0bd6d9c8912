//! What happens before a program's first thread: nothing, and a few wires that tell of it.
//!
//! A program with one thread needs no runtime, and most processes end with one. So libc stays as it
//! is but for four calls, each with a jump in its place: `clone` and `clone3`, by which libc makes
//! all threads; `syscall`, by which programs do; and `prctl`. A call that makes
//! a thread, or after which the runtime may not be allowed what it needs, takes the process over
//! first ([`crate::start::ensure`]) and is made again, in text that then is as others' is. Any
//! other goes to the kernel.
//!
//! Two more calls are rare, and leave what the runtime can't ask the kernel for later: `signalfd`
//! and `timer_create`. They are taken by their names.
//!
//! Rejected: the names `pthread_create` and the like alone, because libc makes threads for timers
//! and requests without them, and programs look libc's own functions up.

use crate::original::{self, LinkMap};
use crate::start;
use crate::symbols::call_original;
use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_patch::{Linux, Refusal, tripwire};
use raddle_sched::SpinLock;
use raddle_sys::{nr, prctl};

const CLONE_THREAD: u32 = nr::CLONE_THREAD;

const WIRES: usize = 4;

/// Of each wire: where the text goes on behind it, and where its call is made after the wires are
/// gone, or if they stay: see the stubs.
#[repr(C)]
struct Ways([[AtomicUsize; 2]; WIRES]);

static WAYS: Ways = Ways([const { [const { AtomicUsize::new(0) }; 2] }; WIRES]);

type Stub = unsafe extern "C" fn();

unsafe extern "C" {
    fn raddle_wire_clone();
    fn raddle_pass_clone();
    fn raddle_wire_clone3();
    fn raddle_pass_clone3();
    fn raddle_wire_prctl();
    fn raddle_pass_prctl();
    fn raddle_wire_syscall();
    fn raddle_pass_syscall();
}

raddle_arch::tripwires! {
    ways: WAYS,
    ensure: ensure,
    clone: nr::__NR_clone,
    clone3: nr::__NR_clone3,
    prctl: nr::__NR_prctl,
    others: [nr::__NR_seccomp, nr::__NR_timer_create, nr::__NR_signalfd, nr::__NR_signalfd4],
    clone_thread: CLONE_THREAD,
    prctl_options: [prctl::PR_SET_SECCOMP, prctl::PR_SET_MDWE],
}

extern "C" fn ensure() {
    start::ensure();
}

/// 1 once the program has called `ptrace`.
static TRACED: AtomicU32 = AtomicU32::new(0);

raddle_arch::mark_and_go_on! {
    /// `ptrace(2)`: glibc's; its arguments, of which there may be four, go on as they are.
    ///
    /// # Safety
    /// As Linux says.
    ptrace, mark: TRACED, original: original::PTRACE
}

/// True if the only thread has called `ptrace`: its kernel thread may be a tracer.
pub(crate) fn has_traced() -> bool {
    TRACED.load(Ordering::Relaxed) != 0
}

/// `signalfd(2)`: glibc's.
///
/// # Safety
/// As Linux says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int {
    start::ensure();
    call_original!(
        original::SIGNALFD,
        fn(c_int, *const c_void, c_int) -> c_int,
        fd,
        mask,
        flags
    )
}

/// `timer_create(2)`: glibc's.
///
/// # Safety
/// As POSIX says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn timer_create(
    clock: c_int,
    event: *mut c_void,
    id: *mut c_void,
) -> c_int {
    start::ensure();
    call_original!(
        original::TIMER_CREATE,
        fn(c_int, *mut c_void, *mut c_void) -> c_int,
        clock,
        event,
        id
    )
}

/// A wire: where it is, what was there, its stub, and the part of that which makes the call.
#[derive(Clone, Copy)]
struct Wire {
    at: usize,
    was: tripwire::Shape,
    stub: Stub,
    pass: Stub,
}

/// Those that are set, in the order of [`WAYS`].
static SET: SpinLock<Option<[Wire; WIRES]>> = SpinLock::new(None);

/// Sets the wires in libc. False if that can't be: then nothing has changed.
///
/// # Safety
/// `libc` must be libc's entry in ld.so's list; the process has one thread.
pub(crate) unsafe fn set(libc: &LinkMap) -> bool {
    // SAFETY: the caller's promise.
    let Some(wires) = (unsafe { find(libc) }) else {
        return false;
    };
    let mut jumps = [(0, tripwire::SIXTH_FROM_STACK); WIRES];
    for (jump, wire) in jumps.iter_mut().zip(&wires) {
        let Some(bytes) = tripwire::jump(wire.at, wire.stub as usize) else {
            return false;
        };
        *jump = (wire.at, bytes);
    }
    for (way, wire) in WAYS.0.iter().zip(&wires) {
        way[0].store(wire.at + tripwire::LEN, Ordering::Relaxed);
        way[1].store(wire.pass as usize, Ordering::Relaxed);
    }
    // SAFETY: calls of these shapes in libc's text, which is not in use: ld.so is calling.
    let done = unsafe { tripwire::rewrite(&jumps, &Linux, path_of(libc)) };
    if done.is_ok() {
        *SET.lock() = Some(wires);
    }
    done.is_ok()
}

/// Takes the wires away. If that fails they make their calls from now on.
///
/// # Errors
/// Why the text can't be changed.
///
/// # Safety
/// The process has one thread, and no signal can come.
pub(crate) unsafe fn clear(libc: &LinkMap) -> Result<(), Refusal> {
    let Some(wires) = SET.lock().take() else {
        return Ok(());
    };
    let old = wires.map(|wire| (wire.at, wire.was));
    // SAFETY: `set` wrote there; libc's text is left before a stub calls, and entered after.
    unsafe { tripwire::rewrite(&old, &Linux, path_of(libc)) }?;
    for (way, wire) in WAYS.0.iter().zip(&wires) {
        way[1].store(wire.at, Ordering::Relaxed);
    }
    Ok(())
}

fn path_of(object: &LinkMap) -> Option<&CStr> {
    // SAFETY: a string of ld.so's.
    (!object.name.is_null()).then(|| unsafe { CStr::from_ptr(object.name) })
}

/// Finds the four calls.
///
/// # Safety
/// `libc` must be libc's entry in ld.so's list.
unsafe fn find(libc: &LinkMap) -> Option<[Wire; WIRES]> {
    /// How far libc's two functions around `clone` are apart at most: they come from one folder.
    const NEAR: usize = 16 * 1024;
    const FUNCTION: usize = 192;
    // SAFETY: the caller's promise.
    let [clone, prctl, syscall] =
        [c"clone", c"prctl", c"syscall"].map(|name| unsafe { original::symbol(libc, name) });
    if [clone, prctl, syscall].contains(&0) {
        return None;
    }
    // SAFETY: libc's text goes on for more than that on both sides of its functions.
    let look = |from: usize, len: usize, shape: tripwire::Shape, stub: Stub, pass: Stub| unsafe {
        let code = core::slice::from_raw_parts(from as *const u8, len);
        let at = from + tripwire::find(code, &shape)?;
        Some(Wire {
            at,
            was: shape,
            stub,
            pass,
        })
    };
    let constant = tripwire::constant;
    Some([
        look(
            clone,
            FUNCTION,
            constant(nr::__NR_clone),
            raddle_wire_clone,
            raddle_pass_clone,
        )?,
        look(
            clone - NEAR,
            2 * NEAR,
            constant(nr::__NR_clone3),
            raddle_wire_clone3,
            raddle_pass_clone3,
        )?,
        look(
            prctl,
            FUNCTION,
            constant(nr::__NR_prctl),
            raddle_wire_prctl,
            raddle_pass_prctl,
        )?,
        look(
            syscall,
            FUNCTION / 3,
            tripwire::SIXTH_FROM_STACK,
            raddle_wire_syscall,
            raddle_pass_syscall,
        )?,
    ])
}
