//! What [`crate::kernel_events::quantum_timer`] keeps.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// A carrier's part.
pub(crate) struct QuantumTimer {
    /// One more than the count of switches that the next expiry should find; 0 if it is off.
    /// Written by sysmon before it starts the timer, then by the carrier's signal handler until
    /// that is off.
    pub(crate) expects: AtomicU64,
    /// Turns that were ended. Written by the handler, read by sysmon.
    pub(crate) expiries: AtomicU64,
    /// One more than the timer's id; 0 without a timer. Written by sysmon, and by the installer of
    /// a filter, under the lock of [`crate::kernel_threads::filters`].
    pub(crate) timer: AtomicU32,
}
