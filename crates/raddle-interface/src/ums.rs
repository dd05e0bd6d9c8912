//! UMS workers and their lists, as both sides see them.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use raddle_sched::worker_state::Claim;
use raddle_sched::{CompletionList, Link, WorkerState};

/// A completion list.
#[repr(C)]
pub struct ListControl {
    /// Workers that can be executed or have ended, and that nobody has taken yet.
    pub ready: CompletionList,
    /// An eventfd to which 1 is added when the list isn't empty any more; -1 for none. Never
    /// changed.
    pub event: i32,
}

/// A worker: one cache line.
#[repr(C, align(64))]
pub struct WorkerControl {
    /// Its place in the list.
    pub link: Link,
    /// Who may execute it.
    pub state: WorkerState,
    /// The list that it goes to when it can be executed; lives as long as this.
    pub list: *const ListControl,
    /// The runtime's thread, which begins with a word that isn't 0 while a carrier is on the
    /// thread's stack. Stored by the runtime before the worker is listed first.
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
            state: WorkerState::new(),
            list,
            thread: AtomicPtr::new(null_mut()),
        }
    }

    /// Makes the calling thread the only one who may execute the worker.
    #[inline(always)]
    pub fn claim(&self) -> Claim {
        self.state.claim(|| {
            let thread = self.thread.load(Ordering::Relaxed).cast::<AtomicU32>();
            // SAFETY: a worker that is ready has a thread, in type-stable memory.
            unsafe { &*thread }
        })
    }
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

/// What a scheduler leaves with the worker that it executes; on the scheduler's stack. Whoever
/// takes it out of the worker's thread owns the scheduler until that continues.
#[repr(C)]
#[derive(Debug)]
pub struct Lease {
    /// The scheduler's thread. The runtime's.
    pub scheduler: Cell<*mut c_void>,
    /// The parameter of a yield. Stored by who takes the lease, as is the next one.
    pub parameter: Cell<usize>,
    /// Why the scheduler continues.
    pub end: Cell<Ended>,
}

impl Lease {
    /// A lease for [`crate::Runtime::execute_worker`].
    #[inline(always)]
    pub const fn new() -> Self {
        Self {
            scheduler: Cell::new(null_mut()),
            parameter: Cell::new(0),
            end: Cell::new(Ended::Parked),
        }
    }

    /// Offset of [`Lease::scheduler`].
    pub const SCHEDULER: usize = offset_of!(Self, scheduler);
    /// Offset of [`Lease::parameter`].
    pub const PARAMETER: usize = offset_of!(Self, parameter);
    /// Offset of [`Lease::end`].
    pub const END: usize = offset_of!(Self, end);
}

impl Default for Lease {
    fn default() -> Self {
        Self::new()
    }
}
