//! An order that several kernel threads execute, each in its handler of a signal that has other
//! senders, too.
//!
//! 1. The giver writes what the order is, marks the places of those that it is meant for as *due*,
//!    sends each the signal, and waits until nobody is missing.
//! 2. A handler takes the mark off its own place. If there was one, it executes the order, and then
//!    counts itself as done.
//!
//! **An order is executed once by each, and only while its giver waits**, however late a handler
//! looks: whoever takes a mark off is the only one to do so, and is missing until it has executed
//! what it reads. A handler that looked whether an order stands, and goes on after the next one was
//! given, takes that one's mark or none.

use crate::sync::{AtomicU32, Ordering};

/// See the module. There is one giver at a time.
pub struct Orders<const PLACES: usize> {
    /// 1 for who has an order to execute.
    due: [AtomicU32; PLACES],
    /// 1 while an order stands: handlers read it first. Whoever is sent the signal sees it.
    stands: AtomicU32,
    /// How many have not executed it yet.
    missing: AtomicU32,
}

impl<const PLACES: usize> Orders<PLACES> {
    /// No order.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            due: [const { AtomicU32::new(0) }; PLACES],
            stands: AtomicU32::new(0),
            missing: AtomicU32::new(0),
        }
    }

    /// No order.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            due: core::array::from_fn(|_| AtomicU32::new(0)),
            stands: AtomicU32::new(0),
            missing: AtomicU32::new(0),
        }
    }

    /// Gives an order to the places, which all execute it from here on. What the order is was
    /// written before.
    pub fn give(&self, places: impl Iterator<Item = usize> + Clone) {
        let count = places.clone().count() as u32;
        self.missing.store(count, Ordering::Relaxed);
        self.stands.store(1, Ordering::Relaxed);
        for place in places {
            self.due[place].store(1, Ordering::Release);
        }
    }

    /// How many have not executed the order yet: 0 if all have. What they wrote is seen then.
    pub fn missing(&self) -> u32 {
        self.missing.load(Ordering::Acquire)
    }

    /// The address of that number, to sleep on while it is not 0.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn address(&self) -> *mut u32 {
        self.missing.as_ptr()
    }

    /// After that: handlers have nothing to look for.
    pub fn end(&self) {
        self.stands.store(0, Ordering::Relaxed);
    }

    /// True while an order stands, for whomever.
    #[inline]
    pub fn stands(&self) -> bool {
        self.stands.load(Ordering::Relaxed) != 0
    }

    /// True if the caller, at its place, has an order to execute now; [`Orders::done`] follows.
    pub fn take(&self, place: usize) -> bool {
        self.due[place].swap(0, Ordering::Acquire) != 0
    }

    /// The caller has executed its order. True if it was the last: the giver is to be woken.
    pub fn done(&self) -> bool {
        self.missing.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// No order: in the child of a fork, on its only thread.
    pub fn reset(&self) {
        self.end();
        for due in &self.due {
            due.store(0, Ordering::Relaxed);
        }
    }
}

impl<const PLACES: usize> Default for Orders<PLACES> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn each_that_it_is_meant_for_takes_it_once() {
        let orders = Orders::<4>::new();
        assert!(!orders.stands() && !orders.take(1));
        orders.give([1, 3].into_iter());
        assert!(orders.stands());
        assert_eq!(
            [0, 1, 2, 3].map(|place| orders.take(place)),
            [false, true, false, true]
        );
        assert!(!orders.take(1));
        assert!(!orders.done());
        assert_eq!(orders.missing(), 1);
        assert!(orders.done());
        assert_eq!(orders.missing(), 0);
        orders.end();
        assert!(!orders.stands());
    }

    #[test]
    fn a_child_has_none_of_its_parents() {
        let orders = Orders::<2>::new();
        orders.give([0, 1].into_iter());
        orders.reset();
        assert!(!orders.stands() && !orders.take(0) && !orders.take(1));
    }
}
