//! Completion lists: the workers that a user-mode scheduler can run.
//!
//! Any thread pushes. A scheduler takes all items at once, so no thread reads a link while another
//! one pops it. A push touches neither the list nor the item afterwards: the taker of the item may
//! free both at once. That is why "a thread sleeps until the list has an item" is a value of the
//! head itself and no counter beside it:
//!
//! 1. A thread that wants to sleep replaces an empty head by [`SLEEPING`], and waits (a futex)
//!    until the head's low half differs. If the head isn't empty, there is something to take.
//! 2. A pusher replaces the head, whatever it is. If it was [`SLEEPING`], the pusher wakes all
//!    sleepers, by the head's address alone, as for any futex.
//!
//! A wake-up can't be lost: the head is one word, and both replace it by compare-and-swap.

use crate::sync::{AtomicPtr, Ordering};
use core::ptr::{NonNull, null_mut, without_provenance_mut};

/// The head of an empty list that a thread sleeps on; no item has an odd address.
pub const SLEEPING: usize = 1;

/// The link inside each item of a list.
#[repr(C, align(8))]
pub struct Link {
    /// The item that was pushed before. Written by the pusher, then owned by the taker.
    next: AtomicPtr<Link>,
}

impl Link {
    /// A link of an item that is in no list.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            next: AtomicPtr::new(null_mut()),
        }
    }

    /// A link of an item that is in no list.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            next: AtomicPtr::new(null_mut()),
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// What a push found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Found {
    /// Other items: the pusher of the first one wakes the sleepers.
    Items,
    /// No item and no sleeper.
    Nothing,
    /// No item; all threads that sleep on the head must be woken.
    Sleepers,
}

/// See the module.
#[repr(C)]
pub struct CompletionList {
    head: AtomicPtr<Link>,
}

impl CompletionList {
    /// An empty list.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            head: AtomicPtr::new(null_mut()),
        }
    }

    /// An empty list.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            head: AtomicPtr::new(null_mut()),
        }
    }

    /// Appends an item.
    ///
    /// # Safety
    /// The item must be in no list, and stay where it is until it is taken. The list must live
    /// until then. The push touches neither afterwards.
    pub unsafe fn push(&self, item: NonNull<Link>) -> Found {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let is_empty = head.addr() <= SLEEPING;
            let next = if is_empty { null_mut() } else { head };
            // SAFETY: the caller's promise: no other thread has the item.
            unsafe { item.as_ref() }.next.store(next, Ordering::Relaxed);
            // Release: the taker sees what the pusher did before. SeqCst partner: `announce`.
            match self.head.compare_exchange(
                head,
                item.as_ptr(),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) if !is_empty => return Found::Items,
                Ok(before) if before.addr() == SLEEPING => return Found::Sleepers,
                Ok(_) => return Found::Nothing,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all items; iterate with [`Taken::next`], oldest first.
    pub fn take(&self) -> Taken {
        let mut head = self.head.load(Ordering::Relaxed);
        while head.addr() > SLEEPING {
            match self
                .head
                .compare_exchange(head, null_mut(), Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(taken) => return Taken::oldest_first(taken),
                Err(now) => head = now,
            }
        }
        Taken { first: null_mut() }
    }

    /// Returns true if there was nothing to take a moment ago.
    pub fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).addr() <= SLEEPING
    }

    /// Announces that the caller is going to sleep until an item is pushed. Returns false if there
    /// is an item already; otherwise the caller waits until the low half of the head differs from
    /// [`SLEEPING`].
    #[must_use]
    pub fn announce(&self) -> bool {
        let sleeping = without_provenance_mut(SLEEPING);
        match self
            .head
            .compare_exchange(null_mut(), sleeping, Ordering::SeqCst, Ordering::SeqCst)
        {
            Ok(_) => true,
            Err(now) => now.addr() == SLEEPING,
        }
    }

    /// Takes an announcement back if nothing was pushed since. Only where a single thread sleeps.
    pub fn withdraw(&self) {
        let sleeping = without_provenance_mut(SLEEPING);
        let _ =
            self.head
                .compare_exchange(sleeping, null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the address of the head's low half: the futex of the sleepers.
    pub fn word(&self) -> *const u32 {
        core::ptr::from_ref(&self.head).cast()
    }
}

impl Default for CompletionList {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: items move from thread to thread by the head's compare-and-swap.
unsafe impl Send for CompletionList {}
// SAFETY: as above.
unsafe impl Sync for CompletionList {}

/// Items that were taken from a list.
#[derive(Debug)]
pub struct Taken {
    first: *mut Link,
}

impl Taken {
    /// Reverses a chain that starts with the newest item.
    fn oldest_first(newest: *mut Link) -> Self {
        let (mut rest, mut first) = (newest, null_mut::<Link>());
        // SAFETY: this thread took the chain and owns it; its items stay where they are.
        while let Some(link) = unsafe { rest.as_ref() } {
            let next = link.next.load(Ordering::Relaxed);
            link.next.store(first, Ordering::Relaxed);
            (first, rest) = (rest, next);
        }
        Self { first }
    }

    /// Returns true if there is no item left.
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

impl Iterator for Taken {
    type Item = NonNull<Link>;

    /// Returns the oldest item, which is in no list from here on.
    fn next(&mut self) -> Option<NonNull<Link>> {
        let item = NonNull::new(self.first)?;
        // SAFETY: an item of the taken chain, which this thread owns.
        self.first = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
        Some(item)
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_the_order_they_were_pushed() {
        let list = CompletionList::new();
        let links = [const { Link::new() }; 3];
        let at = |n: usize| NonNull::from(&links[n]);
        // SAFETY: the links live here and are each pushed once.
        let found = unsafe { [list.push(at(0)), list.push(at(1)), list.push(at(2))] };
        assert_eq!(found, [Found::Nothing, Found::Items, Found::Items]);
        assert_eq!(list.take().collect::<Vec<_>>(), [at(0), at(1), at(2)]);
        assert!(list.is_empty() && list.take().is_empty());
    }

    #[test]
    fn who_sleeps_is_found_by_the_next_push_and_only_by_that() {
        let list = CompletionList::new();
        let links = [const { Link::new() }; 2];
        assert!(list.announce() && list.announce());
        assert!(list.is_empty() && list.take().is_empty());
        // SAFETY: as above.
        unsafe {
            assert_eq!(list.push(NonNull::from(&links[0])), Found::Sleepers);
            assert!(!list.announce());
            assert_eq!(list.push(NonNull::from(&links[1])), Found::Items);
        }
        assert_eq!(list.take().count(), 2);
    }

    #[test]
    fn an_announcement_that_was_withdrawn_is_not_found() {
        let list = CompletionList::new();
        let link = Link::new();
        assert!(list.announce());
        list.withdraw();
        // SAFETY: as above.
        assert_eq!(unsafe { list.push(NonNull::from(&link)) }, Found::Nothing);
        list.withdraw(); // no announcement is left
        assert_eq!(list.take().count(), 1);
    }
}
