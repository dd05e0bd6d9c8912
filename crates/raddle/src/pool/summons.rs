//! Whether a worker is to be summoned: what posters, searchers and workers that rest tell each
//! other. The module `shared` has the protocol.

use raddle_sched::sync::{AtomicUsize, Ordering};
use raddle_sched::wake::{Searchers, Sign};

/// The words that posters and searchers read.
#[derive(Default)]
pub struct Summons {
    /// Searchers and summoned workers. Begun by the summoning thread, ended by the searcher.
    pub searching: Searchers,
    /// Whether another worker may run: there is an idle one or a free slot, and the target is not
    /// reached. Written under the lock.
    pub wanting: Sign,
}

impl Summons {
    /// Returns true if a push to a deque calls for a worker. Called after the push.
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.wanting.is_shown() && self.is_missing()
    }

    /// Returns true if no worker searches. Called under the lock, after the work was announced.
    #[inline(always)]
    pub fn is_missing(&self) -> bool {
        !self.searching.has_any()
    }

    /// Ends a search with success. Returns true if it was the last one, another worker may run, and
    /// there is `more` work: the searcher summons the next worker.
    pub fn found(&self, more: impl FnOnce() -> bool) -> bool {
        let is_last = self.searching.end();
        is_last && self.wanting.is_shown() && more()
    }
}

/// The number of items in the lanes, for readers without the lock. Written under the lock.
pub struct Waiting(AtomicUsize);

impl Waiting {
    /// None.
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Counts the items before a summons: a searcher that is no longer seen as one by the summons
    /// sees these items (SeqCst, partner of [`Summons::found`]).
    pub fn announce(&self, items: usize) {
        self.0.store(items, Ordering::SeqCst);
    }

    /// Counts the items after some were taken. An unchanged count isn't written.
    pub fn note(&self, items: usize) {
        if self.0.load(Ordering::Relaxed) != items {
            self.0.store(items, Ordering::Relaxed);
        }
    }

    /// Returns true if there were items a moment ago.
    pub fn has_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Default for Waiting {
    fn default() -> Self {
        Self::new()
    }
}
