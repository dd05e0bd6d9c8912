//! Tables that grow by chunks.
//!
//! A chunk is mapped when its first entry is needed and stays mapped: entries never move, and their
//! memory never becomes anything else, so a stale reference names an entry, used or free. A table
//! for a million entries takes no more address space than the chunks in use, which matters where
//! `RLIMIT_AS` limits the program.
//!
//! Two threads that need the same chunk may both map one; a compare-and-swap decides, and the
//! loser's chunk is unmapped before any other thread has seen it. A reader that sees the chunk's
//! address sees what was written to the chunk before: the swap releases, the reader's load
//! acquires.
//!
//! Rejected: one reservation for the whole table, committed as it grows (counts in full against
//! `RLIMIT_AS`); a range of addresses that is not reserved (the kernel gives it to other mappings).

use crate::sync::{AtomicPtr, Ordering};
use core::ptr::{NonNull, null_mut};

/// A table of `CHUNKS` times `EACH` entries. Tools read it as an array of pointers.
#[repr(transparent)]
pub struct Chunks<T, const CHUNKS: usize, const EACH: usize> {
    /// Null before the chunk is mapped. Stored once (release) by the first thread that needs it;
    /// loaded (acquire) before each access to an entry.
    chunks: [AtomicPtr<T>; CHUNKS],
}

impl<T, const CHUNKS: usize, const EACH: usize> Chunks<T, CHUNKS, EACH> {
    /// A table without memory.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
        }
    }

    /// A table without memory.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            chunks: core::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// The entry, if its chunk is mapped.
    #[inline(always)]
    pub fn get<'a>(&self, index: usize) -> Option<&'a T> {
        let chunk = self.chunks.get(index / EACH)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk of EACH entries that is never unmapped, by the promise of
        // `make`.
        (!chunk.is_null()).then(|| unsafe { &*chunk.add(index % EACH) })
    }

    /// Returns the entry. If its chunk isn't mapped, `map` maps one; `unmap` gets that chunk if
    /// another thread's came first. `None` beyond the table, or if `map` returns `None`.
    ///
    /// # Safety
    /// A chunk that `map` returns must be `EACH` valid entries that stay where they are.
    #[cold]
    pub unsafe fn make<'a>(
        &self,
        index: usize,
        map: impl FnOnce() -> Option<NonNull<T>>,
        unmap: impl FnOnce(NonNull<T>),
    ) -> Option<&'a T> {
        if let Some(entry) = self.get(index) {
            return Some(entry);
        }
        let place = self.chunks.get(index / EACH)?;
        let fresh = map()?;
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        if place
            .compare_exchange(null_mut(), fresh.as_ptr(), success, failure)
            .is_err()
        {
            unmap(fresh);
        }
        self.get(index)
    }

    /// The number of the entry that begins at this address; `None` for any other address.
    pub fn index_at(&self, address: usize) -> Option<usize> {
        self.chunks.iter().enumerate().find_map(|(number, chunk)| {
            let chunk = chunk.load(Ordering::Acquire);
            let offset = address
                .checked_sub(chunk.addr())
                .filter(|_| !chunk.is_null())?;
            let is_entry = offset < EACH * size_of::<T>() && offset.is_multiple_of(size_of::<T>());
            is_entry.then(|| number * EACH + offset / size_of::<T>())
        })
    }
}

impl<T, const CHUNKS: usize, const EACH: usize> Default for Chunks<T, CHUNKS, EACH> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::Chunks;
    use core::ptr::NonNull;

    fn chunk() -> Option<NonNull<u64>> {
        NonNull::new(Box::leak(Box::new([7u64; 4])).as_mut_ptr())
    }

    #[test]
    fn entries_are_found_by_number_and_by_address() {
        let table = Chunks::<u64, 3, 4>::new();
        assert!(table.get(5).is_none());
        // SAFETY: four entries that are never freed.
        let make = |index| unsafe { table.make(index, chunk, |_| panic!("one thread")) };
        let entry = make(5).expect("room for twelve");
        assert_eq!(*entry, 7);
        let address = core::ptr::from_ref(entry).addr();
        assert_eq!(table.index_at(address), Some(5));
        assert_eq!(table.index_at(address + 1), None);
        assert_eq!(table.index_at(address + 3 * 8), None);
        assert_eq!(table.index_at(0), None);
        assert!(table.get(4).is_some() && table.get(7).is_some());
        assert!(table.get(3).is_none() && table.get(8).is_none());
        assert!(make(12).is_none() && table.get(12).is_none());
    }
}
