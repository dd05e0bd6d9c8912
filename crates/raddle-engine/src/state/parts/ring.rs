//! What [`crate::io::ring`] keeps.

use crate::os::io_uring::Work;
use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use raddle_sched::wake::Announcement;
use raddle_sched::{SpinLock, TaskRef};

/// States of the ring: none yet; being made; there; refused.
pub(crate) const NONE: u32 = 0;

pub(crate) struct Transfer {
    pub(crate) work: Work,
    pub(crate) task: TaskRef,
    /// Time stamp at the start, then ticks that it took.
    pub(crate) ticks: Cell<u64>,
    pub(crate) result: Cell<isize>,
    /// Changed under the lock.
    pub(crate) done: Cell<bool>,
    pub(crate) next: Cell<*const Transfer>,
}

pub(crate) struct Posted {
    pub(crate) head: *const Transfer,
    pub(crate) tail: *const Transfer,
}

// SAFETY: transfers are reached under the lock until taken, and stay alive until they are done.
unsafe impl Send for Posted {}

/// The ring of this process.
pub struct Ring {
    /// Becomes `READY`, and ceases to be, under the list's lock.
    pub(crate) state: AtomicU32,
    /// Made while the ring's thread may enter its ring.
    pub(crate) served: AtomicU32,
    pub(crate) list: SpinLock<Posted>,
    /// Raised for every transfer.
    pub(crate) posted: AtomicU32,
    /// 1 while the ring's thread sleeps or is about to; the thread that swaps it to 0 wakes it.
    pub(crate) asleep: Announcement,
    /// Transfers that the ring's thread hasn't been told of; 0 again before it takes what there is.
    pub(crate) unannounced: AtomicU32,
}

impl Ring {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU32::new(NONE),
            served: AtomicU32::new(0),
            list: SpinLock::new(Posted {
                head: null(),
                tail: null(),
            }),
            posted: AtomicU32::new(0),
            asleep: Announcement::new(),
            unannounced: AtomicU32::new(0),
        }
    }
}
