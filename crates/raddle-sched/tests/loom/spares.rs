//! Spare carriers that end while other threads may want them.

use super::explore;

use loom::thread;
use raddle_sched::sync::{AtomicUsize, Ordering};
use raddle_sched::{IdleSet, SpinLock};
use std::sync::Arc;

/// Listed carriers: one runs, two are spare.
const UP: usize = 3;
/// Spare carriers that stay.
const KEPT: usize = 1;

struct Carriers {
    lock: SpinLock<()>,
    spares: IdleSet,
    ended: AtomicUsize,
}

/// A carrier's first step when it ends.
#[derive(Clone, Copy)]
enum First {
    CountsAsEnded,
    LeavesTheSet,
}

impl Carriers {
    fn new() -> Arc<Self> {
        let spares = IdleSet::new();
        spares.insert(0);
        spares.insert(1);
        Arc::new(Self {
            lock: SpinLock::new(()),
            spares,
            ended: AtomicUsize::new(0),
        })
    }

    fn active(&self) -> usize {
        let ended = self.ended.load(Ordering::SeqCst);
        let spares = self.spares.len();
        let ended = ended.max(self.ended.load(Ordering::SeqCst));
        UP.saturating_sub(spares + ended)
    }

    /// An ended carrier begins again.
    fn begin_again(&self, id: usize) {
        self.spares.insert(id);
        self.ended.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if the carrier ends.
    fn end(&self, id: usize, first: First) -> bool {
        let _lock = self.lock.lock();
        if self.spares.len() <= KEPT {
            return false;
        }
        if matches!(first, First::LeavesTheSet) {
            let took = self.spares.take(id);
            self.ended.fetch_add(usize::from(took), Ordering::SeqCst);
            return took;
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        let took = self.spares.take(id);
        if !took {
            self.ended.fetch_sub(1, Ordering::SeqCst);
        }
        took
    }
}

/// Both spare carriers want to end while a thread wants one: each is taken once, and one stays.
#[test]
fn a_spare_one_ends_or_is_wanted() {
    explore(3, || {
        let carriers = Carriers::new();
        let threads = [0, 1].map(|id| {
            let carriers = Arc::clone(&carriers);
            thread::spawn(move || carriers.end(id, First::CountsAsEnded))
        });
        let wanted = carriers.spares.take_one();
        let ended = threads.map(|thread| thread.join().unwrap());
        let gone = ended.iter().filter(|&&ended| ended).count();
        assert!(gone <= 1, "none stays");
        if let Some(id) = wanted {
            assert!(!ended[id], "who is wanted ends");
        }
        assert_eq!(
            carriers.spares.len(),
            2 - gone - usize::from(wanted.is_some())
        );
        assert_eq!(carriers.ended.load(Ordering::SeqCst), gone);
    });
}

fn model(first: First) {
    let carriers = Carriers::new();
    let ending = {
        let carriers = Arc::clone(&carriers);
        thread::spawn(move || carriers.end(1, first))
    };
    assert!(carriers.active() <= 1, "it counted as active");
    assert!(ending.join().unwrap());
    assert_eq!(carriers.active(), 1);
}

#[test]
fn one_that_ends_never_counts_as_active() {
    explore(3, || model(First::CountsAsEnded));
}

#[test]
fn one_that_begins_again_never_counts_as_active() {
    explore(3, || {
        let carriers = Carriers::new();
        assert!(carriers.end(1, First::CountsAsEnded));
        let begins = {
            let carriers = Arc::clone(&carriers);
            thread::spawn(move || carriers.begin_again(1))
        };
        assert!(carriers.active() <= 1, "it counted as active");
        begins.join().unwrap();
        assert_eq!(carriers.active(), 1);
    });
}

#[test]
#[should_panic(expected = "it counted as active")]
fn one_that_leaves_the_set_first_does() {
    explore(3, || model(First::LeavesTheSet));
}
