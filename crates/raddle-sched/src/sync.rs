//! The one place where atomics and shared cells come from, so that model checkers can replace them;
//! and what is made of them alone: locks, versions, tables that grow.

pub mod chunks;
pub mod counted_lock;
pub mod event_ring;
#[cfg(raddle_loom)]
mod ordered;
pub mod sample_ring;
pub mod spin;
pub mod version;

#[cfg(raddle_loom)]
pub use {
    loom::cell::UnsafeCell,
    loom::hint::spin_loop,
    ordered::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(raddle_shuttle)]
pub use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub use core::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Data that a lock guards. loom's type of that name reports unordered accesses.
#[cfg(not(raddle_loom))]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(raddle_loom))]
impl<T> UnsafeCell<T> {
    /// A cell.
    pub const fn new(data: T) -> Self {
        Self(core::cell::UnsafeCell::new(data))
    }

    /// Calls `access` with the data's address, for reading and writing.
    #[inline(always)]
    pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}
