//! Tables that grow by chunks.
//!
//! A chunk is mapped when its first entry is needed and stays mapped: entries never move, and their
//! memory never becomes anything else, so a stale reference names an entry, used or free. A table
//! for a million entries takes no more address space than the chunks in use, which counts where the
//! program has a limit on that (`RLIMIT_AS`).
//!
//! Rejected: one reservation for the whole table, committed as it grows. It counts in full against
//! that limit. A range of addresses that is not reserved: the kernel gives it to other mappings.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use raddle_sys::mem;

/// A type of which zero bytes are a value.
///
/// # Safety
/// They must be.
pub(crate) unsafe trait Zeroed {}

/// A table of `CHUNKS` times `EACH` entries.
pub(crate) struct Chunks<T, const CHUNKS: usize, const EACH: usize> {
    /// Null before the chunk is mapped. Stored once (release) by the caller that needed it first;
    /// read (acquire) before an entry is.
    chunks: [AtomicPtr<T>; CHUNKS],
}

impl<T: Zeroed, const CHUNKS: usize, const EACH: usize> Chunks<T, CHUNKS, EACH> {
    /// Bytes of a chunk, whole pages.
    const BYTES: usize = (EACH * size_of::<T>()).next_multiple_of(mem::PAGE_SIZE);

    /// A table without memory.
    pub(crate) const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS],
        }
    }

    /// The entry, if its chunk is mapped.
    #[inline(always)]
    pub(crate) fn get<'a>(&self, index: usize) -> Option<&'a T> {
        let chunk = self.chunks.get(index / EACH)?.load(Ordering::Acquire);
        // SAFETY: null, or a chunk of EACH entries that is never unmapped.
        (!chunk.is_null()).then(|| unsafe { &*chunk.add(index % EACH) })
    }

    /// The entry; its chunk is mapped if it isn't yet.
    ///
    /// # Errors
    /// ENOMEM, or what else the kernel says; ENOMEM beyond the table.
    #[inline(always)]
    pub(crate) fn make<'a>(&self, index: usize) -> Result<&'a T, isize> {
        match self.get(index) {
            Some(entry) => Ok(entry),
            None => self.map(index),
        }
    }

    #[cold]
    fn map<'a>(&self, index: usize) -> Result<&'a T, isize> {
        let no_memory = raddle_sys::err(raddle_sys::errno::ENOMEM);
        let place = self.chunks.get(index / EACH).ok_or(no_memory)?;
        let fresh = mem::map(Self::BYTES)?.cast::<T>();
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let chunk = match place.compare_exchange(null_mut(), fresh, success, failure) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: no other thread has seen this one.
                unsafe { mem::unmap(fresh.cast(), Self::BYTES) };
                other
            }
        };
        // SAFETY: as in `get`.
        Ok(unsafe { &*chunk.add(index % EACH) })
    }

    /// The number of the entry that begins at this address; `None` for any other address.
    pub(crate) fn index_at(&self, address: usize) -> Option<usize> {
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
