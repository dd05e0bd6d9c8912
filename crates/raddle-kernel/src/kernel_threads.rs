//! The kernel threads that stand for green threads, in calls that the kernel answers.
//!
//! The kernel doesn't know a green thread's id. A call about one names the kernel thread that has
//! the thread's attributes, or the process.

use crate::frame::{Frame, Outcome};
use core::sync::atomic::{AtomicUsize, Ordering};
use raddle_engine::carrier::CarrierState;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, PROCESS};
use raddle_sys::{mem, syscall6};

/// The carrier of vfork children, and of programs without a started engine: `raw` is set, nothing
/// else is ever used.
static RAW: AtomicUsize = AtomicUsize::new(0);

/// Makes the carrier of vfork children.
///
/// # Errors
/// ENOMEM.
pub(crate) fn init() -> Result<(), isize> {
    let memory = mem::map(size_of::<Carrier>())?;
    let carrier = memory.cast::<Carrier>();
    // SAFETY: zeroed memory is a valid carrier; this one is shared and never changes again.
    unsafe { (*carrier).init_raw() };
    RAW.store(carrier.expose_provenance(), Ordering::Release);
    Ok(())
}

/// Returns the address of the carrier of vfork children.
pub(crate) fn raw() -> usize {
    RAW.load(Ordering::Relaxed)
}

/// Returns true if this kernel thread is a vfork child.
pub fn is_raw(carrier: *const Carrier) -> bool {
    carrier.addr() == raw()
}

/// Returns the kernel thread that has the kernel's attributes of the green thread `id`; `None` if
/// the kernel knows `id` itself. 0 is the calling kernel thread: unbound green threads have the
/// same attributes on all.
pub fn kernel_thread_of(id: u32) -> Option<u32> {
    if !PROCESS.is_started() {
        return None;
    }
    let thread = PROCESS.find(id)?;
    let tid_of = |carrier: &Carrier| carrier.kernel_tid.load(Ordering::Acquire);
    // SAFETY: null or a carrier, which lives for ever.
    if let Some(own) = unsafe { thread.bound.load(Ordering::Acquire).as_ref() } {
        return Some(tid_of(own));
    }
    if id < TID_BASE {
        return None; // the main thread's is the first kernel thread's
    }
    let current = Carrier::current();
    if !current.is_bound() {
        return Some(0);
    }
    Some(other_green_carrier().unwrap_or(0))
}

/// As [`kernel_thread_of`], for a call that compares the caller with the named thread: returns the
/// calling kernel thread for the running thread alone.
pub fn kernel_thread_told_apart(id: u32) -> Option<u32> {
    let current = Carrier::current();
    let own = current.kernel_tid.load(Ordering::Relaxed);
    if !PROCESS.is_started() || id == 0 {
        return None;
    }
    if core::ptr::eq(PROCESS.find(id)?, current.thread()) {
        return Some(own);
    }
    match kernel_thread_of(id) {
        Some(kernel_tid) if kernel_tid != 0 && kernel_tid != own => Some(kernel_tid),
        None if id != own => None,
        _ => Some(other_green_carrier().unwrap_or(own)),
    }
}

/// The kernel thread of a carrier that isn't bound, and isn't the calling one.
fn other_green_carrier() -> Option<u32> {
    let current = Carrier::current();
    let mut carriers = PROCESS.all_carriers();
    let other = carriers.find(|&carrier| {
        !carrier.is_bound()
            && carrier.kernel_tid.load(Ordering::Acquire) != 0
            && carrier.state() != CarrierState::Ended
            && !core::ptr::eq(carrier, current)
    });
    other.map(|carrier| carrier.kernel_tid.load(Ordering::Acquire))
}

/// Calls about a process that accept the id of any of its threads as the first argument.
pub extern "C" fn of_process(frame: &Frame) -> Outcome {
    let id = frame.arg(0) as u32;
    if id < TID_BASE || (id as i32) < 0 || PROCESS.find(id).is_none() {
        return Outcome::PASS;
    }
    let mut args = frame.args();
    args[0] = PROCESS.pid.load(Ordering::Relaxed) as usize;
    // SAFETY: the program's own call, about its process.
    Outcome::of(unsafe { syscall6(frame.number(), args) })
}
