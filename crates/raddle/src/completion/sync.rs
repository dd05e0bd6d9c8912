//! Primitives of completions, replaceable by model checkers, and the waits of threads.
//!
//! A light thread gives its host to others. Any other thread waits for the word that changes, by
//! `futex(2)`, or, with a timeout, is parked by the standard library; under raddle either parks the
//! green thread. Both may return spuriously: the waiter looks again. A wait for the word needs no
//! more: std's handle of a thread would be allocated on each thread that waits, and a thread's
//! first use of the heap costs it a cache of its own.

pub(super) use raddle_sched::sync::{AtomicU32, Ordering, UnsafeCell};
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

/// Pauses before another look at an act of another thread; `looks` have failed.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub(super) fn pause(looks: u32) {
    const SPINS: u32 = 100;
    if looks < SPINS {
        std::hint::spin_loop()
    } else {
        std::thread::yield_now()
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

/// A waiting thread.
pub(crate) enum Waiter {
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Light(TaskRef),
    /// A light thread with only one waker, which needs no claim.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Alone(TaskRef),
    /// The waiter of the word at this address. The word may be gone when the waiter is woken.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    Word(usize),
    Thread(Thread),
}

impl Waiter {
    /// Wakes the thread; to be called after its condition has become true.
    pub(crate) fn wake(self) {
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

    /// As [`Waiter::wake`], for a light thread that only ends after this, without a wait.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub(crate) fn wake_at_end(self) {
        match self {
            Self::Alone(task) => light::hand_over(task),
            other => other.wake(),
        }
    }
}

/// Waits until `is_done`. `announce` registers the waiter, and returns false if there is nothing
/// left to wait for. During the wait `word` has the value `seen`.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub(super) fn wait(
    word: &AtomicU32,
    seen: u32,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
) {
    if let Some(light) = light::running() {
        // The owner of the announcement pushes the thread, once; a late `unpark` can't.
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

/// Waits on a light thread until `is_done`. Returns false if `deadline_ns` passed before.
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
        light.task.prepare_fenced(); // before the look: a later waker claims
        if is_done() {
            light.stay();
            return true;
        }
    }
}

/// As [`wait`], but for `timeout` at most. Returns false if the time was over and `withdraw` took
/// the announcement back.
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
pub(super) fn wait_timeout(
    timeout: Duration,
    announce: impl FnOnce(Waiter) -> bool,
    is_done: impl Fn() -> bool,
    withdraw: impl Fn() -> bool,
) -> bool {
    if let Some(light) = light::running() {
        let deadline_ns = light::deadline_ns(timeout);
        return wait_as_light(light, deadline_ns, announce, is_done) || !withdraw();
    }
    // A time beyond the clock's range is waited for without a timeout.
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
