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
//! A ring can be given more memory while it is written to: events from then on go there, and those
//! before are in the old memory, which no reader looks at any more. The slots' address and the
//! capacity are one word, so that the writer sees both of one memory.
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
    /// The slots' address, and in its lowest bits the binary logarithm of the capacity; null
    /// without memory. Written by the one that opens the ring, read by the writer and readers.
    place: AtomicPtr<Slot>,
    /// The number of the first event in this memory. Written before `place`.
    first: AtomicU64,
    /// The number of events written.
    written: AtomicU64,
}

/// Bits of [`EventRing::place`] that are no part of the address.
const CAPACITY_BITS: usize = (1 << EventRing::ADDRESS_SHIFT) - 1;

impl Default for EventRing {
    fn default() -> Self {
        Self {
            place: AtomicPtr::new(null_mut()),
            first: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }
}

impl EventRing {
    /// Slots begin at multiples of this power of two.
    pub const ADDRESS_SHIFT: u32 = 6;

    /// A ring without memory.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            place: AtomicPtr::new(null_mut()),
            first: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Gives the ring `capacity` slots, a power of two, at a multiple of 64.
    ///
    /// # Safety
    /// The slots live as long as the ring is used, as do those of an earlier call. One thread at a
    /// time calls it.
    pub unsafe fn open(&self, slots: *mut Slot, capacity: u64) {
        debug_assert!(capacity.is_power_of_two() && slots.addr() & CAPACITY_BITS == 0);
        let written = self.written.load(Ordering::Relaxed);
        self.first.store(written, Ordering::Relaxed);
        let place = slots.map_addr(|at| at | capacity.trailing_zeros() as usize);
        self.place.store(place, Ordering::Release);
    }

    /// Returns the address of its memory, and how many bytes of it were ever written to.
    pub fn used(&self) -> (usize, usize) {
        let Some((slots, capacity)) = self.memory() else {
            return (0, 0);
        };
        let first = self.first.load(Ordering::Relaxed);
        let written = self.written.load(Ordering::Acquire);
        // Event `first` is not in the first slot.
        let used = if first == 0 {
            written.min(capacity)
        } else {
            capacity
        };
        (slots.addr(), used as usize * size_of::<Slot>())
    }

    /// Returns the number of its slots; 0 without memory.
    pub fn capacity(&self) -> u64 {
        self.memory().map_or(0, |(_, capacity)| capacity)
    }

    /// Returns the events that can be read.
    pub fn all(&self) -> impl Iterator<Item = [u64; EVENT_WORDS]> {
        let written = self.written.load(Ordering::Acquire);
        let oldest = written.saturating_sub(self.capacity());
        (oldest..written).filter_map(|at| self.read(at))
    }

    /// Forgets its memory and its events. Nothing else uses the ring meanwhile.
    pub fn forget(&self) {
        self.place.store(null_mut(), Ordering::Relaxed);
        self.first.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    /// Returns the slots and their number.
    #[inline(always)]
    fn memory(&self) -> Option<(*mut Slot, u64)> {
        let place = self.place.load(Ordering::Acquire);
        let capacity = 1 << (place.addr() & CAPACITY_BITS);
        let slots = place.map_addr(|at| at & !CAPACITY_BITS);
        (!place.is_null()).then_some((slots, capacity))
    }

    /// Writes an event. Returns false without memory. One thread at a time calls it.
    #[inline]
    pub fn push(&self, event: [u64; EVENT_WORDS]) -> bool {
        let Some((slots, capacity)) = self.memory() else {
            return false;
        };
        let at = self.written.load(Ordering::Relaxed);
        // SAFETY: `slots` has `capacity` slots, which live by the promise of `open`.
        let slot = unsafe { &*slots.add((at & (capacity - 1)) as usize) };
        fence(Ordering::Release);
        for (word, value) in slot.0.iter().zip(event) {
            word.store(value, Ordering::Relaxed);
        }
        self.written.store(at + 1, Ordering::Release);
        true
    }

    /// Returns the event `at`, counted from the first one ever written; `None` if it isn't written
    /// yet, is overwritten, or is in memory that the ring had before.
    pub fn read(&self, at: u64) -> Option<[u64; EVENT_WORDS]> {
        let (slots, capacity) = self.memory()?;
        let first = self.first.load(Ordering::Relaxed);
        if at < first || at >= self.written.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: as in `push`.
        let slot = unsafe { &*slots.add((at & (capacity - 1)) as usize) };
        let event = core::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let after = self.written.load(Ordering::Relaxed);
        (at + capacity > after).then_some(event)
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    /// Slots that live for ever.
    fn slots(count: usize) -> *mut Slot {
        #[repr(align(64))]
        struct Aligned([Slot; 8]);
        let slots = Box::leak(Box::new(Aligned(core::array::from_fn(|_| Slot::empty()))));
        assert!(count <= slots.0.len());
        slots.0.as_mut_ptr()
    }

    fn firsts(ring: &EventRing) -> Vec<Option<u64>> {
        let read = (0..12).map(|at| ring.read(at));
        read.map(|event| event.map(|[first, ..]| first)).collect()
    }

    fn only(range: core::ops::Range<u64>) -> Vec<Option<u64>> {
        (0..12)
            .map(|at| range.contains(&at).then_some(at))
            .collect()
    }

    #[test]
    fn the_last_events_but_one_can_be_read() {
        let ring = EventRing::new();
        assert!(!ring.push([9; EVENT_WORDS]), "no memory");
        assert_eq!((ring.capacity(), ring.used()), (0, (0, 0)));
        // SAFETY: the slots live for ever.
        unsafe { ring.open(slots(4), 4) };
        for event in 0..10 {
            assert_eq!(ring.read(event), None, "not written");
            assert!(ring.push([event; EVENT_WORDS]));
        }
        // Event 10 may be in the writing, over event 6.
        assert_eq!(firsts(&ring), only(7..10));
        ring.forget();
        assert_eq!(ring.read(0), None);
    }

    #[test]
    fn more_memory_has_the_events_from_then_on() {
        let ring = EventRing::new();
        // SAFETY: the slots live for ever.
        unsafe { ring.open(slots(2), 2) };
        (0..3).for_each(|event| assert!(ring.push([event; EVENT_WORDS])));
        // SAFETY: as above.
        unsafe { ring.open(slots(8), 8) };
        assert_eq!(firsts(&ring), only(0..0));
        (3..9).for_each(|event| assert!(ring.push([event; EVENT_WORDS])));
        assert_eq!(firsts(&ring), only(3..9));
        assert_eq!((ring.capacity(), ring.used().1), (8, 8 * size_of::<Slot>()));
    }
}
