//! The engine's tables: [chunks](raddle_sched::chunks) of fresh memory.

use core::ptr::NonNull;
use raddle_sys::{err, errno, mem};

/// A type of which zero bytes are a value.
///
/// # Safety
/// They must be.
pub(crate) unsafe trait Zeroed {}

/// A table of `CHUNKS` times `EACH` entries.
pub(crate) struct Chunks<T, const CHUNKS: usize, const EACH: usize>(
    raddle_sched::Chunks<T, CHUNKS, EACH>,
);

impl<T: Zeroed, const CHUNKS: usize, const EACH: usize> Chunks<T, CHUNKS, EACH> {
    /// Bytes of a chunk, whole pages.
    const BYTES: usize = (EACH * size_of::<T>()).next_multiple_of(mem::PAGE_SIZE);

    pub(crate) const fn new() -> Self {
        Self(raddle_sched::Chunks::new())
    }

    /// The entry, if its chunk is mapped.
    #[inline(always)]
    pub(crate) fn get<'a>(&self, index: usize) -> Option<&'a T> {
        self.0.get(index)
    }

    /// The entry; its chunk is mapped if it isn't yet.
    ///
    /// # Errors
    /// ENOMEM, beyond the table as well.
    #[inline(always)]
    pub(crate) fn make<'a>(&self, index: usize) -> Result<&'a T, isize> {
        match self.get(index) {
            Some(entry) => Ok(entry),
            None => self.map(index),
        }
    }

    #[cold]
    fn map<'a>(&self, index: usize) -> Result<&'a T, isize> {
        let map = || NonNull::new(mem::map(Self::BYTES).ok()?.cast());
        // SAFETY: no thread has seen the chunk.
        let unmap = |chunk: NonNull<T>| unsafe { mem::unmap(chunk.as_ptr().cast(), Self::BYTES) };
        // SAFETY: zero bytes are entries, and the chunk stays.
        let entry = unsafe { self.0.make(index, map, unmap) };
        entry.ok_or(err(errno::ENOMEM))
    }

    /// The number of the entry that begins at this address; `None` for any other address.
    pub(crate) fn index_at(&self, address: usize) -> Option<usize> {
        self.0.index_at(address)
    }
}
