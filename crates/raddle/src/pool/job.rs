//! Work items: closures of erased type, small ones without an allocation.
//!
//! A job is four words: a table of functions, and a payload of three words that holds the closure
//! itself if it fits, or else a pointer to it. So the usual item (a reference or two) is queued
//! without the allocator, which costs more than the queue.

use std::mem::{ManuallyDrop, MaybeUninit};

/// A word of a payload; may be uninitialized.
pub type Word = MaybeUninit<usize>;

/// The closure or a pointer to it, depending on the job's table. Three words, not an array, which
/// the table's functions take by value: so they stay in registers from a queue's slot to the
/// closure. A processor that loads from memory in other pieces than it has just stored waits for
/// the store.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Payload(Word, Word, Word);

impl Payload {
    pub const NONE: Self = Self(Word::uninit(), Word::uninit(), Word::uninit());
}

/// The functions of a payload; either consumes it.
pub struct Table {
    run: unsafe fn(Word, Word, Word),
    discard: unsafe fn(Word, Word, Word),
}

/// A closure that runs once, or is dropped.
pub struct Job {
    table: &'static Table,
    payload: Payload,
}

// SAFETY: the constructor takes closures that are `Send`, or its caller promises as much.
unsafe impl Send for Job {}

impl Job {
    /// Makes a job that runs `f`.
    pub fn new<F: FnOnce() + Send + 'static>(f: F) -> Self {
        // SAFETY: a closure that is `Send + 'static` may run anywhere at any time.
        unsafe { Self::new_unchecked(f) }
    }

    /// Makes a job that runs `f`, whatever `f` borrows.
    ///
    /// # Safety
    /// The borrows of `f` must live until the job has run or was dropped, and another thread may
    /// use them.
    pub unsafe fn new_unchecked<F: FnOnce()>(f: F) -> Self {
        let mut payload = Payload::NONE;
        let place = (&raw mut payload).cast::<F>();
        if size_of::<F>() <= size_of::<Payload>() && align_of::<F>() <= align_of::<Payload>() {
            // SAFETY: the payload is large and aligned enough for an F.
            unsafe { place.write(f) };
            let table = &Inline::<F>::TABLE;
            return Self { table, payload };
        }
        let boxed = Box::into_raw(Box::new(f));
        // SAFETY: a thin pointer is one word, and the payload is aligned as one.
        unsafe { place.cast::<*mut F>().write(boxed) };
        let table = &Boxed::<F>::TABLE;
        Self { table, payload }
    }

    /// Runs the closure.
    #[inline(always)]
    pub fn run(self) {
        let (table, Payload(a, b, c)) = self.into_parts();
        // SAFETY: the payload belongs to this table, and is consumed this once.
        unsafe { (table.run)(a, b, c) }
    }

    /// Takes the job apart into words, which must be run or dropped.
    #[inline(always)]
    pub fn into_parts(self) -> (&'static Table, Payload) {
        let job = ManuallyDrop::new(self);
        (job.table, job.payload)
    }

    /// Puts a job together.
    ///
    /// # Safety
    /// The words must come from one call of [`Job::into_parts`], and be used once.
    #[inline(always)]
    pub unsafe fn from_parts(table: &'static Table, payload: Payload) -> Self {
        Self { table, payload }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let Payload(a, b, c) = self.payload;
        // SAFETY: the payload belongs to this table; `run` and `into_parts` forget the job.
        unsafe { (self.table.discard)(a, b, c) }
    }
}

struct Inline<F>(F);

impl<F: FnOnce()> Inline<F> {
    const TABLE: Table = Table {
        run: Self::run,
        discard: Self::discard,
    };

    /// # Safety
    /// The words must hold an F, and not be used again.
    unsafe fn run(a: Word, b: Word, c: Word) {
        let payload = Payload(a, b, c);
        // SAFETY: the caller's promise.
        let closure = unsafe { (&raw const payload).cast::<F>().read() };
        closure();
    }

    /// # Safety
    /// As for `run`.
    unsafe fn discard(a: Word, b: Word, c: Word) {
        let payload = Payload(a, b, c);
        // SAFETY: the caller's promise.
        drop(unsafe { (&raw const payload).cast::<F>().read() });
    }
}

struct Boxed<F>(F);

impl<F: FnOnce()> Boxed<F> {
    const TABLE: Table = Table {
        run: Self::run,
        discard: Self::discard,
    };

    /// # Safety
    /// The first word must hold a pointer from `Box::into_raw`, and not be used again.
    unsafe fn run(a: Word, _: Word, _: Word) {
        // SAFETY: the caller's promise.
        let boxed = unsafe { Box::from_raw((&raw const a).cast::<*mut F>().read()) };
        boxed();
    }

    /// # Safety
    /// As for `run`.
    unsafe fn discard(a: Word, _: Word, _: Word) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw((&raw const a).cast::<*mut F>().read()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn add(sum: &AtomicU64, value: u64) {
        sum.fetch_add(value, Ordering::Relaxed);
    }

    fn sum_of(count: usize, run: bool) -> (u64, usize) {
        let sum = Arc::new(AtomicU64::new(0));
        let (value, values, held) = (7, [7u64; 16], sum.clone());
        let job = match count {
            1 => Job::new(move || add(&held, value)),
            _ => Job::new(move || add(&held, values.iter().sum())),
        };
        let (table, payload) = job.into_parts();
        // SAFETY: the words of the job above, once.
        let job = unsafe { Job::from_parts(table, payload) };
        if run {
            job.run()
        } else {
            drop(job)
        }
        (sum.load(Ordering::Relaxed), Arc::strong_count(&sum))
    }

    #[test]
    fn small_and_large_closures_run_once_and_are_freed() {
        assert_eq!(sum_of(1, true), (7, 1));
        assert_eq!(sum_of(16, true), (112, 1));
    }

    #[test]
    fn a_dropped_job_frees_what_it_captured() {
        assert_eq!(sum_of(1, false), (0, 1));
        assert_eq!(sum_of(16, false), (0, 1));
    }
}
