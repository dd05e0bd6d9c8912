//! What [`crate::kernel_threads::filters`] keeps.

use core::sync::atomic::AtomicU32;
use raddle_sched::SpinLock;

/// See [`crate::kernel_threads::filters`].
pub struct Filters {
    pub(crate) lock: SpinLock<()>,
    /// Threads that are about to install one, and those that have. Raised under the lock.
    pub(crate) coming: AtomicU32,
}

impl Filters {
    pub(crate) const fn new() -> Self {
        Self {
            lock: SpinLock::new(()),
            coming: AtomicU32::new(0),
        }
    }
}
