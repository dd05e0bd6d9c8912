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

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The waiter says that its stack is free before its last use of it.
    FreesEarly,
    /// The waiter says so without a release.
    FreesRelaxed,
    /// The ending thread's host doesn't look whether the stack is free.
    RunsAtOnce,
    /// It looks without an acquire.
    LooksRelaxed,
    /// A host that has taken the waiter from a queue doesn't wait until the stack is free.
    ResumesAtOnce,
    /// It waits without an acquire.
    ResumesRelaxed,
    /// The ending thread's host runs the waiter, and queues it as well.
    RunsAndQueues,
    /// The ending thread's host forgets a waiter that it can't run.
    Forgets,
}

/// The host of the ending light thread, and the thread that waits for it elsewhere.
struct World {
    flaw: Flaw,
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
    fn new(flaw: Flaw) -> Arc<Self> {
        let world = Self {
            flaw,
            word: AtomicU32::new(0),
            waiter: Task::new(),
            stack: UnsafeCell::new(0),
            queue: RunQueue::new(),
        };
        world.waiter.on_cpu.store(1, Ordering::Relaxed);
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
        let order = match self.flaw {
            Flaw::FreesRelaxed => Ordering::Relaxed,
            _ => Ordering::Release,
        };
        let frees = || {
            if word.is_ok() {
                self.waiter.on_cpu.store(0, order);
            }
        };
        if self.flaw == Flaw::FreesEarly {
            frees();
            self.run_once();
        } else {
            self.run_once();
            frees();
        }
        word.is_ok()
    }

    /// Runs the waiter on a host that took it from a queue, on a stack of its own.
    fn resume(&self, task: TaskRef) {
        let on_cpu = &task.get().on_cpu;
        let order = match self.flaw {
            Flaw::ResumesRelaxed => Ordering::Relaxed,
            _ => Ordering::Acquire,
        };
        while self.flaw != Flaw::ResumesAtOnce && on_cpu.load(order) != 0 {
            thread::yield_now();
        }
        self.switch_to(task);
    }

    fn switch_to(&self, task: TaskRef) {
        task.get().on_cpu.store(1, Ordering::Relaxed);
        self.run_once();
    }

    /// The end of the awaited light thread, with its host.
    fn end(&self, may_run: bool) {
        let follower = Follower::new();
        if self.word.swap(SET, Ordering::AcqRel) == AWAITED {
            follower.set(self.task());
        }
        match self.turn(follower.take(may_run)) {
            Turn::Nobody => {}
            Turn::Now(task) => {
                self.switch_to(task);
                if self.flaw == Flaw::RunsAndQueues {
                    self.waiter.on_cpu.store(0, Ordering::Release);
                    assert!(self.queue.push_lifo(task).is_none());
                }
            }
            Turn::Queued(_) if self.flaw == Flaw::Forgets => {}
            Turn::Queued(task) => assert!(self.queue.push_lifo(task).is_none()),
        }
    }

    /// The host's next step, as its flaw has it.
    fn turn(&self, turn: Turn) -> Turn {
        let is_free = || self.waiter.on_cpu.load(Ordering::Relaxed) == 0;
        match turn {
            Turn::Queued(task) | Turn::Now(task) => match self.flaw {
                Flaw::RunsAtOnce => Turn::Now(task),
                Flaw::LooksRelaxed if is_free() => Turn::Now(task),
                Flaw::LooksRelaxed => Turn::Queued(task),
                _ => turn,
            },
            Turn::Nobody => turn,
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
    model(preemptions, may_run, thieves, Flaw::None);
}

fn model(preemptions: usize, may_run: bool, thieves: usize, flaw: Flaw) {
    explore(preemptions, move || {
        let world = World::new(flaw);
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
        assert_eq!(world.finish(), 1 + u32::from(waited), "runs of the waiter");
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

#[test]
#[should_panic(expected = "Causality violation")]
fn a_stack_that_is_free_before_its_last_use_is_caught() {
    model(3, true, 0, Flaw::FreesEarly);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_stack_that_is_freed_without_a_release_is_caught() {
    model(3, true, 0, Flaw::FreesRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_host_that_does_not_look_at_the_stack_is_caught() {
    model(3, true, 0, Flaw::RunsAtOnce);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_host_that_looks_at_the_stack_without_an_acquire_is_caught() {
    // Its own look comes after the one of `Follower::take`: only the queued way shows the flaw.
    model(3, false, 0, Flaw::LooksRelaxed);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thief_that_does_not_wait_for_the_stack_is_caught() {
    model(3, false, 1, Flaw::ResumesAtOnce);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thief_that_waits_without_an_acquire_is_caught() {
    model(3, false, 1, Flaw::ResumesRelaxed);
}

#[test]
#[should_panic(expected = "runs of the waiter")]
fn a_waiter_that_is_run_and_queued_is_caught() {
    model(3, true, 0, Flaw::RunsAndQueues);
}

#[test]
#[should_panic(expected = "runs of the waiter")]
fn a_waiter_that_is_forgotten_is_caught() {
    model(3, true, 0, Flaw::Forgets);
}
