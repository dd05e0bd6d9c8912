//! Light threads that only one host may run, since they began there, and that other threads have
//! woken.
//!
//! 1. A waker puts the light thread here.
//! 2. The host takes everything at once, each time it picks a light thread.
//! 3. To sleep, the host reads the group's word, announces itself here, looks for work once more,
//!    and waits until the word changes.
//! 4. A waker that finds the announcement changes the word and wakes the host.
//!
//! No wake-up is lost: put and announcement replace one word. A put before the announcement makes
//! it fail; a put after the announcement finds it, and changes the group's word after the host has
//! read it, so that the host does not sleep, or is woken.

use raddle_sched::completion_list::{CompletionList, Found, Link, Taken};
use std::ptr::NonNull;

/// The light threads of one host: see the module.
#[derive(Default)]
pub struct Inbox(CompletionList);

impl Inbox {
    /// Makes an empty inbox.
    #[cfg(not(raddle_loom))]
    pub const fn new() -> Self {
        Self(CompletionList::new())
    }

    /// Makes an empty inbox.
    #[cfg(raddle_loom)]
    pub fn new() -> Self {
        Self(CompletionList::new())
    }

    /// Puts a light thread here. Returns true if the host sleeps or is about to: the caller wakes
    /// it.
    ///
    /// # Safety
    /// The light thread must be claimed, in no list, and live as long as the inbox.
    #[must_use]
    pub unsafe fn put(&self, light: NonNull<Link>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.push(light) == Found::Sleepers }
    }

    /// Takes all light threads, the longest here first. Called by the host.
    #[inline(always)]
    pub fn take(&self) -> Taken {
        self.0.take()
    }

    /// Returns true if the inbox was empty a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Announces that the host is going to sleep. Called by the host. Returns false if there are
    /// light threads.
    #[must_use]
    pub fn announce(&self) -> bool {
        self.0.announce()
    }

    /// Withdraws the announcement: the host is awake. Called by the host.
    pub fn withdraw(&self) {
        self.0.withdraw();
    }
}
