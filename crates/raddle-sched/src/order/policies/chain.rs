//! A doubly linked list of tasks, through their policy nodes.

use crate::task::{Task, TaskRef, node, of};
use core::ptr::null_mut;

/// Tasks in some order, owned by a policy.
pub(super) struct Chain {
    first: *mut Task,
    last: *mut Task,
}

// SAFETY: the owner of the chain owns its tasks.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            first: null_mut(),
            last: null_mut(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Returns the task that `pop_front` would take.
    pub(super) fn first(&self) -> Option<TaskRef> {
        // SAFETY: the chain's tasks.
        unsafe { TaskRef::from_ptr(self.first) }
    }

    pub(super) fn push_front(&mut self, task: TaskRef) {
        let (at, links) = (task.as_ptr(), of(task));
        links.before.set(null_mut());
        links.next.set(self.first);
        if self.first.is_null() {
            self.last = at
        } else {
            node(self.first).before.set(at)
        }
        self.first = at;
    }

    pub(super) fn push_back(&mut self, task: TaskRef) {
        let (at, links) = (task.as_ptr(), of(task));
        links.next.set(null_mut());
        links.before.set(self.last);
        if self.last.is_null() {
            self.first = at
        } else {
            node(self.last).next.set(at)
        }
        self.last = at;
    }

    pub(super) fn pop_front(&mut self) -> Option<TaskRef> {
        let task = self.first()?;
        self.remove(task);
        Some(task)
    }

    pub(super) fn pop_back(&mut self) -> Option<TaskRef> {
        // SAFETY: the chain's tasks.
        let task = unsafe { TaskRef::from_ptr(self.last) }?;
        self.remove(task);
        Some(task)
    }

    /// Takes out a task that is in this chain.
    pub(super) fn remove(&mut self, task: TaskRef) {
        let (before, next) = (of(task).before.get(), of(task).next.get());
        if before.is_null() {
            self.first = next
        } else {
            node(before).next.set(next)
        }
        if next.is_null() {
            self.last = before
        } else {
            node(next).before.set(before)
        }
    }
}
