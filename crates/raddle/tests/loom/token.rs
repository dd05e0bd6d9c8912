//! Every interleaving of `park` and `unpark` on light threads.

use super::explore;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use raddle::light::token::Token;
use raddle_sched::{Task, Wake};
use std::sync::Arc;

/// State of a model's threads; `pushes` counts how often the task was made runnable.
struct World {
    task: Task,
    token: Token,
    pushes: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            task: Task::new(),
            token: Token::new(),
            pushes: AtomicU32::new(0),
        })
    }

    fn unpark(&self) {
        if self.token.give() && self.task.claim(Wake::Woken) {
            self.pushes.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn expires(&self) {
        if self.task.claim(Wake::TimedOut) {
            self.pushes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many pushes a park needs to end: what a scheduler would wait for.
    fn park(&self) -> u32 {
        if self.token.take() {
            return 0;
        }
        self.task.prepare();
        u32::from(self.token.announce() || !self.task.claim(Wake::Retry))
    }
}

#[test]
fn one_unpark_ends_one_park() {
    explore(3, || {
        let world = World::new();
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || other.unpark());
        let needed = world.park();
        thread.join().unwrap();
        assert_eq!(world.pushes.load(Ordering::SeqCst), needed);
    });
}

#[test]
fn a_timer_and_an_unpark_push_once() {
    explore(3, || {
        let world = World::new();
        let (one, other) = (Arc::clone(&world), Arc::clone(&world));
        let unparks = thread::spawn(move || one.unpark());
        let expires = thread::spawn(move || other.expires());
        let needed = world.park();
        unparks.join().unwrap();
        expires.join().unwrap();
        assert_eq!(world.pushes.load(Ordering::SeqCst), needed);
    });
}
