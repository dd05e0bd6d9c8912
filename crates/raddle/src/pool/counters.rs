//! A pool's counters: each worker's own without a lock, the others under the pool's lock.

use super::Stats;
use super::deque::Thief;
use super::shared::Shared;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one slot, written only by its worker; on cache lines of their own.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Counters {
    pub executed: AtomicU64,
    pub panicked: AtomicU64,
    pub queued: AtomicU64,
    pub stolen: AtomicU64,
}

/// Adds one to a counter that only the caller writes.
pub(super) fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[derive(Default)]
pub(super) struct Counts {
    pub queued: u64,
    pub panicked: u64,
    pub rejected: u64,
    pub discarded: u64,
    pub inlined: u64,
    pub caller_ran: u64,
    pub peak: usize,
    pub injected: u64,
}

impl Shared {
    pub(super) fn stats(&self) -> Stats {
        if self.is_forked() {
            return Stats::default();
        }
        let sum = |get: fn(&Counters) -> &AtomicU64| {
            let values = self.used().iter().map(|slot| get(&slot.counters));
            values
                .map(|value| value.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let local: usize = self
            .used()
            .iter()
            .map(|slot| slot.thief.get().map_or(0, Thief::len))
            .sum();
        let state = self.state();
        let counts = &state.counts;
        Stats {
            queued: counts.queued + sum(|counters| &counters.queued),
            executed: sum(|counters| &counters.executed) + counts.caller_ran,
            panicked: sum(|counters| &counters.panicked) + counts.panicked,
            stolen: sum(|counters| &counters.stolen),
            rejected: counts.rejected,
            discarded: counts.discarded,
            inlined: counts.inlined,
            caller_ran: counts.caller_ran,
            injected: counts.injected,
            pending: state.lanes.len() + local,
            workers: state.alive,
            idle: state.idle.len(),
            blocked: state.blocked,
            target: state.target,
            peak_workers: counts.peak,
        }
    }
}
