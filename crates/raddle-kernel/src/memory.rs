//! Memory calls that concern thread stacks: answered from the arena of `raddle_engine::stacks`.

use crate::boundary::{Frame, Outcome};
use crate::loading;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::ENGINE;

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE: usize = 2;
const MAP_FIXED: usize = 0x10;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_STACK: usize = 0x20000;

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
    let (end, here) = (
        frame.arg(0) + frame.arg(1),
        core::ptr::from_ref(frame).addr(),
    );
    let own_stack = end <= here && here - end < NEAR;
    if own_stack
        && !ENDS
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(TRIM_EVERY)
    {
        return Outcome::of(0);
    }
    Outcome::PASS
}

/// `mmap(2)` of a thread's stack, or over a part of one.
pub extern "C" fn mmap(frame: &Frame) -> Outcome {
    if let Some(outcome) = loading::mmap(frame) {
        return outcome;
    }
    if !ENGINE.is_started() {
        return Outcome::PASS;
    }
    let (address, len, prot, flags) = (frame.arg(0), frame.arg(1), frame.arg(2), frame.arg(3));
    const ANON: usize = MAP_PRIVATE | MAP_ANONYMOUS;
    if flags & ANON != ANON || !matches!(prot, PROT_NONE | PROT_READ_WRITE) {
        return Outcome::PASS;
    }
    if flags & MAP_FIXED != 0 {
        let done = ENGINE.stacks.holds(address, len)
            && ENGINE.stacks.protect(address, len, prot == PROT_READ_WRITE);
        return if done {
            Outcome::of(address as isize)
        } else {
            Outcome::PASS
        };
    }
    if address != 0 || flags & MAP_STACK == 0 {
        return Outcome::PASS;
    }
    match ENGINE.stacks.allocate(len, prot == PROT_READ_WRITE) {
        Some(base) => Outcome::of(base as isize),
        None => Outcome::PASS,
    }
}

/// `munmap(2)`.
pub extern "C" fn munmap(frame: &Frame) -> Outcome {
    let (address, len) = (frame.arg(0), frame.arg(1));
    if ENGINE.stacks.holds(address, 1) && ENGINE.stacks.release(address, len) {
        return Outcome::of(0);
    }
    loading::unmaps(frame);
    Outcome::PASS
}

/// `mprotect(2)`.
pub extern "C" fn mprotect(frame: &Frame) -> Outcome {
    let (address, len, prot) = (frame.arg(0), frame.arg(1), frame.arg(2));
    let ours = matches!(prot, PROT_NONE | PROT_READ_WRITE) && ENGINE.stacks.holds(address, len);
    if ours && ENGINE.stacks.protect(address, len, prot == PROT_READ_WRITE) {
        return Outcome::of(0);
    }
    Outcome::PASS
}
