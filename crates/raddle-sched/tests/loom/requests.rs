//! Requests in places: the end of a request, a signal for the waiter, and the waiter's withdrawal.
//!
//! The waiter's thread is the one that has claimed the task: it does what the waiter does after its
//! park. What the waiter reads after its withdrawal is a cell: a thread that still touches the wait
//! then races with it.

use crate::{Tasks, explore};
use loom::sync::Arc;
use loom::thread;
use raddle_sched::requests::{End, Requests, Wait};
use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use raddle_sched::{TaskList, Wake};

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The waiter prepares its task after it has begun.
    PreparesLate,
    /// The waiter asks whether its wait is over, and prepares afterwards.
    AsksFirst,
}

struct World {
    tasks: Box<Tasks<1>>,
    requests: Requests<2>,
    wait: Wait,
    /// The waiter's stack.
    stack: UnsafeCell<u32>,
    /// How often the waiter has gone on.
    went_on: AtomicU32,
    flaw: Flaw,
}

// SAFETY: the cell is the waiter's, and one thread at a time is the waiter; otherwise loom says so.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(flaw: Flaw) -> Arc<Self> {
        let tasks = Tasks::new();
        let wait = Wait::new(tasks.get(0));
        Arc::new(Self {
            tasks,
            requests: Requests::new(),
            wait,
            stack: UnsafeCell::new(0),
            went_on: AtomicU32::new(0),
            flaw,
        })
    }

    /// The waiter begins. Returns its place.
    fn begin(&self) -> usize {
        let task = self.tasks.get(0);
        if self.flaw != Flaw::PreparesLate {
            task.get().prepare();
        }
        // SAFETY: the world outlives the model's threads.
        unsafe { self.requests.begin(&self.wait) }.expect("a free place")
    }

    /// The waiter was woken.
    fn go_on(&self, why: Wake) {
        if why != Wake::Woken {
            let is_over = match self.flaw {
                Flaw::AsksFirst => {
                    let is_over = self.requests.waiting() == 0;
                    if !is_over {
                        self.tasks.get(0).get().prepare();
                    }
                    is_over
                }
                _ => self.requests.is_over_or_prepares(&self.wait),
            };
            if !is_over {
                return; // it parks again
            }
        }
        self.leave();
    }

    fn leave(&self) {
        self.requests.withdraw(&self.wait);
        assert_ne!(self.wait.outcome(), End::NotYet);
        // SAFETY: one thread goes on as the waiter; otherwise loom reports it.
        self.stack.with_mut(|at| unsafe { *at += 1 });
        self.went_on.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, place: usize) {
        let woken = TaskList::new();
        self.requests.end(place, &woken);
        if woken.pop().is_some() {
            self.go_on(Wake::Woken);
        }
    }

    fn signal(&self) {
        if self.tasks.get(0).get().claim(Wake::Signalled) {
            self.go_on(Wake::Signalled);
        }
    }
}

/// A request ends while a signal comes: the waiter goes on once.
fn an_end_meets_a_signal(flaw: Flaw) {
    explore(4, move || {
        let world = World::new(flaw);
        let place = world.begin();
        let there = world.clone();
        let kernel = thread::spawn(move || there.end(place));
        world.signal();
        kernel.join().unwrap();
        // A signal that was taken before leaves the waiter to the end of the request.
        assert_eq!(
            world.went_on.load(Ordering::Relaxed),
            1,
            "a wake-up is lost"
        );
        assert_eq!(world.requests.waiting(), 0);
    });
}

#[test]
fn a_waiter_goes_on_once_after_its_request() {
    an_end_meets_a_signal(Flaw::None);
}

#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_waiter_that_asks_without_the_lock_is_caught() {
    an_end_meets_a_signal(Flaw::AsksFirst);
}

/// A request ends before its waiter has prepared its task.
#[test]
#[should_panic(expected = "a wake-up is lost")]
fn a_waiter_that_prepares_after_it_has_begun_is_caught() {
    explore(3, || {
        let world = World::new(Flaw::PreparesLate);
        let place = world.begin();
        let there = world.clone();
        let kernel = thread::spawn(move || there.end(place));
        world.tasks.get(0).get().prepare();
        kernel.join().unwrap();
        assert_eq!(
            world.went_on.load(Ordering::Relaxed),
            1,
            "a wake-up is lost"
        );
    });
}

/// The waiter withdraws by itself, since its descriptor was closed, while its request ends. Then
/// its stack is its own again.
fn a_withdrawal_meets_an_end(withdraws: bool) {
    explore(3, move || {
        let world = World::new(Flaw::PreparesLate); // the task runs: no end can claim it
        let place = world.begin();
        let there = world.clone();
        let kernel = thread::spawn(move || there.requests.end(place, &TaskList::new()));
        if withdraws {
            world.requests.withdraw(&world.wait);
        }
        assert!(world.wait.outcome() != End::NotYet || !withdraws);
        kernel.join().unwrap();
        assert_eq!(world.requests.waiting(), 0);
    });
}

#[test]
fn a_wait_that_was_withdrawn_is_not_touched() {
    a_withdrawal_meets_an_end(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_waiter_that_leaves_without_a_withdrawal_is_caught() {
    a_withdrawal_meets_an_end(false);
}
