//! The announcement of one sleeper: see [`crate::wake`].

use super::Announce;
use crate::sync::{AtomicU32, Ordering};

/// Whether the one sleeper sleeps, or is about to. Posters take the announcement, so that one of
/// them makes the call that wakes the sleeper.
#[repr(transparent)]
pub struct Announcement(AtomicU32);

impl Announcement {
    /// No sleeper.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// No sleeper.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Announces the caller's sleep, before its last look.
    #[inline(always)]
    pub fn make(&self) {
        self.0.store(1, Ordering::SeqCst);
    }

    /// Takes the announcement back. Called by the sleeper, which is awake.
    #[inline(always)]
    pub fn withdraw(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// Returns true if the sleeper slept a moment ago, or was about to.
    #[inline(always)]
    pub fn is_made(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Takes the announcement. Returns true if there was one: the caller wakes the sleeper. Called
    /// by a poster, after its publication.
    #[inline(always)]
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) != 0
    }
}

impl Default for Announcement {
    fn default() -> Self {
        Self::new()
    }
}

impl Announce for &Announcement {
    #[inline(always)]
    fn announce(&mut self) -> bool {
        self.make();
        true
    }

    #[inline(always)]
    fn withdraw(&mut self) {
        Announcement::withdraw(self);
    }
}
