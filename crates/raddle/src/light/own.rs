//! Light threads that have begun on a host and can run: its *own*, which no other host may run.
//!
//! They lie in three places: the one woken last by a light thread of this host, which runs next; a
//! list, first come, first served; and an [`Inbox`] for what other threads wake.

use super::host::Light;
use super::inbox::Inbox;
use raddle_sched::{TaskList, TaskRef};
use std::cell::Cell;

/// See the module. All but the inbox is the host thread's.
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

    /// Makes a light thread run after all others here; by the host.
    #[inline(always)]
    pub(super) fn push(&self, task: TaskRef) {
        self.list.push(task);
    }

    /// Makes a light thread run next; by the host.
    #[inline(always)]
    pub(super) fn push_next(&self, task: TaskRef) {
        if let Some(displaced) = self.next.replace(Some(task)) {
            self.list.push(displaced);
        }
    }

    /// Makes a light thread run; by another thread. True if the host sleeps or is about to: the
    /// caller wakes it.
    #[must_use]
    pub(super) fn put(&self, light: &'static Light) -> bool {
        // SAFETY: who wakes a light thread has claimed it; shells live for ever.
        unsafe { self.inbox.put(light.letter()) }
    }

    /// Takes the light thread that was woken last here; by the host.
    #[inline(always)]
    pub(super) fn take_next(&self) -> Option<TaskRef> {
        self.next.take()
    }

    /// Takes the light thread that has waited longest; by the host.
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

    /// True if no light thread was here a moment ago; by the host.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next.get().is_none() && self.list.is_empty() && self.inbox.is_empty()
    }

    /// Says that the host is going to sleep; by the host. False if it must not.
    #[must_use]
    pub(super) fn announce_sleep(&self) -> bool {
        self.next.get().is_none() && self.list.is_empty() && self.inbox.announce()
    }

    /// Says that the host is awake; by the host.
    pub(super) fn withdraw_sleep(&self) {
        self.inbox.withdraw();
    }

    /// Loses all light threads: those of the parent, in the child of a fork.
    pub(super) fn clear(&self) {
        self.next.set(None);
        self.inbox.take().for_each(drop);
        while self.list.pop().is_some() {}
    }
}
