//! Light threads that have begun on one host, cannot leave it, and were woken by other threads.
//!
//! 1. A waker puts the light thread here.
//! 2. The host takes everything at once, each time it picks a light thread.
//! 3. To sleep, the host reads the group's word, announces itself here, looks for work once more,
//!    and waits until the word changes.
//! 4. A waker that finds the announcement changes the word and wakes the host.
//!
//! No wake-up is lost: put and announcement replace one word. A put before the announcement refuses
//! the announcement; a put after it finds it, and changes the group's word after the host has read
//! it, so that the host does not sleep, or is woken.

use raddle_sched::completion_list::{CompletionList, Found, Link, Taken};
use std::ptr::NonNull;

/// See the module.
#[derive(Default)]
pub struct Inbox(CompletionList);

impl Inbox {
    /// An empty inbox.
    #[cfg(not(raddle_loom))]
    pub const fn new() -> Self {
        Self(CompletionList::new())
    }

    /// An empty inbox.
    #[cfg(raddle_loom)]
    pub fn new() -> Self {
        Self(CompletionList::new())
    }

    /// Puts a light thread here. True if the host sleeps or is about to: the caller wakes it.
    ///
    /// # Safety
    /// The light thread must be claimed, in no list, and live as long as the inbox.
    #[must_use]
    pub unsafe fn put(&self, light: NonNull<Link>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.0.push(light) == Found::Sleepers }
    }

    /// Takes all light threads, the longest here first; by the host.
    #[inline(always)]
    pub fn take(&self) -> Taken {
        self.0.take()
    }

    /// True if there was none a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Says that the host is going to sleep; by the host. False if there are light threads.
    #[must_use]
    pub fn announce(&self) -> bool {
        self.0.announce()
    }

    /// Says that the host is awake; by the host.
    pub fn withdraw(&self) {
        self.0.withdraw();
    }
}
