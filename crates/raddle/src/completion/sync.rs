//! What completions are made of, so that model checkers can replace it; and how threads wait.
//!
//! A light thread gives its host to others. Any other thread is parked by the library it comes
//! from; under raddle that parks the green thread. Such parking may end without cause: whoever
//! parks looks again. A light thread's does not, and whoever wakes one must do it once.

pub use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::time::Instant;

#[cfg(raddle_loom)]
use loom::thread::{Thread, current, park};

#[cfg(raddle_shuttle)]
use shuttle::thread::{Thread, current, park};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
use {
    crate::light,
    raddle_sched::{TaskRef, Wake},
    std::thread::{Thread, current, park, park_timeout},
};

/// Whom to wake.
pub enum Waiter {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Light(TaskRef),
    Thread(Thread),
}

impl Waiter {
    /// Wakes the thread; to be called after what it waits for has become true.
    pub fn wake(self) {
        match self {
            #[cfg(not(any(raddle_loom, raddle_shuttle)))]
            Self::Light(task) if task.get().claim(Wake::Woken) => light::unpark(task),
            #[cfg(not(any(raddle_loom, raddle_shuttle)))]
            Self::Light(_) => {}
            Self::Thread(thread) => thread.unpark(),
        }
    }
}

/// Waits until `is_done`. `announce` says who is to be woken then; false: there is nothing left to
/// wait for.
pub fn wait(announce: impl FnOnce(Waiter) -> bool, is_done: impl Fn() -> bool) {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    if let Some(light) = light::current() {
        light.task.prepare();
        if announce(Waiter::Light(light.task_ref())) {
            light::park(light);
        }
        return;
    }
    if announce(Waiter::Thread(current())) {
        while !is_done() {
            park();
        }
    }
}

/// As [`wait`], but not longer than to `deadline`; a light thread keeps its host meanwhile. False
/// if the time came and `withdraw` did, too: the announcement is taken back.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub fn wait_until(
    deadline: Instant,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
    withdraw: impl Fn() -> bool,
) -> bool {
    if !announce(Waiter::Thread(current())) {
        return true;
    }
    while !is_done() {
        let left = deadline.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            park_timeout(left);
        } else if withdraw() {
            return false;
        }
    }
    true
}

/// In a model the time has always come.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub fn wait_until(
    _: Instant,
    announce: impl FnOnce(Waiter) -> bool,
    _: impl Fn() -> bool,
    withdraw: impl Fn() -> bool,
) -> bool {
    !announce(Waiter::Thread(current())) || !withdraw()
}
