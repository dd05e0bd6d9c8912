//! What [`crate::kernel_threads::roster`] keeps.

use crate::state::process;
use core::sync::atomic::{AtomicIsize, AtomicU32, AtomicU64, AtomicUsize};
use raddle_sched::{Members, Orders};

/// The most helpers; further requests wait for one.
pub(crate) const MAX_HELPERS: u32 = 1000;

/// Carriers, helpers, sysmon and its stand-in.
pub(crate) const MOST: usize = process::MAX_CARRIERS + MAX_HELPERS as usize + 2;

/// See [`crate::kernel_threads::roster`].
pub struct Roster {
    /// The kernel threads, by their kernel ids. Closed once the process is about to end.
    pub(crate) members: Members<MOST>,
    pub(crate) orders: Orders<MOST>,
    pub(crate) call: AtomicU32,
    pub(crate) arguments: [AtomicUsize; 6],
    /// What the call returned to the giver of the order.
    pub(crate) expected: AtomicIsize,
    /// What it returned to another kernel thread, if that differs.
    pub(crate) differs: AtomicIsize,
    /// The FS base of the process's first kernel thread.
    pub(crate) first_fs: AtomicU64,
}

impl Roster {
    pub(crate) const fn new() -> Self {
        Self {
            members: Members::new(),
            orders: Orders::new(),
            call: AtomicU32::new(0),
            arguments: [const { AtomicUsize::new(0) }; 6],
            expected: AtomicIsize::new(0),
            differs: AtomicIsize::new(0),
            first_fs: AtomicU64::new(0),
        }
    }
}
