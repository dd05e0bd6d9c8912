//! The fair clock.

use crate::sync::{AtomicU64, Ordering};

/// The shortest time between two advances.
const STEP_NS: u64 = 10_000;
/// A longer time without an advance counts as this: nobody was timed meanwhile.
const GAP_NS: u64 = 10_000_000;

/// How many tasks want to run, and how many can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Carriers that run tasks.
    pub carriers: u32,
    /// Tasks that run or wait in a queue.
    pub runnable: u32,
}

impl Load {
    const fn to_word(self) -> u64 {
        (self.carriers as u64) << 32 | self.runnable as u64
    }

    const fn of_word(word: u64) -> Self {
        Self {
            carriers: (word >> 32) as u32,
            runnable: word as u32,
        }
    }

    /// What one runnable task is entitled to in `passed_ns`.
    fn share_ns(self, passed_ns: u64) -> u64 {
        let runnable = u64::from(self.runnable.max(1));
        let carriers = u64::from(self.carriers.max(1)).min(runnable);
        passed_ns * carriers / runnable
    }
}

/// See the [module](super).
///
/// All carriers of an engine share one. Relaxed: the words decide an order, and guard nothing.
pub struct FairClock {
    /// The time on this clock. Changed by the carrier that moved `at_ns`.
    fair_ns: AtomicU64,
    /// Real time of the last advance. Moved by one compare-and-swap, so one carrier advances the
    /// clock for each interval.
    at_ns: AtomicU64,
    /// The [`Load`] since then. Written by the carrier that moved `at_ns`.
    load: AtomicU64,
}

impl FairClock {
    /// A clock at 0.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            fair_ns: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            load: AtomicU64::new(0),
        }
    }

    /// A clock at 0.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            fair_ns: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            load: AtomicU64::new(0),
        }
    }

    /// The time on this clock when it was last advanced, in nanoseconds.
    #[inline(always)]
    pub fn read_ns(&self) -> u64 {
        self.fair_ns.load(Ordering::Relaxed)
    }

    /// The load that was noted last.
    pub fn load(&self) -> Load {
        Load::of_word(self.load.load(Ordering::Relaxed))
    }

    /// Notes the load from the last advance on.
    pub fn note(&self, load: Load) {
        self.load.store(load.to_word(), Ordering::Relaxed);
    }

    /// Advances the clock to real time `now_ns`. Returns false if that was done a moment ago;
    /// otherwise the caller [notes](FairClock::note) the load that follows.
    pub fn advance(&self, now_ns: u64) -> bool {
        let at_ns = self.at_ns.load(Ordering::Relaxed);
        let passed_ns = now_ns.saturating_sub(at_ns);
        if passed_ns < STEP_NS {
            return false;
        }
        let wins = self
            .at_ns
            .compare_exchange(at_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if wins {
            // Another carrier may win the next interval before this addition: neither is lost.
            let share_ns = self.load().share_ns(passed_ns.min(GAP_NS));
            self.fair_ns.fetch_add(share_ns, Ordering::Relaxed);
        }
        wins
    }
}

impl Default for FairClock {
    fn default() -> Self {
        Self::new()
    }
}
