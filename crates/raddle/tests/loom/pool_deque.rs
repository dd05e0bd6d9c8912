//! Twins of the pool's deque, each with one flaw, that the checker must refuse. The models of the
//! deque that runs are in [`crate::pool`].
//!
//! The entries of the twin are cells that loom watches, and a job is its number.

use crate::explore;
use loom::sync::Arc;
use loom::thread;
use raddle_sched::sync::{AtomicUsize, Ordering, UnsafeCell};

/// Slots of the ring.
const SLOTS: usize = 2;

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// Nothing: the twin's own test.
    None,
    /// A push raises `bottom` by a relaxed store.
    PushesRelaxed,
    /// A pop lowers `bottom` by a release store, and reads `top` by an acquire load.
    PopsAcquired,
    /// A pop reads `top` before it lowers `bottom`.
    ReadsTopFirst,
    /// A pop takes the last entry without a race for it.
    TakesLast,
    /// A thief raises `top` by a store.
    StealsByStore,
    /// A push doesn't look whether the slot is clear.
    FillsBlindly,
    /// A push looks without an acquire.
    FillsRelaxed,
    /// A taker clears the slot without a release.
    ClearsRelaxed,
    /// A taker clears the slot before it copies the entry.
    ClearsFirst,
}

struct Slot {
    is_full: AtomicUsize,
    job: UnsafeCell<usize>,
}

struct Twin {
    flaw: Flaw,
    top: AtomicUsize,
    bottom: AtomicUsize,
    slots: [Slot; SLOTS],
    runs: [AtomicUsize; 4],
}

// SAFETY: loom reports it if two threads touch an entry at once.
unsafe impl Sync for Twin {}
// SAFETY: as above.
unsafe impl Send for Twin {}

impl Twin {
    fn new(flaw: Flaw) -> Arc<Self> {
        let slot = |_| Slot {
            is_full: AtomicUsize::new(0),
            job: UnsafeCell::new(0),
        };
        Arc::new(Self {
            flaw,
            top: AtomicUsize::new(0),
            bottom: AtomicUsize::new(0),
            slots: std::array::from_fn(slot),
            runs: std::array::from_fn(|_| AtomicUsize::new(0)),
        })
    }

    /// The order of an access, weaker in the twin with this flaw.
    fn order(&self, flaw: Flaw, weak: Ordering, right: Ordering) -> Ordering {
        if self.flaw == flaw { weak } else { right }
    }

    /// Pushes a job, or runs it if there is no room.
    fn push(&self, job: usize) {
        let bottom = self.bottom.load(Ordering::Relaxed);
        let slot = &self.slots[bottom % SLOTS];
        let order = self.order(Flaw::FillsRelaxed, Ordering::Relaxed, Ordering::Acquire);
        let is_full = slot.is_full.load(order) != 0;
        let has_room = bottom - self.top.load(Ordering::Relaxed) < SLOTS;
        if is_full && !(self.flaw == Flaw::FillsBlindly && has_room) {
            return self.run(Some(job));
        }
        // SAFETY: the slot is clear, so no other thread touches it; otherwise loom reports it.
        slot.job.with_mut(|at| unsafe { *at = job });
        slot.is_full.store(1, Ordering::Relaxed);
        let order = self.order(Flaw::PushesRelaxed, Ordering::Relaxed, Ordering::SeqCst);
        self.bottom.store(bottom + 1, order);
    }

    fn pop(&self) -> Option<usize> {
        let above = self.bottom.load(Ordering::Relaxed);
        let early = self.top.load(Ordering::Relaxed);
        if early == above {
            return None;
        }
        let bottom = above - 1;
        let order = self.order(Flaw::PopsAcquired, Ordering::Release, Ordering::SeqCst);
        self.bottom.store(bottom, order);
        let top = match self.flaw {
            Flaw::ReadsTopFirst => early,
            Flaw::PopsAcquired => self.top.load(Ordering::Acquire),
            _ => self.top.load(Ordering::SeqCst),
        };
        if bottom > top {
            return Some(self.take(bottom));
        }
        let won = bottom == top && (self.flaw == Flaw::TakesLast || self.raise_top(top));
        self.bottom.store(above, Ordering::Relaxed);
        won.then(|| {
            self.top.fetch_max(above, Ordering::SeqCst);
            self.take(bottom)
        })
    }

    fn steal(&self) -> Option<usize> {
        loop {
            let top = self.top.load(Ordering::SeqCst);
            if self.bottom.load(Ordering::SeqCst) <= top {
                return None;
            }
            if self.flaw == Flaw::StealsByStore {
                self.top.store(top + 1, Ordering::SeqCst);
                return Some(self.take(top));
            }
            if self.raise_top(top) {
                return Some(self.take(top));
            }
        }
    }

    fn raise_top(&self, top: usize) -> bool {
        self.top
            .compare_exchange(top, top + 1, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
    }

    fn take(&self, index: usize) -> usize {
        let slot = &self.slots[index % SLOTS];
        let order = self.order(Flaw::ClearsRelaxed, Ordering::Relaxed, Ordering::Release);
        if self.flaw == Flaw::ClearsFirst {
            slot.is_full.store(0, order);
        }
        // SAFETY: this thread has moved an end over the entry; otherwise loom reports it.
        let job = slot.job.with_mut(|at| unsafe { *at });
        if self.flaw != Flaw::ClearsFirst {
            slot.is_full.store(0, order);
        }
        job
    }

    fn run(&self, job: Option<usize>) {
        if let Some(job) = job {
            self.runs[job].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The owner pushes `first` jobs, then `later` ones beside a thief that steals twice, and runs what
/// is left.
fn an_owner_meets_a_thief(flaw: Flaw, first: usize, later: usize) {
    explore(3, move || {
        let twin = Twin::new(flaw);
        (0..first).for_each(|job| twin.push(job));
        let there = twin.clone();
        let thief = thread::spawn(move || (0..2).for_each(|_| there.run(there.steal())));
        (first..first + later).for_each(|job| twin.push(job));
        twin.run(twin.pop());
        thief.join().unwrap();
        while let Some(job) = twin.pop() {
            twin.run(Some(job));
        }
        let runs = twin.runs.iter().map(|runs| runs.load(Ordering::Relaxed));
        let runs: Vec<_> = runs.take(first + later).collect();
        assert!(runs.iter().all(|&runs| runs == 1), "runs: {runs:?}");
    });
}

#[test]
fn the_twin_without_a_flaw_holds() {
    an_owner_meets_a_thief(Flaw::None, 1, 0);
    an_owner_meets_a_thief(Flaw::None, 2, 0);
    an_owner_meets_a_thief(Flaw::None, 2, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_push_without_a_release_is_caught() {
    an_owner_meets_a_thief(Flaw::PushesRelaxed, 0, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pop_of_release_and_acquire_is_caught() {
    an_owner_meets_a_thief(Flaw::PopsAcquired, 2, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pop_that_reads_the_other_end_first_is_caught() {
    an_owner_meets_a_thief(Flaw::ReadsTopFirst, 2, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pop_of_the_last_entry_without_a_race_is_caught() {
    an_owner_meets_a_thief(Flaw::TakesLast, 1, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thief_that_stores_the_end_is_caught() {
    an_owner_meets_a_thief(Flaw::StealsByStore, 1, 0);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_push_into_a_slot_that_is_read_is_caught() {
    an_owner_meets_a_thief(Flaw::FillsBlindly, 2, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_push_that_looks_at_the_slot_without_an_acquire_is_caught() {
    an_owner_meets_a_thief(Flaw::FillsRelaxed, 2, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_that_is_cleared_without_a_release_is_caught() {
    an_owner_meets_a_thief(Flaw::ClearsRelaxed, 2, 2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_that_is_cleared_before_the_copy_is_caught() {
    an_owner_meets_a_thief(Flaw::ClearsFirst, 2, 2);
}
