//! A task's part of the timers.

use super::Task;
use core::cell::Cell;
use core::ptr::null_mut;

/// A task's place in the heap; every field is guarded by the heap's lock.
pub(crate) struct TimerNode {
    pub(crate) deadline_ns: Cell<u64>,
    pub(crate) child: Cell<*mut Task>,
    pub(crate) sibling: Cell<*mut Task>,
    /// The parent if this is a first child, else the elder sibling; null for the root.
    pub(crate) before: Cell<*mut Task>,
    pub(crate) queued: Cell<bool>,
}

// SAFETY: the tasks it points to are reached under the heap's lock only.
unsafe impl Send for TimerNode {}
// SAFETY: as above; every field is read and written under that lock.
unsafe impl Sync for TimerNode {}

impl TimerNode {
    /// Offset of the deadline, for readers of the process's memory.
    pub(crate) const DEADLINE: usize = core::mem::offset_of!(Self, deadline_ns);
    /// Likewise of a byte that is 1 while the node is in the heap.
    pub(crate) const QUEUED: usize = core::mem::offset_of!(Self, queued);

    pub(crate) const fn new() -> Self {
        Self {
            deadline_ns: Cell::new(0),
            child: Cell::new(null_mut()),
            sibling: Cell::new(null_mut()),
            before: Cell::new(null_mut()),
            queued: Cell::new(false),
        }
    }
}
