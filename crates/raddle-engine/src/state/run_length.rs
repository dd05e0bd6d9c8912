//! How long a carrier runs without a pause, and how long its turns are.
//!
//! Threads that only read wait for a disk most of the time and run for some microseconds each, many
//! at a time. Two carriers that share them read no faster than one that reads them all, as long as
//! that one pauses, and both use more CPU time: they meet at the file's and the disk's locks.

use crate::state::carrier::Carrier;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_arch::timestamp;

/// Time stamp ticks without a pause after which a carrier needs help (some 4 ms).
const LONG_TICKS: u64 = 10_000_000;
/// What queued threads may take, all together, without help (some 400 us).
const QUEUE_TICKS: u64 = 1_000_000;
/// What one of them takes if they are many and short (some 16 us).
const SHORT_TICKS: u64 = 40_000;

/// A carrier's time between two sleeps. Written by the carrier, read by sysmon.
pub(crate) struct RunLength {
    /// Time stamp of the last sleep's end.
    from: AtomicU64,
    /// Time stamp of the last look at what has been waited for.
    looked: AtomicU64,
    /// Ticks for each switch of the run before.
    ticks_each: AtomicU64,
    /// The carrier's count of switches at its start. The carrier's.
    switches: Cell<u64>,
}

impl RunLength {
    /// The carrier is about to sleep.
    pub(crate) fn end(&self, carrier: &Carrier) {
        let now = carrier.switches.load(Ordering::Relaxed);
        let switches = now.wrapping_sub(self.switches.get());
        let ticks = timestamp().wrapping_sub(self.from.load(Ordering::Relaxed));
        let ticks_each = ticks / switches.max(1);
        self.ticks_each.store(ticks_each, Ordering::Relaxed);
    }

    /// The carrier has slept.
    pub(crate) fn begin(&self, carrier: &Carrier) {
        let switches = carrier.switches.load(Ordering::Relaxed);
        self.switches.set(switches);
        let now = timestamp();
        self.from.store(now, Ordering::Relaxed);
        self.looked.store(now, Ordering::Relaxed);
    }

    /// The carrier has looked for what its threads wait for. Returns the same as
    /// [`RunLength::copes_with`].
    pub(crate) fn looked(&self, queued: usize) -> bool {
        let now = timestamp();
        self.looked.store(now, Ordering::Relaxed);
        self.copes_at(now, queued)
    }

    /// Returns true if the carrier has run without a pause for [`LONG_TICKS`].
    pub(crate) fn is_long(&self) -> bool {
        timestamp().wrapping_sub(self.from.load(Ordering::Relaxed)) > LONG_TICKS
    }

    /// Returns true if `queued` threads drain within [`QUEUE_TICKS`] at this carrier's recent pace,
    /// so that no other carrier needs to be woken.
    pub(crate) fn copes_with(&self, queued: usize) -> bool {
        self.copes_at(timestamp(), queued)
    }

    /// A carrier with long turns doesn't come to look: `looked` is old then.
    fn copes_at(&self, now: u64, queued: usize) -> bool {
        let queue_ticks = self.ticks_each.load(Ordering::Relaxed) * queued as u64;
        let since = |at: &AtomicU64| now.wrapping_sub(at.load(Ordering::Relaxed));
        queue_ticks < QUEUE_TICKS
            && since(&self.looked) < QUEUE_TICKS
            && since(&self.from) <= LONG_TICKS
    }

    /// Returns true if its turns have become long, so that threads in its queue need help at once.
    pub(crate) fn is_held_up(&self) -> bool {
        timestamp().wrapping_sub(self.looked.load(Ordering::Relaxed)) >= QUEUE_TICKS
    }

    /// Returns true if its threads had short turns in the run before.
    pub(crate) fn is_of_short_turns(&self) -> bool {
        self.ticks_each.load(Ordering::Relaxed) < SHORT_TICKS
    }
}
