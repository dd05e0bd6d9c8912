//! What [`crate::kernel_threads::filters`] keeps.

use raddle_sched::SpinLock;
use raddle_sched::call_gate::CallGate;

/// See [`crate::kernel_threads::filters`].
pub struct Filters {
    pub(crate) lock: SpinLock<()>,
    /// Closed by threads that are about to install one, and by those that have; under the lock.
    pub(crate) gate: CallGate,
}

impl Filters {
    pub(crate) const fn new() -> Self {
        Self {
            lock: SpinLock::new(()),
            gate: CallGate::new(),
        }
    }
}
