//! The global queue: work from threads that are no carriers, and overflow of full run queues.

use crate::spin::SpinLock;
use crate::sync::{AtomicUsize, Ordering};
use crate::task::{TaskList, TaskRef};

/// A FIFO of runnable tasks that anybody may push to and any carrier pops from.
pub struct Injector {
    list: SpinLock<TaskList>,
    /// Tasks in the list; written under the lock, read without it as a hint.
    len: AtomicUsize,
}

impl Injector {
    /// An empty queue.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            list: SpinLock::new(TaskList::new()),
            len: AtomicUsize::new(0),
        }
    }

    /// An empty queue.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            list: SpinLock::new(TaskList::new()),
            len: AtomicUsize::new(0),
        }
    }

    /// Tasks in the queue, a moment ago. SeqCst: the idle protocol's last look (see `policy`).
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// True if the queue was empty a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a task.
    pub fn push(&self, task: TaskRef) {
        let list = self.list.lock();
        list.push(task);
        self.len.store(list.len(), Ordering::SeqCst);
    }

    /// Puts a task before all others: it is the next to be taken.
    pub fn push_first(&self, task: TaskRef) {
        let list = self.list.lock();
        list.push_first(task);
        self.len.store(list.len(), Ordering::SeqCst);
    }

    /// Appends a list of tasks.
    pub fn push_all(&self, tasks: TaskList) {
        let list = self.list.lock();
        list.append(tasks);
        self.len.store(list.len(), Ordering::SeqCst);
    }

    /// Takes the oldest task.
    pub fn pop(&self) -> Option<TaskRef> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let list = self.list.lock();
        let task = list.pop();
        self.len.store(list.len(), Ordering::SeqCst);
        task
    }

    /// Takes up to `max` of the oldest tasks.
    pub fn pop_some(&self, max: usize) -> TaskList {
        let taken = TaskList::new();
        if self.len.load(Ordering::Relaxed) == 0 {
            return taken;
        }
        let list = self.list.lock();
        while taken.len() < max {
            match list.pop() {
                Some(task) => taken.push(task),
                None => break,
            }
        }
        self.len.store(list.len(), Ordering::SeqCst);
        taken
    }

    /// Empties the queue whose other users no longer exist.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        // SAFETY: the caller's promise; the list is replaced whole.
        unsafe { self.list.break_lock() };
        *self.list.lock() = TaskList::new();
        self.len.store(0, Ordering::SeqCst);
    }
}

impl Default for Injector {
    fn default() -> Self {
        Self::new()
    }
}
