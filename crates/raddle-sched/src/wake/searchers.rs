//! Sleepers that are still looking: see [`crate::wake`].

use crate::sync::{AtomicUsize, Ordering};

/// The number of searchers, and of sleepers that were woken to search. A poster that finds one
/// wakes no other: the searcher sees the work, because its search ends (SeqCst) before it announces
/// itself and looks again.
pub struct Searchers(AtomicUsize);

impl Searchers {
    /// Counts a searcher: itself, or a sleeper that the caller wakes.
    #[inline(always)]
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a search. Returns true if it was the last one: if there is more work than the searcher
    /// takes, the searcher wakes the next one.
    #[inline(always)]
    pub fn end(&self) -> bool {
        self.0.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Returns true if a thread searches. Called by a poster, after its publication.
    #[inline(always)]
    pub fn has_any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

impl Default for Searchers {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}
