//! Thread-specific data at a thread's end: as libc does it, of the thread's first keys.
//!
//! A thread block has the data of the first 32 keys, a pointer to each further 32, and a flag that
//! says whether any was ever set. libc's table of keys has each key's sequence number, by which
//! data of a key that was deleted is told, and its destructor. All is described for debuggers.
//! Data of further keys is in libc's memory: who has any ends for good.
//!
//! The first thread that ends tries whether all that is true, with keys of its own.

use super::{field, symbol};
use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance, without_provenance};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Keys whose data is in the thread block.
const FIRST: usize = 32;
/// How often destructors may set data again, as libc's `PTHREAD_DESTRUCTOR_ITERATIONS`.
const ROUNDS: usize = 4;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// What a thread has for a key.
#[repr(C)]
struct Datum {
    sequence: usize,
    value: *mut c_void,
}

/// What libc knows of a key. Others may create and delete keys meanwhile.
#[repr(C)]
struct Key {
    sequence: AtomicUsize,
    /// A [`Destructor`], or 0.
    destructor: AtomicUsize,
}

/// Where libc has them.
pub(super) struct Data {
    /// The pointers to data in a thread block; the flag is behind them.
    pointers: usize,
    /// The table of keys.
    keys: usize,
}

/// 0 until somebody has tried; then 1, or 2 if libc does it in another way.
static TRIED: AtomicU32 = AtomicU32::new(0);

impl Data {
    /// `None` where libc has other tables than are known here.
    pub(super) fn find() -> Option<Self> {
        let [bits, count, pointers] = field(c"_thread_db_pthread_specific")?;
        // Some versions tell the bits of one of them, some of all.
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

    /// Where the calling thread's block says that data was set.
    fn flag(&self, block: *mut u8) -> *mut u8 {
        block.wrapping_add(self.pointers + FIRST * size_of::<usize>())
    }

    /// True if the calling thread has no data, nor ever had.
    pub(super) fn is_none(&self, block: *mut u8) -> bool {
        // SAFETY: inside the calling thread's block.
        unsafe { self.flag(block).read_volatile() == 0 }
    }

    /// The calling thread, which ends, loses its data, and never had any then. Nothing is done
    /// about data that isn't in its block.
    pub(super) fn lose(&self, block: *mut u8) {
        if !self.is_tried(block) || self.is_none(block) {
            return;
        }
        for _ in 0..ROUNDS {
            if !self.has_first_only(block) {
                return;
            }
            if !self.call_destructors(block) {
                // SAFETY: as above; libc does the same when it has called the destructors.
                unsafe { self.flag(block).write_volatile(0) };
                return;
            }
        }
    }

    /// The data of the first keys.
    fn first(&self, block: *mut u8) -> *mut Datum {
        // SAFETY: inside the calling thread's block.
        unsafe {
            block
                .add(self.pointers)
                .cast::<*mut Datum>()
                .read_volatile()
        }
    }

    /// True if the thread has data of the first keys alone, in its block.
    fn has_first_only(&self, block: *mut u8) -> bool {
        let end = block.addr() + self.pointers;
        // SAFETY: inside the calling thread's block.
        let is_null = |index: usize| unsafe {
            let pointers = block.add(self.pointers).cast::<*mut Datum>();
            pointers.add(index).read_volatile().is_null()
        };
        self.first(block).addr() + FIRST * size_of::<Datum>() == end && (1..FIRST).all(is_null)
    }

    /// Forgets all data, and calls the destructors. False if there was none.
    fn call_destructors(&self, block: *mut u8) -> bool {
        let mut any = false;
        for index in 0..FIRST {
            // SAFETY: the calling thread's data, and libc's table, which has more keys than that.
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

    /// True once it is known to be so. Tried by the first who asks.
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

    /// Sets data of the calling thread and looks whether all is as it should be.
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
