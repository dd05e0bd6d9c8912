//! Parking for C: a thread waits for another thread's `unpark`.
//!
//! A permission is given or not: `unpark` gives it, at once to a waiting thread; `park` takes it or
//! waits for it. Each wait has a completion of its own, so that a light thread gives its host to
//! others meanwhile, and a late end of an earlier wait can't end a later one.

use crate::error::{Answer, Errno, guard};
use crate::thread::{self, this_thread};
use libc::c_int;
use raddle::completion::{Promise, TimedWait, pair};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread's permission to go on.
#[derive(Default)]
pub(crate) struct Permit(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Missing,
    Given,
    Awaited(Promise<()>),
    /// The permission can't be given any more.
    Over,
}

impl Permit {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the permission, or waits for it. `EPERM` once it can't be given any more.
    fn take(&self, timeout: Option<Duration>) -> Answer {
        let over = Errno(libc::EPERM);
        let given = {
            let mut state = self.lock();
            match *state {
                State::Given => {
                    *state = State::Missing;
                    return Ok(0);
                }
                State::Over => return Err(over),
                State::Missing | State::Awaited(_) => {}
            }
            let (promise, given) = pair();
            *state = State::Awaited(promise);
            given
        };
        let Some(timeout) = timeout else {
            return given.wait().map(|()| 0).map_err(|_| over);
        };
        match given.wait_timeout(timeout) {
            Ok(()) => Ok(0),
            Err(TimedWait::Failed(_)) => Err(over),
            Err(TimedWait::TimedOut(given)) => {
                let mut state = self.lock();
                if matches!(*state, State::Awaited(_)) {
                    *state = State::Missing;
                    return Err(Errno(libc::ETIMEDOUT));
                }
                drop(state);
                // The giver that took the promise sets it, or `end` has dropped it.
                given.wait().map(|()| 0).map_err(|_| over)
            }
        }
    }

    /// Gives the permission.
    pub(crate) fn give(&self) {
        let mut state = self.lock();
        match std::mem::take(&mut *state) {
            State::Missing | State::Given => *state = State::Given,
            State::Awaited(promise) => {
                drop(state);
                let _ = promise.set(()); // never fails: a waiter past its timeout waits on
            }
            State::Over => *state = State::Over,
        }
    }

    /// Ends the permission: it can't be given from now on.
    pub(crate) fn end(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Over);
        drop(state); // fails the wait, if there is one, without the lock
    }
}

fn park(timeout: Option<Duration>) -> Answer {
    let record = thread::record(this_thread()).map_err(|_| Errno(libc::EPERM))?;
    record.1.permit.take(timeout)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_park() -> c_int {
    guard(|| park(None))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_park_for(timeout_ns: i64) -> c_int {
    guard(|| {
        let timeout = u64::try_from(timeout_ns).map_err(|_| Errno(libc::EINVAL))?;
        park(Some(Duration::from_nanos(timeout)))
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_unpark(thread: u64) -> c_int {
    guard(|| {
        thread::record(thread)?.1.permit.give();
        Ok(0)
    })
}
