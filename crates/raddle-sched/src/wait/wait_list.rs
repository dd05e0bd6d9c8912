//! A list of waits: the content of a bucket of the wait table, or the waiters for a descriptor.
//!
//! A *wait node* is one wait of one task. It lives on the waiter's stack or in its thread object,
//! and its fields are guarded by the lock that guards the list it is in.
//!
//! A waker unlinks a node *before* it claims the task, and doesn't touch the node after a claim
//! that failed: the winner may have pushed the task, which runs and drops its node. After a
//! successful claim the waker marks the node as the one that won, before it pushes. The claim is
//! made under the list's lock. A task that another waker woke takes that lock to unlink its node,
//! so the node outlives every look at it.
//!
//! A task may wait with several nodes, in several lists, at once: the claim lets one waker win, and
//! the task finds the node that is marked.

use crate::sync::{AtomicUsize, Ordering};
use crate::task::{TaskList, TaskRef, Wake};
use core::cell::Cell;
use core::ptr::{null, null_mut};

/// One wait of one task on one key.
pub struct WaitNode {
    next: Cell<*const WaitNode>,
    prev: Cell<*const WaitNode>,
    linked: Cell<bool>,
    /// True once a wake through this node has won its task. Written by the waker, between its claim
    /// and its push; read by the task when it runs again, which the push orders.
    won: Cell<bool>,
    task: Cell<Option<TaskRef>>,
    bits: Cell<u32>,
    /// The key that the task waits on. Stored by the task before it waits, changed by a requeue
    /// under both buckets' locks. A read without a lock only finds the bucket, and is repeated
    /// under its lock.
    key: AtomicUsize,
}

// SAFETY: all fields but `key` and `won` are used under a bucket's lock, and `won` is handed over
// by the push of the task.
unsafe impl Send for WaitNode {}
// SAFETY: as above.
unsafe impl Sync for WaitNode {}

impl WaitNode {
    /// A node in no queue.
    pub fn new() -> Self {
        Self {
            next: Cell::new(null()),
            prev: Cell::new(null()),
            linked: Cell::new(false),
            won: Cell::new(false),
            task: Cell::new(None),
            bits: Cell::new(0),
            key: AtomicUsize::new(0),
        }
    }

    /// Returns the key of the current or last wait. Acquire, with the release of
    /// [`WaitNode::set_key`]: a thread that sees the key of a wait sees the end of the wait before.
    pub fn key(&self) -> usize {
        self.key.load(Ordering::Acquire)
    }

    /// Returns true if the last wait ended through this node: of the several nodes of one task, at
    /// most one. The task asks after it was woken.
    pub fn won(&self) -> bool {
        self.won.get()
    }

    /// Sets the key of the next wait. Its task calls this before it is queued.
    #[inline(always)]
    pub(crate) fn set_key(&self, key: usize) {
        self.key.store(key, Ordering::Release);
    }

    /// Returns the rank of its task now.
    fn rank(&self) -> u32 {
        self.task().get().rank.load(Ordering::Relaxed)
    }

    /// The task of the current or last wait.
    fn task(&self) -> TaskRef {
        match self.task.get() {
            Some(task) => task,
            None => unreachable!("a linked wait node has a task"),
        }
    }
}

impl Default for WaitNode {
    fn default() -> Self {
        Self::new()
    }
}

/// An intrusive list of wait nodes, by rank and then by age; every method needs the lock that
/// guards the list.
pub struct WaitList {
    head: *const WaitNode,
    tail: *const WaitNode,
}

// SAFETY: nodes are touched under the lock that guards the list.
unsafe impl Send for WaitList {}

impl WaitList {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            head: null_mut(),
            tail: null_mut(),
        }
    }

    /// Returns true if the list holds no node.
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Links a node for `task` behind all nodes of its rank or a higher one.
    ///
    /// # Safety
    /// The node must stay where it is, and alive, until it has been unlinked.
    #[inline(always)]
    pub unsafe fn link(&mut self, node: &WaitNode, task: TaskRef, key: usize, bits: u32) {
        node.task.set(Some(task));
        node.bits.set(bits);
        node.won.set(false);
        node.key.store(key, Ordering::Relaxed);
        // SAFETY: the caller's promise is link_by_rank's.
        unsafe { self.link_by_rank(node) };
    }

    /// Links a node with its fields set, as [`WaitList::link`] does.
    ///
    /// # Safety
    /// As for [`WaitList::link`].
    #[inline(always)]
    unsafe fn link_by_rank(&mut self, node: &WaitNode) {
        debug_assert!(!node.linked.get());
        if node.rank() != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.link_among(node) };
        }
        node.next.set(null());
        node.prev.set(self.tail);
        node.linked.set(true);
        // SAFETY: linked nodes are alive, by link's contract.
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(node),
            None => self.head = node,
        }
        self.tail = node;
    }

    /// Links a node of a rank other than 0: before the nodes of lower ranks at the list's end.
    ///
    /// # Safety
    /// As for [`WaitList::link`].
    #[cold]
    unsafe fn link_among(&mut self, node: &WaitNode) {
        let (mut prev, mut next) = (self.tail, null());
        // SAFETY: linked nodes are alive, by link's contract; so in what follows.
        while let Some(before) = unsafe { prev.as_ref() }
            && before.rank() < node.rank()
        {
            next = prev;
            prev = before.prev.get();
        }
        node.next.set(next);
        node.prev.set(prev);
        node.linked.set(true);
        // SAFETY: as above.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(node),
            None => self.head = node,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(node),
            None => self.tail = node,
        }
    }

    /// Takes a node out, if it is linked; returns true if it was.
    ///
    /// # Safety
    /// If it is linked, it must be in this list.
    pub unsafe fn unlink(&mut self, node: &WaitNode) -> bool {
        if !node.linked.replace(false) {
            return false;
        }
        let (next, prev) = (node.next.get(), node.prev.get());
        // SAFETY: neighbours are linked, so alive.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail = prev,
        }
        true
    }

    /// Changes the key of up to `max` nodes from `from` to `to`, and moves them to `target`, if
    /// that is another list, behind those of their rank. Returns how many.
    ///
    /// # Safety
    /// The locks of both lists are held.
    pub(crate) unsafe fn requeue(
        &mut self,
        from: usize,
        to: usize,
        max: usize,
        mut target: Option<&mut WaitList>,
    ) -> usize {
        let mut moved = 0;
        let mut at = self.head;
        // SAFETY: linked nodes are alive, by link's contract.
        while let Some(node) = unsafe { at.as_ref() } {
            if moved == max {
                break;
            }
            at = node.next.get();
            if node.key() != from {
                continue;
            }
            node.key.store(to, Ordering::Relaxed);
            moved += 1;
            if let Some(target) = target.as_deref_mut() {
                // SAFETY: the node is in this list; both locks are held.
                unsafe {
                    self.unlink(node);
                    target.link_by_rank(node);
                }
            }
        }
        moved
    }

    /// Returns the first key that `wanted` accepts.
    pub fn find_key(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let mut at = self.head;
        // SAFETY: linked nodes are alive, by link's contract.
        while let Some(node) = unsafe { at.as_ref() } {
            if wanted(node.key()) {
                return Some(node.key());
            }
            at = node.next.get();
        }
        None
    }

    /// Unlinks and claims up to `max` nodes that `wanted` accepts, the highest rank and then the
    /// oldest first; appends the claimed tasks to `woken` and returns how many. A node is
    /// unlinked and not counted if another waker has claimed its task.
    pub fn wake(
        &mut self,
        max: usize,
        woken: &TaskList,
        mut wanted: impl FnMut(usize, u32) -> bool,
    ) -> usize {
        let mut count = 0;
        let mut at = self.head;
        // SAFETY: linked nodes are alive, by link's contract.
        while let Some(node) = unsafe { at.as_ref() } {
            if count == max {
                break;
            }
            at = node.next.get();
            if !wanted(node.key(), node.bits.get()) {
                continue;
            }
            let task = node.task();
            // SAFETY: the node came from this list. If the claim below fails, the node may be gone.
            unsafe { self.unlink(node) };
            if task.get().claim_held(Wake::Woken) {
                node.won.set(true); // the task can't leave its wait before it is pushed
                woken.push(task);
                count += 1;
            }
        }
        count
    }
}

impl Default for WaitList {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use crate::task::Task;
    use core::ptr::NonNull;

    struct Waits {
        tasks: Vec<Task>,
        nodes: Vec<WaitNode>,
        list: WaitList,
    }

    impl Waits {
        /// One wait for each pair of key and bits.
        fn new(waits: &[(usize, u32)]) -> Self {
            Self::of(waits, &vec![0; waits.len()])
        }

        /// One wait on key 1 for each rank.
        fn ranked(ranks: &[u32]) -> Self {
            Self::of(&vec![(1, 1); ranks.len()], ranks)
        }

        fn of(waits: &[(usize, u32)], ranks: &[u32]) -> Self {
            let task = |&rank: &u32| {
                let task = Task::new();
                task.rank.store(rank, Ordering::Relaxed);
                task
            };
            let mut made = Self {
                tasks: ranks.iter().map(task).collect(),
                nodes: waits.iter().map(|_| WaitNode::new()).collect(),
                list: WaitList::new(),
            };
            for (index, &(key, bits)) in waits.iter().enumerate() {
                made.tasks[index].prepare();
                let task = made.task(index);
                // SAFETY: the vectors don't grow any more, so the nodes stay in place.
                unsafe { made.list.link(&made.nodes[index], task, key, bits) };
            }
            made
        }

        fn task(&self, index: usize) -> TaskRef {
            // SAFETY: the tasks live as long as the test.
            unsafe { TaskRef::new(NonNull::from(&self.tasks[index])) }
        }

        fn wake(&mut self, max: usize, wanted: impl FnMut(usize, u32) -> bool) -> Vec<usize> {
            let woken = TaskList::new();
            assert_eq!(self.list.wake(max, &woken, wanted), woken.len());
            let index = |task| (0..self.tasks.len()).find(|&index| self.task(index) == task);
            core::iter::from_fn(|| woken.pop())
                .filter_map(index)
                .collect()
        }
    }

    #[test]
    fn wakes_the_oldest_first_and_no_more_than_asked() {
        let mut waits = Waits::new(&[(1, 1); 5]);
        assert_eq!(waits.wake(2, |_, _| true), [0, 1]);
        assert_eq!(waits.wake(9, |_, _| true), [2, 3, 4]);
        assert!(waits.list.is_empty());
    }

    #[test]
    fn a_higher_rank_is_woken_first_and_equals_by_age() {
        let mut waits = Waits::ranked(&[0, 5, 0, 9, 5, 9]);
        assert_eq!(waits.wake(9, |_, _| true), [3, 5, 1, 4, 0, 2]);
    }

    #[test]
    fn a_requeue_keeps_to_the_rank() {
        let mut waits = Waits::ranked(&[3, 0]);
        let mut others = Waits::ranked(&[5, 0]);
        // SAFETY: no other thread knows the lists.
        let moved = unsafe { waits.list.requeue(1, 2, 9, Some(&mut others.list)) };
        assert_eq!(moved, 2);
        let order = |list: &WaitList| {
            let mut nodes = Vec::new();
            let mut at = list.head;
            // SAFETY: linked nodes are alive.
            while let Some(node) = unsafe { at.as_ref() } {
                nodes.push((node.rank(), node.key()));
                at = node.next.get();
            }
            nodes
        };
        assert_eq!(order(&others.list), [(5, 1), (3, 2), (0, 1), (0, 2)]);
    }

    #[test]
    fn passes_over_what_is_not_wanted() {
        let mut waits = Waits::new(&[(1, 1), (2, 1), (1, 2), (1, 3)]);
        assert_eq!(waits.wake(9, |key, bits| key == 1 && bits & 2 != 0), [2, 3]);
        assert_eq!(waits.wake(9, |_, _| true), [0, 1]);
    }

    #[test]
    fn a_task_that_another_claimed_leaves_the_list_and_is_not_counted() {
        let mut waits = Waits::new(&[(1, 1); 3]);
        assert!(waits.tasks[0].claim(Wake::TimedOut));
        assert_eq!(waits.wake(1, |_, _| true), [1]);
        // SAFETY: the node was in this list.
        assert!(!unsafe { waits.list.unlink(&waits.nodes[0]) });
        assert_eq!(waits.tasks[0].outcome(), Wake::TimedOut);
    }

    #[test]
    fn unlinks_at_either_end_and_in_between() {
        for gone in 0..3 {
            let mut waits = Waits::new(&[(1, 1); 3]);
            // SAFETY: the node is in this list.
            assert!(unsafe { waits.list.unlink(&waits.nodes[gone]) });
            let left: Vec<_> = (0..3).filter(|&index| index != gone).collect();
            assert_eq!(waits.wake(9, |_, _| true), left);
        }
    }

    #[test]
    fn a_requeue_keeps_the_order_of_those_it_moves() {
        let mut waits = Waits::new(&[(1, 1), (2, 1), (1, 1), (1, 1)]);
        let mut target = WaitList::new();
        // SAFETY: no other thread knows the lists.
        assert_eq!(unsafe { waits.list.requeue(1, 9, 2, Some(&mut target)) }, 2);
        assert_eq!(waits.wake(9, |_, _| true), [1, 3]);
        core::mem::swap(&mut waits.list, &mut target);
        assert_eq!(waits.wake(9, |key, _| key == 9), [0, 2]);
    }
}
