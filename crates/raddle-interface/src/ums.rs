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
    /// Workers that can be executed or have ended, and that no scheduler has taken yet.
    pub ready: CompletionList,
    /// An eventfd that gets 1 when the list is no longer empty; -1 for none. Never changed.
    pub event: i32,
}

/// A worker: one cache line.
#[repr(C, align(64))]
pub struct WorkerControl {
    /// Its link in the list.
    pub link: Link,
    /// Its state, which says whether it may be executed.
    pub state: WorkerState,
    /// The list to which it is pushed when it can be executed; lives as long as the worker.
    pub list: *const ListControl,
    /// The runtime's thread. Stored by the runtime before the worker is listed first; for a light
    /// worker, by the thread that has claimed it.
    pub thread: AtomicPtr<c_void>,
    /// The id that `gettid` returns to it. Stored by the runtime before `thread`, as is `storage`;
    /// both stay 0 for a light worker.
    pub thread_id: AtomicU32,
    /// Its thread-local storage; the address is its `pthread_t`.
    pub storage: AtomicUsize,
    /// Where a light worker at rest continues. Accessed by the worker, and by the executor that has
    /// claimed it.
    pub stack: Cell<*mut u8>,
    /// Not 0 while a light worker leaves its stack to rest. Stored by the leaving worker, and
    /// cleared by the switch.
    pub on_cpu: AtomicU32,
    /// 0, or one of the constants below. Stored by its maker before it is listed first, and by the
    /// worker itself.
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
    /// Kind of a light worker that has returned from its function.
    pub const LIGHT_IS_OVER: u32 = 2;
    /// Kind of a light worker that keeps the thread that it begins on: a full worker to the
    /// runtime.
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

/// The part of a worker's thread, which belongs to the runtime, that the API may see.
#[derive(Clone, Copy)]
pub struct ThreadView<'a> {
    /// Not 0 while a carrier is on the thread's stack.
    on_cpu: &'a AtomicU32,
    /// The worker that the thread is; null while it is none.
    worker: &'a AtomicPtr<WorkerControl>,
}

impl ThreadView<'_> {
    /// Offset of the thread's first word, `on_cpu`.
    pub const ON_CPU: usize = 0;
    /// Offset of the word that says where the thread continues while it is off its stack. This and
    /// the next one are in the cache line that a switch needs.
    pub const CONTEXT: usize = 256;
    /// Offset of the word that says which worker the thread is.
    pub const WORKER: usize = 288;

    /// Returns the view of a worker's thread.
    ///
    /// # Safety
    /// `thread` must be [`WorkerControl::thread`], and not null.
    #[inline(always)]
    pub unsafe fn at(thread: *mut c_void) -> Self {
        // SAFETY: the caller's promise; the runtime never unmaps its threads, and asserts these
        // offsets.
        unsafe {
            Self {
                on_cpu: &*thread.byte_add(Self::ON_CPU).cast(),
                worker: &*thread.byte_add(Self::WORKER).cast(),
            }
        }
    }

    /// Loads the memory that a switch to the worker touches into the CPU's cache.
    ///
    /// # Safety
    /// As for [`ThreadView::at`].
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

    /// Returns the end of the free part of a stack that its thread has left; `None` if it hasn't
    /// yet.
    ///
    /// # Safety
    /// `thread` must be a thread of the runtime that doesn't continue while the result is used.
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

    /// Returns true while the claimer of `worker` can't execute it on the thread
    /// ([`raddle_sched::worker_state`]).
    #[inline(always)]
    pub fn is_locked_as(self, worker: *const WorkerControl) -> bool {
        is_locked(self.worker, worker.cast_mut(), self.on_cpu)
    }

    /// Makes the thread that worker from now on.
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
    /// The worker waits in a call.
    Parked = 1,
    /// The worker waits in the kernel for a reason that the runtime doesn't see: a page fault, or
    /// a call that the runtime doesn't know.
    InKernel = 2,
    /// The worker yielded.
    Yielded = 3,
    /// Its thread has ended.
    Exited = 4,
    /// The worker has computed for as long as it may.
    Preempted = 5,
}

/// A function that decides, in a scheduler's place, which worker is next. Takes the token, which
/// the caller has taken, and the parameter of the caller's yield. Returns a claimed worker, or null
/// if the scheduler must go on.
pub type Decide = unsafe extern "C" fn(*const SchedulerToken, usize) -> *const WorkerControl;

/// State that a scheduler leaves with the worker that it executes, on the scheduler's stack. The
/// thread that takes it out of the worker's thread owns the scheduler until the scheduler
/// continues. That may be a worker that yields and decides in the scheduler's place
/// ([`crate::Runtime::yield_worker`]).
#[repr(C)]
#[derive(Debug)]
pub struct SchedulerToken {
    /// The scheduler's thread. Used by the runtime.
    pub scheduler: Cell<*mut c_void>,
    /// The parameter of a yield. Stored by the thread that takes the token, as is `end`.
    pub parameter: Cell<usize>,
    /// Why the scheduler continues.
    pub end: Cell<Ended>,
    /// The function by which a worker that yields, and has taken the token, may decide. Set by the
    /// scheduler.
    pub decide: Option<Decide>,
    /// The worker that took the token to decide. Used by the runtime.
    pub worker: Cell<*mut WorkerControl>,
}

impl SchedulerToken {
    /// A token for [`crate::Runtime::execute_worker`], with the function by which yielding workers
    /// may decide.
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

    /// Offset of [`SchedulerToken::scheduler`].
    pub const SCHEDULER: usize = offset_of!(Self, scheduler);
    /// Offset of [`SchedulerToken::parameter`].
    pub const PARAMETER: usize = offset_of!(Self, parameter);
    /// Offset of [`SchedulerToken::end`].
    pub const END: usize = offset_of!(Self, end);
    /// Offset of [`SchedulerToken::decide`].
    pub const DECIDE: usize = offset_of!(Self, decide);
    /// Offset of [`SchedulerToken::worker`].
    pub const WORKER: usize = offset_of!(Self, worker);
}
