//! Deadlines: a pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) of intrusive nodes.
//!
//! Most deadlines are cancelled before they pass (a timed wait that is woken), so insertion and
//! removal are O(1) in the common case and no memory is ever allocated. One heap behind one lock;
//! `earliest` can be read without it.

use crate::spin::SpinLock;
use crate::sync::{AtomicU64, Ordering};
use crate::task::{Task, TaskList, TaskRef, Wake};
use core::cell::Cell;
use core::ptr::null_mut;

/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// A task's place in the heap; every field is guarded by the heap's lock.
pub(crate) struct TimerNode {
    deadline_ns: Cell<u64>,
    child: Cell<*mut Task>,
    sibling: Cell<*mut Task>,
    /// The parent if this is a first child, else the elder sibling; null for the root.
    before: Cell<*mut Task>,
    queued: Cell<bool>,
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

struct Root(*mut Task);

// SAFETY: the nodes are reached under the lock only.
unsafe impl Send for Root {}

/// The heap.
pub struct Timers {
    root: SpinLock<Root>,
    /// The root's deadline, inverted, so that a heap without deadlines is all zero bytes and the
    /// engine takes no room in the library's file. Written under the lock, read without it.
    earliest_inverted: AtomicU64,
}

fn node<'a>(task: *mut Task) -> &'a TimerNode {
    // SAFETY: called with tasks of the heap, under its lock; tasks live in type-stable memory.
    unsafe { &(*task).timer }
}

/// Makes the later of two roots the first child of the earlier.
fn meld(a: *mut Task, b: *mut Task) -> *mut Task {
    if a.is_null() {
        return b;
    }
    if b.is_null() {
        return a;
    }
    let (top, low) = if node(a).deadline_ns.get() <= node(b).deadline_ns.get() {
        (a, b)
    } else {
        (b, a)
    };
    let first = node(top).child.get();
    node(low).sibling.set(first);
    if !first.is_null() {
        node(first).before.set(low);
    }
    node(low).before.set(top);
    node(top).child.set(low);
    top
}

/// Melds a list of siblings into one tree: pairs from the left, then all from the right.
fn meld_siblings(mut first: *mut Task) -> *mut Task {
    let mut pairs: *mut Task = null_mut();
    while !first.is_null() {
        let a = first;
        let b = node(a).sibling.get();
        first = if b.is_null() {
            null_mut()
        } else {
            node(b).sibling.get()
        };
        detach(a);
        if !b.is_null() {
            detach(b);
        }
        let pair = meld(a, b);
        node(pair).sibling.set(pairs);
        pairs = pair;
    }
    let mut root: *mut Task = null_mut();
    while !pairs.is_null() {
        let next = node(pairs).sibling.get();
        node(pairs).sibling.set(null_mut());
        root = meld(root, pairs);
        pairs = next;
    }
    root
}

fn detach(task: *mut Task) {
    node(task).sibling.set(null_mut());
    node(task).before.set(null_mut());
}

impl Timers {
    /// No deadlines.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            root: SpinLock::new(Root(null_mut())),
            earliest_inverted: AtomicU64::new(!NEVER),
        }
    }

    /// No deadlines.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            root: SpinLock::new(Root(null_mut())),
            earliest_inverted: AtomicU64::new(!NEVER),
        }
    }

    /// Returns the earliest deadline, or [`NEVER`].
    #[inline(always)]
    pub fn earliest_ns(&self) -> u64 {
        !self.earliest_inverted.load(Ordering::SeqCst)
    }

    /// Adds a waiting task. Returns true if its deadline is now the earliest, so that a sleeper
    /// that read the earlier value must be woken.
    pub fn insert(&self, task: TaskRef, deadline_ns: u64) -> bool {
        let mut root = self.root.lock();
        let own = node(task.as_ptr());
        debug_assert!(!own.queued.get(), "a task waits for one deadline at a time");
        own.deadline_ns.set(deadline_ns);
        own.child.set(null_mut());
        own.queued.set(true);
        detach(task.as_ptr());
        root.0 = meld(root.0, task.as_ptr());
        let is_first = root.0 == task.as_ptr();
        if is_first {
            self.publish(root.0, Ordering::SeqCst);
        }
        is_first
    }

    /// Removes a task if it is still there.
    pub fn remove(&self, task: TaskRef) {
        let mut root = self.root.lock();
        let own = node(task.as_ptr());
        if !own.queued.get() {
            return;
        }
        own.queued.set(false);
        let below = meld_siblings(own.child.replace(null_mut()));
        if root.0 == task.as_ptr() {
            root.0 = below;
            self.publish(below, Ordering::Release);
        } else {
            let (before, sibling) = (own.before.get(), own.sibling.get());
            if node(before).child.get() == task.as_ptr() {
                node(before).child.set(sibling);
            } else {
                node(before).sibling.set(sibling);
            }
            if !sibling.is_null() {
                node(sibling).before.set(before);
            }
            root.0 = meld(root.0, below);
        }
        detach(task.as_ptr());
    }

    /// Takes every task with a deadline at or before `now_ns` and claims it; a task that another
    /// waker claimed first is left to that waker. Returns the claimed tasks, earliest first.
    pub fn expire(&self, now_ns: u64) -> TaskList {
        let expired = TaskList::new();
        if !self.earliest_inverted.load(Ordering::Relaxed) > now_ns {
            return expired;
        }
        let mut root = self.root.lock();
        while !root.0.is_null() && node(root.0).deadline_ns.get() <= now_ns {
            let top = root.0;
            root.0 = meld_siblings(node(top).child.replace(null_mut()));
            node(top).queued.set(false);
            // SAFETY: the heap holds live tasks.
            if let Some(task) = unsafe { TaskRef::from_ptr(top) }
                && task.get().claim(Wake::TimedOut)
            {
                expired.push(task);
            }
        }
        self.publish(root.0, Ordering::Release);
        expired
    }

    /// Publishes the root's deadline to readers without the lock. SeqCst when the deadline comes
    /// nearer, so that either a sleeper reads it or its inserter sees the sleeper. A deadline that
    /// moves away may be read late, which costs its reader one needless look.
    fn publish(&self, root: *mut Task, order: Ordering) {
        let earliest = if root.is_null() {
            NEVER
        } else {
            node(root).deadline_ns.get()
        };
        self.earliest_inverted.store(!earliest, order);
    }

    /// Forgets every deadline.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        let Self {
            root,
            earliest_inverted: _, // `publish`
        } = self;
        // SAFETY: the caller's promise; the heap is replaced whole.
        unsafe { root.break_lock() };
        root.lock().0 = null_mut();
        self.publish(null_mut(), Ordering::Release);
    }

    /// Marks a task as not in the heap, after [`Timers::reset`] emptied the heap.
    ///
    /// # Safety
    /// Only in the child of a fork, for the thread that survives.
    pub unsafe fn forget(&self, task: TaskRef) {
        node(task.as_ptr()).queued.set(false);
    }
}

impl Default for Timers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use core::ptr::NonNull;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TASKS: usize = 24;

    #[derive(Clone, Debug)]
    enum Act {
        Insert(usize, u64),
        Remove(usize),
        /// Another waker wakes the task, which stays in the heap.
        Claim(usize),
        Expire(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..TASKS, 0..50u64).prop_map(|(task, deadline)| Act::Insert(task, deadline)),
            2 => (0..TASKS).prop_map(Act::Remove),
            1 => (0..TASKS).prop_map(Act::Claim),
            1 => (0..60u64).prop_map(Act::Expire),
        ]
    }

    /// The heap beside a map from (deadline, task) to whether the task still waits.
    struct Both {
        tasks: Vec<Task>,
        timers: Timers,
        model: BTreeMap<(u64, usize), bool>,
    }

    impl Both {
        fn task(&self, index: usize) -> TaskRef {
            // SAFETY: the tasks live as long as the heap.
            unsafe { TaskRef::new(NonNull::from(&self.tasks[index])) }
        }

        fn key_of(&self, index: usize) -> Option<(u64, usize)> {
            self.model.keys().find(|key| key.1 == index).copied()
        }

        fn play(&mut self, act: &Act) {
            match *act {
                Act::Insert(index, deadline_ns) if self.key_of(index).is_none() => {
                    self.tasks[index].prepare();
                    let earlier = self.model.first_key_value().map(|(key, _)| key.0);
                    let first = self.timers.insert(self.task(index), deadline_ns);
                    assert_eq!(first, earlier.is_none_or(|earlier| deadline_ns < earlier));
                    self.model.insert((deadline_ns, index), true);
                }
                Act::Insert(..) => {}
                Act::Remove(index) => {
                    self.timers.remove(self.task(index));
                    self.key_of(index).map(|key| self.model.remove(&key));
                }
                Act::Claim(index) => {
                    if let Some(key) = self.key_of(index) {
                        assert_eq!(self.tasks[index].claim(Wake::Woken), self.model[&key]);
                        self.model.insert(key, false);
                    }
                }
                Act::Expire(now_ns) => self.expire(now_ns),
            }
            let earliest = self.model.first_key_value().map_or(NEVER, |(key, _)| key.0);
            assert_eq!(self.timers.earliest_ns(), earliest);
        }

        fn expire(&mut self, now_ns: u64) {
            let later = self.model.split_off(&(now_ns + 1, 0));
            let due = core::mem::replace(&mut self.model, later);
            let deadlines: BTreeMap<_, _> = due.keys().map(|&(ns, index)| (index, ns)).collect();
            let expired = self.timers.expire(now_ns);
            let index = |task| (0..TASKS).find(|&index| self.task(index) == task).unwrap();
            let mut expired: Vec<_> = core::iter::from_fn(|| expired.pop()).map(index).collect();
            assert!(
                expired.iter().map(|index| deadlines[index]).is_sorted(),
                "earliest first"
            );
            expired.sort_unstable();
            let mut waited: Vec<_> = due
                .into_iter()
                .filter(|&(_, waits)| waits)
                .map(|((_, index), _)| index)
                .collect();
            waited.sort_unstable();
            assert_eq!(expired, waited);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn the_heap_agrees_with_a_map(acts in prop::collection::vec(act(), 1..200)) {
            let tasks = (0..TASKS).map(|_| Task::new()).collect();
            let mut both = Both { tasks, timers: Timers::new(), model: BTreeMap::new() };
            acts.iter().for_each(|act| both.play(act));
            both.play(&Act::Expire(100));
            assert_eq!(both.timers.earliest_ns(), NEVER);
        }
    }

    #[test]
    fn a_task_may_be_removed_twice_and_come_back() {
        let (task, timers) = (Task::new(), Timers::new());
        // SAFETY: the task lives as long as the heap.
        let task = unsafe { TaskRef::new(NonNull::from(&task)) };
        for deadline_ns in [7, 3] {
            task.get().prepare();
            assert!(timers.insert(task, deadline_ns));
            timers.remove(task);
            timers.remove(task);
            assert_eq!(timers.earliest_ns(), NEVER);
        }
        assert!(timers.expire(100).is_empty());
        assert!(task.get().is_waiting());
    }
}
