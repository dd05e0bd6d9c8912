//! Slots in buckets, each twice as large as the last: the table grows while it is used.
//!
//! A slot never moves, and its memory stays until the table's end, so a lookup of any number is
//! safe. Two threads that grow the table at the same time both allocate; the second frees its
//! bucket.

use crate::InsertError;
use crate::raw::Host;
use crate::raw::slot::Slot;
use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};
use raddle_sched::sync::{AtomicPtr, Ordering};

/// Slots of the first bucket, and the number put into use at a time: neighbours on a cache line
/// then mostly belong to the same thread.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub(super) const FIRST: usize = 64;
#[cfg(any(raddle_loom, raddle_shuttle))]
pub const FIRST: usize = 2;

/// One bucket less than numbers allow: the last one would reach the largest number, which isn't
/// used.
const BUCKETS: usize = (super::MAX_SLOTS / FIRST).ilog2() as usize;

pub(super) struct Buckets([AtomicPtr<Slot>; BUCKETS]);

/// Returns the bucket of a slot, and its place there.
#[inline(always)]
fn place(number: usize) -> (usize, usize) {
    let bucket = (number / FIRST + 1).ilog2() as usize;
    (bucket, number - start(bucket))
}

fn start(bucket: usize) -> usize {
    FIRST * ((1 << bucket) - 1)
}

fn layout(bucket: usize) -> Option<Layout> {
    Layout::array::<Slot>(FIRST << bucket).ok()
}

impl Buckets {
    /// The first number that no bucket holds.
    pub(super) const END: usize = FIRST * ((1 << BUCKETS) - 1);

    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub(super) const fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; BUCKETS])
    }

    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicPtr::new(null_mut())))
    }

    /// Returns a slot, if there is memory for it.
    #[inline(always)]
    pub(super) fn get(&self, number: usize) -> Option<&Slot> {
        let (bucket, at) = place(number);
        let slots = self.0.get(bucket)?.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: `grow` put a bucket there that holds the place, and it stays until `release`.
        Some(unsafe { &*slots.add(at) })
    }

    /// Ensures that there is memory for a slot.
    pub(super) fn grow<H: Host>(&self, number: usize, host: &H) -> Result<(), InsertError> {
        let (bucket, _) = place(number);
        let home = self.0.get(bucket).ok_or(InsertError::Full)?;
        if !home.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let layout = layout(bucket).ok_or(InsertError::NoMemory)?;
        let memory = host.allocate(layout).ok_or(InsertError::NoMemory)?;
        let slots = memory.cast::<Slot>();
        // SAFETY: the memory is fresh and as large as the bucket.
        #[cfg(any(raddle_loom, raddle_shuttle))]
        (0..FIRST << bucket).for_each(|at| unsafe { slots.add(at).write(Slot::new()) });
        let installed = home.compare_exchange(
            null_mut(),
            slots.as_ptr(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if installed.is_err() {
            // SAFETY: another thread's bucket is installed, and no thread has seen this one.
            unsafe { discard(slots, bucket, host) };
        }
        Ok(())
    }

    /// Frees all buckets.
    ///
    /// # Safety
    /// No thread may use the table at the same time or afterwards.
    pub(super) unsafe fn release<H: Host>(&self, host: &H) {
        for (bucket, home) in self.0.iter().enumerate() {
            if let Some(slots) = NonNull::new(home.load(Ordering::Acquire)) {
                // SAFETY: `grow` put it there, and the caller is alone.
                unsafe { discard(slots, bucket, host) };
            }
        }
    }
}

/// Frees a bucket.
///
/// # Safety
/// It must have been allocated by `grow` of the same host, and no thread may use it.
unsafe fn discard<H: Host>(slots: NonNull<Slot>, bucket: usize, host: &H) {
    // SAFETY: the caller's promise; the models' atomics have destructors.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    (0..FIRST << bucket).for_each(|at| unsafe { slots.add(at).drop_in_place() });
    if let Some(layout) = layout(bucket) {
        // SAFETY: allocated with this layout.
        unsafe { host.free(slots.cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_places_are_one_to_one() {
        let mut number = 0;
        for bucket in 0..6 {
            for at in 0..FIRST << bucket {
                assert_eq!(place(number), (bucket, at));
                number += 1;
            }
        }
        assert_eq!(place(Buckets::END - 1).0, BUCKETS - 1);
        assert_eq!(place(Buckets::END).0, BUCKETS);
    }
}
