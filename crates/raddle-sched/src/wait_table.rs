//! Wait queues keyed by address: the user-mode futex table, and anything else that waits by key.
//!
//! A *bucket* is a spin lock, a [`WaitList`] under it, and a count of waiters.
//!
//! To wait: raise the bucket's count (SeqCst), take the lock, check the condition, link the node.
//! To wake: change the condition, full barrier, read the count; if it is zero nobody can be asleep,
//! else take the lock and look. The count is raised *before* the condition is checked, so either
//! the waker sees the count or the waiter sees the condition (Dekker): an empty-list shortcut
//! without the count would lose wake-ups. A requeue raises the count of its target in the same way
//! before its check.
//!
//! A waiter that was woken by anything but the table unlinks its node itself.

use crate::spin::{SpinGuard, SpinLock};
use crate::sync::{AtomicU32, Ordering, fence};
use crate::task::{TaskList, TaskRef, Wake};
pub use crate::wait_list::{WaitList, WaitNode};

/// One row of the table.
pub struct Bucket {
    /// Waiters that are linked or about to be. Raised before the lock is taken.
    waiters: AtomicU32,
    list: SpinLock<WaitList>,
}

impl Bucket {
    /// An empty row.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            waiters: AtomicU32::new(0),
            list: SpinLock::new(WaitList::new()),
        }
    }

    /// An empty row.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            waiters: AtomicU32::new(0),
            list: SpinLock::new(WaitList::new()),
        }
    }
}

impl Default for Bucket {
    fn default() -> Self {
        Self::new()
    }
}

/// What [`WaitTable::requeue`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requeued {
    pub woken: usize,
    pub moved: usize,
}

/// The table; `N` is a power of two.
pub struct WaitTable<const N: usize> {
    buckets: [Bucket; N],
}

impl<const N: usize> WaitTable<N> {
    /// An empty table.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self {
            buckets: [const { Bucket::new() }; N],
        }
    }

    /// An empty table.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            buckets: core::array::from_fn(|_| Bucket::new()),
        }
    }

    /// The row of a key. Fibonacci hashing: keys are addresses with few low bits and long common
    /// prefixes.
    #[inline(always)]
    pub fn row(key: usize) -> usize {
        let spread = (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (spread >> 40) as usize & (N - 1)
    }

    #[inline(always)]
    fn bucket(&self, key: usize) -> &Bucket {
        &self.buckets[Self::row(key)]
    }

    /// Waiters in the row of `key`, those on other keys included, a moment ago.
    pub fn row_waiters(&self, key: usize) -> u32 {
        self.bucket(key).waiters.load(Ordering::SeqCst)
    }

    /// Links `node` if `still()` holds under the lock. Call [`crate::Task::prepare`] first.
    ///
    /// True: the task must park. It is linked, or somebody else (a signal) claimed it before it
    /// could be, and has pushed it: after any outcome but [`Wake::Woken`] call
    /// [`WaitTable::cancel`], which knows both. False: `still()` failed, the task claimed itself
    /// ([`Wake::Retry`]), so that nobody will push it, and goes on running.
    ///
    /// `still` must read what the waker changes with SeqCst: the raise of the count and that read
    /// are this side of Dekker's protocol.
    ///
    /// # Safety
    /// The node must stay alive and in place until the task was woken by this table, or
    /// [`WaitTable::cancel`] has returned.
    #[inline(always)]
    #[must_use]
    pub unsafe fn enqueue(
        &self,
        node: &WaitNode,
        task: TaskRef,
        key: usize,
        bits: u32,
        still: impl FnOnce() -> bool,
    ) -> bool {
        let bucket = self.bucket(key);
        bucket.waiters.fetch_add(1, Ordering::SeqCst);
        let mut list = bucket.list.lock();
        if !still() {
            drop(list);
            bucket.waiters.fetch_sub(1, Ordering::Relaxed);
            return !task.get().claim(Wake::Retry);
        }
        // SAFETY: the caller's promise.
        unsafe { list.link(node, task, key, bits) };
        true
    }

    /// Wakes up to `max` waiters on `key` whose bits meet `bits`, oldest first, and appends them to
    /// `woken`, for the caller to push. Returns how many.
    #[inline(always)]
    pub fn wake(&self, key: usize, max: usize, bits: u32, woken: &TaskList) -> usize {
        fence(Ordering::SeqCst);
        self.wake_fenced(key, max, bits, woken)
    }

    /// As [`WaitTable::wake`], for callers that changed the condition by a SeqCst read-modify-write
    /// (on x86-64: by any atomic one).
    #[inline(always)]
    pub fn wake_fenced(&self, key: usize, max: usize, bits: u32, woken: &TaskList) -> usize {
        let bucket = self.bucket(key);
        if bucket.waiters.load(Ordering::SeqCst) == 0 {
            return 0;
        }
        let mut left = 0;
        let mut list = bucket.list.lock();
        let count = list.wake(max, woken, |node_key, node_bits| {
            let hit = node_key == key && node_bits & bits != 0;
            left += u32::from(hit);
            hit
        });
        bucket.waiters.fetch_sub(left, Ordering::Relaxed);
        count
    }

    /// `FUTEX_CMP_REQUEUE`: if `check()` holds under both locks, wakes up to `max_wake` waiters of
    /// `from` and moves up to `max_move` more to `to`. `None` if the check failed.
    ///
    /// The target's count is raised before the check, as a waiter's is: a waker of `to` that made
    /// the check's outcome stale before it read the count must find the waiters that were moved.
    /// So `check` reads with SeqCst, like `still` of [`WaitTable::enqueue`].
    pub fn requeue(
        &self,
        from: usize,
        to: usize,
        max_wake: usize,
        max_move: usize,
        check: impl FnOnce() -> bool,
        woken: &TaskList,
    ) -> Option<Requeued> {
        let (source, target) = (Self::row(from), Self::row(to));
        let announced = &self.buckets[target].waiters;
        announced.fetch_add(1, Ordering::SeqCst);
        let (mut list, mut second) = self.lock_two(source, target);
        if !check() {
            announced.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let mut left = 0;
        let count = list.wake(max_wake, woken, |key, _| {
            left += u32::from(key == from);
            key == from
        });
        // SAFETY: both locks are held.
        let moved = unsafe { list.requeue(from, to, max_move, second.as_deref_mut()) };
        if second.is_some() {
            announced.fetch_add(moved as u32, Ordering::Relaxed);
            left += moved as u32;
        }
        announced.fetch_sub(1, Ordering::Relaxed);
        self.buckets[source]
            .waiters
            .fetch_sub(left, Ordering::Relaxed);
        Some(Requeued {
            woken: count,
            moved,
        })
    }

    /// Locks both rows, the lower index first; one guard if they are the same row.
    fn lock_two(
        &self,
        first: usize,
        second: usize,
    ) -> (SpinGuard<'_, WaitList>, Option<SpinGuard<'_, WaitList>>) {
        let lock = |index: usize| self.buckets[index].list.lock();
        match first.cmp(&second) {
            core::cmp::Ordering::Equal => (lock(first), None),
            core::cmp::Ordering::Less => {
                let a = lock(first);
                (a, Some(lock(second)))
            }
            core::cmp::Ordering::Greater => {
                let b = lock(second);
                (lock(first), Some(b))
            }
        }
    }

    /// Takes a node out after its task was woken by something else. Returns true if it was linked.
    ///
    /// # Safety
    /// The node must have been given to [`WaitTable::enqueue`] of this table.
    pub unsafe fn cancel(&self, node: &WaitNode) -> bool {
        loop {
            let key = node.key();
            let bucket = self.bucket(key);
            let mut list = bucket.list.lock();
            if Self::row(node.key()) != Self::row(key) {
                continue; // requeued between the look and the lock
            }
            // SAFETY: the key can't change under the lock of its bucket.
            let was_linked = unsafe { list.unlink(node) };
            if was_linked {
                bucket.waiters.fetch_sub(1, Ordering::Relaxed);
            }
            return was_linked;
        }
    }

    /// Forgets every waiter.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        for bucket in &self.buckets {
            if bucket.waiters.load(Ordering::Relaxed) != 0 || bucket.list.try_lock().is_none() {
                // SAFETY: the caller's promise; the list is replaced whole.
                unsafe { bucket.list.break_lock() };
                *bucket.list.lock() = WaitList::new();
                bucket.waiters.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl<const N: usize> Default for WaitTable<N> {
    fn default() -> Self {
        Self::new()
    }
}
