//! What completions are made of, so that model checkers can replace it; and how threads wait.
//!
//! A light thread gives its host to others. Any other thread waits for the word that changes, by
//! `futex(2)`, or, with a timeout, is parked by the standard library; under raddle either parks the
//! green thread. Both may end without cause: who waits looks again. A wait for the word needs
//! nothing else: std's handle of a thread would be allocated by each thread that waits, whose first
//! use of the heap costs it a cache of its own.

pub use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
use std::time::Duration;

#[cfg(raddle_loom)]
use loom::thread::{Thread, current, park};

#[cfg(raddle_shuttle)]
use shuttle::thread::{Thread, current, park};

#[cfg(not(any(raddle_loom, raddle_shuttle)))]
use {
    crate::futex,
    crate::light::{self, Light},
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
    /// A light thread that nobody else wakes: its task has no claim to win.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Alone(TaskRef),
    /// Who waits for the word at this address, which may be gone when it is woken.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Word(usize),
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
            #[cfg(not(any(raddle_loom, raddle_shuttle)))]
            Self::Alone(task) => light::unpark(task),
            #[cfg(not(any(raddle_loom, raddle_shuttle)))]
            Self::Word(address) => futex::wake(address),
            Self::Thread(thread) => thread.unpark(),
        }
    }

    /// As [`Waiter::wake`], by a light thread that does nothing any more but end, without waiting
    /// for anything.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn wake_at_end(self) {
        match self {
            Self::Alone(task) => light::hand_over(task),
            other => other.wake(),
        }
    }
}

/// Waits until `is_done`. `announce` says who is to be woken then; false: there is nothing left to
/// wait for. While there is, `word` has the value `seen`.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub fn wait(
    word: &AtomicU32,
    seen: u32,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
) {
    if let Some(light) = light::running() {
        // Who gets the announcement pushes the thread, once; a late `unpark` can't.
        if announce(Waiter::Alone(light.task_ref())) {
            light::park_alone(light);
        }
        return;
    }
    if announce(Waiter::Word(word.as_ptr().expose_provenance())) {
        while !is_done() {
            futex::wait(word, seen, None);
        }
    }
}

/// In a model threads are parked.
#[cfg(any(raddle_loom, raddle_shuttle))]
pub fn wait(
    _: &AtomicU32,
    _: u32,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
) {
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
    let deadline = Instant::now().checked_add(timeout);
    if !announce(Waiter::Thread(current())) {
        return true;
    }
    while !is_done() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left.is_zero() => {
                if withdraw() {
                    return false;
                }
            }
            Some(left) => park_timeout(left),
            None => park(),
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
