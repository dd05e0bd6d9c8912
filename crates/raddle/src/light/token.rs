//! The permission to go on that `unpark` gives and `park` takes.
//!
//! 1. The parker prepares its task, announces itself (EMPTY to PARKED), and parks.
//! 2. Whoever gives the permission swaps GIVEN in. One who finds PARKED claims the task, and pushes
//!    it if that succeeds; a timer may have been first.
//! 3. The parker, awake, takes the permission, if there is one.
//!
//! A giver that is slow between swap and claim may find the thread in a later wait, and ends that
//! one: so every wait of a light thread looks again whether what it waits for has come.

use raddle_sched::sync::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const GIVEN: u32 = 1;
const PARKED: u32 = 2;

/// See the module.
pub struct Token(AtomicU32);

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl Token {
    /// Without permission.
    #[cfg(not(raddle_loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Without permission.
    #[cfg(raddle_loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// For another thread.
    pub fn reset(&self) {
        self.0.store(EMPTY, Ordering::Relaxed);
    }

    /// Takes the permission, if there is one, and withdraws an announcement; by the parker.
    pub fn take(&self) -> bool {
        self.0.swap(EMPTY, Ordering::SeqCst) == GIVEN
    }

    /// Says that the parker is going to park, after it has prepared its task. False if there is a
    /// permission.
    #[must_use]
    pub fn announce(&self) -> bool {
        self.0
            .compare_exchange(EMPTY, PARKED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Gives the permission. True if the parker has announced itself: the caller claims its task.
    #[must_use]
    pub fn give(&self) -> bool {
        self.0.swap(GIVEN, Ordering::SeqCst) == PARKED
    }
}
