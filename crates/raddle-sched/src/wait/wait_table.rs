//! Wait queues keyed by address: the user-mode futex table, and all other waits by key.
//!
//! A *bucket* is a [`WaitList`] behind a [`CountedLock`] that counts the waiters.
//!
//! To wait: take the lock and raise the count in one step (SeqCst), check the condition, link the
//! node. To wake: change the condition, full barrier, read the count; if it is zero no waiter can
//! be asleep, else take the lock and look. The count is raised *before* the condition is checked,
//! so either the waker sees the count or the waiter sees the condition (Dekker). An empty-list
//! shortcut without the count would lose wake-ups. A requeue raises the count of its target in the
//! same way before its check. A waker that takes the lock in any case needs no other barrier: the
//! second of two holders sees what the first one changed before.
//!
//! A waiter that anything but the table woke unlinks its node itself.

use crate::sync::counted_lock::{CountedGuard, CountedLock};
use crate::sync::{Ordering, fence};
use crate::task::{TaskList, TaskRef, Wake};
pub use crate::wait::wait_list::{WaitList, WaitNode};

/// One row of the table. Counts the nodes that are linked or about to be.
type Bucket = CountedLock<WaitList>;

/// What [`WaitTable::requeue`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requeued {
    pub woken: usize,
    pub moved: usize,
}

/// Returns the row of a key among `rows`, a power of two. Fibonacci hashing: keys are addresses
/// with few low bits and long common prefixes.
#[inline(always)]
pub(crate) fn row_of(key: usize, rows: usize) -> usize {
    let spread = (key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (spread >> 40) as usize & (rows - 1)
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
            buckets: [const { Bucket::new(WaitList::new()) }; N],
        }
    }

    /// An empty table.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            buckets: core::array::from_fn(|_| Bucket::new(WaitList::new())),
        }
    }

    /// The row of a key.
    #[inline(always)]
    pub fn row(key: usize) -> usize {
        row_of(key, N)
    }

    #[inline(always)]
    fn bucket(&self, key: usize) -> &Bucket {
        &self.buckets[Self::row(key)]
    }

    /// Returns the number of waiters in the row of `key`, on any key, a moment ago.
    pub fn row_waiters(&self, key: usize) -> u32 {
        self.bucket(key).count()
    }

    /// Announces that the running task is going to wait by `node` for `key` and for nothing else,
    /// not even a deadline: replaces [`crate::Task::prepare`]. The task is *queued* then, and
    /// claimed only under the lock of the row of `node`'s key.
    #[inline(always)]
    pub fn prepare(node: &WaitNode, task: TaskRef, key: usize) {
        node.set_key(key);
        task.get().prepare_queued();
    }

    /// Links `node` if `still()` holds under the lock. Call [`crate::Task::prepare`] or
    /// [`WaitTable::prepare`] first.
    ///
    /// Returns true if the task must park: it is linked, or something else (a signal) claimed it
    /// before it was, and has pushed it. After any outcome but [`Wake::Woken`] call
    /// [`WaitTable::cancel`], which handles both. Returns false if `still()` failed and the task
    /// claimed itself ([`Wake::Retry`]): no waker will push the task, and it goes on.
    ///
    /// `still` must read the waker's change with SeqCst: the raise of the count and that read are
    /// the waiter's side of Dekker's protocol.
    ///
    /// # Safety
    /// The node must stay alive and in place until this table has woken the task, or
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
        let mut list = self.bucket(key).lock_and_raise(1);
        if !still() {
            list.lower(1);
            return !task.get().claim_held(Wake::Retry);
        }
        // SAFETY: the caller's promise.
        unsafe { list.link(node, task, key, bits) };
        true
    }

    /// Wakes up to `max` waiters on `key` with bits that meet `bits`, the highest rank and then the
    /// oldest first, and appends them to `woken`, for the caller to push. Returns how many.
    #[inline(always)]
    pub fn wake(&self, key: usize, max: usize, bits: u32, woken: &TaskList) -> usize {
        if self.bucket(key).seems_empty() {
            fence(Ordering::SeqCst);
            return self.wake_fenced(key, max, bits, woken);
        }
        self.wake_locked(key, max, bits, woken)
    }

    /// As [`WaitTable::wake`], for callers that changed the condition by a SeqCst read-modify-write
    /// (on x86-64: by any atomic one).
    #[inline(always)]
    pub fn wake_fenced(&self, key: usize, max: usize, bits: u32, woken: &TaskList) -> usize {
        if self.bucket(key).count() == 0 {
            return 0;
        }
        self.wake_locked(key, max, bits, woken)
    }

    #[inline(always)]
    fn wake_locked(&self, key: usize, max: usize, bits: u32, woken: &TaskList) -> usize {
        let mut left = 0;
        let mut list = self.bucket(key).lock();
        let count = list.wake(max, woken, |node_key, node_bits| {
            let hit = node_key == key && node_bits & bits != 0;
            left += u32::from(hit);
            hit
        });
        list.lower(left);
        count
    }

    /// Takes the first waiter on `key` and, still under the lock, passes it to `give`, with true if
    /// others wait behind it: for owners that name their successor. The caller pushes the task.
    ///
    /// The count is not read first: `give` has to run in any case, and only the lock keeps a waiter
    /// from linking between `give`'s look and its change.
    pub fn hand_over(
        &self,
        key: usize,
        give: impl FnOnce(Option<TaskRef>, bool),
    ) -> Option<TaskRef> {
        let woken = TaskList::new();
        let mut left = 0;
        let mut list = self.bucket(key).lock();
        list.wake(1, &woken, |node_key, _| {
            left += u32::from(node_key == key);
            node_key == key
        });
        let next = woken.pop();
        give(next, list.find_key(|node_key| node_key == key).is_some());
        list.lower(left);
        next
    }

    /// Returns a key with waiters that `wanted`, called under the rows' locks, accepts. Slow.
    pub fn find_key(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let busy = |bucket: &&Bucket| bucket.count() != 0;
        self.buckets
            .iter()
            .filter(busy)
            .find_map(|bucket| bucket.lock().find_key(&wanted))
    }

    /// `FUTEX_CMP_REQUEUE`: if `check()` holds under both locks, wakes up to `max_wake` waiters of
    /// `from` and moves up to `max_move` more to `to`. `None` if the check failed.
    ///
    /// The target's count is raised before the check, as a waiter's is: a waker of `to` that made
    /// the check stale before it read the count must find the moved waiters. So `check` reads with
    /// SeqCst, like `still` of [`WaitTable::enqueue`].
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
        let (mut list, mut second) = self.lock_two(source, target);
        if let Some(second) = &mut second {
            second.lower(1); // the announcement: visible until the lock is free
        }
        if !check() {
            return None;
        }
        let mut left = 0;
        let count = list.wake(max_wake, woken, |key, _| {
            left += u32::from(key == from);
            key == from
        });
        // SAFETY: both locks are held.
        let moved = unsafe { list.requeue(from, to, max_move, second.as_deref_mut()) };
        if let Some(second) = &mut second {
            second.raise(moved as u32);
            left += moved as u32;
        }
        list.lower(left);
        Some(Requeued {
            woken: count,
            moved,
        })
    }

    /// Locks both rows, the lower index first, and raises the second's count. Returns one guard if
    /// they are the same row: its count includes the waiters already.
    fn lock_two(
        &self,
        first: usize,
        second: usize,
    ) -> (
        CountedGuard<'_, WaitList>,
        Option<CountedGuard<'_, WaitList>>,
    ) {
        match first.cmp(&second) {
            core::cmp::Ordering::Equal => (self.buckets[first].lock(), None),
            core::cmp::Ordering::Less => {
                let a = self.buckets[first].lock();
                (a, Some(self.buckets[second].lock_and_raise(1)))
            }
            core::cmp::Ordering::Greater => {
                let b = self.buckets[second].lock_and_raise(1);
                (self.buckets[first].lock(), Some(b))
            }
        }
    }

    /// Claims a task that is queued ([`WaitTable::prepare`]) with `node`; the winner must push it.
    /// Returns false if it isn't queued any more. The counterpart of [`crate::Task::claim`], which
    /// is for waiting tasks.
    ///
    /// A thread that sees the task queued sees the key of that wait, or the key that a requeue
    /// stored under the old key's lock. If the key still belongs to the locked row, the wait can
    /// end only here. If the key is that of a later wait, the last look at the claim word sees that
    /// the first wait has ended.
    ///
    /// # Safety
    /// The node must be the one that the task uses for such waits, all of them in this table.
    #[must_use]
    #[cold]
    pub unsafe fn claim(&self, node: &WaitNode, task: TaskRef, why: Wake) -> bool {
        while task.get().is_queued() {
            let key = node.key();
            let _held = self.bucket(key).lock();
            if task.get().is_queued() && Self::row(node.key()) == Self::row(key) {
                return task.get().claim_held(why);
            }
        }
        false
    }

    /// Takes a node out after anything but the table woke its task. Returns true if it was linked.
    ///
    /// # Safety
    /// The node must have been given to [`WaitTable::enqueue`] of this table.
    pub unsafe fn cancel(&self, node: &WaitNode) -> bool {
        loop {
            let key = node.key();
            let mut list = self.bucket(key).lock();
            if Self::row(node.key()) != Self::row(key) {
                continue; // requeued between the read and the lock
            }
            // SAFETY: the key can't change under the lock of its bucket.
            let was_linked = unsafe { list.unlink(node) };
            if was_linked {
                list.lower(1);
            }
            return was_linked;
        }
    }

    /// Forgets every waiter.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        let Self { buckets } = self;
        for bucket in buckets {
            if !bucket.is_untouched() {
                // SAFETY: the caller's promise; the list is replaced whole.
                unsafe { bucket.replace(WaitList::new()) };
            }
        }
    }
}

impl<const N: usize> Default for WaitTable<N> {
    fn default() -> Self {
        Self::new()
    }
}
