//! The sign of a list under a lock: see [`crate::wake`].

use crate::sync::{AtomicU32, Ordering};

/// Whether a list of sleepers under a lock has one to wake. A poster reads the sign without the
/// lock, after its publication, and takes the lock only if the sign is shown.
///
/// A sleeper that finds the sign shown already doesn't write it. The announcement is then that of
/// the thread that showed the sign: it held the lock before, so its write comes before the
/// sleeper's look in the order of SeqCst accesses.
#[repr(transparent)]
pub struct Sign(AtomicU32);

impl Sign {
    /// A sign, shown or not.
    pub fn new(is_shown: bool) -> Self {
        Self(AtomicU32::new(u32::from(is_shown)))
    }

    /// Shows or hides the sign. Called under the lock. An unchanged sign isn't written: posters
    /// read it often.
    #[inline(always)]
    pub fn show(&self, is_shown: bool) {
        let value = u32::from(is_shown);
        if self.0.load(Ordering::Relaxed) != value {
            self.0.store(value, Ordering::SeqCst);
        }
    }

    /// Returns true if the sign is shown. Called by a poster, after its publication.
    #[inline(always)]
    pub fn is_shown(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

impl Default for Sign {
    fn default() -> Self {
        Self::new(false)
    }
}
