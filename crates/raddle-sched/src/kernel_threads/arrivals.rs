//! What a signal handler leaves to the code that it interrupts: a ring with one writer and one
//! reader, without a lock, because the handler may interrupt the reader anywhere.
//!
//! The writer fills the entry at `written`, and then moves `written` over it (release). The reader
//! copies the entry at `read`, and then moves `read` over it (release). Each looks at the other's
//! index (acquire) before it touches an entry: the writer stays less than the ring's length before
//! the reader, the reader behind the writer.

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// See the module. `ENTRIES` is a power of two. Zero bytes are an empty ring, if they are a `T`.
#[repr(C)]
pub struct Arrivals<T, const ENTRIES: usize> {
    /// Written by the writer.
    written: AtomicU32,
    /// Written by the reader.
    read: AtomicU32,
    ring: [UnsafeCell<T>; ENTRIES],
}

// SAFETY: an entry is the writer's until `written` is over it, and then the reader's until `read`
// is; there is one of each.
unsafe impl<T: Copy + Send, const ENTRIES: usize> Sync for Arrivals<T, ENTRIES> {}

impl<T: Copy, const ENTRIES: usize> Arrivals<T, ENTRIES> {
    const FITS: () = assert!(ENTRIES.is_power_of_two());

    /// An empty ring of entries like `blank`.
    pub fn new(blank: T) -> Self {
        let () = Self::FITS;
        Self {
            written: AtomicU32::new(0),
            read: AtomicU32::new(0),
            ring: core::array::from_fn(|_| UnsafeCell::new(blank)),
        }
    }

    /// Appends. Returns false if the ring is full. Called by the writer, which nothing interrupts.
    pub fn push(&self, item: &T) -> bool {
        let () = Self::FITS; // memory that wasn't made by `new`, too
        let written = self.written.load(Ordering::Relaxed);
        if written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize == ENTRIES {
            return false;
        }
        // SAFETY: the reader stays behind `written`.
        self.ring[written as usize % ENTRIES].with_mut(|entry| unsafe { *entry = *item });
        self.written
            .store(written.wrapping_add(1), Ordering::Release);
        true
    }

    /// Returns true if there is no room for another. Called by the writer or the reader.
    pub fn is_full(&self) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        written.wrapping_sub(self.read.load(Ordering::Acquire)) as usize == ENTRIES
    }

    /// Returns true if there was nothing to look at a moment ago.
    pub fn is_empty(&self) -> bool {
        self.read.load(Ordering::Relaxed) == self.written.load(Ordering::Relaxed)
    }

    /// Takes the oldest. Called by the reader.
    pub fn pop(&self) -> Option<T> {
        let read = self.read.load(Ordering::Relaxed);
        if read == self.written.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the writer doesn't touch entries from `read` on until it moves.
        let item = self.ring[read as usize % ENTRIES].with_mut(|entry| unsafe { *entry });
        self.read.store(read.wrapping_add(1), Ordering::Release);
        Some(item)
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_round_and_round_and_a_full_ring_refuses() {
        let ring = Arrivals::<u32, 4>::new(0);
        for round in 0..5 {
            let items: Vec<_> = (round..round + 4).collect();
            assert!(ring.is_empty() && items.iter().all(|item| ring.push(item)));
            assert!(ring.is_full() && !ring.push(&99));
            let out: Vec<_> = core::iter::from_fn(|| ring.pop()).collect();
            assert_eq!(out, items);
        }
    }
}
