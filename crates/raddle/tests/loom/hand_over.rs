//! Every interleaving of a light thread's last act, a wake-up that hands its host over, with the
//! woken thread's way into its wait, and with a host without work.
//!
//! A stack is a cell that loom watches: two hosts on it at once, or a host that doesn't see what
//! the other has left there, fail the model. The earlier protocol of the two threads, a wait and an
//! end, is one word here: completions have models of their own.

use super::explore;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use raddle::light::follower::{Follower, Turn};
use raddle_sched::{RunQueue, Task, TaskRef};
use std::ptr::NonNull;
use std::sync::Arc;

const AWAITED: u32 = 1;
const SET: u32 = 2;

/// The host of the ending light thread, and the thread that waits for it elsewhere.
struct World {
    word: AtomicU32,
    waiter: Task,
    /// How often the waiter has run on its stack.
    stack: UnsafeCell<u32>,
    queue: RunQueue,
}

// SAFETY: loom checks the use of the stack; all else is made to be shared.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            word: AtomicU32::new(0),
            waiter: Task::new(),
            stack: UnsafeCell::new(0),
            queue: RunQueue::new(),
        };
        world
            .waiter
            .on_cpu
            .store(1, raddle_sched::sync::Ordering::Relaxed);
        Arc::new(world)
    }

    fn task(&self) -> TaskRef {
        // SAFETY: the world lives longer than its model's queues.
        unsafe { TaskRef::new(NonNull::from(&self.waiter)) }
    }

    fn run_once(&self) {
        // SAFETY: loom reports it if another host is on the stack.
        self.stack.with_mut(|runs| unsafe { *runs += 1 });
    }

    /// The waiter, on another host. Its last act is the switch away; returns true if it got there.
    fn wait(&self) -> bool {
        let word = self
            .word
            .compare_exchange(0, AWAITED, Ordering::AcqRel, Ordering::Acquire);
        self.run_once();
        if word.is_ok() {
            self.waiter
                .on_cpu
                .store(0, raddle_sched::sync::Ordering::Release);
        }
        word.is_ok()
    }

    /// Runs the waiter on a host that took it from a queue, on a stack of its own.
    fn resume(&self, task: TaskRef) {
        let on_cpu = &task.get().on_cpu;
        while on_cpu.load(raddle_sched::sync::Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        self.switch_to(task);
    }

    fn switch_to(&self, task: TaskRef) {
        task.get()
            .on_cpu
            .store(1, raddle_sched::sync::Ordering::Relaxed);
        self.run_once();
    }

    /// The end of the awaited light thread, with its host.
    fn end(&self, may_run: bool) {
        let follower = Follower::new();
        if self.word.swap(SET, Ordering::AcqRel) == AWAITED {
            follower.set(self.task());
        }
        match follower.take(may_run) {
            Turn::Nobody => {}
            Turn::Now(task) => self.switch_to(task),
            Turn::Queued(task) => assert!(self.queue.push_lifo(task).is_none()),
        }
    }

    /// Another host, without work.
    fn steal(&self) {
        let own = RunQueue::new();
        let task = own.steal(&self.queue).or_else(|| self.queue.take_lifo());
        task.into_iter().for_each(|task| self.resume(task));
    }

    /// Runs the rest of the host's queue. Returns how often the waiter ran in all.
    fn finish(&self) -> u32 {
        let left = self.queue.take_lifo().or_else(|| self.queue.pop_ring());
        left.into_iter().for_each(|task| self.resume(task));
        // SAFETY: as above.
        self.stack.with(|runs| unsafe { *runs })
    }
}

/// Runs the model while `thieves` hosts look for work.
fn an_end_meets_a_wait(preemptions: usize, may_run: bool, thieves: usize) {
    explore(preemptions, move || {
        let world = World::new();
        let waits = Arc::clone(&world);
        let waiter = thread::spawn(move || waits.wait());
        let steal = |_| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.steal())
        };
        let thieves: Vec<_> = (0..thieves).map(steal).collect();
        world.end(may_run);
        let waited = waiter.join().unwrap();
        thieves.into_iter().for_each(|thief| thief.join().unwrap());
        // Once before its wait, and once after it, if it waited.
        assert_eq!(world.finish(), 1 + u32::from(waited));
    });
}

#[test]
fn who_is_woken_by_an_end_runs_once_after_its_stack_was_left() {
    an_end_meets_a_wait(3, true, 1);
}

#[test]
fn who_follows_behind_others_runs_once_wherever_it_is_found() {
    an_end_meets_a_wait(3, false, 1);
}

#[test]
fn two_hosts_without_work_do_not_both_run_who_follows() {
    an_end_meets_a_wait(2, true, 2);
}
