//! The engine's tables: [chunks](raddle_sched::chunks) of fresh memory.

use core::ptr::NonNull;
use raddle_sys::{err, errno, mem};

/// A type of which zero bytes are a value.
///
/// # Safety
/// Zero bytes must be a value of the type.
pub(crate) unsafe trait Zeroed {}

/// A table of `CHUNKS` times `EACH` entries. Tools read it as an array of pointers.
#[repr(transparent)]
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
        let map = || {
            NonNull::new(
                room::take(Self::BYTES)
                    .or_else(|| mem::map(Self::BYTES).ok())?
                    .cast(),
            )
        };
        // SAFETY: no thread has seen the chunk.
        let unmap = |chunk: NonNull<T>| unsafe { room::give(chunk.as_ptr().cast(), Self::BYTES) };
        // SAFETY: zero bytes are entries, and the chunk stays.
        let entry = unsafe { self.0.make(index, map, unmap) };
        entry.ok_or(err(errno::ENOMEM))
    }

    /// The number of the entry that begins at this address; `None` for any other address.
    pub(crate) fn index_at(&self, address: usize) -> Option<usize> {
        self.0.index_at(address)
    }
}

/// Memory for the first chunks, beside the engine itself: a fork takes longer with each mapping.
mod room {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicUsize, Ordering};
    use raddle_sys::mem;

    const SIZE: usize = 640 * 1024;

    #[repr(C, align(4096))]
    struct Room(UnsafeCell<[u8; SIZE]>);

    // SAFETY: no reference exists; each byte is given away at most once.
    unsafe impl Sync for Room {}

    /// All zero, so that it takes no room in the library's file.
    static ROOM: Room = Room(UnsafeCell::new([0; SIZE]));
    /// Bytes that were given away. Raised by the taker.
    static TAKEN: AtomicUsize = AtomicUsize::new(0);

    /// `bytes` of zeroes, whole pages, for ever.
    pub(super) fn take(bytes: usize) -> Option<*mut u8> {
        let more = |taken: usize| Some(taken + bytes).filter(|&taken| taken <= SIZE);
        let at = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        Some(ROOM.0.get().cast::<u8>().wrapping_add(at.ok()?))
    }

    /// Gives back memory that has no reference; a part of the room is lost.
    ///
    /// # Safety
    /// As for [`mem::unmap`].
    pub(super) unsafe fn give(at: *mut u8, bytes: usize) {
        let from = ROOM.0.get().addr();
        if !(from..from + SIZE).contains(&at.addr()) {
            // SAFETY: the caller's promise.
            unsafe { mem::unmap(at, bytes) };
        }
    }
}
