//! Signals that are left to the first kernel thread: a kernel thread that leaves one and then waits
//! for it, and the first kernel thread, which queues another one meanwhile.
//!
//! The twins are the same protocol with one step weakened, built of the same words.

use crate::explore;
use loom::sync::Arc;
use loom::thread;
use raddle_sched::SpinLock;
use raddle_sched::left_signals::{LeftSignals, Records};
use raddle_sched::sync::{AtomicU32, AtomicU64, Ordering};

const SIGNAL: u32 = 10;
const BIT: u64 = 1 << (SIGNAL - 1);

/// Records of [`SIGNAL`].
#[derive(Default)]
struct List(Vec<u32>);

impl Records for List {
    type Record = u32;

    fn push(&mut self, record: &u32) -> bool {
        self.0.push(*record);
        true
    }

    fn take(&mut self, _: u32) -> Option<u32> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    unsafe fn forget(&mut self) {
        self.0.clear();
    }
}

/// What the model needs of the protocol.
trait Protocol: Send + Sync + 'static {
    fn leave(&self, record: u32);
    fn queue_all(&self, queue: impl FnMut(u32));
    fn awaits(&self) -> Option<u32>;
    fn may_sleep(&self, seen: u32) -> bool;
}

impl Protocol for LeftSignals<List> {
    fn leave(&self, record: u32) {
        assert!(LeftSignals::leave(self, SIGNAL, &record));
    }

    fn queue_all(&self, queue: impl FnMut(u32)) {
        LeftSignals::queue_all(self, queue);
    }

    fn awaits(&self) -> Option<u32> {
        LeftSignals::awaits(self, BIT)
    }

    fn may_sleep(&self, seen: u32) -> bool {
        LeftSignals::may_sleep(self, seen)
    }
}

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// The mark is cleared without the lock; then the records are looked at once more.
    ClearsApart,
    /// The number is raised before the mark is cleared.
    RaisesFirst,
    /// The waiter reads the number after the marks.
    ReadsMarksFirst,
    /// The number is not raised.
    DoesNotRaise,
}

struct Twin {
    flaw: Flaw,
    records: SpinLock<List>,
    marks: AtomicU64,
    rounds: AtomicU32,
}

impl Twin {
    fn new(flaw: Flaw) -> Self {
        Self {
            flaw,
            records: SpinLock::new(List::default()),
            marks: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
        }
    }

    fn take_or_clear(&self) -> Option<u32> {
        let mut records = self.records.lock();
        let record = records.take(SIGNAL);
        if self.flaw != Flaw::ClearsApart && record.is_none() {
            self.marks.fetch_and(!BIT, Ordering::SeqCst);
        }
        record
    }

    /// Clears the mark without the lock. Returns true if a record was left meanwhile.
    fn clear_apart(&self) -> bool {
        self.marks.fetch_and(!BIT, Ordering::SeqCst);
        !self.records.lock().0.is_empty()
    }
}

impl Protocol for Twin {
    fn leave(&self, record: u32) {
        let mut records = self.records.lock();
        records.push(&record);
        self.marks.fetch_or(BIT, Ordering::SeqCst);
    }

    fn queue_all(&self, mut queue: impl FnMut(u32)) {
        if self.flaw == Flaw::RaisesFirst {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        loop {
            while let Some(record) = self.take_or_clear() {
                queue(record);
            }
            let is_done = match self.flaw {
                Flaw::ClearsApart => !self.clear_apart(),
                _ => self.marks.load(Ordering::Relaxed) == 0,
            };
            if is_done {
                break;
            }
        }
        if !matches!(self.flaw, Flaw::RaisesFirst | Flaw::DoesNotRaise) {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn awaits(&self) -> Option<u32> {
        let rounds = || self.rounds.load(Ordering::SeqCst);
        let early = rounds();
        let is_marked = self.marks.load(Ordering::SeqCst) & BIT != 0;
        let late = self.flaw == Flaw::ReadsMarksFirst;
        is_marked.then(|| if late { rounds() } else { early })
    }

    fn may_sleep(&self, seen: u32) -> bool {
        self.rounds.load(Ordering::SeqCst) == seen
    }
}

struct World<P> {
    left: P,
    /// Records that the kernel has, as bits.
    queued: AtomicU32,
    /// True while the waiter sleeps. Its lock is the one of the futex.
    sleeps: SpinLock<bool>,
}

impl<P: Protocol> World<P> {
    /// The first kernel thread.
    fn queue_all(&self) {
        self.left.queue_all(|record| {
            self.queued.fetch_or(1 << record, Ordering::Relaxed);
        });
        *self.sleeps.lock() = false;
    }

    fn has_queued(&self, record: u32) -> bool {
        self.queued.load(Ordering::Relaxed) & 1 << record != 0
    }

    /// A kernel thread leaves a signal, and waits until it is queued.
    fn leave_and_wait(&self) {
        self.left.leave(1);
        match self.left.awaits() {
            None => assert!(self.has_queued(1), "told too early"),
            Some(seen) => {
                let mut sleeps = self.sleeps.lock();
                *sleeps = self.left.may_sleep(seen);
            }
        }
    }
}

fn a_signal_is_left_while_another_is_queued<P: Protocol>(
    make: impl Fn() -> P + Send + Sync + 'static,
) {
    explore(3, move || {
        let world = Arc::new(World {
            left: make(),
            queued: AtomicU32::new(0),
            sleeps: SpinLock::new(false),
        });
        world.left.leave(0);
        let first = world.clone();
        let first = thread::spawn(move || first.queue_all());
        world.leave_and_wait();
        first.join().unwrap();
        if world.left.awaits().is_some() {
            world.queue_all(); // the interruption of the first kernel thread comes
        }
        assert!(!*world.sleeps.lock(), "a waiter sleeps on");
        assert_eq!(world.queued.load(Ordering::Relaxed), 3, "a signal is lost");
        assert_eq!(world.left.awaits(), None);
    });
}

fn twin(flaw: Flaw) {
    a_signal_is_left_while_another_is_queued(move || Twin::new(flaw));
}

#[test]
fn a_signal_without_a_mark_is_queued_and_its_waiter_goes_on() {
    a_signal_is_left_while_another_is_queued(|| LeftSignals::new(List::default()));
}

#[test]
#[should_panic(expected = "told too early")]
fn a_mark_that_is_cleared_without_the_lock_is_caught() {
    twin(Flaw::ClearsApart);
}

#[test]
#[should_panic(expected = "a waiter sleeps on")]
fn a_number_that_is_raised_before_marks_are_cleared_is_caught() {
    twin(Flaw::RaisesFirst);
}

#[test]
#[should_panic(expected = "a waiter sleeps on")]
fn a_waiter_that_reads_the_number_after_the_marks_is_caught() {
    twin(Flaw::ReadsMarksFirst);
}

#[test]
#[should_panic(expected = "a waiter sleeps on")]
fn a_number_that_is_not_raised_is_caught() {
    twin(Flaw::DoesNotRaise);
}
