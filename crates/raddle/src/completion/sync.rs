//! What completions are made of, so that model checkers can replace it; and how threads wait.
//!
//! A light thread gives its host to others. Any other thread is parked by the library it comes
//! from; under raddle that parks the green thread. Parking may end without cause: whoever parks
//! looks again.

pub use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::time::Duration;

#[cfg(raddle_loom)]
use loom::thread::{Thread, current, park};

#[cfg(raddle_shuttle)]
use shuttle::thread::{Thread, current, park};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
use {
    crate::light::{self, Light},
    raddle_sched::timers::NEVER,
    raddle_sched::{TaskRef, Wake},
    std::thread::{Thread, current, park, park_timeout},
    std::time::Instant,
};

/// A look at what another thread is about to do; `looks` were in vain.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub fn pause(looks: u32) {
    const SPINS: u32 = 100;
    match looks < SPINS {
        true => std::hint::spin_loop(),
        false => std::thread::yield_now(),
    }
}

/// Lets the model go on with another thread.
#[cfg(raddle_loom)]
pub fn pause(_: u32) {
    loom::thread::yield_now();
}

/// Lets the model go on with another thread.
#[cfg(raddle_shuttle)]
pub fn pause(_: u32) {
    shuttle::thread::yield_now();
}

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
    if let Some(light) = light::running() {
        wait_as_light(light, NEVER, announce, is_done);
        return;
    }
    if announce(Waiter::Thread(current())) {
        while !is_done() {
            park();
        }
    }
}

/// A light thread's wait until `is_done`; false if `deadline_ns` passed before that.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
#[inline(always)]
fn wait_as_light(
    light: &'static Light,
    deadline_ns: u64,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
) -> bool {
    light.task.prepare();
    if !announce(Waiter::Light(light.task_ref())) {
        light.stay();
        return true;
    }
    loop {
        light::park_until(light, deadline_ns);
        if is_done() {
            return true;
        }
        if light::now_ns() >= deadline_ns {
            return false;
        }
        light.task.prepare_fenced(); // before the look: who makes it true claims after that
        if is_done() {
            light.stay();
            return true;
        }
    }
}

/// As [`wait`], but for `timeout` at most. False if the time came and `withdraw` did, too: the
/// announcement is taken back.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub fn wait_timeout(
    timeout: Duration,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
    withdraw: impl Fn() -> bool,
) -> bool {
    if let Some(light) = light::running() {
        let deadline_ns = light::deadline_ns(timeout);
        return wait_as_light(light, deadline_ns, announce, is_done) || !withdraw();
    }
    // A time that the clock can't tell is too far away to be waited for.
    let Some(deadline) = Instant::now().checked_add(timeout) else {
        wait(announce, is_done);
        return true;
    };
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
pub fn wait_timeout(
    _: Duration,
    announce: impl FnOnce(Waiter) -> bool,
    _: impl Fn() -> bool,
    withdraw: impl Fn() -> bool,
) -> bool {
    !announce(Waiter::Thread(current())) || !withdraw()
}
