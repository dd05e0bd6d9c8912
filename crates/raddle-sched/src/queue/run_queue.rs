//! A carrier's run queue: a stealable ring and a LIFO slot before it.
//!
//! The owner pushes at the ring's tail and takes at its head; thieves take at the head, too, so the
//! ring is FIFO for all. The LIFO slot holds the task that was woken last: it runs next, on warm
//! caches, which makes a hand-off between two threads a switch and nothing else. Only the owner
//! fills the slot; owner and thieves empty it by a swap.
//!
//! The ring's protocol (after Chase and Lev 2005 in the bounded, FIFO form that Go and tokio use):
//! `tail` is written by the owner only, after the entry it covers (release); `head` moves by CAS. A
//! taker copies an entry, then tries to move `head` over it; if the CAS fails, the taker drops the
//! copy. An entry can't be overwritten while `head` hasn't passed it, because the owner pushes only
//! while `tail - head` is below the capacity, and a stale `head` only makes the ring look fuller.
//!
//! Theft moves tasks one by one, a CAS each. Rejected: many by one CAS. The thief would have to
//! copy them before it owns them, and keep the owner from running them meanwhile.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};
use crate::task::{Task, TaskList, TaskRef};
use core::ptr::null_mut;

/// Entries in the ring; a power of two.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub const CAPACITY: usize = 256;
/// Small under a model checker, so that overflow is reached.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub const CAPACITY: usize = 4;

const MASK: u32 = CAPACITY as u32 - 1;

/// A moment in the order of one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(u32);

/// See the module.
pub struct RunQueue {
    /// Next entry to take. Moved by CAS (acq-rel) by owner and thieves.
    head: AtomicU32,
    /// Next entry to fill. Written by the owner (release), read by thieves (acquire).
    tail: AtomicU32,
    /// The task woken last, or null.
    lifo: AtomicPtr<Task>,
    ring: [AtomicPtr<Task>; CAPACITY],
}

impl RunQueue {
    /// Offset of the number of the next entry to take.
    pub const HEAD: usize = core::mem::offset_of!(RunQueue, head);
    /// Offset of the number of the next entry to fill.
    pub const TAIL: usize = core::mem::offset_of!(RunQueue, tail);
    /// Offset of the word that is not 0 while the LIFO slot is filled.
    pub const SLOT: usize = core::mem::offset_of!(RunQueue, lifo);

    /// An empty queue.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            lifo: AtomicPtr::new(null_mut()),
            ring: [const { AtomicPtr::new(null_mut()) }; CAPACITY],
        }
    }

    /// An empty queue.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            lifo: AtomicPtr::new(null_mut()),
            ring: core::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// Tasks in the ring, a moment ago.
    #[inline(always)]
    pub fn ring_len(&self) -> usize {
        let head = self.head.load(Ordering::SeqCst);
        self.tail.load(Ordering::SeqCst).wrapping_sub(head) as usize
    }

    /// Returns true if ring and slot were empty a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lifo.load(Ordering::SeqCst).is_null() && self.ring_len() == 0
    }

    /// Tasks in ring and slot, a moment ago.
    pub fn len(&self) -> usize {
        self.ring_len() + usize::from(self.has_lifo())
    }

    /// Returns true if the LIFO slot was filled a moment ago.
    #[inline(always)]
    pub fn has_lifo(&self) -> bool {
        !self.lifo.load(Ordering::Relaxed).is_null()
    }

    /// Appends a task to the ring; owner only. A full ring moves half of itself and the task to the
    /// returned list, for the injector.
    #[inline(always)]
    #[must_use]
    pub fn push(&self, task: TaskRef) -> Option<TaskList> {
        let tail = self.tail.load(Ordering::Relaxed);
        let head = self.head.load(Ordering::Acquire);
        if tail.wrapping_sub(head) < CAPACITY as u32 {
            self.ring[(tail & MASK) as usize].store(task.as_ptr(), Ordering::Relaxed);
            self.tail.store(tail.wrapping_add(1), Ordering::Release);
            return None;
        }
        Some(self.overflow(task))
    }

    #[cold]
    fn overflow(&self, task: TaskRef) -> TaskList {
        let moved = TaskList::new();
        for _ in 0..CAPACITY / 2 {
            match self.pop_ring() {
                Some(old) => moved.push(old),
                None => break,
            }
        }
        moved.push(task);
        moved
    }

    /// Puts a task into the LIFO slot; owner only. Returns the task that was there, which belongs
    /// at the ring's tail.
    #[inline(always)]
    #[must_use]
    pub fn push_lifo(&self, task: TaskRef) -> Option<TaskRef> {
        // Only the owner fills the slot: seen empty, it stays empty until this store.
        if self.lifo.load(Ordering::Relaxed).is_null() {
            self.lifo.store(task.as_ptr(), Ordering::Release);
            return None;
        }
        // SAFETY: the slot holds tasks only, and the swap took this one out.
        unsafe { TaskRef::from_ptr(self.lifo.swap(task.as_ptr(), Ordering::AcqRel)) }
    }

    /// Takes the task in the LIFO slot; any thread may.
    #[inline(always)]
    pub fn take_lifo(&self) -> Option<TaskRef> {
        if self.lifo.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // SAFETY: as in push_lifo.
        unsafe { TaskRef::from_ptr(self.lifo.swap(null_mut(), Ordering::AcqRel)) }
    }

    /// Returns the task that was in the LIFO slot a moment ago. It may run by now, or have ended:
    /// only its atomics may be read.
    pub fn peek_lifo(&self) -> Option<TaskRef> {
        // SAFETY: the slot holds tasks only, which live in type-stable memory.
        unsafe { TaskRef::from_ptr(self.lifo.load(Ordering::Relaxed)) }
    }

    /// Takes the oldest task of the ring; any thread may.
    #[inline(always)]
    pub fn pop_ring(&self) -> Option<TaskRef> {
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let tail = self.tail.load(Ordering::Acquire);
            if head == tail {
                return None;
            }
            let task = self.ring[(head & MASK) as usize].load(Ordering::Relaxed);
            match self.head.compare_exchange(
                head,
                head.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                // SAFETY: moving the head over the entry made this thread its owner.
                Ok(_) => return unsafe { TaskRef::from_ptr(task) },
                Err(now) => head = now,
            }
        }
    }

    /// Takes half of `victim`'s ring (at least one task, and as many as there is room for): the
    /// oldest to run now, the others to the end of this queue; owner only.
    ///
    /// The task to run never enters this ring. Otherwise another searcher could take it before its
    /// thief runs it, and many searchers could pass one task around without end.
    pub fn steal(&self, victim: &RunQueue) -> Option<TaskRef> {
        let goal = victim.ring_len().div_ceil(2);
        let first = victim.pop_ring()?;
        self.steal_up_to(victim, goal.saturating_sub(1));
        Some(first)
    }

    /// Returns the present moment in the order of the ring: its tail.
    pub fn mark(&self) -> Mark {
        Mark(self.tail.load(Ordering::Relaxed))
    }

    /// Returns how many tasks of the ring were pushed before `mark` and still wait, a moment ago.
    pub fn waiting_since(&self, mark: Mark) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        (mark.0.wrapping_sub(head) as i32).max(0) as usize
    }

    /// As [`RunQueue::steal_from`], `count` tasks at most.
    pub fn steal_some(&self, victim: &RunQueue, count: usize) -> usize {
        self.steal_up_to(victim, count)
    }

    /// As [`RunQueue::steal`], but all tasks go to the end of this queue. Returns how many moved.
    pub fn steal_from(&self, victim: &RunQueue) -> usize {
        self.steal_up_to(victim, victim.ring_len().div_ceil(2))
    }

    fn steal_up_to(&self, victim: &RunQueue, goal: usize) -> usize {
        let mut moved = 0;
        // Room can only grow meanwhile: only the caller pushes here.
        let room = CAPACITY - self.ring_len();
        let goal = goal.min(CAPACITY / 2).min(room);
        while moved < goal {
            let Some(task) = victim.pop_ring() else { break };
            let overflow = self.push(task);
            debug_assert!(overflow.is_none(), "a theft overflowed the thief's queue");
            moved += 1;
        }
        moved
    }
}

impl Default for RunQueue {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    struct Tasks(Vec<Task>);

    impl Tasks {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| Task::new()).collect())
        }

        fn get(&self, index: usize) -> TaskRef {
            // SAFETY: the tasks live as long as the test.
            unsafe { TaskRef::new(NonNull::from(&self.0[index])) }
        }

        fn index(&self, task: TaskRef) -> usize {
            (task.as_ptr().addr() - self.0.as_ptr().addr()) / size_of::<Task>()
        }

        /// Pushes the tasks of `range`, which must fit.
        fn push(&self, queue: &RunQueue, range: core::ops::Range<usize>) {
            range.for_each(|index| assert!(queue.push(self.get(index)).is_none()));
        }

        fn drain(&self, queue: &RunQueue) -> Vec<usize> {
            core::iter::from_fn(|| queue.pop_ring())
                .map(|task| self.index(task))
                .collect()
        }
    }

    #[test]
    fn a_mark_tells_how_many_older_tasks_wait() {
        let tasks = Tasks::new(4);
        let (victim, thief) = (RunQueue::new(), RunQueue::new());
        for index in 0..3 {
            assert!(victim.push(tasks.get(index)).is_none());
        }
        let mark = victim.mark();
        assert!(victim.push(tasks.get(3)).is_none());
        assert_eq!(victim.waiting_since(mark), 3);
        assert_eq!(thief.steal_some(&victim, 2), 2);
        assert_eq!(victim.waiting_since(mark), 1);
        assert_eq!(victim.pop_ring().map(|task| tasks.index(task)), Some(2));
        assert_eq!(victim.pop_ring().map(|task| tasks.index(task)), Some(3));
        assert_eq!(victim.waiting_since(mark), 0);
    }

    #[test]
    fn the_ring_is_first_in_first_out_round_and_round() {
        let (tasks, queue) = (Tasks::new(CAPACITY), RunQueue::new());
        for round in 0..5 {
            let count = CAPACITY - round;
            tasks.push(&queue, 0..count);
            assert_eq!(queue.ring_len(), count);
            assert!(tasks.drain(&queue).into_iter().eq(0..count));
        }
    }

    #[test]
    fn a_full_ring_gives_up_its_older_half_and_the_newcomer() {
        let (tasks, queue) = (Tasks::new(CAPACITY + 1), RunQueue::new());
        tasks.push(&queue, 0..CAPACITY);
        let moved = queue.push(tasks.get(CAPACITY)).expect("an overflow");
        let moved: Vec<_> = core::iter::from_fn(|| moved.pop())
            .map(|task| tasks.index(task))
            .collect();
        assert!(moved.into_iter().eq((0..CAPACITY / 2).chain([CAPACITY])));
        assert!(tasks.drain(&queue).into_iter().eq(CAPACITY / 2..CAPACITY));
    }

    #[test]
    fn the_slot_holds_the_newest_and_displaces_to_the_caller() {
        let (tasks, queue) = (Tasks::new(2), RunQueue::new());
        assert!(queue.push_lifo(tasks.get(0)).is_none());
        assert_eq!(queue.push_lifo(tasks.get(1)), Some(tasks.get(0)));
        assert_eq!(
            (queue.len(), queue.ring_len(), queue.is_empty()),
            (1, 0, false)
        );
        assert_eq!(queue.take_lifo(), Some(tasks.get(1)));
        assert!(queue.take_lifo().is_none() && queue.is_empty());
    }

    #[test]
    fn a_theft_takes_half_oldest_first_and_runs_one() {
        for (had, rest) in [(0, 0), (1, 0), (2, 0), (3, 1), (8, 3), (9, 4)] {
            let (tasks, victim, thief) = (Tasks::new(9), RunQueue::new(), RunQueue::new());
            tasks.push(&victim, 0..had);
            assert_eq!(thief.steal(&victim), (had > 0).then(|| tasks.get(0)));
            assert!(tasks.drain(&thief).into_iter().eq(1..1 + rest));
            assert!(tasks.drain(&victim).into_iter().eq(if had == 0 {
                0..0
            } else {
                1 + rest..had
            }));
        }
    }

    #[test]
    fn a_theft_leaves_what_the_thief_has_no_room_for() {
        let (victim, thief) = (RunQueue::new(), RunQueue::new());
        let tasks = Tasks::new(CAPACITY + 7);
        tasks.push(&thief, 0..CAPACITY - 1);
        tasks.push(&victim, CAPACITY - 1..CAPACITY + 7);
        assert_eq!(thief.steal_from(&victim), 1);
        assert_eq!(thief.steal_from(&victim), 0);
        assert_eq!((thief.ring_len(), victim.ring_len()), (CAPACITY, 7));
    }
}
