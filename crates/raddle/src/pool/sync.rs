//! Locks that ignore poisoning, since no user code runs under a lock of the pool; and calls of user
//! code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|broken| broken.into_inner())
}

pub(super) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar
        .wait(guard)
        .unwrap_or_else(|broken| broken.into_inner())
}

/// Waits until the deadline at most; may wake early.
pub(super) fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Instant,
) -> MutexGuard<'a, T> {
    let left = deadline.saturating_duration_since(Instant::now());
    let woken = condvar.wait_timeout(guard, left);
    woken.unwrap_or_else(|broken| broken.into_inner()).0
}

/// The payload of a panic.
pub(super) type Payload = Box<dyn Any + Send>;

/// Keeps the first of several panics. Returns another one, which [`quietly`] drops without a lock.
#[must_use]
pub(super) fn keep_first(first: &mut Option<Payload>, payload: Payload) -> Option<Payload> {
    match first {
        None => first.replace(payload),
        Some(_) => Some(payload),
    }
}

/// Calls user code without letting its panic out; the panic hook has reported the panic.
pub(super) fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        std::mem::forget(payload); // its destructor may panic, too
    }
}
