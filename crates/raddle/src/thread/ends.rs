//! The word that decides which side, a thread or its handle, frees their packet and the result.
//!
//! 1. The thread computes, leaves its result, and sets [`RAN`]. If its handle was dropped before,
//!    the thread owns the packet and the result; else the handle owns the result.
//! 2. The thread's destructors run. A handle that is dropped meanwhile drops the result.
//! 3. The thread sets [`ENDED`] if it ends for good, and libc tells when it is gone; or it sets
//!    [`LEAVES`] if it will be reused, and the runtime sets [`OVER`] when it is over. If the
//!    handle was dropped meanwhile, the thread frees the packet; else the handle does, once the
//!    thread is gone.
//!
//! Each side sets its own bits (release) and reads the other's (acquire) in one step, so one of
//! them comes second. A handle that is being joined has made its last step ([`JOINED`]): a thread
//! that reads that bit is the word's only writer, and needs no locked instruction.

use raddle_sched::sync::{AtomicU32, Ordering};

/// The handle is being joined, or was dropped: it can't be asked for the thread's std handle.
pub const CONSUMED: u32 = 1;
/// The handle was dropped.
const DETACHED: u32 = 2;
/// The thread has left its result.
const RAN: u32 = 4;
/// The thread ends for good.
const ENDED: u32 = 8;
/// The thread is about to be kept.
const LEAVES: u32 = 16;
/// The handle is being joined: it only looks at the word from here on.
pub const JOINED: u32 = 32;
/// The thread is gone.
pub const OVER: u32 = 128;
/// The bits after which the thread only ends.
const FINAL: u32 = ENDED | OVER;

/// See the module.
pub struct Ends(AtomicU32);

impl Default for Ends {
    fn default() -> Self {
        Self::new()
    }
}

impl Ends {
    /// Of a thread that is about to be made.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns the word that changes, for waiters.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Returns true as long as the handle may be asked for the thread's std handle.
    pub fn is_named(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CONSUMED == 0
    }

    /// Sets bits of the thread. Returns the word's earlier value.
    #[inline(always)]
    fn step(&self, bits: u32) -> u32 {
        let before = self.0.load(Ordering::Acquire);
        if before & JOINED == 0 {
            return self.0.fetch_or(bits, Ordering::AcqRel);
        }
        self.0.store(before | bits, Ordering::Release);
        before
    }

    /// Sets [`RAN`]: the thread has left its result. Returns false if the handle was dropped, so
    /// that the packet and the result are the thread's.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.step(RAN) & DETACHED == 0
    }

    /// Returns true once the thread has left its result.
    pub fn has_run(&self) -> bool {
        self.0.load(Ordering::Acquire) & RAN != 0
    }

    /// Sets [`LEAVES`]: the thread is about to be kept. Returns false if the handle was dropped, so
    /// that the thread frees the packet.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.step(LEAVES) & DETACHED == 0
    }

    /// Sets [`ENDED`]: the thread ends for good. Returns whether there is a handle, which may free
    /// the packet from here on, and whether the handle waits.
    #[must_use]
    pub fn ends(&self) -> (bool, bool) {
        let before = self.step(ENDED);
        (before & DETACHED == 0, before & CONSUMED != 0)
    }

    /// Returns true once the thread has nothing more to run.
    pub fn has_left(&self) -> bool {
        self.0.load(Ordering::Acquire) & (FINAL | LEAVES) != 0
    }

    /// Sets [`JOINED`]: the handle is about to wait, and won't be dropped.
    pub fn consume(&self) {
        self.0.fetch_or(CONSUMED | JOINED, Ordering::Acquire);
    }

    /// Returns the word, and whether the thread is gone or ends for good.
    pub fn look(&self) -> (u32, bool) {
        let state = self.0.load(Ordering::Acquire);
        (state, state & FINAL != 0)
    }

    /// Returns true if the thread ends for good, so that libc knows when it is gone.
    pub fn is_for_good(&self) -> bool {
        self.0.load(Ordering::Acquire) & ENDED != 0
    }

    /// Sets [`DETACHED`]: the handle is dropped. `lose` drops the result once it is there, and may
    /// be called more than once. Returns true if the handle frees the packet when the thread is
    /// gone.
    #[must_use]
    pub fn detach(&self, lose: impl Fn()) -> bool {
        let mut state = self.0.fetch_or(CONSUMED, Ordering::Acquire) | CONSUMED;
        loop {
            if state & RAN != 0 {
                lose();
            }
            let to = state | DETACHED;
            let exchanged = self
                .0
                .compare_exchange(state, to, Ordering::AcqRel, Ordering::Acquire);
            match exchanged {
                Ok(_) => return state & (FINAL | LEAVES) != 0,
                Err(now) => state = now,
            }
        }
    }
}
