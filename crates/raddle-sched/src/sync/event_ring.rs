//! A ring of events of a fixed size: one writer, which never waits, and readers that copy the ring
//! meanwhile, from another process too.
//!
//! Event `n` is in slot `n % capacity`, over event `n - capacity`. The writer stores the event's
//! words and then `n + 1` as the number of events written. A reader of event `at` loads that number
//! (`at` must be less), copies the slot, and loads the number again: if it is `after` now, event
//! `after` is perhaps being written, over event `after - capacity`. So the copy is good if
//! `at + capacity > after`.
//!
//! The check needs that a reader that has copied a word of event `n` then loads at least `n`: a
//! release fence stands between the store of `n` and the words of event `n`, and an acquire fence
//! between the copy and the second load.
//!
//! Rejected: a sequence number in each slot (a third more memory); a reader that empties the ring
//! (the last events must remain for a tool that asks after the fact).

use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};
use core::ptr::null_mut;

/// Words of an event.
pub const EVENT_WORDS: usize = 3;

/// An event's place.
#[repr(C)]
pub struct Slot([AtomicU64; EVENT_WORDS]);

impl Slot {
    /// A slot without an event.
    pub fn empty() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// See the module. All zero is a ring without memory, which drops events.
#[repr(C)]
pub struct EventRing {
    slots: AtomicPtr<Slot>,
    /// The capacity, less one.
    mask: AtomicU64,
    /// The number of events written.
    written: AtomicU64,
}

impl Default for EventRing {
    fn default() -> Self {
        Self {
            slots: AtomicPtr::new(null_mut()),
            mask: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }
}

impl EventRing {
    /// Offset of the slots' address, for readers of the process's memory.
    pub const SLOTS: usize = core::mem::offset_of!(EventRing, slots);
    /// Offset of the capacity less one.
    pub const MASK: usize = core::mem::offset_of!(EventRing, mask);
    /// Offset of the number of events written.
    pub const WRITTEN: usize = core::mem::offset_of!(EventRing, written);

    /// A ring without memory.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            slots: AtomicPtr::new(null_mut()),
            mask: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Gives the ring `capacity` slots, a power of two.
    ///
    /// # Safety
    /// The slots live as long as the ring is used, and are given once, or again after
    /// [`EventRing::forget`].
    pub unsafe fn open(&self, slots: *mut Slot, capacity: u64) {
        debug_assert!(capacity.is_power_of_two());
        self.mask.store(capacity - 1, Ordering::Relaxed);
        self.slots.store(slots, Ordering::Release);
    }

    /// Returns the address of its memory, and how many bytes of it were ever written to.
    pub fn used(&self) -> (usize, usize) {
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return (0, 0);
        }
        let capacity = self.mask.load(Ordering::Relaxed) + 1;
        let used = self.written.load(Ordering::Acquire).min(capacity);
        (slots.addr(), used as usize * size_of::<Slot>())
    }

    /// Returns true if the ring has memory.
    pub fn is_open(&self) -> bool {
        !self.slots.load(Ordering::Relaxed).is_null()
    }

    /// Forgets its memory and its events. Nothing else uses the ring meanwhile.
    pub fn forget(&self) {
        self.slots.store(null_mut(), Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    /// Writes an event. Returns false without memory. One thread at a time calls it.
    #[inline]
    pub fn push(&self, event: [u64; EVENT_WORDS]) -> bool {
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() {
            return false;
        }
        let at = self.written.load(Ordering::Relaxed);
        let slot = self.slot(slots, at);
        fence(Ordering::Release);
        for (word, value) in slot.0.iter().zip(event) {
            word.store(value, Ordering::Relaxed);
        }
        self.written.store(at + 1, Ordering::Release);
        true
    }

    /// Returns the event `at`, counted from the first one ever written; `None` if it isn't written
    /// yet or is overwritten.
    pub fn read(&self, at: u64) -> Option<[u64; EVENT_WORDS]> {
        let slots = self.slots.load(Ordering::Acquire);
        if slots.is_null() || at >= self.written.load(Ordering::Acquire) {
            return None;
        }
        let slot = self.slot(slots, at);
        let event = core::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.written.load(Ordering::Relaxed);
        (at + self.mask.load(Ordering::Relaxed) >= after).then_some(event)
    }

    #[inline(always)]
    fn slot(&self, slots: *mut Slot, at: u64) -> &Slot {
        let index = at & self.mask.load(Ordering::Relaxed);
        // SAFETY: `slots` has `mask + 1` slots, which live by the promise of `open`.
        unsafe { &*slots.add(index as usize) }
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_but_one_can_be_read() {
        let ring = EventRing::new();
        assert!(!ring.push([9; EVENT_WORDS]), "no memory");
        assert!(!ring.is_open());
        let slots: Vec<Slot> = (0..4).map(|_| Slot::empty()).collect();
        // SAFETY: the slots outlive the ring's use.
        unsafe { ring.open(Box::leak(slots.into_boxed_slice()).as_mut_ptr(), 4) };
        for event in 0..10 {
            assert_eq!(ring.read(event), None, "not written");
            assert!(ring.push([event; EVENT_WORDS]));
        }
        // Event 10 may be in the writing, over event 6.
        let read: Vec<_> = (0..12)
            .map(|at| ring.read(at).map(|[first, ..]| first))
            .collect();
        let expected = (0..12).map(|at| (7..10).contains(&at).then_some(at));
        assert_eq!(read, expected.collect::<Vec<_>>());
        ring.forget();
        assert_eq!(ring.read(0), None);
    }
}
