//! The wait table with many waiters, wakers, requeues, timeouts and signals at once.

use crate::{Tasks, explore};
use raddle_sched::{TaskList, Timers, WaitNode, WaitTable, Wake};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use std::sync::Arc;

const ROWS: usize = 2;
/// Two of these share a row.
const KEYS: [usize; 3] = [8, 16, 24];

struct World {
    tasks: Tasks,
    nodes: Vec<WaitNode>,
    table: WaitTable<ROWS>,
    timers: Timers,
    /// How often each task was pushed.
    pushes: Vec<AtomicU32>,
    word: AtomicU32,
}

impl World {
    fn new(tasks: usize) -> Arc<Self> {
        Arc::new(Self {
            tasks: Tasks::new(tasks),
            nodes: (0..tasks).map(|_| WaitNode::new()).collect(),
            table: WaitTable::new(),
            timers: Timers::new(),
            pushes: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            word: AtomicU32::new(0),
        })
    }

    fn push_all(&self, list: &TaskList) {
        while let Some(task) = list.pop() {
            self.pushes[self.tasks.index(task)].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits once as a green thread would; spins on its pushes instead of a park. Returns the
    /// outcome.
    fn wait(&self, index: usize, key: usize, deadline_ns: u64) -> Wake {
        let (task, node) = (self.tasks.get(index), &self.nodes[index]);
        let before = self.pushes[index].load(Ordering::SeqCst);
        task.get().prepare();
        let still = || self.word.load(Ordering::SeqCst) == 0;
        // SAFETY: nodes and tasks live as long as the world.
        if !unsafe { self.table.enqueue(node, task, key, !0, still) } {
            assert_eq!(
                self.pushes[index].load(Ordering::SeqCst),
                before,
                "a running task was pushed"
            );
            return Wake::Retry;
        }
        self.timers.insert(task, deadline_ns);
        while self.pushes[index].load(Ordering::SeqCst) == before {
            thread::yield_now();
        }
        let outcome = task.get().outcome();
        if outcome != Wake::TimedOut {
            self.timers.remove(task);
        }
        if outcome != Wake::Woken {
            // SAFETY: the node was given to this table.
            unsafe { self.table.cancel(node) };
        }
        assert_eq!(
            self.pushes[index].load(Ordering::SeqCst),
            before + 1,
            "pushed twice"
        );
        outcome
    }

    /// Disturbs the waiters in one random way.
    fn disturb(&self) {
        let (from, to) = (
            KEYS[thread_rng().gen_range(0..3)],
            KEYS[thread_rng().gen_range(0..3)],
        );
        let woken = TaskList::new();
        match thread_rng().gen_range(0..4) {
            0 => {
                let count = self.table.wake(from, 1, !0, &woken);
                assert_eq!(count, woken.len());
            }
            1 => {
                let done = self.table.requeue(from, to, 1, 2, || true, &woken).unwrap();
                assert_eq!(done.woken, woken.len());
            }
            2 => woken.append(self.timers.expire(thread_rng().gen_range(0..20))),
            _ => {
                let task = self.tasks.get(thread_rng().gen_range(0..self.tasks.len()));
                if task.get().claim(Wake::Signalled) {
                    woken.push(task);
                }
            }
        }
        self.push_all(&woken);
    }

    /// At the end: wakes the tasks that still wait.
    fn release(&self) {
        self.word.store(1, Ordering::SeqCst);
        let woken = TaskList::new();
        KEYS.iter().for_each(|&key| {
            self.table.wake(key, usize::MAX, !0, &woken);
        });
        self.push_all(&woken);
    }
}

#[test]
fn waiters_are_pushed_once_a_wait_whatever_happens() {
    explore(|| {
        let world = World::new(4);
        let waiters = (0..4).map(|index| {
            let world = world.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    let deadline_ns = thread_rng().gen_range(0..20);
                    world.wait(index, KEYS[(index + round) % 3], deadline_ns);
                }
            })
        });
        let waiters: Vec<_> = waiters.collect();
        let others = (0..2).map(|_| {
            let world = world.clone();
            thread::spawn(move || (0..4).for_each(|_| world.disturb()))
        });
        let others: Vec<_> = others.collect();
        others.into_iter().for_each(|thread| thread.join().unwrap());
        world.release();
        waiters
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(KEYS.iter().all(|&key| world.table.row_waiters(key) == 0));
        assert_eq!(world.timers.earliest_ns(), raddle_sched::timers::NEVER);
    });
}
