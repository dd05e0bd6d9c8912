//! The numbers of carriers, while spare ones end, begin again and are wanted, and others block.

use super::explore;

use loom::thread;
use raddle_sched::count::CarrierCount;
use raddle_sched::sync::{AtomicU32, Ordering, fence};
use raddle_sched::{IdleSet, SpinLock};
use std::sync::Arc;

/// Listed carriers: one runs, two are spare.
const LISTED: u32 = 3;
/// Spare carriers that stay.
const KEPT: usize = 1;

struct Carriers {
    lock: SpinLock<()>,
    spares: IdleSet,
    count: CarrierCount,
}

impl Carriers {
    fn new() -> Arc<Self> {
        let spares = IdleSet::new();
        spares.insert(0);
        spares.insert(1);
        let count = CarrierCount::new();
        count.reset(LISTED);
        Arc::new(Self {
            lock: SpinLock::new(()),
            spares,
            count,
        })
    }

    fn active(&self) -> u32 {
        self.count.active(&self.spares)
    }

    /// Returns true if the carrier ends.
    fn end(&self, id: usize) -> bool {
        let _lock = self.lock.lock();
        self.count.end(&self.spares, id, KEPT)
    }

    /// An ended carrier begins again.
    fn begin_again(&self, id: usize) {
        self.spares.insert(id);
        self.count.begin_again();
    }
}

/// Both spare carriers want to end while a thread wants one: each is taken once, and one stays.
#[test]
fn a_spare_one_ends_or_is_wanted() {
    explore(3, || {
        let carriers = Carriers::new();
        let threads = [0, 1].map(|id| {
            let carriers = Arc::clone(&carriers);
            thread::spawn(move || carriers.end(id))
        });
        let wanted = carriers.spares.take_one();
        let ended = threads.map(|thread| thread.join().unwrap());
        let gone = ended.iter().filter(|&&ended| ended).count();
        assert!(gone <= 1, "none stays");
        if let Some(id) = wanted {
            assert!(!ended[id], "a wanted carrier ends");
        }
        let awake = u32::from(wanted.is_some());
        assert_eq!(
            carriers.spares.len(),
            2 - gone - usize::from(wanted.is_some())
        );
        assert_eq!(carriers.active(), 1 + awake);
    });
}

/// One thread changes the numbers while another reads how many are active: never more than one.
fn meet(change: fn(&Carriers), prepare: fn(&Carriers), read: fn(&Carriers) -> u32) {
    explore(3, move || {
        let carriers = Carriers::new();
        prepare(&carriers);
        let changes = {
            let carriers = Arc::clone(&carriers);
            thread::spawn(move || change(&carriers))
        };
        let reads = {
            let carriers = Arc::clone(&carriers);
            thread::spawn(move || read(&carriers))
        };
        assert!(reads.join().unwrap() <= 1, "it counted as active");
        changes.join().unwrap();
        assert_eq!(carriers.active(), 1);
    });
}

fn nothing(_carriers: &Carriers) {}

fn end_one(carriers: &Carriers) {
    assert!(carriers.end(1));
}

fn begin_one(carriers: &Carriers) {
    carriers.begin_again(1);
}

fn list_one(carriers: &Carriers) {
    carriers.spares.insert(2);
    carriers.count.list();
}

#[test]
fn one_that_ends_never_counts_as_active() {
    meet(end_one, nothing, Carriers::active);
}

#[test]
fn one_that_begins_again_never_counts_as_active() {
    meet(begin_one, end_one, Carriers::active);
}

#[test]
fn a_new_spare_one_never_counts_as_active() {
    meet(list_one, nothing, Carriers::active);
}

#[test]
#[should_panic(expected = "it counted as active")]
fn one_that_leaves_the_set_first_is_caught() {
    let leaves_first = |carriers: &Carriers| {
        // The steps of an end, in the wrong order: what was taken counts as ended afterwards.
        assert!(carriers.spares.take(1));
        carriers.spares.insert(1);
        assert!(carriers.end(1));
    };
    meet(leaves_first, nothing, Carriers::active);
}

#[test]
#[should_panic(expected = "it counted as active")]
fn one_that_begins_before_it_enters_the_set_is_caught() {
    let begins_first = |carriers: &Carriers| {
        carriers.count.begin_again();
        carriers.spares.insert(1);
    };
    meet(begins_first, end_one, Carriers::active);
}

#[test]
#[should_panic(expected = "it counted as active")]
fn one_that_is_listed_before_it_enters_the_set_is_caught() {
    let lists_first = |carriers: &Carriers| {
        carriers.count.list();
        carriers.spares.insert(2);
    };
    meet(lists_first, nothing, Carriers::active);
}

/// A carrier that is marked as blocked, comes back and rests, with the words that sysmon and the
/// carrier itself read.
struct Blocking {
    count: CarrierCount,
    mark: AtomicU32,
    /// 0 while it runs.
    state: AtomicU32,
}

impl Blocking {
    /// Sysmon's part.
    fn mark(&self, marks_first: bool) {
        let is_new = if marks_first {
            let is_new = self.mark.swap(1, Ordering::SeqCst) == 0;
            if is_new {
                // The number is raised as by another carrier's mark.
                assert!(self.count.block(&AtomicU32::new(0)));
            }
            is_new
        } else {
            self.count.block(&self.mark)
        };
        if is_new {
            fence(Ordering::SeqCst);
            if self.state.load(Ordering::Relaxed) != 0 {
                self.count.unblock(&self.mark);
            }
        }
    }

    /// The carrier's: it becomes idle, and looks whether it was marked.
    fn rest(&self, looks_first: bool) {
        if looks_first {
            self.count.unblock(&self.mark);
        }
        self.state.store(1, Ordering::Relaxed);
        if !looks_first {
            self.count.unblock(&self.mark);
        }
    }
}

fn a_mark_meets_a_rest(marks_first: bool, looks_first: bool) {
    explore(3, move || {
        let shared = Arc::new(Blocking {
            count: CarrierCount::new(),
            mark: AtomicU32::new(0),
            state: AtomicU32::new(0),
        });
        let there = Arc::clone(&shared);
        let sysmon = thread::spawn(move || there.mark(marks_first));
        let there = Arc::clone(&shared);
        let reader = thread::spawn(move || there.count.blocked());
        shared.rest(looks_first);
        sysmon.join().unwrap();
        assert!(reader.join().unwrap() <= 1, "fewer than none are blocked");
        assert_eq!(shared.count.blocked(), 0, "a carrier that rests is blocked");
    });
}

#[test]
fn a_carrier_that_rests_never_stays_blocked_and_never_counts_below_zero() {
    a_mark_meets_a_rest(false, false);
}

#[test]
#[should_panic(expected = "fewer than none are blocked")]
fn a_mark_before_the_count_is_caught() {
    a_mark_meets_a_rest(true, false);
}

#[test]
#[should_panic(expected = "a carrier that rests is blocked")]
fn a_carrier_that_looks_for_its_mark_before_it_rests_is_caught() {
    a_mark_meets_a_rest(false, true);
}
