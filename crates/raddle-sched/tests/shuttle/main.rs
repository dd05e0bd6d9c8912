//! Random schedules of the scheduler's protocols at sizes that loom can't exhaust, under shuttle.
//!
//! `RUSTFLAGS="--cfg raddle_shuttle" cargo test -p raddle-sched --release --test shuttle`
//!
//! A failure prints shuttle's schedule; `shuttle::replay` with it in place of the check repeats it.
#![cfg(raddle_shuttle)]

mod queues;
mod scheduler;
mod waits;

use core::ptr::NonNull;
use raddle_sched::{Task, TaskRef};
use shuttle::sync::{Condvar, Mutex};

/// Schedules a test tries.
const SCHEDULES: usize = 10_000;

/// Runs `model` under random schedules, and under some that preempt rarely.
fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES / 4, 3);
    println!("{} schedules", SCHEDULES + SCHEDULES / 4);
}

/// Tasks at fixed addresses.
struct Tasks(Box<[Task]>);

impl Tasks {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Task::new()).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> TaskRef {
        // SAFETY: the tasks are boxed and outlive the model's threads, which are joined.
        unsafe { TaskRef::new(NonNull::from(&self.0[index])) }
    }

    fn index(&self, task: TaskRef) -> usize {
        (task.as_ptr().addr() - self.0.as_ptr().addr()) / size_of::<Task>()
    }
}

/// A carrier's wake word, to sleep on. Not `thread::park`, which wakes spuriously and so hides lost
/// wake-ups.
struct Bed {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Bed {
    fn new() -> Self {
        Self {
            woken: Mutex::new(false),
            bell: Condvar::new(),
        }
    }

    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.bell.wait(woken).unwrap();
        }
        *woken = false;
    }

    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.bell.notify_one();
    }
}
