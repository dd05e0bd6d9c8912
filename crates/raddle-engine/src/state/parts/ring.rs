//! What [`crate::io::ring`] keeps.

use crate::os::io_uring::Work;
use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use raddle_sched::transfers::Transfers;

/// The work of a transfer.
pub(crate) struct Job {
    pub(crate) work: Work,
    /// Time stamp at the start, then ticks that it took.
    pub(crate) ticks: Cell<u64>,
    pub(crate) result: Cell<isize>,
}

/// The ring of this process.
pub struct Ring {
    pub(crate) transfers: Transfers<Job>,
    /// Made while the ring's thread may enter its ring.
    pub(crate) served: AtomicU32,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self {
            transfers: Transfers::new(),
            served: AtomicU32::new(0),
        }
    }
}
