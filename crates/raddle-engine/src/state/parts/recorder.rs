//! What [`crate::state::events`] keeps.

use core::sync::atomic::AtomicU64;
use raddle_sched::{EventRing, SpinLock};

/// See [`crate::state::events`].
pub(crate) struct Recorder {
    /// Until when events are recorded (CLOCK_MONOTONIC); 0 for not at all.
    pub(crate) until_ns: AtomicU64,
    /// How many events a ring keeps; 0 before the first request.
    pub(crate) capacity: AtomicU64,
    /// Events that no ring had room for.
    pub(crate) lost: AtomicU64,
    /// The ring of kernel threads that are no carriers.
    pub(crate) common: EventRing,
    /// Held by the one that writes to `common`.
    pub(crate) writer: SpinLock<()>,
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self {
            until_ns: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            common: EventRing::new(),
            writer: SpinLock::new(()),
        }
    }
}
