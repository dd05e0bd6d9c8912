//! What [`crate::kernel_threads::roster`] keeps.

use crate::state::process;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize};
use raddle_sched::{Orders, SpinLock};

/// The most helpers; further requests wait for one.
pub(crate) const MAX_HELPERS: u32 = 1000;

/// Carriers, helpers, sysmon and its stand-in.
pub(crate) const MOST: usize = process::MAX_CARRIERS + MAX_HELPERS as usize + 2;

/// See [`crate::kernel_threads::roster`].
pub struct Roster {
    /// How many of `tids` were ever in use.
    pub(crate) used: SpinLock<usize>,
    /// Kernel ids; 0 for a free place. Written under the lock.
    pub(crate) tids: [AtomicU32; MOST],
    pub(crate) orders: Orders<MOST>,
    pub(crate) call: AtomicU32,
    pub(crate) arguments: [AtomicUsize; 6],
    /// What the call returned to the giver of the order.
    pub(crate) expected: AtomicIsize,
    /// What it returned to another kernel thread, if that differs.
    pub(crate) differs: AtomicIsize,
    /// True once no more kernel threads are made: the process is about to end.
    pub(crate) closed: AtomicBool,
    /// The FS base of the process's first kernel thread.
    pub(crate) first_fs: AtomicU64,
}

impl Roster {
    pub(crate) const fn new() -> Self {
        Self {
            used: SpinLock::new(0),
            tids: [const { AtomicU32::new(0) }; MOST],
            orders: Orders::new(),
            call: AtomicU32::new(0),
            arguments: [const { AtomicUsize::new(0) }; 6],
            expected: AtomicIsize::new(0),
            differs: AtomicIsize::new(0),
            closed: AtomicBool::new(false),
            first_fs: AtomicU64::new(0),
        }
    }
}
