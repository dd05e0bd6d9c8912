//! Orders: one giver, and two places, one of which is not always a target but looks nevertheless.

use super::explore;

use loom::thread;
use raddle_sched::orders::Orders;
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::sync::Arc;

/// A way to give and take orders.
trait Protocol: Send + Sync + 'static {
    fn new() -> Self;
    /// Gives an order to the first place, and to the second one if `both`.
    fn give(&self, both: bool);
    /// Returns true if the place had an order, which it has executed then.
    fn take(&self, place: usize) -> bool;
    fn done(&self);
    fn missing(&self) -> u32;
}

impl Protocol for Orders<2> {
    fn new() -> Self {
        Self::new()
    }
    fn give(&self, both: bool) {
        Self::give(self, 0..1 + usize::from(both));
    }
    fn take(&self, place: usize) -> bool {
        Self::take(self, place)
    }
    fn done(&self) {
        Self::done(self);
    }
    fn missing(&self) -> u32 {
        Self::missing(self)
    }
}

/// The broken twin: orders have numbers, and a place that is no target counts as having executed
/// it.
struct Numbered {
    executed: [AtomicU32; 2],
    standing: AtomicU32,
    missing: AtomicU32,
}

impl Protocol for Numbered {
    fn new() -> Self {
        Self {
            executed: core::array::from_fn(|_| AtomicU32::new(0)),
            standing: AtomicU32::new(0),
            missing: AtomicU32::new(0),
        }
    }
    fn give(&self, both: bool) {
        let number = self.standing.load(Ordering::Relaxed) + 1;
        if !both {
            self.executed[1].store(number, Ordering::Relaxed);
        }
        self.missing.store(1 + u32::from(both), Ordering::Relaxed);
        self.standing.store(number, Ordering::Release);
    }
    fn take(&self, place: usize) -> bool {
        let number = self.standing.load(Ordering::Acquire);
        number != 0 && self.executed[place].swap(number, Ordering::Relaxed) != number
    }
    fn done(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
    }
    fn missing(&self) -> u32 {
        self.missing.load(Ordering::Acquire)
    }
}

/// The order's content, and how often each place has executed an order.
struct Model<P> {
    protocol: P,
    order: UnsafeCell<u32>,
    executed: [AtomicU32; 2],
}

// SAFETY: the order is written only while no thread may read it, as the checker verifies.
unsafe impl<P: Sync> Sync for Model<P> {}
// SAFETY: plain data.
unsafe impl<P: Send> Send for Model<P> {}

impl<P: Protocol> Model<P> {
    fn give(&self, order: u32, both: bool) {
        // SAFETY: as above.
        self.order.with_mut(|at| unsafe { *at = order });
        self.protocol.give(both);
    }

    fn look(&self, place: usize) {
        if self.protocol.take(place) {
            // SAFETY: as above.
            let order = self.order.with(|at| unsafe { *at });
            assert_ne!(order, 0);
            self.executed[place].fetch_add(1, Ordering::Relaxed);
            self.protocol.done();
        }
    }
}

/// Gives two orders to the first place; the last one also to the second if `both`. The second place
/// looks at any time.
fn two_orders<P: Protocol>(both: bool) {
    explore(3, move || {
        let model = Arc::new(Model {
            protocol: P::new(),
            order: UnsafeCell::new(0),
            executed: core::array::from_fn(|_| AtomicU32::new(0)),
        });
        let look = |place: usize, looks: u32| {
            let model = model.clone();
            thread::spawn(move || (0..looks).for_each(|_| model.look(place)))
        };
        let threads = [look(0, 2), look(1, 2)];
        model.give(1, false);
        let is_second = model.protocol.missing() == 0; // the model doesn't wait
        if is_second {
            model.give(2, both);
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
        let meant = [1 + u32::from(is_second), u32::from(is_second && both)];
        let executed = [0, 1].map(|place| model.executed[place].load(Ordering::Relaxed));
        assert!(
            executed[0] <= meant[0] && executed[1] <= meant[1],
            "executed by whom it is not meant for"
        );
        let left = match is_second {
            true => meant[0] + meant[1] - executed[0] - executed[1],
            false => 1 - executed[0],
        };
        assert_eq!(model.protocol.missing(), left);
    });
}

#[test]
fn each_order_is_executed_once_by_those_that_it_is_meant_for() {
    two_orders::<Orders<2>>(false);
    two_orders::<Orders<2>>(true);
}

#[test]
#[should_panic]
fn a_number_that_was_read_early_executes_the_next_order() {
    two_orders::<Numbered>(false);
}
