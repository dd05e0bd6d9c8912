//! A version number that one thread changes and others read: a sequence lock with one writer.
//!
//! The writer makes the version odd, changes several atomics, and makes it even again. A reader
//! that sees the same even version before and after has seen no half of a change. The data are
//! atomics, read and written relaxed; the fences order them (Boehm, *Can seqlocks get along with
//! programming language memory models?*, 2012).

use crate::sync::spin::{SPINS, relax};
use crate::sync::{AtomicU32, Ordering, fence, spin_loop};

/// See the module. All zero is a version without a change.
pub struct Version(AtomicU32);

impl Default for Version {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Version {
    /// Calls `change`; readers see all of its stores or none. One thread at a time may call it.
    #[inline]
    pub fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let result = change();
        self.0.store(before.wrapping_add(2), Ordering::Release);
        result
    }

    /// Returns what `read` returns while nothing changes; `read` may be called several times.
    ///
    /// # Blocking
    /// While the writer is inside [`Version::change`]. Must not be called from there, nor by a
    /// signal handler that interrupts it.
    pub fn read<R>(&self, read: impl Fn() -> R) -> R {
        let mut looks = 0;
        loop {
            let before = self.0.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let result = read();
                fence(Ordering::Acquire);
                if self.0.load(Ordering::Relaxed) == before {
                    return result;
                }
            }
            looks += 1;
            match looks % SPINS {
                0 => relax(looks / SPINS - 1),
                _ => spin_loop(),
            }
        }
    }
}
