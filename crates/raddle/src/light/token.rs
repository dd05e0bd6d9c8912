//! The permission that `unpark` gives and `park` takes.
//!
//! 1. The parker prepares its task, announces itself (EMPTY to PARKED), and parks.
//! 2. A giver swaps GIVEN in. If it finds PARKED, it claims the task, and pushes the task if the
//!    claim succeeds; a timer may have been first.
//! 3. The awake parker takes the permission, if there is one.
//!
//! A giver that is slow between swap and claim may find the thread in a later wait, and ends that
//! wait: so after every wait a light thread checks its condition again.

use raddle_sched::sync::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const GIVEN: u32 = 1;
const PARKED: u32 = 2;

/// The permission's word: see the module.
pub struct Token(AtomicU32);

impl Default for Token {
    fn default() -> Self {
        Self::new()
    }
}

impl Token {
    /// Makes a token without permission.
    #[cfg(not(raddle_loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Makes a token without permission.
    #[cfg(raddle_loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(EMPTY))
    }

    /// Clears the token for the stack's next light thread.
    pub fn reset(&self) {
        self.0.store(EMPTY, Ordering::Relaxed);
    }

    /// Takes the permission, if there is one, and withdraws an announcement. Called by the parker.
    pub fn take(&self) -> bool {
        self.0.swap(EMPTY, Ordering::SeqCst) == GIVEN
    }

    /// Announces that the parker, with its task prepared, is going to park. Returns false if there
    /// is a permission.
    #[must_use]
    pub fn announce(&self) -> bool {
        self.0
            .compare_exchange(EMPTY, PARKED, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Gives the permission. Returns true if the parker has announced itself: the caller claims its
    /// task.
    #[must_use]
    pub fn give(&self) -> bool {
        self.0.swap(GIVEN, Ordering::SeqCst) == PARKED
    }
}
