//! Who frees what a thread and its handle share, and who loses the result: one word.
//!
//! 1. The thread computes, leaves its result, and says that it [`RAN`]. If its handle was dropped
//!    before, all is the thread's; else the result is the handle's.
//! 2. It has destructors to run. Meanwhile the handle may be dropped, and takes the result along.
//! 3. The thread [`ENDED`]: libc says when it is gone; or it [`LEAVES`], to be used again: the
//!    runtime says when it is over ([`OVER`]). If the handle was dropped meanwhile, what they
//!    share is the thread's to free; else it is the handle's, once the thread is gone.
//!
//! Each side sets its own bits (release) and looks for the other's (acquire), in one step: one of
//! them comes second. A handle that is being joined has made its last step ([`JOINED`]): whoever
//! sees that is alone with the word, and needs no locked instruction.

use raddle_sched::sync::{AtomicU32, Ordering};

/// The handle is being joined, or was dropped: nobody can ask it for the thread's std handle.
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
/// Nothing of the thread but its end is to come.
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

    /// The word that changes, for those who wait.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// True as long as somebody may ask for the thread's std handle.
    pub fn is_named(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CONSUMED == 0
    }

    /// Sets bits of the thread; what there was before.
    #[inline(always)]
    fn step(&self, bits: u32) -> u32 {
        let before = self.0.load(Ordering::Acquire);
        if before & JOINED == 0 {
            return self.0.fetch_or(bits, Ordering::AcqRel);
        }
        self.0.store(before | bits, Ordering::Release);
        before
    }

    /// The thread has left its result. False if the handle was dropped: all is the thread's.
    #[must_use]
    pub fn ran(&self) -> bool {
        self.step(RAN) & DETACHED == 0
    }

    /// True once it has.
    pub fn has_run(&self) -> bool {
        self.0.load(Ordering::Acquire) & RAN != 0
    }

    /// The thread is about to be kept. False if the handle was dropped, and what they share is the
    /// thread's to free.
    #[must_use]
    pub fn leaves(&self) -> bool {
        self.step(LEAVES) & DETACHED == 0
    }

    /// The thread ends for good. Likewise; from here on the handle may free it, if that is there.
    /// Whether somebody waits, too.
    #[must_use]
    pub fn ends(&self) -> (bool, bool) {
        let before = self.step(ENDED);
        (before & DETACHED == 0, before & CONSUMED != 0)
    }

    /// True once the thread has nothing more to run.
    pub fn has_left(&self) -> bool {
        self.0.load(Ordering::Acquire) & (FINAL | LEAVES) != 0
    }

    /// The handle is about to wait, and won't be dropped.
    pub fn consume(&self) {
        self.0.fetch_or(CONSUMED | JOINED, Ordering::Acquire);
    }

    /// What the word is, and whether the thread is gone, or ends for good.
    pub fn look(&self) -> (u32, bool) {
        let state = self.0.load(Ordering::Acquire);
        (state, state & FINAL != 0)
    }

    /// True if the thread ends for good, so that libc knows when it is gone.
    pub fn is_for_good(&self) -> bool {
        self.0.load(Ordering::Acquire) & ENDED != 0
    }

    /// The handle is dropped; `lose` loses the result, once it is there, perhaps again. True if
    /// what they share is the handle's to free, when the thread is gone.
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
