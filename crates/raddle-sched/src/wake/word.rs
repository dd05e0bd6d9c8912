//! The words that sleepers wait on: see [`crate::wake`].

use super::Word;
use crate::sync::{AtomicU32, Ordering};

/// The word of one sleeper: 0 while the sleeper waits or is about to, 1 once it was woken.
#[repr(transparent)]
pub struct WakeWord(AtomicU32);

const CLEAR: u32 = 0;
const SET: u32 = 1;

impl WakeWord {
    /// A clear word.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(CLEAR))
    }

    /// A clear word.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(CLEAR))
    }

    /// Forgets earlier wake-ups. Called by the sleeper, which looks for work afterwards: acquire,
    /// the partner of [`WakeWord::set`], so that the look sees what those wake-ups were for.
    #[inline(always)]
    pub fn clear(&self) {
        self.0.swap(CLEAR, Ordering::AcqRel);
    }

    /// As [`WakeWord::clear`]. Returns true if there was a wake-up.
    #[inline(always)]
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.swap(CLEAR, Ordering::AcqRel) == SET
    }

    /// Wakes the sleeper. Returns true if the sleeper may wait: the caller calls the kernel.
    /// Release: the sleeper sees what was published before, at the latest when it clears the word.
    #[inline(always)]
    #[must_use]
    pub fn set(&self) -> bool {
        self.0.swap(SET, Ordering::AcqRel) == CLEAR
    }

    /// Prevents the next wait. Called by the sleeper.
    #[inline(always)]
    pub fn prevent_wait(&self) {
        self.0.store(SET, Ordering::Relaxed);
    }

    /// Returns the word that the kernel compares with the ticket.
    #[inline(always)]
    pub fn futex(&self) -> &AtomicU32 {
        &self.0
    }
}

impl Word for WakeWord {
    #[inline(always)]
    fn ticket(&self) -> u32 {
        self.clear();
        CLEAR
    }
}

impl Default for WakeWord {
    fn default() -> Self {
        Self::new()
    }
}

/// The word of several sleepers: a number that each wake-up changes. It takes a value again after
/// 2^32 wake-ups, which no sleeper is delayed for between its ticket and its wait.
#[repr(transparent)]
pub struct SharedWakeWord(AtomicU32);

impl SharedWakeWord {
    /// A word that no sleeper waits on.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A word that no sleeper waits on.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Changes the word. The caller then has the kernel wake as many sleepers as should look.
    /// Relaxed: the poster has found an announcement, by an access that acquires.
    #[inline(always)]
    pub fn change(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the word that the kernel compares with the ticket.
    #[inline(always)]
    pub fn futex(&self) -> &AtomicU32 {
        &self.0
    }
}

impl Word for SharedWakeWord {
    /// Relaxed: the announcement that follows releases, so every poster that finds it changes the
    /// word after this load.
    #[inline(always)]
    fn ticket(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for SharedWakeWord {
    fn default() -> Self {
        Self::new()
    }
}
