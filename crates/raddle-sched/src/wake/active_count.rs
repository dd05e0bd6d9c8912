//! Counts of sleepers, and of those that are active: see [`crate::wake`].

use super::Announce;
use crate::sync::{AtomicU32, Ordering};

/// How many threads of a group are *active*, and how many sleep. Only so many may be active: a
/// poster wakes a sleeper only if one more may be.
///
/// A poster that finds too many active leaves its work to them. Each of them counts itself out
/// before its last look, so the last one that does so sees the work and that it may be active.
#[repr(C)]
pub struct ActiveCount {
    /// Threads that neither sleep nor have left. Written by the threads, and by the observer that
    /// counts one out which waits for something else.
    active: AtomicU32,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
}

impl ActiveCount {
    /// A group without threads.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            active: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// A group without threads.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            active: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Returns how many are active.
    #[inline(always)]
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::SeqCst)
    }

    /// Returns true if a thread sleeps, or is about to.
    #[inline(always)]
    pub fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) != 0
    }

    /// Returns true if a sleeper should be woken: there is one, and it may be active. Called by a
    /// poster, after its publication.
    #[inline(always)]
    pub fn wants_one(&self, limit: impl FnOnce() -> u32) -> bool {
        self.has_sleepers() && self.active() < limit()
    }

    /// Counts a thread in.
    #[inline(always)]
    pub fn enter(&self) {
        self.active.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a thread out. The caller looks for work that the thread leaves, and wakes a sleeper
    /// for it.
    #[inline(always)]
    pub fn leave(&self) {
        self.active.fetch_sub(1, Ordering::SeqCst);
    }

    /// Begins anew with so many active threads.
    pub fn reset(&self, active: u32) {
        self.active.store(active, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
    }
}

impl Default for ActiveCount {
    fn default() -> Self {
        Self::new()
    }
}

impl Announce for &ActiveCount {
    #[inline(always)]
    fn announce(&mut self) -> bool {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        self.leave();
        true
    }

    #[inline(always)]
    fn withdraw(&mut self) {
        self.enter();
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
