//! Runnable light threads that have begun on a host: its *own*, which no other host may run.
//!
//! They are in three places: the one that a light thread of this host has woken last, which runs
//! next; a list, first come, first served; and an [`Inbox`] for those that other threads wake.

use super::host::Light;
use super::inbox::Inbox;
use raddle_sched::{TaskList, TaskRef};
use std::cell::Cell;

/// A host's own light threads: see the module. All but the inbox is the host thread's.
pub(super) struct Own {
    next: Cell<Option<TaskRef>>,
    list: TaskList,
    inbox: Inbox,
}

impl Own {
    pub(super) const fn new() -> Self {
        Self {
            next: Cell::new(None),
            list: TaskList::new(),
            inbox: Inbox::new(),
        }
    }

    /// Queues a light thread behind all others here. Called by the host.
    #[inline(always)]
    pub(super) fn push(&self, task: TaskRef) {
        self.list.push(task);
    }

    /// Makes a light thread run next. Called by the host.
    #[inline(always)]
    pub(super) fn push_next(&self, task: TaskRef) {
        if let Some(displaced) = self.next.replace(Some(task)) {
            self.list.push(displaced);
        }
    }

    /// Makes a light thread runnable. Called on another thread. Returns true if the host sleeps or
    /// is about to: the caller wakes it.
    #[must_use]
    pub(super) fn put(&self, light: &'static Light) -> bool {
        // SAFETY: the waker of a light thread has claimed it; shells live for ever.
        unsafe { self.inbox.put(light.letter()) }
    }

    /// Takes the light thread that was woken last here. Called by the host.
    #[inline(always)]
    pub(super) fn take_next(&self) -> Option<TaskRef> {
        self.next.take()
    }

    /// Takes the light thread that has waited longest. Called by the host.
    #[inline(always)]
    pub(super) fn pop(&self) -> Option<TaskRef> {
        if !self.inbox.is_empty() {
            self.fetch();
        }
        self.list.pop()
    }

    #[cold]
    fn fetch(&self) {
        for letter in self.inbox.take() {
            self.list.push(Light::of_letter(letter).task_ref());
        }
    }

    /// Returns true if no light thread was here a moment ago. Called by the host.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next.get().is_none() && self.list.is_empty() && self.inbox.is_empty()
    }

    /// Announces that the host is going to sleep. Called by the host. Returns false if it must not.
    #[must_use]
    pub(super) fn announce_sleep(&self) -> bool {
        self.next.get().is_none() && self.list.is_empty() && self.inbox.announce()
    }

    /// Withdraws the announcement: the host is awake. Called by the host.
    pub(super) fn withdraw_sleep(&self) {
        self.inbox.withdraw();
    }

    /// Drops all light threads, which are the parent's in the child of a fork.
    pub(super) fn clear(&self) {
        self.next.set(None);
        self.inbox.take().for_each(drop);
        while self.list.pop().is_some() {}
    }
}
