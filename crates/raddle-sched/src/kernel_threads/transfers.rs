//! Transfers that parked tasks leave to the ring's kernel thread, until there is no ring any more.
//!
//! 1. The poster prepares its task ([`Task::prepare`](crate::Task::prepare)). It links the transfer
//!    under the lock if the ring is ready, then raises `posted` and `unannounced`, and parks.
//! 2. A thread *announces*: it clears `unannounced` and takes the announcement `asleep`. If that
//!    was made, the thread wakes the ring's thread. A transfer may wait for others before it is
//!    announced.
//! 3. A round of the ring's thread ([`Transfers::begin_round`]) reads `posted`, clears
//!    `unannounced`, and then takes transfers. It makes the announcement, and waits only if the
//!    ring is still ready and `posted` is unchanged ([`Transfers::may_wait`]).
//! 4. It completes a transfer ([`Transfers::complete`]): under the lock the transfer is done and
//!    its task is claimed. From the end of the lock on the transfer may be gone.
//! 5. A waiter that a signal has claimed asks whether its transfer is done, and otherwise prepares
//!    again, both under the lock ([`Transfers::is_done_or_prepares`]).
//!
//! **Each posted transfer is completed.** The state changes under the lock. A transfer that was
//! linked before the ring ceased to be ready is in the list that the leaving thread takes.
//!
//! **No announced transfer is left to a thread that sleeps**: see [`crate::wake`]. A poster that
//! reads 0 in `unannounced` after its post has met a round that reads the list later.

use crate::sync::spin::SpinLock;
use crate::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::task::{TaskRef, Wake};
use crate::wake::Announcement;
use core::ptr::null;

/// Whether there is a ring.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// None yet.
    None,
    /// It is being made.
    Starting,
    /// Transfers may be posted.
    Ready,
    /// There is to be none.
    Refused,
}

/// A transfer of one task.
pub struct Transfer<W> {
    /// What is to be done, and what comes of it.
    pub work: W,
    task: TaskRef,
    /// Read and written under the lock.
    is_done: UnsafeCell<bool>,
    /// The next in the list. As `is_done`.
    next: UnsafeCell<*const Self>,
}

impl<W> Transfer<W> {
    /// A transfer of the running task.
    pub fn new(work: W, task: TaskRef) -> Self {
        Self {
            work,
            task,
            is_done: UnsafeCell::new(false),
            next: UnsafeCell::new(null()),
        }
    }
}

struct Posted<W> {
    head: *const Transfer<W>,
    tail: *const Transfer<W>,
}

impl<W> Posted<W> {
    const NONE: Self = Self {
        head: null(),
        tail: null(),
    };
}

// SAFETY: transfers are reached under the lock until taken, and stay alive until they are done.
unsafe impl<W> Send for Posted<W> {}

/// See the module.
pub struct Transfers<W> {
    /// A [`State`]. Written under the lock, and in the child of a fork.
    state: AtomicU32,
    list: SpinLock<Posted<W>>,
    /// Raised for every transfer.
    posted: AtomicU32,
    /// Made while the ring's thread sleeps or is about to.
    asleep: Announcement,
    /// Transfers that the ring's thread hasn't been told of.
    unannounced: AtomicU32,
}

impl<W> Transfers<W> {
    /// No ring, and no transfers.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(State::None as u32),
            list: SpinLock::new(Posted::NONE),
            posted: AtomicU32::new(0),
            asleep: Announcement::new(),
            unannounced: AtomicU32::new(0),
        }
    }

    /// No ring, and no transfers.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            state: AtomicU32::new(State::None as u32),
            list: SpinLock::new(Posted::NONE),
            posted: AtomicU32::new(0),
            asleep: Announcement::new(),
            unannounced: AtomicU32::new(0),
        }
    }

    /// Returns true if this is the state. SeqCst, for the ring's thread and its installers.
    pub fn is(&self, state: State) -> bool {
        self.state.load(Ordering::SeqCst) == state as u32
    }

    /// Returns true if transfers could be posted a moment ago.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == State::Ready as u32
    }

    /// Changes the state. Returns false, and changes nothing, if it is another one than `from`.
    pub fn change(&self, from: State, to: State) -> bool {
        let _list = self.list.lock();
        let is_so = self.state.load(Ordering::Relaxed) == from as u32;
        if is_so {
            self.state.store(to as u32, Ordering::SeqCst);
        }
        is_so
    }

    /// Refuses transfers from here on. The caller wakes the ring's thread.
    pub fn refuse(&self) {
        {
            let _list = self.list.lock();
            self.state.store(State::Refused as u32, Ordering::SeqCst);
        }
        self.posted.fetch_add(1, Ordering::SeqCst);
    }

    /// Posts a transfer, whose task is prepared. Returns how many are not announced, or `None` if
    /// there is no ring any more.
    ///
    /// # Safety
    /// `transfer` must stay where it is until it is done, or wasn't posted.
    pub unsafe fn post(&self, transfer: &Transfer<W>) -> Option<u32> {
        let at = core::ptr::from_ref(transfer);
        let mut list = self.list.lock();
        if self.state.load(Ordering::Relaxed) != State::Ready as u32 {
            return None;
        }
        // SAFETY: posted transfers are alive, by the promise of those that posted them.
        match unsafe { list.tail.as_ref() } {
            // SAFETY: the lock is held.
            Some(tail) => tail.next.with_mut(|next| unsafe { *next = at }),
            None => list.head = at,
        }
        list.tail = at;
        drop(list);
        self.posted.fetch_add(1, Ordering::SeqCst);
        Some(self.unannounced.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Returns true if there are transfers that the ring's thread hasn't been told of.
    #[inline(always)]
    pub fn has_unannounced(&self) -> bool {
        self.unannounced.load(Ordering::Relaxed) != 0
    }

    /// Announces all transfers. Returns true if the caller is to wake the ring's thread.
    #[must_use]
    pub fn announce(&self) -> bool {
        self.unannounced.store(0, Ordering::SeqCst);
        self.asleep.is_made() && self.asleep.take()
    }

    /// Begins a round of the ring's thread. Returns the number to compare `posted` with.
    pub fn begin_round(&self) -> u32 {
        let seen = self.posted.load(Ordering::SeqCst);
        self.unannounced.store(0, Ordering::SeqCst);
        seen
    }

    /// Announces that the ring's thread is about to sleep. Returns whether it may, if no transfer
    /// came since `seen`; `None` if the ring isn't ready any more.
    pub fn may_wait(&self, seen: u32) -> Option<bool> {
        self.asleep.make();
        self.is(State::Ready)
            .then(|| self.posted.load(Ordering::SeqCst) == seen)
    }

    /// The ring's thread is awake.
    pub fn woke(&self) {
        self.asleep.withdraw();
    }

    /// Returns the address that the ring's thread sleeps on.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn address(&self) -> *mut u32 {
        self.posted.as_ptr()
    }

    /// Takes the oldest transfer.
    pub fn take(&self) -> Option<&Transfer<W>> {
        let mut list = self.list.lock();
        // SAFETY: posted transfers are alive, until they are done.
        let transfer = unsafe { list.head.as_ref() }?;
        // SAFETY: the lock is held.
        list.head = transfer.next.with_mut(|next| unsafe { *next });
        if list.head.is_null() {
            list.tail = null();
        }
        Some(transfer)
    }

    /// The transfer is done; the caller has written what came of it. Returns the task if the caller
    /// is to push it.
    #[must_use]
    pub fn complete(&self, transfer: &Transfer<W>) -> Option<TaskRef> {
        let task = transfer.task;
        let list = self.list.lock();
        // SAFETY: the lock is held.
        transfer
            .is_done
            .with_mut(|is_done| unsafe { *is_done = true });
        let is_claimed = task.get().claim(Wake::Woken);
        drop(list); // from here on the transfer may be gone
        is_claimed.then_some(task)
    }

    /// Returns true if the transfer is done; else its task is prepared to park again. Called by the
    /// waiter.
    pub fn is_done_or_prepares(&self, transfer: &Transfer<W>) -> bool {
        let _list = self.list.lock();
        // SAFETY: the lock is held.
        let is_done = transfer.is_done.with_mut(|is_done| unsafe { *is_done });
        if !is_done {
            transfer.task.get().prepare();
        }
        is_done
    }

    /// In the child of a fork: there is no ring.
    ///
    /// # Safety
    /// No other thread may exist.
    pub unsafe fn reset(&self) {
        let Self {
            state,
            list,
            posted: _,
            asleep,
            unannounced,
        } = self;
        // SAFETY: the caller's promise.
        unsafe { list.break_lock() };
        *list.lock() = Posted::NONE;
        asleep.withdraw();
        unannounced.store(0, Ordering::Relaxed);
        state.store(State::None as u32, Ordering::Relaxed);
    }
}

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
impl<W> Default for Transfers<W> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use crate::task::Task;
    use core::ptr::NonNull;

    #[test]
    fn transfers_are_taken_in_order_until_they_are_refused() {
        let (ring, tasks) = (Transfers::new(), [(); 3].map(|()| Task::new()));
        // SAFETY: the tasks live until the end.
        let task = |at: usize| unsafe { TaskRef::new(NonNull::from(&tasks[at])) };
        let transfers = [0, 1, 2].map(|at| Transfer::new(at, task(at)));
        let post = |at: usize| {
            tasks[at].prepare();
            // SAFETY: the transfers live until the end.
            unsafe { ring.post(&transfers[at]) }
        };
        assert_eq!(post(0), None, "there is no ring yet");
        assert!(ring.change(State::None, State::Starting));
        assert!(!ring.change(State::None, State::Starting));
        assert!(ring.change(State::Starting, State::Ready) && ring.is_ready());
        assert_eq!((post(0), post(1)), (Some(1), Some(2)));
        assert!(ring.has_unannounced() && !ring.announce(), "none sleeps");
        let seen = ring.begin_round();
        let first = ring.take().expect("a transfer");
        assert_eq!(first.work, 0);
        assert!(!ring.is_done_or_prepares(first));
        assert_eq!(ring.complete(first), Some(task(0)));
        assert!(ring.is_done_or_prepares(first));
        assert_eq!(ring.may_wait(seen), Some(true));
        assert!(ring.announce() && !ring.announce());
        ring.refuse();
        assert_eq!((ring.may_wait(seen), post(2)), (None, None));
        assert_eq!(ring.take().map(|it| it.work), Some(1));
        assert!(ring.take().is_none());
        // SAFETY: no other thread uses it.
        unsafe { ring.reset() };
        assert!(ring.is(State::None));
    }
}
