//! What [`crate::scheduling::page_rings`] keeps.

use crate::os::io_uring::Queues;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU32, AtomicU64};
use raddle_sched::{SpinLock, TaskRef};
use raddle_sys::mem;

/// Waits that a carrier may have at once.
pub(crate) const PLACES: usize = 64;

pub(crate) struct Wait {
    pub(crate) task: TaskRef,
    /// Changed under the lock.
    pub(crate) end: Cell<End>,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    NotYet,
    /// The page should be in memory.
    Done,
    /// The page is to be waited for by another carrier.
    Adopted,
    /// No thread waits for the page any more.
    Relieved,
}

pub(crate) struct Places {
    /// One bit for each place that no request uses.
    pub(crate) free: u64,
    /// The wait for the request in a place; null if there is none any more.
    pub(crate) waits: [*const Wait; PLACES],
}

// SAFETY: waits are reached under the lock, and live until they are over.
unsafe impl Send for Places {}

/// A carrier's ring. A field is its kernel thread's alone, unless it says otherwise.
pub(crate) struct Own {
    /// `None` before the first use, and once the kernel thread has ended.
    pub(crate) queues: UnsafeCell<Option<Queues>>,
    /// Requests for pages that aren't done, as far as the carrier knows. Written by the carrier,
    /// read by sysmon.
    pub(crate) requests: AtomicU32,
    /// One more than the carrier's count of switches when it was to be reminded of its requests; 0
    /// for not. Written by sysmon and by the carrier's signal handler.
    pub(crate) reminded: AtomicU64,
    /// 1 once all requests are done. Written by the carrier and its signal handler, read by sysmon.
    pub(crate) finished: AtomicU32,
    /// True while the kernel has a request for the wake word, and for the pump.
    pub(crate) has_word: Cell<bool>,
    pub(crate) has_pump: Cell<bool>,
    /// Used by any thread.
    pub(crate) places: SpinLock<Places>,
    /// Waits that aren't over. Changed under the lock; a hint for readers without it.
    pub(crate) count: AtomicU32,
    /// What requests read, a byte for each place. The kernel's.
    pub(crate) bytes: UnsafeCell<[u8; PLACES]>,
}

const _: () = assert!(size_of::<Own>() <= mem::PAGE_SIZE);

/// See [`crate::scheduling::page_rings`].
pub struct Pages {
    /// 1 once the kernel has refused.
    pub(crate) refused: AtomicU32,
    /// 1 if a carrier couldn't cope since threads were last adopted.
    pub(crate) strained: AtomicU32,
    /// When threads were last adopted: a time stamp.
    pub(crate) adopted_at: AtomicU64,
    /// Ticks until threads may be adopted again; at least `MIN_GAP_TICKS`.
    pub(crate) gap_ticks: AtomicU64,
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self {
            refused: AtomicU32::new(0),
            strained: AtomicU32::new(0),
            adopted_at: AtomicU64::new(0),
            gap_ticks: AtomicU64::new(0),
        }
    }
}
