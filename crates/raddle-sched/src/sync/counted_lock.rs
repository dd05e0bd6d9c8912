//! A spin lock with a count in its word: one atomic operation takes the lock and raises the count.
//!
//! The word is twice the count, plus 1 while the lock is held. It changes in two ways only. A
//! compare-and-swap from a word that is not held takes the lock, and may raise the count by the
//! same step. The holder frees it by a plain store of the new count. No other thread writes the
//! word while the lock is held, so that store overwrites nothing.
//!
//! The count is raised by a SeqCst read-modify-write *before* the holder looks at any condition,
//! which makes it one side of Dekker's protocol: if a thread changes the condition (SeqCst) and
//! then reads a count of zero ([`CountedLock::count`], SeqCst too), the holder sees the change. A
//! count is lowered only when the lock is freed: a reader that sees too high a count takes the lock
//! and looks.
//!
//! Like [`crate::SpinLock`] it is held for a few instructions, never over a switch.

use crate::sync::spin::{SPINS, relax};
use crate::sync::{AtomicU32, Ordering, UnsafeCell, spin_loop};
use core::ops::{Deref, DerefMut};

const HELD: u32 = 1;
const ONE: u32 = 2;

/// Data and a count behind a spin lock.
pub struct CountedLock<T> {
    /// See the module. Taken with SeqCst, freed with release.
    word: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the data.
unsafe impl<T: Send> Send for CountedLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for CountedLock<T> {}

impl<T> CountedLock<T> {
    /// A free lock around `data`; the count is zero.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new(data: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// A free lock around `data`; the count is zero.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new(data: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// Returns the count a moment ago: at least that of the moment when the lock was last freed.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        self.word.load(Ordering::SeqCst) / ONE
    }

    /// Returns true if the count was zero a moment ago. A relaxed load, ordered with nothing.
    #[inline(always)]
    pub fn seems_empty(&self) -> bool {
        self.word.load(Ordering::Relaxed) < ONE
    }

    /// Takes the lock, spinning, and raises the count by `more` in the same step.
    #[inline(always)]
    pub fn lock_and_raise(&self, more: u32) -> CountedGuard<'_, T> {
        let raised = match self.take(self.word.load(Ordering::Relaxed), more) {
            Some(raised) => raised,
            None => self.lock_contended(more),
        };
        CountedGuard {
            lock: self,
            count: raised,
        }
    }

    /// Takes the lock, spinning.
    #[inline(always)]
    pub fn lock(&self) -> CountedGuard<'_, T> {
        self.lock_and_raise(0)
    }

    /// Takes the lock if `seen` is a free word and still the word; returns the raised count then.
    #[inline(always)]
    fn take(&self, seen: u32, more: u32) -> Option<u32> {
        if seen & HELD != 0 {
            return None;
        }
        let raised = seen + more * ONE;
        self.word
            .compare_exchange(seen, raised | HELD, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok()
            .then_some(raised / ONE)
    }

    #[cold]
    fn lock_contended(&self, more: u32) -> u32 {
        let (mut looks, mut times) = (0, 0);
        loop {
            let seen = self.word.load(Ordering::Relaxed);
            if let Some(raised) = self.take(seen, more) {
                return raised;
            }
            spin_loop();
            looks += 1;
            if looks == SPINS {
                looks = 0;
                relax(times);
                times += 1;
            }
        }
    }

    /// Returns true if the lock is free and the count is zero.
    pub fn is_untouched(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0
    }

    /// Replaces the data, frees the lock and sets the count to zero, even if a thread held the
    /// lock: in the child of a fork.
    ///
    /// # Safety
    /// No other thread may exist.
    pub unsafe fn replace(&self, data: T) {
        // SAFETY: no other thread exists, by the caller's promise.
        self.data.with_mut(|old| unsafe { old.write(data) });
        self.word.store(0, Ordering::Release);
    }
}

/// Access to data and count; frees the lock when dropped.
pub struct CountedGuard<'a, T> {
    lock: &'a CountedLock<T>,
    count: u32,
}

impl<T> CountedGuard<'_, T> {
    /// Raises the count before the lock is freed.
    #[inline(always)]
    pub fn raise(&mut self, by: u32) {
        self.count += by;
    }

    /// Lowers the count.
    #[inline(always)]
    pub fn lower(&mut self, by: u32) {
        self.count -= by;
    }
}

impl<T> Deref for CountedGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        self.lock.data.with_mut(|data| unsafe { &*data })
    }
}

impl<T> DerefMut for CountedGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.lock.data.with_mut(|data| unsafe { &mut *data })
    }
}

impl<T> Drop for CountedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.word.store(self.count * ONE, Ordering::Release);
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_count_is_raised_when_the_lock_is_taken_and_lowered_when_it_is_freed() {
        let lock = CountedLock::new(7);
        let mut guard = lock.lock_and_raise(2);
        assert_eq!((*guard, lock.count(), lock.is_untouched()), (7, 2, false));
        guard.lower(1);
        assert_eq!(lock.count(), 2, "not before it is freed");
        drop(guard);
        assert_eq!((lock.count(), lock.is_untouched()), (1, false));
        lock.lock().lower(1);
        assert!(lock.is_untouched());
    }

    #[test]
    fn neither_data_nor_count_loses_an_update() {
        const ROUNDS: u32 = 20_000;
        let lock = Arc::new(CountedLock::new(0u32));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for round in 0..ROUNDS {
                        let mut guard = lock.lock_and_raise(2);
                        *guard += 1;
                        guard.lower(1 + round % 2);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!((*lock.lock(), lock.count()), (3 * ROUNDS, 3 * ROUNDS / 2));
    }

    #[test]
    fn a_lock_that_nobody_is_left_to_free_is_replaced() {
        let lock = CountedLock::new(1);
        core::mem::forget(lock.lock_and_raise(3));
        // SAFETY: the lock is this thread's own.
        unsafe { lock.replace(2) };
        assert!(lock.is_untouched());
        assert_eq!(*lock.lock(), 2);
    }
}
