//! What [`crate::scheduling::page_rings`] keeps.

use crate::os::io_uring::Queues;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU32, AtomicU64};
use raddle_sched::requests::Requests;
use raddle_sys::mem;

/// Waits that a carrier may have at once.
pub(crate) const PLACES: usize = 64;

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
    /// Requests for pages, and the threads that wait for them. Used by any thread.
    pub(crate) pages: Requests<PLACES>,
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
