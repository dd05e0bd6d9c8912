//! What one task has used.

use super::{HALF_LIFE, LEAD_NS, MOST_AHEAD_NS};
use crate::order::policies::Weight;
use crate::sync::{AtomicU64, Ordering};

/// CPU time that a task has used: in all, on the scale of the [fair clock](super::FairClock), and
/// recently.
///
/// Written by the carrier that runs the task or makes it runnable; read by sysmon. Relaxed: a value
/// that comes late changes one decision.
pub struct Account {
    used_ns: AtomicU64,
    /// See [`Account::recent_ns`]: a number of half-lives in the upper bits, nanoseconds below.
    recent: AtomicU64,
}

/// Bits of [`Account::recent`] that hold nanoseconds: some 18 minutes.
const RECENT_BITS: u32 = 40;

impl Account {
    /// An account that says 0.
    pub fn new() -> Self {
        Self {
            used_ns: AtomicU64::new(0),
            recent: AtomicU64::new(0),
        }
    }

    /// Returns the recent CPU time: earlier time counts half for each [half-life](HALF_LIFE)
    /// since.
    pub fn recent_ns(&self, now_ns: u64) -> u64 {
        let recent = self.recent.load(Ordering::Relaxed);
        let ns = recent & ((1 << RECENT_BITS) - 1);
        let half_lives = (now_ns >> HALF_LIFE).wrapping_sub(recent >> RECENT_BITS);
        let half_lives = half_lives & (u64::MAX >> RECENT_BITS);
        ns.checked_shr(half_lives as u32).unwrap_or(0)
    }

    /// The task has run for `ran_ns` up to `now_ns`: this is recent CPU time.
    pub fn ran(&self, now_ns: u64, ran_ns: u64) {
        let most_ns = (1 << RECENT_BITS) - 1;
        let ns = (self.recent_ns(now_ns) + ran_ns).min(most_ns);
        let recent = (now_ns >> HALF_LIFE) << RECENT_BITS | ns;
        self.recent.store(recent, Ordering::Relaxed);
    }

    /// Returns the CPU time used, in nanoseconds of the fair clock, when the clock says `fair_ns`.
    #[inline(always)]
    pub fn used_ns(&self, fair_ns: u64) -> u64 {
        self.used_ns.load(Ordering::Relaxed).max(fair_ns)
    }

    /// Returns true if the task has used more than its share, by more than [`LEAD_NS`].
    #[inline(always)]
    pub fn is_ahead(&self, fair_ns: u64) -> bool {
        self.due_ns(fair_ns) > fair_ns
    }

    /// Returns the time of the fair clock from which on the task is not ahead.
    #[inline(always)]
    pub fn due_ns(&self, fair_ns: u64) -> u64 {
        self.used_ns(fair_ns).saturating_sub(LEAD_NS)
    }

    /// The task begins a turn when the fair clock says `fair_ns`: the unused share of earlier time
    /// is forgotten.
    #[inline(always)]
    pub fn begin(&self, fair_ns: u64) {
        self.used_ns.store(self.used_ns(fair_ns), Ordering::Relaxed);
    }

    /// The task has run for `ran_ns`; the fair clock says `fair_ns`. The account is at most
    /// `quantum_ns` ahead then.
    ///
    /// The charge is in inverse proportion to the task's weight.
    pub fn charge(&self, fair_ns: u64, ran_ns: u64, quantum_ns: u64, weight: Weight) {
        let begun_ns = self.used_ns.load(Ordering::Relaxed);
        let used_ns = begun_ns.saturating_add(weight.virtual_ns(ran_ns));
        let most_ns = weight.virtual_ns(quantum_ns.min(MOST_AHEAD_NS));
        let used_ns = used_ns.min(fair_ns.saturating_add(most_ns));
        self.used_ns.store(used_ns, Ordering::Relaxed);
    }

    /// The account of a new task, made by the one that has `maker`: the new task is taken for one
    /// like its maker, which doesn't give way to it.
    pub fn inherit(&self, maker: &Self) {
        self.recent
            .store(maker.recent.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A task that this one has made ends, with the account `ended`: what it has used recently is
    /// this one's, too. Otherwise a task that makes others, one after the other, would always seem
    /// to use little.
    pub fn inherit_back(&self, ended: &Self, now_ns: u64) {
        let more_ns = ended
            .recent_ns(now_ns)
            .saturating_sub(self.recent_ns(now_ns));
        self.ran(now_ns, more_ns);
    }

    /// Resets the account for a new task, which has used as much as its share.
    pub fn reset(&self, fair_ns: u64) {
        self.used_ns.store(fair_ns, Ordering::Relaxed);
        self.recent.store(0, Ordering::Relaxed);
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}
