//! A ring of large slots of a fixed size: one writer, which never waits, and readers that copy a
//! slot meanwhile, from another process too.
//!
//! Sample `n` is in slot `n % capacity`, over sample `n - capacity`. The writer fills the slot, and
//! then stores `n + 1` as the number of samples written. A reader of sample `at` loads that number
//! (`at` must be less), copies the slot, and loads the number again: if it is `after` now, sample
//! `after` is perhaps being written, over sample `after - capacity`. So the copy is good if
//! `at + capacity > after`.
//!
//! The check needs that a reader that has copied a part of sample `n` then loads at least `n`: a
//! release fence stands between the store of `n` and what is written of sample `n`, and an acquire
//! fence between the copy and the second load.
//!
//! The rings of [events](crate::event_ring) do the same for slots of three words, and may grow.

use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use core::ptr::null_mut;

/// See the module. All zero is a ring without memory, which drops samples.
#[repr(C)]
pub struct SampleRing<S> {
    slots: AtomicPtr<S>,
    /// The capacity, less one. Written before `slots`.
    mask: AtomicU64,
    /// The number of samples written. Stored by the writer, read by readers.
    written: AtomicU64,
}

impl<S> Default for SampleRing<S> {
    fn default() -> Self {
        Self {
            slots: AtomicPtr::new(null_mut()),
            mask: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }
}

impl<S> SampleRing<S> {
    /// Gives the ring `capacity` slots, a power of two.
    ///
    /// # Safety
    /// The slots live as long as the ring is used, and are given once, or again after
    /// [`SampleRing::forget`].
    pub unsafe fn open(&self, slots: *mut S, capacity: u64) {
        debug_assert!(capacity.is_power_of_two());
        self.mask.store(capacity - 1, Ordering::Relaxed);
        self.slots.store(slots, Ordering::Release);
    }

    /// Returns true if the ring has memory.
    pub fn is_open(&self) -> bool {
        !self.slots.load(Ordering::Relaxed).is_null()
    }

    /// Forgets its memory and its samples. Nothing else uses the ring meanwhile.
    pub fn forget(&self) {
        self.slots.store(null_mut(), Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    /// Calls `fill` with the number of the next sample and its slot, which may hold an old one, and
    /// counts it as written. Returns false without memory. One thread at a time calls it.
    pub fn write(&self, fill: impl FnOnce(u64, *mut S)) -> bool {
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return false;
        }
        let at = self.written.load(Ordering::Relaxed);
        fence(Ordering::Release);
        fill(at, self.slot(slots, at));
        self.written.store(at + 1, Ordering::Release);
        true
    }

    /// Returns what `copy` makes of the slot of sample `at`, counted from the first one ever
    /// written; `None` if the sample isn't written yet or is overwritten. The slot may be written
    /// to while `copy` looks at it.
    pub fn copy<T>(&self, at: u64, copy: impl FnOnce(*mut S) -> T) -> Option<T> {
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() || at >= self.written.load(Ordering::Acquire) {
            return None;
        }
        let copied = copy(self.slot(slots, at));
        fence(Ordering::Acquire);
        let after = self.written.load(Ordering::Relaxed);
        (at + self.mask.load(Ordering::Relaxed) >= after).then_some(copied)
    }

    fn slot(&self, slots: *mut S, at: u64) -> *mut S {
        let index = at & self.mask.load(Ordering::Relaxed);
        // SAFETY: `slots` has `mask + 1` slots, which live by the promise of `open`.
        unsafe { slots.add(index as usize) }
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_samples_but_one_can_be_copied() {
        let ring: SampleRing<u64> = SampleRing::default();
        // SAFETY: a slot of the ring's, used by this thread alone.
        let write = || ring.write(|at, slot| unsafe { *slot = at });
        assert!(!write() && !ring.is_open(), "no memory");
        let slots = Box::leak(vec![99; 4].into_boxed_slice());
        // SAFETY: leaked, so alive for ever.
        unsafe { ring.open(slots.as_mut_ptr(), 4) };
        // SAFETY: as above.
        let copy = |at| ring.copy(at, |slot| unsafe { *slot });
        assert_eq!(copy(0), None, "not written");
        (0..10).for_each(|_| assert!(write()));
        // Sample 10 may be in the writing, over sample 6.
        let copied: Vec<_> = (0..12).map(copy).collect();
        let expected = (0..12).map(|at| (7..10).contains(&at).then_some(at));
        assert_eq!(copied, expected.collect::<Vec<_>>());
        ring.forget();
        assert_eq!(copy(0), None);
    }
}
