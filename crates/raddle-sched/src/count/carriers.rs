//! The numbers of an engine's carriers, from which follows how many are active.
//!
//! A listed carrier is active, spare (in a set of sleepers) or ended. Blocked carriers are active,
//! and each adds one to the number that may be active. Carriers change these numbers while others
//! read them without a lock, so every reader may see a change half done. The rules:
//!
//! 1. A carrier never counts as active while it is spare or ended, or moves between the two. It may
//!    count twice among those, so [`CarrierCount::active`] may be too low for a moment: then one
//!    carrier too many is woken, which finds that out.
//! 2. To end, a carrier counts as ended *before* it leaves the set; to begin again, it enters the
//!    set *before* it no longer counts as ended; to be listed, it enters the set *before* it counts
//!    as listed. A reader reads what is listed first, and what has ended both before and after the
//!    set: so it sees a carrier that moves in one of the two places at least.
//! 3. The number of blocked carriers is raised *before* a carrier is marked, and lowered *after*
//!    the mark is gone: it may be too high for a moment, never too low. Too low, it would be a
//!    number below zero, and carriers that see too small a limit all become spare.
//!
//! All accesses are SeqCst. Ends and beginnings are under a lock of the caller's, so that not all
//! spare carriers end at once.

use crate::sync::{AtomicU32, Ordering};
use crate::wake::IdleSet;

/// See the module. Zero bytes are an engine without carriers.
#[repr(C)]
pub struct CarrierCount {
    /// Listed carriers, those that have ended included. Changed under the caller's lock.
    listed: AtomicU32,
    /// Listed carriers without a kernel thread. Changed under the caller's lock.
    ended: AtomicU32,
    /// Carriers that count as blocked in the kernel.
    blocked: AtomicU32,
}

impl CarrierCount {
    /// No carriers.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            listed: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
        }
    }

    /// No carriers.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            listed: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
        }
    }

    /// Returns how many are listed, a moment ago.
    #[inline(always)]
    pub fn listed(&self) -> u32 {
        self.listed.load(Ordering::Relaxed)
    }

    /// Returns how many are neither spare nor ended.
    pub fn active(&self, spares: &IdleSet) -> u32 {
        let listed = self.listed.load(Ordering::SeqCst);
        let ended = self.ended.load(Ordering::SeqCst);
        let spare = spares.len() as u32;
        let ended = ended.max(self.ended.load(Ordering::SeqCst));
        listed.saturating_sub(spare + ended)
    }

    /// Returns how many count as blocked.
    #[inline(always)]
    pub fn blocked(&self) -> u32 {
        self.blocked.load(Ordering::SeqCst)
    }

    /// Lists a new carrier; a spare one is in the set already. Under the caller's lock.
    pub fn list(&self) {
        self.listed.fetch_add(1, Ordering::SeqCst);
    }

    /// A carrier that has ended begins again; a spare one is in the set already. Under the caller's
    /// lock.
    pub fn begin_again(&self) {
        self.ended.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends spare carrier `id`, unless only `kept` are spare, or another thread has taken the
    /// carrier and wants it to run. Returns true if it has ended. Under the caller's lock.
    #[must_use]
    pub fn end(&self, spares: &IdleSet, id: usize, kept: usize) -> bool {
        if spares.len() <= kept {
            return false;
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        let ends = spares.take(id);
        if !ends {
            self.ended.fetch_sub(1, Ordering::SeqCst);
        }
        ends
    }

    /// Counts a carrier as blocked; `mark` is the carrier's own word for that. Returns true if it
    /// did not count before.
    pub fn block(&self, mark: &AtomicU32) -> bool {
        if mark.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let is_new = mark.swap(1, Ordering::SeqCst) == 0;
        if !is_new {
            self.blocked.fetch_sub(1, Ordering::SeqCst);
        }
        is_new
    }

    /// Counts a carrier as blocked no longer, if it did. A thread that has changed the carrier's
    /// state before finds the mark, or the thread that marks later sees that state.
    pub fn unblock(&self, mark: &AtomicU32) {
        if mark.swap(0, Ordering::SeqCst) != 0 {
            let before = self.blocked.fetch_sub(1, Ordering::SeqCst);
            debug_assert!(before != 0, "fewer than none are blocked");
        }
    }

    /// Begins anew, with so many carriers.
    pub fn reset(&self, listed: u32) {
        let Self {
            listed: own,
            ended,
            blocked,
        } = self;
        own.store(listed, Ordering::Relaxed);
        for count in [ended, blocked] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for CarrierCount {
    fn default() -> Self {
        Self::new()
    }
}
