//! Waits on several words at once, and ownership that passes to a waiter under the row's lock.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering};
use raddle_sched::{TaskList, WaitNode, WaitTable, Wake};

/// Two words, in different rows of a table of two, and one task that may wait on both.
struct World {
    tasks: Box<Tasks<1>>,
    nodes: [WaitNode; 2],
    table: WaitTable<2>,
    words: [AtomicU32; 2],
    keys: [usize; 2],
}

const OWNER: u32 = 1;
const WAITER: u32 = 2;
const WAITERS: u32 = 1 << 31;

impl World {
    fn new() -> Arc<Self> {
        let row = WaitTable::<2>::row;
        let other = (9..).find(|&key| row(key) != row(8)).unwrap();
        Arc::new(Self {
            tasks: Tasks::new(),
            nodes: [WaitNode::new(), WaitNode::new()],
            table: WaitTable::new(),
            words: [AtomicU32::new(0), AtomicU32::new(0)],
            keys: [8, other],
        })
    }

    /// Waits while both words are zero. Returns true if the task must park.
    fn wait_on_both(&self) -> bool {
        let task = self.tasks.get(0);
        task.get().prepare();
        for (index, node) in self.nodes.iter().enumerate() {
            let mut held = false;
            let still = || {
                held = self.words[index].load(Ordering::SeqCst) == 0;
                held
            };
            // SAFETY: nodes and tasks live as long as the world.
            let parks = unsafe { self.table.enqueue(node, task, self.keys[index], !0, still) };
            if !held || !task.get().is_waiting() {
                return parks;
            }
        }
        true
    }

    fn change_and_wake(&self, index: usize) -> TaskList {
        let woken = TaskList::new();
        self.words[index].store(1, Ordering::Relaxed);
        let counted = self.table.wake(self.keys[index], 1, !0, &woken);
        assert_eq!(counted, woken.len());
        woken
    }

    fn leave_both(&self) {
        for node in &self.nodes {
            // SAFETY: the nodes were given to this table, or to none.
            unsafe { self.table.cancel(node) };
        }
        for key in self.keys {
            assert_eq!(self.table.row_waiters(key), 0);
        }
    }

    /// Takes the first word; returns false if the task must park until it is given the word.
    fn lock(&self) -> bool {
        let (task, word) = (self.tasks.get(0), &self.words[0]);
        task.get().prepare();
        let still = || {
            loop {
                let seen = word.load(Ordering::SeqCst);
                let new = if seen == 0 { WAITER } else { seen | WAITERS };
                let swap = word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst);
                if swap.is_ok() {
                    return seen != 0;
                }
            }
        };
        // SAFETY: nodes and tasks live as long as the world.
        unsafe {
            self.table
                .enqueue(&self.nodes[0], task, self.keys[0], !0, still)
        }
    }

    fn unlock(&self) {
        let word = &self.words[0];
        if word
            .compare_exchange(OWNER, 0, Ordering::SeqCst, Ordering::SeqCst)
            .is_err()
        {
            self.table.hand_over(self.keys[0], |next, more| {
                assert!(!more);
                let new = if next.is_some() { WAITER } else { 0 };
                word.store(new, Ordering::SeqCst);
            });
        }
    }
}

#[test]
fn one_of_two_words_wakes_once_and_is_told() {
    explore(2, || {
        let world = World::new();
        let (there, second) = (world.clone(), world.clone());
        let waiter = thread::spawn(move || there.wait_on_both());
        let waker = thread::spawn(move || second.change_and_wake(1).len());
        let first = world.change_and_wake(0).len();
        let (parks, second) = (waiter.join().unwrap(), waker.join().unwrap());
        assert!(!world.tasks.get(0).get().is_waiting(), "a wake-up was lost");
        assert_eq!(usize::from(parks), first + second);
        assert_eq!(usize::from(world.nodes[0].won()), first);
        assert_eq!(usize::from(world.nodes[1].won()), second);
        world.leave_both();
    });
}

#[test]
fn a_time_limit_leaves_no_node_behind() {
    explore(2, || {
        let world = World::new();
        assert!(world.wait_on_both());
        let there = world.clone();
        let timer = thread::spawn(move || {
            let won = there.tasks.get(0).get().claim(Wake::TimedOut);
            if won {
                there.leave_both();
            }
            won
        });
        let woken = world.change_and_wake(1).len() == 1;
        let timed_out = timer.join().unwrap();
        assert!(woken != timed_out);
        assert_eq!(world.nodes[1].won(), woken);
        world.leave_both();
    });
}

#[test]
fn a_lock_is_taken_or_handed_over() {
    explore(3, || {
        let world = World::new();
        world.words[0].store(OWNER, Ordering::SeqCst);
        let there = world.clone();
        let waiter = thread::spawn(move || there.lock());
        world.unlock();
        let _ = waiter.join().unwrap();
        assert!(!world.tasks.get(0).get().is_waiting(), "a lock was lost");
        assert_eq!(world.words[0].load(Ordering::SeqCst), WAITER);
        assert_eq!(world.table.row_waiters(world.keys[0]), 0);
    });
}

#[test]
#[should_panic(expected = "a lock was lost")]
fn an_unlock_outside_the_rows_lock_is_caught() {
    explore(3, || {
        let world = World::new();
        world.words[0].store(OWNER, Ordering::SeqCst);
        let there = world.clone();
        let waiter = thread::spawn(move || there.lock());
        let woken = TaskList::new();
        // Broken: looks for a waiter first, and changes the word afterwards.
        world.table.wake(world.keys[0], 1, !0, &woken);
        let new = if woken.is_empty() { 0 } else { WAITER };
        world.words[0].store(new, Ordering::SeqCst);
        let _ = waiter.join().unwrap();
        assert!(!world.tasks.get(0).get().is_waiting(), "a lock was lost");
    });
}
