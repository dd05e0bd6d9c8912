//! The fair clock.

use crate::order::policies::Weight;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A mean of weights is that of about so many turns.
const TURNS: u64 = 64;

/// How many tasks want to run, and how many can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Carriers that run tasks.
    pub carriers: u32,
    /// Tasks that run or wait in a queue.
    pub runnable: u32,
}

/// See the [module](super).
///
/// All carriers of an engine share one. Relaxed: the words decide an order, and guard nothing.
pub struct FairClock {
    /// The time on this clock. Advanced by timed carriers.
    fair_ns: AtomicU64,
    /// The last [`Load`] noted. Written by timed carriers.
    carriers: AtomicU32,
    runnable: AtomicU32,
    /// See [`FairClock::usual`]: the mean times [`TURNS`]; 0 before the first.
    usual: AtomicU64,
}

impl FairClock {
    /// A clock at 0.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            fair_ns: AtomicU64::new(0),
            carriers: AtomicU32::new(0),
            runnable: AtomicU32::new(0),
            usual: AtomicU64::new(0),
        }
    }

    /// A clock at 0.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            fair_ns: AtomicU64::new(0),
            carriers: AtomicU32::new(0),
            runnable: AtomicU32::new(0),
            usual: AtomicU64::new(0),
        }
    }

    /// The time on this clock, in nanoseconds.
    #[inline(always)]
    pub fn read_ns(&self) -> u64 {
        self.fair_ns.load(Ordering::Relaxed)
    }

    /// Advances the clock: a carrier has run tasks for `ran_ns` of CPU time. Returns the time on
    /// the clock.
    pub fn advance(&self, ran_ns: u64) -> u64 {
        let share_ns = ran_ns / u64::from(self.load().runnable.max(1));
        self.fair_ns.fetch_add(share_ns, Ordering::Relaxed) + share_ns
    }

    /// A task of this weight has had a turn. Returns the mean of the weights of some turns.
    ///
    /// The clock advances as if all tasks had one weight, and accounts are charged by weights
    /// beside the usual one. So a niceness that all tasks share changes nothing.
    pub fn usual(&self, weight: Weight) -> Weight {
        let before = match self.usual.load(Ordering::Relaxed) {
            0 => weight.0 * TURNS,
            before if before / TURNS == weight.0 => return weight,
            before => before,
        };
        let mean = before - before / TURNS + weight.0;
        self.usual.store(mean, Ordering::Relaxed);
        Weight(mean / TURNS)
    }

    /// Returns the load that was noted last.
    pub fn load(&self) -> Load {
        Load {
            carriers: self.carriers.load(Ordering::Relaxed),
            runnable: self.runnable.load(Ordering::Relaxed),
        }
    }

    /// Notes the load from now on.
    pub fn note(&self, load: Load) {
        self.carriers.store(load.carriers, Ordering::Relaxed);
        self.runnable.store(load.runnable, Ordering::Relaxed);
    }
}

impl Default for FairClock {
    fn default() -> Self {
        Self::new()
    }
}
