//! A spin lock for a few instructions' work.
//!
//! Holders never park, switch, fault or call out, so a wait is long only if the kernel takes a
//! holder's CPU away. A waiter that has spun long enough calls the process-wide [`Relax`] hook,
//! which gives the CPU away.

use crate::sync::{AtomicU32, Ordering, UnsafeCell, spin_loop};
use core::mem::transmute;
use core::ops::{Deref, DerefMut};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr; // not the models': it is no part of the protocol
use core::sync::atomic::Ordering::Relaxed;

/// The hook that gives the CPU away, called by a waiter after [`SPINS`] fruitless looks, with how
/// often it has called before in this wait.
pub type Relax = fn(u32);

/// Looks at the lock before a waiter relaxes.
pub(crate) const SPINS: u32 = 200;

/// A [`Relax`], or null for one that does nothing. Written once, before a second thread exists.
static RELAX: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Sets what waiters do after spinning.
///
/// # Safety
/// Must be called before a second thread exists.
pub unsafe fn set_relax(relax: Relax) {
    RELAX.store(relax as *mut (), Relaxed);
}

/// Gives the CPU away, for the time after `times` others in this wait.
pub(crate) fn relax(times: u32) {
    let relax = RELAX.load(Relaxed);
    if !relax.is_null() {
        // SAFETY: `set_relax` stored a function of this type.
        unsafe { transmute::<*mut (), Relax>(relax)(times) };
    }
}

/// Data behind a spin lock.
pub struct SpinLock<T> {
    /// 0 free, 1 held. Taken with acquire, freed with release.
    held: AtomicU32,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the data.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `data`.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new(data: T) -> Self {
        Self {
            held: AtomicU32::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// A free lock around `data`.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new(data: T) -> Self {
        Self {
            held: AtomicU32::new(0),
            data: UnsafeCell::new(data),
        }
    }

    /// Takes the lock, spinning.
    #[inline(always)]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        if !self.take() {
            self.lock_contended();
        }
        SpinGuard { lock: self }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Lazily: a guard that is made and dropped would free a lock that another thread holds.
        self.take().then(|| SpinGuard { lock: self })
    }

    /// Takes the lock if it is free. Not a swap: writing 1 over 1 would be ordered with the
    /// holder's release, which loom doesn't model.
    #[inline(always)]
    fn take(&self) -> bool {
        self.held
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn lock_contended(&self) {
        let (mut looks, mut times) = (0, 0);
        loop {
            while self.held.load(Ordering::Relaxed) != 0 {
                spin_loop();
                looks += 1;
                if looks == SPINS {
                    looks = 0;
                    relax(times);
                    times += 1;
                }
            }
            if self.take() {
                return;
            }
        }
    }

    /// The data, without the lock.
    ///
    /// # Safety
    /// No other thread may exist, nor a guard.
    pub unsafe fn peek(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: no other thread or guard exists to change it, by the caller's promise.
        self.data.with_mut(|at| unsafe { *at })
    }

    /// Where the data is, for tools that read it from outside.
    pub fn as_ptr(&self) -> *mut T {
        self.data.with_mut(|at| at)
    }

    /// Frees a lock after its holder has ceased to exist: in the child of a fork. Returns true if
    /// it was held.
    ///
    /// # Safety
    /// No other thread may exist, and the data must be made consistent before it is used.
    pub unsafe fn break_lock(&self) -> bool {
        let Self { held, data: _ } = self;
        // A child writes to as few of its parent's pages as it can.
        let is_held = held.load(Ordering::Relaxed) != 0;
        if is_held {
            held.store(0, Ordering::Release);
        }
        is_held
    }
}

/// Access to the data; frees the lock when dropped.
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so this thread holds the lock.
        self.lock.data.with_mut(|data| unsafe { &*data })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        self.lock.data.with_mut(|data| unsafe { &mut *data })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.held.store(0, Ordering::Release);
    }
}
