//! The numbers of free slots: a few stacks, linked through the slots.
//!
//! Each stack's head is a slot's number and a tag that every change raises, so that a head that
//! went and came back differs from the old one. A thread uses the stack that its hint names. If
//! that is empty, the thread takes from another one, first from the stack where it last found a
//! slot: so slots that one thread frees and another fills go round without new ones.

use crate::raw::buckets::Buckets;
use raddle_sched::sync::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
const STACKS: usize = 16;
#[cfg(any(raddle_loom, raddle_shuttle))]
const STACKS: usize = 2;

/// Numbers take the low bits of a head, as they do in handles; here 0 is the end of the stack.
const NUMBER_BITS: u32 = super::NUMBER_BITS;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;

#[repr(align(128))] // two cache lines: they are fetched in pairs
struct Stack {
    /// Tag and number + 1 of the first slot. Acquire and release: the taker of a slot sees what its
    /// last user wrote.
    head: AtomicU64,
    /// The stack where a slot was last found; a hint.
    victim: AtomicU32,
}

impl Stack {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    const fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            victim: AtomicU32::new(0),
        }
    }

    #[cfg(any(raddle_loom, raddle_shuttle))]
    fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            victim: AtomicU32::new(0),
        }
    }

    /// Puts a chain of slots on top, from `first` to `last`.
    #[inline(always)]
    fn push(&self, slots: &Buckets, first: usize, last: usize) {
        let Some(end) = slots.get(last) else {
            return; // a slot without memory doesn't exist
        };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            end.set_link((head & NUMBER) as u32);
            match self.head.compare_exchange(
                head,
                next_tag(head) | (first as u64 + 1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    #[inline(always)]
    fn pop(&self, slots: &Buckets) -> Option<usize> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let number = (head & NUMBER).checked_sub(1)? as usize;
            // If another thread has taken the slot, this reads nonsense, and the exchange fails.
            let next = u64::from(slots.get(number)?.link()) & NUMBER;
            match self.head.compare_exchange(
                head,
                next_tag(head) | next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(number),
                Err(other) => head = other,
            }
        }
    }
}

/// Returns the tag of the head after this one.
fn next_tag(head: u64) -> u64 {
    (head & !NUMBER).wrapping_add(1 << NUMBER_BITS)
}

pub(super) struct FreeList([Stack; STACKS]);

impl FreeList {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub(super) const fn new() -> Self {
        Self([const { Stack::new() }; STACKS])
    }

    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| Stack::new()))
    }

    #[inline(always)]
    fn stack(&self, hint: usize) -> &Stack {
        &self.0[hint % STACKS]
    }

    /// Frees a chain of slots that only the caller uses.
    #[inline(always)]
    pub(super) fn push(&self, slots: &Buckets, hint: usize, first: usize, last: usize) {
        self.stack(hint).push(slots, first, last);
    }

    /// Takes a slot.
    #[inline(always)]
    pub(super) fn pop(&self, slots: &Buckets, hint: usize) -> Option<usize> {
        let own = self.stack(hint);
        own.pop(slots).or_else(|| self.pop_elsewhere(slots, own))
    }

    #[cold]
    fn pop_elsewhere(&self, slots: &Buckets, own: &Stack) -> Option<usize> {
        let start = own.victim.load(Ordering::Relaxed) as usize;
        (start..start + STACKS).find_map(|victim| {
            let number = self.stack(victim).pop(slots)?;
            own.victim
                .store((victim % STACKS) as u32, Ordering::Relaxed);
            Some(number)
        })
    }
}
