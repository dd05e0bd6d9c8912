//! An order that several kernel threads execute, each in its handler of a signal that has other
//! senders, too.
//!
//! 1. The giver writes what the order is, marks the *place* of each target as *due*, sends each
//!    target the signal, and waits until none is missing.
//! 2. A handler clears the mark of its own place. If there was one, the handler executes the order,
//!    and then counts itself as done.
//!
//! **Each target executes an order once, and only while the giver waits**, however late its handler
//! looks: one swap clears the mark, and the target is missing until it has executed the order it
//! reads. If a handler sees that an order stands, and goes on only after the next order was given,
//! it clears the mark of that next order or finds none.

use crate::sync::{AtomicU32, Ordering};

/// See the module. There is one giver at a time.
pub struct Orders<const PLACES: usize> {
    /// 1 for a target that hasn't begun to execute the order.
    due: [AtomicU32; PLACES],
    /// 1 while an order stands. Handlers read it first; a target of the signal sees it.
    stands: AtomicU32,
    /// Targets that have not executed the order yet.
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

    /// Gives an order to the places, which all execute it from here on. The caller has written what
    /// the order is.
    pub fn give(&self, places: impl Iterator<Item = usize> + Clone) {
        let count = places.clone().count() as u32;
        self.missing.store(count, Ordering::Relaxed);
        self.stands.store(1, Ordering::Relaxed);
        for place in places {
            self.due[place].store(1, Ordering::Release);
        }
    }

    /// Returns how many targets have not executed the order yet. After 0 the caller sees what they
    /// wrote.
    pub fn missing(&self) -> u32 {
        self.missing.load(Ordering::Acquire)
    }

    /// Returns the address of the count of missing targets, to sleep on while it is not 0.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn address(&self) -> *mut u32 {
        self.missing.as_ptr()
    }

    /// Ends the order, once none is missing: handlers have nothing to look for.
    pub fn end(&self) {
        self.stands.store(0, Ordering::Relaxed);
    }

    /// Returns true while an order stands for any place.
    #[inline]
    pub fn stands(&self) -> bool {
        self.stands.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the caller, at `place`, has an order to execute now; [`Orders::done`]
    /// follows.
    pub fn take(&self, place: usize) -> bool {
        self.due[place].swap(0, Ordering::Acquire) != 0
    }

    /// The caller has executed its order. Returns true if it was the last: the caller wakes the
    /// giver.
    pub fn done(&self) -> bool {
        self.missing.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Clears all orders: in the child of a fork, on its only thread.
    pub fn reset(&self) {
        let Self {
            due,
            stands: _,  // `end`
            missing: _, // written by the next giver
        } = self;
        self.end();
        for due in due {
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
