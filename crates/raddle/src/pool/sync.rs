//! Locks that a panic elsewhere does not break: no user code runs while one of the pool's is held.
//! And how such code is called.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

pub fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .unwrap_or_else(|broken| broken.into_inner())
}

/// Waits until the deadline at most; may wake early.
pub fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Instant,
) -> MutexGuard<'a, T> {
    let left = deadline.saturating_duration_since(Instant::now());
    let woken = condvar.wait_timeout(guard, left);
    woken.unwrap_or_else(|broken| broken.into_inner()).0
}

/// What a panic says.
pub type Payload = Box<dyn Any + Send>;

/// Keeps the first of some panics; gives the others back, to be lost by [`quietly`] without a lock.
#[must_use]
pub fn keep_first(first: &mut Option<Payload>, payload: Payload) -> Option<Payload> {
    match first {
        None => first.replace(payload),
        Some(_) => Some(payload),
    }
}

/// Calls the user's code where a panic of it must not get out; the panic hook has told of it.
pub fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload); // whose destructor may panic, too
    }
}
