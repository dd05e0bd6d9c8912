//! What [`crate::io::helpers`] keeps.

use core::cell::Cell;
use core::sync::atomic::AtomicU32;
use raddle_sched::helper_queue::HelperQueue;

/// The call of a request.
pub(crate) struct Call {
    pub(crate) nr: u32,
    pub(crate) args: [usize; 6],
    /// When the thread left it (time-stamp counter), while events are recorded; else 0.
    pub(crate) left: u64,
    pub(crate) result: Cell<isize>,
    /// Time stamp ticks that the call took in the kernel.
    pub(crate) ticks: Cell<u64>,
    /// Kernel id of the helper that works on it; 0 before.
    pub(crate) helper: AtomicU32,
    /// 1 once the call is to end: before the poke, which the helper may get too early.
    pub(crate) interrupted: AtomicU32,
}

/// The helpers of this process.
pub struct Helpers {
    pub(crate) queue: HelperQueue<Call>,
}

impl Helpers {
    pub(crate) const fn new() -> Self {
        Self {
            queue: HelperQueue::new(),
        }
    }
}
