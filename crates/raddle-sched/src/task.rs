//! What the scheduler knows of a green thread, and the parking protocol.
//!
//! A *task* is embedded in the engine's thread object. Its *claim word* decides which waker wakes
//! it:
//!
//! 1. The parker stores WAITING, links its wait nodes, checks its condition again, and switches
//!    away. A waker that came before the link finds no node; so the check must follow the link.
//! 2. A waker, a timer and a signal each try to move the claim word from WAITING to their reason.
//!    Exactly one succeeds, and pushes the task to a run queue at once.
//! 3. The parker may still be on its stack then: `on_cpu` is 1. The carrier that pops the task
//!    waits until `on_cpu` is 0, sets it to 1 and continues the context. The carrier waits on its
//!    own stack: on green stacks, two carriers that wait for each other's parker would never leave
//!    them.
//! 4. The switch itself stores 0 to `on_cpu`, after its last use of the old stack.
//!
//! A task that waits for one key of a [`WaitTable`](crate::WaitTable) and nothing else is *queued*
//! instead of waiting: all its wakers hold the lock of its node's bucket, and the one that finds it
//! queued stores the reason. That saves one locked operation where there is a lock anyway.
//!
//! No lock is held over a switch, and no wake-up is lost: a waker that comes before step 1's link
//! has made a change that the check sees; a later waker sees the node.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use core::cell::Cell;
use core::ptr::{NonNull, null_mut};

mod node;
mod timer_node;

pub use node::{Class, Node, Terms, View};
pub(crate) use node::{node, of};
pub(crate) use timer_node::TimerNode;

/// Why a parked task runs again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Wake {
    /// The event that the task waited for happened.
    Woken = 2,
    /// The deadline passed.
    TimedOut = 3,
    /// A signal or a cancellation ended the wait.
    Signalled = 4,
    /// The condition had changed before the task slept.
    Retry = 5,
}

const RUNNING: u32 = 0;
const WAITING: u32 = raddle_inspect::Layout::CLAIM_WAITING;
const QUEUED: u32 = raddle_inspect::Layout::CLAIM_QUEUED;

/// The scheduler's part of a green thread. `repr(C)`: the engine casts between the two.
#[repr(C)]
pub struct Task {
    /// 1 while a carrier is on its stack. Set by the resumer before it switches, cleared by the
    /// switch (release), read with acquire by the carrier that pops the task.
    pub on_cpu: AtomicU32,
    /// RUNNING, WAITING, QUEUED or a [`Wake`]. WAITING and QUEUED are stored by the task itself;
    /// WAITING is replaced by one CAS, QUEUED under the lock of the node's bucket.
    claim: AtomicU32,
    /// Link of the injector, of [`TaskList`] and of free lists; owned by the holder of the task.
    pub(crate) next: AtomicPtr<Task>,
    /// Its rank among waiters: those of a higher rank are woken first, and most have rank 0. Stored
    /// by the engine's user, read when a wait node is linked.
    pub rank: AtomicU32,
    /// Its node in [`crate::Timers`]; guarded by the lock there.
    pub(crate) timer: TimerNode,
    /// Its node in the policy, and the attributes that the policy uses.
    pub policy: Node,
}

impl Task {
    /// Offset of the claim word, for readers of the process's memory.
    pub const CLAIM: usize = core::mem::offset_of!(Task, claim);
    /// Likewise of the deadline in [`crate::Timers`].
    pub const DEADLINE: usize = core::mem::offset_of!(Task, timer) + TimerNode::DEADLINE;
    /// Likewise of a byte that is 1 while the task has a deadline there.
    pub const HAS_DEADLINE: usize = core::mem::offset_of!(Task, timer) + TimerNode::QUEUED;

    /// A task that runs.
    pub fn new() -> Self {
        Self {
            on_cpu: AtomicU32::new(0),
            claim: AtomicU32::new(RUNNING),
            next: AtomicPtr::new(null_mut()),
            rank: AtomicU32::new(0),
            timer: TimerNode::new(),
            policy: Node::new(),
        }
    }

    /// Announces that the running task is going to wait (step 1). Only the task itself calls it.
    ///
    /// This store alone is not ordered before a later look at the condition: the wait table's
    /// count, or the lock under which a node is linked and the condition read, orders it.
    #[inline(always)]
    pub fn prepare(&self) {
        self.claim.store(WAITING, Ordering::Relaxed);
    }

    /// See [`crate::WaitTable::prepare`]. Release: a thread that sees it sees the node's key.
    #[inline(always)]
    pub(crate) fn prepare_queued(&self) {
        self.claim.store(QUEUED, Ordering::Release);
    }

    /// As [`Task::prepare`], for conditions that are read without a lock (SeqCst), such as a
    /// thread's pending signals. Either this task sees the condition, or the thread that made it
    /// true by a SeqCst read-modify-write sees the task wait.
    #[inline(always)]
    pub fn prepare_fenced(&self) {
        self.claim.swap(WAITING, Ordering::SeqCst);
    }

    /// Tries to win the right to wake the task (step 2); the winner must push it. SeqCst, for the
    /// failure too: partner of [`Task::prepare_fenced`].
    #[must_use]
    #[inline(always)]
    pub fn claim(&self, why: Wake) -> bool {
        self.claim
            .compare_exchange(WAITING, why as u32, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// As [`Task::claim`], for a caller that holds the lock that guards the list of the task's
    /// node.
    #[must_use]
    #[inline(always)]
    pub(crate) fn claim_held(&self, why: Wake) -> bool {
        if self.claim.load(Ordering::Relaxed) != QUEUED {
            return self.claim(why);
        }
        self.claim.store(why as u32, Ordering::Release);
        true
    }

    /// Returns true between [`Task::prepare`] and a successful claim.
    pub fn is_waiting(&self) -> bool {
        matches!(self.claim.load(Ordering::Relaxed), WAITING | QUEUED)
    }

    /// Returns true between [`crate::WaitTable::prepare`] and a successful claim. SeqCst, as the
    /// failure of [`Task::claim`].
    pub fn is_queued(&self) -> bool {
        self.claim.load(Ordering::SeqCst) == QUEUED
    }

    /// Returns why the task runs again, after it was claimed.
    #[inline(always)]
    pub fn outcome(&self) -> Wake {
        match self.claim.load(Ordering::Acquire) {
            3 => Wake::TimedOut,
            4 => Wake::Signalled,
            5 => Wake::Retry,
            _ => Wake::Woken,
        }
    }
}

impl Default for Task {
    fn default() -> Self {
        Self::new()
    }
}

/// A task by address. The engine keeps tasks alive (type-stable memory) while any thread holds one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct TaskRef(NonNull<Task>);

// SAFETY: a Task is made of atomics and of cells guarded by the locks that their modules name.
unsafe impl Send for TaskRef {}
// SAFETY: as above.
unsafe impl Sync for TaskRef {}

impl TaskRef {
    /// From an address.
    ///
    /// # Safety
    /// The task must outlive every use of the reference: it lives in type-stable memory.
    pub const unsafe fn new(task: NonNull<Task>) -> Self {
        Self(task)
    }

    /// From an address that may be null.
    ///
    /// # Safety
    /// As for [`TaskRef::new`] if it isn't null.
    pub unsafe fn from_ptr(task: *mut Task) -> Option<Self> {
        NonNull::new(task).map(Self)
    }

    /// The address.
    pub const fn as_ptr(self) -> *mut Task {
        self.0.as_ptr()
    }

    /// The task.
    #[inline(always)]
    pub fn get<'a>(self) -> &'a Task {
        // SAFETY: the constructor's promise.
        unsafe { self.0.as_ref() }
    }
}

/// A singly linked FIFO of claimed tasks, owned by one thread.
pub struct TaskList {
    head: Cell<*mut Task>,
    tail: Cell<*mut Task>,
    len: Cell<usize>,
}

// SAFETY: moving the list moves the ownership of all its tasks.
unsafe impl Send for TaskList {}

impl TaskList {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            head: Cell::new(null_mut()),
            tail: Cell::new(null_mut()),
            len: Cell::new(0),
        }
    }

    /// Tasks in the list.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// Returns true if the list holds no task.
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// Appends a task that is in no other list.
    pub fn push(&self, task: TaskRef) {
        task.get().next.store(null_mut(), Ordering::Relaxed);
        // SAFETY: the tail is a task of this list, which this thread owns.
        match unsafe { TaskRef::from_ptr(self.tail.get()) } {
            Some(tail) => tail.get().next.store(task.as_ptr(), Ordering::Relaxed),
            None => self.head.set(task.as_ptr()),
        }
        self.tail.set(task.as_ptr());
        self.len.set(self.len.get() + 1);
    }

    /// Takes the first task.
    pub fn pop(&self) -> Option<TaskRef> {
        // SAFETY: the head is a task of this list, which this thread owns.
        let task = unsafe { TaskRef::from_ptr(self.head.get()) }?;
        let next = task.get().next.load(Ordering::Relaxed);
        self.head.set(next);
        if next.is_null() {
            self.tail.set(null_mut());
        }
        self.len.set(self.len.get() - 1);
        Some(task)
    }

    /// Appends all of `other`.
    pub fn append(&self, other: TaskList) {
        while let Some(task) = other.pop() {
            self.push(task);
        }
    }
}

impl Default for TaskList {
    fn default() -> Self {
        Self::new()
    }
}
