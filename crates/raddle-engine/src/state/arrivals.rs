//! Signals that a carrier has received and not routed yet.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sys::abi::SigInfo;

/// Signals between the handler that received them and the code that routes them: a ring with one
/// writer (the handler, which nothing interrupts) and one reader (the carrier, in the runtime).
#[repr(C)]
pub struct Arrivals {
    written: AtomicU32,
    read: AtomicU32,
    ring: [UnsafeCell<SigInfo>; ARRIVALS],
}

/// Entries of the ring. The handler that fills it closes the carrier: see
/// [`Carrier::closed`](crate::state::carrier::Carrier::closed).
const ARRIVALS: usize = 32;

impl Arrivals {
    /// Appends; in the signal handler of this carrier only. Returns false if the ring is full.
    pub fn push(&self, info: &SigInfo) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize == ARRIVALS {
            return false;
        }
        // SAFETY: the reader stays behind `written`.
        unsafe { *self.ring[written as usize % ARRIVALS].get() = *info };
        self.written
            .store(written.wrapping_add(1), Ordering::Release);
        true
    }

    /// Returns true if there is no room for another; on this carrier.
    pub fn is_full(&self) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize == ARRIVALS
    }

    /// Returns true if there is nothing to look at; on this carrier.
    pub fn is_empty(&self) -> bool {
        self.read.load(Ordering::Relaxed) == self.written.load(Ordering::Relaxed)
    }

    /// Takes the oldest; on this carrier, outside the handler.
    pub fn pop(&self) -> Option<SigInfo> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.written.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the writer doesn't touch entries from `read` on until it moves.
        let info = unsafe { *self.ring[read as usize % ARRIVALS].get() };
        self.read.store(read.wrapping_add(1), Ordering::Release);
        Some(info)
    }
}
