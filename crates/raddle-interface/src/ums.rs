//! UMS workers and their lists, as both sides see them.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use raddle_sched::{CompletionList, Link};

/// A completion list.
#[repr(C)]
pub struct ListControl {
    /// Workers that can be executed or have ended, and that nobody has taken yet.
    pub ready: CompletionList,
    /// An eventfd to which 1 is added when the list isn't empty any more; -1 for none. Never
    /// changed.
    pub event: i32,
}

/// What state a worker is in.
pub struct WorkerState;

impl WorkerState {
    /// It has no thread yet.
    pub const NEW: u32 = 0;
    /// On its completion list. Stored by whoever puts it there.
    pub const LISTED: u32 = 1;
    /// It may be executed. Stored by who took it from the list, or gave up executing it.
    pub const READY: u32 = 2;
    /// Executed, or blocked. Stored by who is going to execute it.
    pub const RUNNING: u32 = 3;
    /// Its thread has ended. Stored before it is listed for the last time.
    pub const ENDED: u32 = 4;
}

/// A worker.
#[repr(C)]
pub struct WorkerControl {
    /// Its place in the list.
    pub link: Link,
    /// A [`WorkerState`].
    state: AtomicU32,
    /// The list that it goes to when it can be executed; lives as long as this.
    pub list: *const ListControl,
    /// The runtime's.
    pub thread: AtomicPtr<c_void>,
}

// SAFETY: the list is shared by its own means, and the rest is atomic or guarded by the state.
unsafe impl Send for WorkerControl {}
// SAFETY: as above.
unsafe impl Sync for WorkerControl {}

impl WorkerControl {
    /// A worker without a thread.
    pub const fn new(list: *const ListControl) -> Self {
        Self {
            link: Link::new(),
            state: AtomicU32::new(WorkerState::NEW),
            list,
            thread: AtomicPtr::new(null_mut()),
        }
    }

    /// A [`WorkerState`].
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Changes the state; by who has the right to (see [`WorkerState`]).
    #[inline(always)]
    pub fn set(&self, state: u32) {
        self.state.store(state, Ordering::Release);
    }

    /// From ready to running, by one thread alone.
    ///
    /// # Errors
    /// The state, if it is another one.
    #[inline(always)]
    pub fn take(&self) -> Result<(), u32> {
        self.state
            .compare_exchange(
                WorkerState::READY,
                WorkerState::RUNNING,
                Ordering::Acquire,
                Ordering::Acquire,
            )
            .map(drop)
    }
}

/// What came of a claim.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The worker is the caller's to execute, and only to execute.
    Claimed = 0,
    /// Its registers are still being saved: try again.
    Locked = 1,
    /// It runs, or is blocked.
    Busy = 2,
    /// It must be taken from its list first.
    Listed = 3,
    /// It has ended.
    Ended = 4,
    /// It has no thread.
    New = 5,
}

/// Why a worker gave its scheduler the carrier back.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It waits in a call.
    Parked = 1,
    /// It waits in the kernel, where the runtime doesn't see for what: a page fault, or a call that
    /// the runtime doesn't know.
    InKernel = 2,
    /// It asked for it.
    Yielded = 3,
    /// Its thread has ended.
    Exited = 4,
    /// It has computed for as long as it was allowed to.
    Preempted = 5,
}
