//! The one place where atomics come from, so that model checkers can replace them.

#[cfg(raddle_loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
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
