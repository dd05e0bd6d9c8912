//! The ring between a signal handler and the code that it interrupts. The model has the two as
//! threads, which is more than a handler can do.

use super::explore;

use loom::thread;
use raddle_sched::arrivals::Arrivals;
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::sync::Arc;

/// Pushes what fits and pops what is there: in order, and nothing twice.
fn a_writer_meets_a_reader(push: fn(&World, u32) -> bool, pop: fn(&World) -> Option<u32>) {
    explore(4, move || {
        let world = Arc::new(World {
            intact: Arrivals::new(0),
            twin: Twin::new(),
        });
        let there = world.clone();
        let writer = thread::spawn(move || {
            let items = (1..=3).filter(|&item| push(&there, item));
            items.collect::<Vec<_>>()
        });
        let there = world.clone();
        let reader = thread::spawn(move || (0..2).filter_map(|_| pop(&there)).collect::<Vec<_>>());
        let pushed = writer.join().unwrap();
        let mut popped = reader.join().unwrap();
        popped.extend(std::iter::from_fn(|| pop(&world)));
        assert_eq!(popped, pushed);
    });
}

struct World {
    intact: Arrivals<u32, 2>,
    twin: Twin,
}

/// A ring of one entry with the steps in the wrong order.
struct Twin {
    written: AtomicU32,
    read: AtomicU32,
    entry: UnsafeCell<u32>,
}

// SAFETY: none, which the checker must find.
unsafe impl Sync for Twin {}
// SAFETY: as above.
unsafe impl Send for Twin {}

impl Twin {
    fn new() -> Self {
        Self {
            written: AtomicU32::new(0),
            read: AtomicU32::new(0),
            entry: UnsafeCell::new(0),
        }
    }

    fn push(&self, item: u32, moves_first: bool) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        if written != self.read.load(Ordering::Acquire) {
            return false;
        }
        if moves_first {
            self.written.store(written + 1, Ordering::Release);
        }
        // SAFETY: broken on purpose; the checker refuses the access before it is made.
        self.entry.with_mut(|entry| unsafe { *entry = item });
        self.written.store(written + 1, Ordering::Release);
        true
    }

    fn pop(&self, moves_first: bool) -> Option<u32> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.written.load(Ordering::Acquire) {
            return None;
        }
        if moves_first {
            self.read.store(read + 1, Ordering::Release);
        }
        // SAFETY: as above.
        let item = self.entry.with_mut(|entry| unsafe { *entry });
        self.read.store(read + 1, Ordering::Release);
        Some(item)
    }
}

#[test]
fn what_arrives_is_taken_once_and_in_order() {
    a_writer_meets_a_reader(|it, item| it.intact.push(&item), |it| it.intact.pop());
}

#[test]
fn the_twin_in_the_right_order_passes() {
    a_writer_meets_a_reader(
        |it, item| it.twin.push(item, false),
        |it| it.twin.pop(false),
    );
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_writer_that_moves_before_it_fills_is_caught() {
    a_writer_meets_a_reader(|it, item| it.twin.push(item, true), |it| it.twin.pop(false));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_that_moves_before_it_copies_is_caught() {
    a_writer_meets_a_reader(|it, item| it.twin.push(item, false), |it| it.twin.pop(true));
}
