//! Thread-specific data at a thread's end, handled like libc, for the thread's first keys.
//!
//! A thread block has the data of the first 32 keys, a pointer to each further 32, and a flag that
//! is set once any data was set. libc's table has each key's destructor, and its sequence number,
//! which tells data of a deleted key. All of these are described for debuggers. Data of further
//! keys is in libc's memory: a thread with such data ends for good.
//!
//! The first thread that ends checks all of this with a key of its own.

use super::{field, symbol};
use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance, without_provenance};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Keys with their data in the thread block.
const FIRST: usize = 32;
/// Rounds in which destructors may set data again: `PTHREAD_DESTRUCTOR_ITERATIONS` of libc.
const ROUNDS: usize = 4;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// A thread's data for a key.
#[repr(C)]
struct Datum {
    sequence: usize,
    value: *mut c_void,
}

/// libc's entry of a key. Other threads may create and delete keys meanwhile.
#[repr(C)]
struct Key {
    sequence: AtomicUsize,
    /// A [`Destructor`], or 0.
    destructor: AtomicUsize,
}

/// Where libc has the data and the keys.
pub(super) struct Data {
    /// Offset of the pointers to data in a thread block; the flag is behind them.
    pointers: usize,
    /// Address of the table of keys.
    keys: usize,
}

/// 0 before the check; then 1, or 2 if libc's layout is another.
static TRIED: AtomicU32 = AtomicU32::new(0);

impl Data {
    /// Returns `None` where libc's tables aren't as known here.
    pub(super) fn find() -> Option<Self> {
        let [bits, count, pointers] = field(c"_thread_db_pthread_specific")?;
        // Some versions give the bits of one pointer, some of all.
        let all = if bits == 64 { bits * count } else { bits };
        let [_, _, value] = field(c"_thread_db_pthread_key_data_data")?;
        let [_, _, destructor] = field(c"_thread_db_pthread_key_struct_destr")?;
        let is_known = all == 64 * FIRST as u32 && pointers % 8 == 0;
        (is_known && value == 8 && destructor == 8).then_some(())?;
        Some(Self {
            pointers: pointers as usize,
            keys: symbol(c"__pthread_keys", Some(c"GLIBC_PRIVATE"))?,
        })
    }

    /// Returns the address of the flag in the calling thread's block.
    fn flag(&self, block: *mut u8) -> *mut u8 {
        block.wrapping_add(self.pointers + FIRST * size_of::<usize>())
    }

    /// Returns true if the calling thread has no data, and never had any.
    pub(super) fn is_none(&self, block: *mut u8) -> bool {
        // SAFETY: inside the calling thread's block.
        unsafe { self.flag(block).read_volatile() == 0 }
    }

    /// Drops the data of the calling thread, which ends, and clears the flag. Data outside the
    /// thread's block is left alone.
    pub(super) fn lose(&self, block: *mut u8) {
        if !self.is_tried(block) || self.is_none(block) {
            return;
        }
        for _ in 0..ROUNDS {
            if !self.has_first_only(block) {
                return;
            }
            if !self.call_destructors(block) {
                // SAFETY: as above; libc clears the flag, too, after the destructors.
                unsafe { self.flag(block).write_volatile(0) };
                return;
            }
        }
    }

    /// Returns the data of the first keys.
    fn first(&self, block: *mut u8) -> *mut Datum {
        // SAFETY: inside the calling thread's block.
        unsafe {
            block
                .add(self.pointers)
                .cast::<*mut Datum>()
                .read_volatile()
        }
    }

    /// Returns true if the thread has data of the first keys only, in its block.
    fn has_first_only(&self, block: *mut u8) -> bool {
        let end = block.addr() + self.pointers;
        // SAFETY: inside the calling thread's block.
        let is_null = |index: usize| unsafe {
            let pointers = block.add(self.pointers).cast::<*mut Datum>();
            pointers.add(index).read_volatile().is_null()
        };
        self.first(block).addr() + FIRST * size_of::<Datum>() == end && (1..FIRST).all(is_null)
    }

    /// Clears all data, and calls the destructors. Returns false if there was none.
    fn call_destructors(&self, block: *mut u8) -> bool {
        let mut any = false;
        for index in 0..FIRST {
            // SAFETY: the calling thread's data, and libc's table, which has more than `FIRST`
            // keys.
            unsafe {
                let datum = self.first(block).add(index);
                let value = (*datum).value;
                if value.is_null() {
                    continue;
                }
                any = true;
                (&raw mut (*datum).value).write_volatile(null_mut());
                let key = &*with_exposed_provenance::<Key>(self.keys).add(index);
                let destructor = key.destructor.load(Ordering::Relaxed);
                let is_alive = key.sequence.load(Ordering::Relaxed) == (*datum).sequence;
                if is_alive && destructor != 0 {
                    std::mem::transmute::<usize, Destructor>(destructor)(value);
                }
            }
        }
        any
    }

    /// Returns true once the layout is known to be right. The first caller checks it, and gets
    /// false.
    fn is_tried(&self, block: *mut u8) -> bool {
        match TRIED.load(Ordering::Relaxed) {
            0 => {
                let answer = if self.is_true(block) { 1 } else { 2 };
                TRIED.store(answer, Ordering::Relaxed);
                false
            }
            answer => answer == 1,
        }
    }

    /// Checks the layout: sets data of the calling thread and looks for it.
    fn is_true(&self, block: *mut u8) -> bool {
        unsafe extern "C" fn ignore(_: *mut c_void) {}
        let mut key = 0;
        let value = without_provenance::<c_void>(1);
        // SAFETY: a key of our own; the block and the table as above.
        unsafe {
            if libc::pthread_key_create(&raw mut key, Some(ignore)) != 0 {
                return false;
            }
            let index = key as usize;
            let is_set = libc::pthread_setspecific(key, value) == 0 && !self.is_none(block);
            let is_first = is_set && index < FIRST && self.has_first_only(block);
            let is_true = is_first && {
                let datum = self.first(block).add(index);
                let known = &*with_exposed_provenance::<Key>(self.keys).add(index);
                let destructor: Destructor = ignore;
                let found = (&raw const (*datum).value).read_volatile().cast_const();
                found == value
                    && (*datum).sequence == known.sequence.load(Ordering::Relaxed)
                    && known.destructor.load(Ordering::Relaxed) == destructor as usize
            };
            libc::pthread_setspecific(key, null_mut());
            libc::pthread_key_delete(key);
            is_true
        }
    }
}
