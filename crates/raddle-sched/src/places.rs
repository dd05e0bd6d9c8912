//! How many carriers of a side engine may be awake: as many *places* as were asked for, and one
//! more for each carrier that is blocked in the kernel.
//!
//! A carrier takes a place before it looks for work and leaves it before it sleeps.
//!
//! To sleep: leave the place, enter the idle set, look once more whether there is work *and* a free
//! place, sleep. To post: push, then, if a place is free, take a sleeper out of the set and wake
//! it. All SeqCst. No carrier sleeps while there is work and a free place: a poster that finds no
//! free place has read before some carrier left one, and that carrier looks for work afterwards. If
//! a carrier blocks, which frees a place, the caller of [`Places::block`] wakes a sleeper.

use crate::sync::{AtomicU32, Ordering};

/// See the module.
pub struct Places {
    /// Places asked for. Written when the engine is made.
    wanted: AtomicU32,
    /// Carriers that are blocked in the kernel. Raised by sysmon, lowered by the carrier.
    blocked: AtomicU32,
    /// Carriers that have a place. Raised and lowered by these carriers.
    taken: AtomicU32,
}

impl Places {
    /// No places.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            wanted: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// No places.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            wanted: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            taken: AtomicU32::new(0),
        }
    }

    /// Sets the number of places.
    pub fn set_wanted(&self, wanted: u32) {
        self.wanted.store(wanted, Ordering::SeqCst);
    }

    /// Returns the number of places, without the extra ones for blocked carriers.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::SeqCst)
    }

    fn limit(&self) -> u32 {
        self.wanted() + self.blocked.load(Ordering::SeqCst)
    }

    /// Takes a place, if one is free.
    #[must_use]
    pub fn take(&self) -> bool {
        let mut taken = self.taken.load(Ordering::SeqCst);
        while taken < self.limit() {
            let (seq, more) = (Ordering::SeqCst, taken + 1);
            match self.taken.compare_exchange(taken, more, seq, seq) {
                Ok(_) => return true,
                Err(now) => taken = now,
            }
        }
        false
    }

    /// Leaves a place that was taken.
    pub fn leave(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if a carrier could take a place.
    pub fn has_free(&self) -> bool {
        self.taken.load(Ordering::SeqCst) < self.limit()
    }

    /// Returns true if a carrier that has a place should leave it, because a blocked one has come
    /// back.
    pub fn has_surplus(&self) -> bool {
        self.taken.load(Ordering::SeqCst) > self.limit()
    }

    /// A carrier that has a place is blocked.
    pub fn block(&self) {
        self.blocked.fetch_add(1, Ordering::SeqCst);
    }

    /// A blocked carrier runs again.
    pub fn unblock(&self) {
        self.blocked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Frees all places: in the child of a fork.
    pub fn reset(&self) {
        let Self {
            blocked,
            taken,
            wanted: _,
        } = self;
        blocked.store(0, Ordering::SeqCst);
        taken.store(0, Ordering::SeqCst);
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_carriers_place_is_anothers_until_it_comes_back() {
        let places = Places::new();
        assert!(!places.take(), "none was asked for");
        places.set_wanted(1);
        assert!(places.take() && !places.take());
        places.block();
        assert!(places.has_free() && places.take() && !places.has_free());
        assert!(!places.has_surplus());
        places.unblock();
        assert!(places.has_surplus());
        places.leave();
        assert!(!places.has_surplus() && !places.has_free());
    }
}
