//! The gate for calls that many kernel threads make often, and that one thread rarely forbids.
//!
//! 1. A caller says that it *asks*, in a word of its own, looks whether the gate is closed, and
//!    makes the call if it isn't; then it asks no longer.
//! 2. A thread that closes the gate says so, and then waits until no caller asks.
//!
//! Both sides are SeqCst: either the caller sees the gate closed, or the closer sees that the
//! caller asks. The closer acquires the end of the asking, so the calls happen before what the gate
//! was closed for.
//!
//! A caller has its word for itself: its calls write no memory that other callers write. Rejected:
//! the counter of senders of [`super::signal_gate`], which all senders write.

use crate::sync::{AtomicU32, Ordering};

/// How many threads have closed the gate.
#[repr(transparent)]
pub struct CallGate(AtomicU32);

impl CallGate {
    /// An open gate.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// An open gate.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Makes a call, unless the gate is closed. `asks` is the caller's own word, which is 0.
    #[inline(always)]
    pub fn pass<T>(&self, asks: &AtomicU32, make: impl FnOnce() -> T) -> Option<T> {
        asks.store(1, Ordering::SeqCst);
        let made = (!self.is_closed()).then(make);
        asks.store(0, Ordering::Release);
        made
    }

    /// Returns true while the gate is closed.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Closes the gate. No call is made once [`asks`] has returned false for each caller.
    pub fn close(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes one [`CallGate::close`] back.
    pub fn open(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate once, or opens it, whatever was before: in the child of a fork.
    pub fn reset(&self, is_closed: bool) {
        self.0.store(u32::from(is_closed), Ordering::Relaxed);
    }
}

impl Default for CallGate {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns true if the caller with this word may be making a call. Called by the thread that has
/// closed the gate.
pub fn asks(asks: &AtomicU32) -> bool {
    asks.load(Ordering::SeqCst) != 0
}
