//! Runnable tasks that have used more than their share.

use crate::order::policies::Heap;
use crate::sync::spin::{SpinGuard, SpinLock};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};
use crate::task::TaskRef;

/// Tasks by the time of the fair clock at which they are due, the earliest first; equal ones in
/// turn.
///
/// All carriers of an engine share one queue, so that tasks that compute take turns on all of them.
pub struct AheadQueue {
    heap: SpinLock<Heap>,
    /// Tasks in the queue. Written under the lock; SeqCst: the idle protocol's last look.
    len: AtomicUsize,
    /// When the first task is due; `u64::MAX` for none. Written under the lock, read without it by
    /// carriers that ask whether the task is due.
    first_ns: AtomicU64,
}

impl AheadQueue {
    /// Offset of the word with the number of tasks.
    pub const LEN: usize = core::mem::offset_of!(AheadQueue, len);

    /// An empty queue.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            heap: SpinLock::new(Heap::new()),
            len: AtomicUsize::new(0),
            first_ns: AtomicU64::new(0),
        }
    }

    /// An empty queue.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            heap: SpinLock::new(Heap::new()),
            len: AtomicUsize::new(0),
            first_ns: AtomicU64::new(0),
        }
    }

    /// Returns the number of tasks in the queue a moment ago.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Returns true if the queue was empty a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a task that is due at `due_ns`.
    pub fn push(&self, task: TaskRef, due_ns: u64) {
        let mut heap = self.heap.lock();
        heap.push(task, due_ns);
        task.get().policy.is_ahead.set(true);
        self.publish(&heap, 1);
    }

    /// Adds a task that yields: behind the first task at least, so that another task runs before
    /// it.
    pub fn push_yielded(&self, task: TaskRef, due_ns: u64) {
        let mut heap = self.heap.lock();
        let first_ns = heap
            .least()
            .map_or(0, |first_ns| first_ns.saturating_add(1));
        heap.push(task, due_ns.max(first_ns));
        task.get().policy.is_ahead.set(true);
        self.publish(&heap, 1);
    }

    /// Returns true if the first task is due at `fair_ns` of the fair clock.
    #[inline(always)]
    pub fn is_due(&self, fair_ns: u64) -> bool {
        self.len.load(Ordering::Relaxed) != 0 && self.first_ns.load(Ordering::Relaxed) <= fair_ns
    }

    /// Takes the first task if it is due.
    pub fn pop_due(&self, fair_ns: u64) -> Option<TaskRef> {
        if self.is_due(fair_ns) {
            self.pop_up_to(fair_ns)
        } else {
            None
        }
    }

    /// Takes the first task.
    pub fn pop(&self) -> Option<TaskRef> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.pop_up_to(u64::MAX)
    }

    #[cold]
    fn pop_up_to(&self, most_ns: u64) -> Option<TaskRef> {
        let mut heap = self.heap.lock();
        heap.least().filter(|&first_ns| first_ns <= most_ns)?;
        let task = heap.pop()?;
        task.get().policy.is_ahead.set(false);
        self.publish(&heap, usize::MAX);
        Some(task)
    }

    /// Takes `task` out, if it is in the queue; returns true if it was.
    #[cold]
    pub fn take(&self, task: TaskRef) -> bool {
        let mut heap = self.heap.lock();
        let is_there = task.get().policy.is_ahead.replace(false);
        if is_there {
            heap.remove(task);
            self.publish(&heap, usize::MAX);
        }
        is_there
    }

    /// Publishes the state of the queue, after `change` tasks (-1 as its bits) were added.
    fn publish(&self, heap: &SpinGuard<'_, Heap>, change: usize) {
        let first_ns = heap.least().unwrap_or(u64::MAX);
        self.first_ns.store(first_ns, Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed).wrapping_add(change);
        self.len.store(len, Ordering::SeqCst);
    }

    /// Empties the queue: its tasks belong to another process.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        let Self {
            heap,
            len,
            first_ns: _, // meaningful while there are tasks
        } = self;
        // SAFETY: the caller's promise; what the lock guards is replaced whole.
        let was_changing = unsafe { heap.break_lock() };
        // A child writes to as few of its parent's pages as it can.
        if was_changing || len.load(Ordering::SeqCst) != 0 {
            *heap.lock() = Heap::new();
            len.store(0, Ordering::SeqCst);
        }
    }
}

impl Default for AheadQueue {
    fn default() -> Self {
        Self::new()
    }
}
