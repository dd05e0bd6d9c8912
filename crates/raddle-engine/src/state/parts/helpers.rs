//! What [`crate::io::helpers`] keeps.

use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::AtomicU32;
use raddle_sched::{SpinLock, TaskRef};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Queued,
    Taken,
    Done,
}

pub(crate) struct Request {
    pub(crate) nr: u32,
    pub(crate) args: [usize; 6],
    pub(crate) result: Cell<isize>,
    /// Time stamp ticks that the call took in the kernel.
    pub(crate) ticks: Cell<u64>,
    pub(crate) patient: bool,
    pub(crate) task: TaskRef,
    /// Kernel id of the helper that works on it; 0 before.
    pub(crate) helper: AtomicU32,
    /// 1 once the call is to end: before the poke, which the helper may get too early.
    pub(crate) interrupted: AtomicU32,
    /// Changed under the lock.
    pub(crate) progress: Cell<Progress>,
    pub(crate) next: Cell<*const Request>,
}

pub(crate) struct State {
    pub(crate) head: *const Request,
    pub(crate) tail: *const Request,
    pub(crate) idle: u32,
    pub(crate) total: u32,
}

// SAFETY: requests are reached under the lock until taken, and stay alive until completed.
unsafe impl Send for State {}

/// The helpers of this process.
pub struct Helpers {
    pub(crate) state: SpinLock<State>,
    /// Raised for every request; what idle helpers sleep on.
    pub(crate) posted: AtomicU32,
}

impl Helpers {
    pub(crate) const fn new() -> Self {
        Self {
            state: SpinLock::new(State {
                head: null(),
                tail: null(),
                idle: 0,
                total: 0,
            }),
            posted: AtomicU32::new(0),
        }
    }
}
