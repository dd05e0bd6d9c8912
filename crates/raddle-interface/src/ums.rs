//! UMS workers and their lists, as both sides see them.

use core::cell::Cell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use raddle_sched::worker_state::is_locked;
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
    /// The runtime's thread. Stored by the runtime before the worker is listed first; of a light
    /// worker by who has claimed it.
    pub thread: AtomicPtr<c_void>,
    /// What `gettid` returns to it. Stored by the runtime before `thread`, as is the next one; both
    /// stay 0 for a light worker.
    pub thread_id: AtomicU32,
    /// Its thread-local storage, whose address is its `pthread_t`.
    pub storage: AtomicUsize,
    /// Where a light worker at rest continues. Its own, and its executor's, which has claimed it.
    pub stack: Cell<*mut u8>,
    /// Not 0 while a light worker's stack is being left, so that it can rest. Stored by who leaves,
    /// and by the switch.
    pub on_cpu: AtomicU32,
    /// 0, or one of the constants below. Stored by its maker before it is listed first, and by
    /// itself.
    pub kind: AtomicU32,
}

// SAFETY: the list is shared by its own means, and the rest is atomic or guarded by the state.
unsafe impl Send for WorkerControl {}
// SAFETY: as above.
unsafe impl Sync for WorkerControl {}

const _: () = assert!(size_of::<WorkerControl>() == 64);

impl WorkerControl {
    /// [`WorkerControl::kind`] of a light worker that migrates: it has no thread of its own.
    pub const LIGHT: u32 = 1;
    /// Of a light worker whose function has returned.
    pub const LIGHT_IS_OVER: u32 = 2;
    /// Of a light worker that keeps the thread that it begins on. To the runtime it is a full one.
    pub const KEEPS_HOST: u32 = 3;

    /// A worker without a thread.
    pub const fn new(list: *const ListControl) -> Self {
        Self {
            link: Link::new(),
            state: WorkerState::new(),
            list,
            thread: AtomicPtr::new(null_mut()),
            thread_id: AtomicU32::new(0),
            storage: AtomicUsize::new(0),
            stack: Cell::new(null_mut()),
            on_cpu: AtomicU32::new(0),
            kind: AtomicU32::new(0),
        }
    }
}

/// What the API may see of a worker's thread, which is the runtime's.
#[derive(Clone, Copy)]
pub struct ThreadView<'a> {
    /// Not 0 while a carrier is on the thread's stack.
    on_cpu: &'a AtomicU32,
    /// Whose worker the thread is; null while it is none.
    worker: &'a AtomicPtr<WorkerControl>,
}

impl ThreadView<'_> {
    /// Where the thread's first word is, `on_cpu`.
    pub const ON_CPU: usize = 0;
    /// Where it continues while it is off its stack: in the line that a switch needs, as is the
    /// next one.
    pub const CONTEXT: usize = 256;
    /// Where the thread says whose worker it is.
    pub const WORKER: usize = 288;

    /// The thread of a worker.
    ///
    /// # Safety
    /// `thread` must be [`WorkerControl::thread`], and not null.
    #[inline(always)]
    pub unsafe fn at(thread: *mut c_void) -> Self {
        // SAFETY: the caller's promise; the runtime's threads are never unmapped, and it asserts
        // these offsets.
        unsafe {
            Self {
                on_cpu: &*thread.byte_add(Self::ON_CPU).cast(),
                worker: &*thread.byte_add(Self::WORKER).cast(),
            }
        }
    }

    /// Brings what a switch to the worker touches into the CPU's cache.
    ///
    /// # Safety
    /// As of [`ThreadView::at`].
    #[inline(always)]
    pub unsafe fn prefetch(thread: *mut c_void) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the caller's promise; a prefetch of any address is harmless.
        unsafe {
            let context = &*thread.byte_add(Self::CONTEXT).cast::<AtomicPtr<i8>>();
            _mm_prefetch::<_MM_HINT_T0>(thread.byte_add(Self::ON_CPU).cast());
            let frame = context.load(Ordering::Relaxed);
            _mm_prefetch::<_MM_HINT_T0>(frame);
            _mm_prefetch::<_MM_HINT_T0>(frame.wrapping_add(64));
        }
    }

    /// The end of the free part of a stack that its thread has left; `None` if it hasn't yet.
    ///
    /// # Safety
    /// `thread` must be a thread of the runtime's, which doesn't continue as long as this is used.
    #[inline(always)]
    pub unsafe fn free_stack(thread: *mut c_void) -> Option<*mut u8> {
        // SAFETY: the caller's promise, and as in `at`.
        unsafe {
            let on_cpu = &*thread.byte_add(Self::ON_CPU).cast::<AtomicU32>();
            let context = &*thread.byte_add(Self::CONTEXT).cast::<AtomicPtr<u8>>();
            // Acquire: partner of the switch.
            let has_left = on_cpu.load(Ordering::Acquire) == 0;
            has_left.then(|| context.load(Ordering::Relaxed).map_addr(|at| at & !15))
        }
    }

    /// True while `worker` can't be executed on the thread by who may
    /// ([`raddle_sched::worker_state`]).
    #[inline(always)]
    pub fn is_locked_as(self, worker: *const WorkerControl) -> bool {
        is_locked(self.worker, worker.cast_mut(), self.on_cpu)
    }

    /// The thread is that worker from now on.
    ///
    /// # Safety
    /// The thread must be a worker that the caller has claimed, and that isn't locked.
    #[inline(always)]
    pub unsafe fn becomes(self, worker: *const WorkerControl) {
        self.worker.store(worker.cast_mut(), Ordering::Release);
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

/// Decides who is next, in a scheduler's place: of the lease, which the caller has taken, and the
/// parameter of its yield. A claimed worker, or null if the scheduler is to go on.
pub type Decide = unsafe extern "C" fn(*const Lease, usize) -> *const WorkerControl;

/// What a scheduler leaves with the worker that it executes; on the scheduler's stack. Whoever
/// takes it out of the worker's thread owns the scheduler until that continues: also a worker that
/// yields and decides in the scheduler's place ([`crate::Runtime::yield_worker`]).
#[repr(C)]
#[derive(Debug)]
pub struct Lease {
    /// The scheduler's thread. The runtime's.
    pub scheduler: Cell<*mut c_void>,
    /// The parameter of a yield. Stored by who takes the lease, as is the next one.
    pub parameter: Cell<usize>,
    /// Why the scheduler continues.
    pub end: Cell<Ended>,
    /// What a worker that yields, and has taken this, may call to decide. The scheduler's.
    pub decide: Option<Decide>,
    /// The worker that took it for that. The runtime's.
    pub worker: Cell<*mut WorkerControl>,
}

impl Lease {
    /// A lease for [`crate::Runtime::execute_worker`], with what workers that yield may decide by.
    #[inline(always)]
    pub const fn new(decide: Option<Decide>) -> Self {
        Self {
            scheduler: Cell::new(null_mut()),
            parameter: Cell::new(0),
            end: Cell::new(Ended::Parked),
            decide,
            worker: Cell::new(null_mut()),
        }
    }

    /// Offset of [`Lease::scheduler`].
    pub const SCHEDULER: usize = offset_of!(Self, scheduler);
    /// Offset of [`Lease::parameter`].
    pub const PARAMETER: usize = offset_of!(Self, parameter);
    /// Offset of [`Lease::end`].
    pub const END: usize = offset_of!(Self, end);
    /// Offset of [`Lease::decide`].
    pub const DECIDE: usize = offset_of!(Self, decide);
    /// Offset of [`Lease::worker`].
    pub const WORKER: usize = offset_of!(Self, worker);
}
