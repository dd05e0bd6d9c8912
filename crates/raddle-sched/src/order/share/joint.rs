//! What several tasks have used together.

use super::{LEAD_NS, Load, MOST_AHEAD_NS};
use crate::order::policies::Weight;
use crate::sync::{AtomicU64, Ordering};

/// One account for tasks that all others wait for, such as those that compile for a language
/// runtime. While others want to run, the tasks have two thirds of the CPU time together, however
/// many there are of either kind.
///
/// With an account each, `k` such tasks would have `k` times that part: two of them all, and the
/// others a turn between two of theirs.
///
/// Written by all carriers. Relaxed: a value that comes late changes one decision.
pub struct JointAccount {
    used_ns: AtomicU64,
}

impl JointAccount {
    /// An account that says 0.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            used_ns: AtomicU64::new(0),
        }
    }

    /// An account that says 0.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            used_ns: AtomicU64::new(0),
        }
    }

    /// Returns the time of the fair clock from which on the tasks are not ahead. One turn of
    /// [`LEAD_NS`] is allowed. Tasks that are not ahead are due before all others in the queue of
    /// tasks that are: these may be due for as long as their lead.
    pub fn due_ns(&self, fair_ns: u64, load: Load) -> u64 {
        let used_ns = self.used_ns.load(Ordering::Relaxed).max(fair_ns);
        let due_ns = used_ns.saturating_sub(charged_ns(LEAD_NS, load));
        if due_ns > fair_ns {
            due_ns
        } else {
            fair_ns.saturating_sub(LEAD_NS)
        }
    }

    /// Returns true if the tasks will have used more than their share after `more_ns` of CPU time.
    pub fn is_ahead_after(&self, more_ns: u64, fair_ns: u64, load: Load) -> bool {
        let used_ns = self.used_ns.load(Ordering::Relaxed).max(fair_ns);
        used_ns + charged_ns(more_ns, load) > fair_ns + charged_ns(LEAD_NS, load)
    }

    /// One of the tasks begins a turn when the fair clock says `fair_ns`.
    pub fn begin(&self, fair_ns: u64) {
        self.used_ns.fetch_max(fair_ns, Ordering::Relaxed);
    }

    /// One of the tasks, of this weight, has run for `ran_ns`. The account is at most
    /// [`MOST_AHEAD_NS`] of CPU time for each carrier ahead then. That is more than a quantum:
    /// tasks that were queued before it ran become due by what the account said then.
    pub fn charge(&self, fair_ns: u64, ran_ns: u64, weight: Weight, load: Load) {
        let most_ns = charged_ns(MOST_AHEAD_NS, load) * u64::from(load.carriers.max(1));
        let charged_ns = charged_ns(weight.virtual_ns(ran_ns), load);
        self.used_ns.fetch_add(charged_ns, Ordering::Relaxed);
        self.used_ns
            .fetch_min(fair_ns.saturating_add(most_ns), Ordering::Relaxed);
    }
}

/// What is charged for `ran_ns`. `n` runnable tasks advance the fair clock by a n-th of the CPU
/// time. An account that is charged for 3 / 2n of its CPU time keeps pace with two thirds of all.
fn charged_ns(ran_ns: u64, load: Load) -> u64 {
    let runnable = u64::from(load.runnable).max(2);
    ran_ns.saturating_mul(3) / (2 * runnable)
}

impl Default for JointAccount {
    fn default() -> Self {
        Self::new()
    }
}
