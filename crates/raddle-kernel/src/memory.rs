//! Memory calls that concern thread stacks.

use crate::boundary::{Frame, Outcome};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::ENGINE;

/// Every how many thread ends the stack's pages are really given back.
const TRIM_EVERY: u32 = 32;
/// glibc's advice starts at most this far below the caller's frame.
const NEAR: usize = 64 * 1024;

static ENDS: AtomicU32 = AtomicU32::new(0);

/// `madvise(2)`: at a thread's end glibc gives the pages of its own stack back, one call a thread.
/// The next thread on the stack touches them again at once, so most of these calls are dropped; the
/// pages are given back on every [`TRIM_EVERY`]th end.
pub extern "C" fn madvise(frame: &Frame) -> Outcome {
    const DONTNEED: usize = 4;
    if frame.arg(2) != DONTNEED || !ENGINE.is_started() {
        return Outcome::PASS;
    }
    let (end, here) = (frame.arg(0) + frame.arg(1), core::ptr::from_ref(frame).addr());
    let own_stack = end <= here && here - end < NEAR;
    if own_stack && !ENDS.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIM_EVERY) {
        return Outcome::of(0);
    }
    Outcome::PASS
}
