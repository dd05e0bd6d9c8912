//! What [`crate::io::direct`] keeps.

use core::sync::atomic::{AtomicU32, AtomicUsize};
use raddle_sched::SpinLock;

// States of the context; `READY` comes with its address.
pub(crate) const NONE: u32 = 0;

/// The AIO context of this process.
pub struct Direct {
    pub(crate) state: AtomicU32,
    /// The context, which is the address of its `AioRing`.
    pub(crate) context: AtomicUsize,
    pub(crate) reaping: SpinLock<()>,
}

impl Direct {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            context: AtomicUsize::new(0),
            reaping: SpinLock::new(()),
        }
    }
}
