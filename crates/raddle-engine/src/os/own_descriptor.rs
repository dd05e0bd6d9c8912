//! A descriptor of the runtime's own, in a static.

use core::sync::atomic::{AtomicI32, Ordering};
use raddle_sys::{nr, sys};

/// None at first. Kept as the number + 1: an engine before its start is all zero bytes, and takes
/// no room in the library's file.
pub(crate) struct OwnDescriptor(AtomicI32);

impl OwnDescriptor {
    pub(crate) const fn none() -> Self {
        Self(AtomicI32::new(0))
    }

    /// The number, or -1.
    #[inline(always)]
    pub(crate) fn get(&self) -> i32 {
        self.0.load(Ordering::Relaxed) - 1
    }

    /// Takes a number; negative for none.
    pub(crate) fn set(&self, fd: i32) {
        self.0.store(fd.max(-1) + 1, Ordering::Relaxed);
    }

    /// Closes it, if there is one.
    pub(crate) fn close(&self) {
        let fd = self.get();
        self.set(-1);
        if fd >= 0 {
            // SAFETY: the runtime's own, which no code finds any more.
            unsafe { sys!(nr::__NR_close, fd) };
        }
    }
}
