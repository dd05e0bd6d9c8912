//! Signals that the process sends its own process group: the kernel sends them, and gives this
//! process its own.
//!
//! `kill` runs a handler before it returns if its caller takes the signal, and doesn't return from
//! a signal that ends the process. But the kernel gives the signal to any kernel thread, and the
//! call returns before that kernel thread has handled it. So the caller takes a signal that is
//! still pending; else it waits until the signal is routed.

use super::{LIBC_INTERNAL, bit};
use crate::clocks::deadlines::sleep_until;
use crate::frame::{Frame, Outcome};
use crate::mode::is_virtual;
use crate::signal::{actions, fatal, held, routing, stops};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::{PROCESS, clock};
use raddle_sys::{is_err, nr, sys};

/// Signals of each number that the kernel gave this process and that have been routed; they wrap.
/// Raised by the carrier that routes.
static ROUTED: [AtomicU32; super::SIGNALS as usize + 1] =
    [const { AtomicU32::new(0) }; super::SIGNALS as usize + 1];

/// A signal that the kernel gave this process has been routed.
pub fn note_routed(signal: u32) {
    if let Some(routed) = ROUTED.get(signal as usize) {
        routed.fetch_add(1, Ordering::Release);
    }
}

/// Returns true if `id`, as `kill` takes it, names the process group of this process.
fn is_own(id: i32) -> bool {
    // SAFETY: a plain query.
    id == 0 || id < -1 && unsafe { sys!(nr::__NR_getpgid, 0usize) } == -(id as isize)
}

/// Makes a call that sends `signal` to the process or group `id`, which isn't this process alone.
pub fn send(frame: &Frame, id: i32, signal: u32) -> Outcome {
    if !is_seen(signal) || !is_own(id) {
        return Outcome::PASS;
    }
    // SAFETY: the program's own call.
    Outcome::of(send_to_own(signal, || unsafe { frame.raw() }))
}

/// Returns true if the runtime gets a signal that the kernel gives this process.
fn is_seen(signal: u32) -> bool {
    is_virtual()
        && PROCESS.is_started()
        && (1..=super::SIGNALS).contains(&signal)
        && LIBC_INTERNAL & bit(signal) == 0
        && actions::is_ours(signal)
        && held::mask() & bit(signal) == 0
}

/// Makes a `call` that sends `signal` to this process's group. Returns its result.
pub fn send_to_own(signal: u32, call: impl FnOnce() -> isize) -> isize {
    if !is_seen(signal) {
        return call();
    }
    let before = ROUTED[signal as usize].load(Ordering::Acquire);
    let result = call();
    if !is_err(result) {
        wait_until_routed(signal, before);
        fatal::after_sending(signal);
    }
    result
}

/// Waits until a signal was routed since the count was `before`.
///
/// # Blocking
/// The running thread, for a second at most, because the kernel thread that has the signal may be
/// stopped; for a signal of job control 5 ms, because that may have its effect without being
/// routed.
fn wait_until_routed(signal: u32, before: u32) {
    const BRIEF_NS: u64 = 5_000_000;
    const LONG_NS: u64 = 1_000_000_000;
    const PAUSE_NS: u64 = 20_000;
    let is_about_jobs = bit(signal) & stops::JOB_CONTROL != 0;
    let until_ns = clock::now_ns() + if is_about_jobs { BRIEF_NS } else { LONG_NS };
    loop {
        routing::route();
        if !is_about_jobs {
            routing::fetch_signal(signal);
        }
        let is_routed = ROUTED[signal as usize].load(Ordering::Acquire) != before;
        if is_routed || clock::now_ns() > until_ns {
            return;
        }
        if sleep_until(clock::now_ns() + PAUSE_NS) {
            return; // by this signal or another: a handler runs next
        }
    }
}
