//! Completions for C: set once, waited for by any number of threads.
//!
//! Each waiting thread has a completion of the Rust API, so that a light thread gives its host to
//! others while it waits. The thread that ends a completion takes the waiters out of it under the
//! lock and notifies them after it.

use crate::call::{Out, Value};
use crate::error::{Answer, Errno, done, guard};
use libc::{c_int, c_void};
use raddle::completion::{Promise, TimedWait, pair};
use raddle::handles::{Handle, Table};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The largest errno.
const LAST_ERRNO: c_int = 4095;

/// An end: 0 or an errno, and the value.
pub(crate) type End = (c_int, Value);

/// A listener of C's: gets its argument, the status and the value.
pub(crate) type Listen = unsafe extern "C-unwind" fn(*mut c_void, c_int, *mut c_void);

/// A waiter that is notified of the end.
enum Waiter {
    Thread(Promise<End>),
    Call(Listen, Value),
}

/// Calls a listener with an end.
pub(crate) fn tell(listen: Listen, argument: Value, (status, value): End) {
    // SAFETY: C promises that the function may be called with these arguments, on any thread.
    unsafe { listen(argument.0, -status, value.0) }
}

impl Waiter {
    fn is_there(&self) -> bool {
        match self {
            Self::Thread(promise) => promise.is_awaited(),
            Self::Call(..) => true,
        }
    }

    fn tell(self, end: End) {
        match self {
            Self::Thread(promise) => drop(promise.set(end)), // fails if its time was over meanwhile
            Self::Call(listen, argument) => tell(listen, argument, end),
        }
    }
}

enum State {
    Pending(Vec<Waiter>),
    Ended(End),
}

/// The state of a completion, which a handle names.
pub(crate) struct Completion(Mutex<State>);

static COMPLETIONS: LazyLock<Table<Completion>> = LazyLock::new(Table::new);

impl Completion {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the completion and notifies all waiters. `EALREADY` if it has ended before.
    pub(crate) fn finish(&self, status: c_int, value: Value) -> Answer {
        let end = (status, value);
        let mut state = self.lock();
        let State::Pending(waiters) = &mut *state else {
            return Err(Errno(libc::EALREADY));
        };
        let waiters = std::mem::take(waiters);
        *state = State::Ended(end);
        drop(state);
        waiters.into_iter().for_each(|waiter| waiter.tell(end));
        Ok(0)
    }

    /// Returns the end. Before the end, adds the waiter of `waiter`, and returns its other value as
    /// Err.
    fn end_or<T>(&self, waiter: impl FnOnce() -> (Waiter, T)) -> Result<End, T> {
        let mut state = self.lock();
        let waiters = match &mut *state {
            State::Ended(end) => return Ok(*end),
            State::Pending(waiters) => waiters,
        };
        if waiters.len() == waiters.capacity() {
            waiters.retain(Waiter::is_there); // before more memory is taken
        }
        let (waiter, made) = waiter();
        waiters.push(waiter);
        Err(made)
    }

    fn end(&self) -> Option<End> {
        match *self.lock() {
            State::Ended(end) => Some(end),
            State::Pending(_) => None,
        }
    }

    /// Waits for the end. Without a timeout the wait has no limit.
    fn wait(&self, timeout: Option<Duration>) -> Result<End, Errno> {
        let waiter = || {
            let (promise, completion) = pair();
            (Waiter::Thread(promise), completion)
        };
        let completion = match self.end_or(waiter) {
            Ok(end) => return Ok(end),
            Err(completion) => completion,
        };
        let Some(timeout) = timeout else {
            return completion.wait().map_err(|_| Errno(libc::ECANCELED));
        };
        completion
            .wait_timeout(timeout)
            .map_err(|failure| match failure {
                TimedWait::TimedOut(_) => Errno(libc::ETIMEDOUT),
                TimedWait::Failed(_) => Errno(libc::ECANCELED),
            })
    }
}

/// Makes a completion that has not ended.
pub(crate) fn create() -> Result<(Handle<Completion>, Arc<Completion>), Errno> {
    let completion = Arc::new(Completion(Mutex::new(State::Pending(Vec::new()))));
    let handle = COMPLETIONS.insert_arc(Arc::clone(&completion))?;
    Ok((handle, completion))
}

/// Frees the handle; waits end with ECANCELED.
pub(crate) fn free(handle: Handle<Completion>) -> Answer {
    let completion = COMPLETIONS.get(handle)?;
    COMPLETIONS.remove(handle)?;
    let _ = completion.finish(libc::ECANCELED, Value::NULL); // fails if it has ended before
    Ok(0)
}

fn get(completion: u64) -> Result<Arc<Completion>, Errno> {
    let handle = Handle::from_bits(completion).ok_or(Errno(libc::EBADF))?;
    Ok(COMPLETIONS.get(handle)?)
}

/// Stores the value for C, or returns the status as an error.
fn answer((status, value): End, place: Out<*mut c_void>) -> Answer {
    place.put(value.0);
    match status {
        0 => Ok(0),
        _ => Err(Errno(status)),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_create(completion: Out<u64>) -> c_int {
    guard(|| {
        let place = completion.required()?;
        place.put(create()?.0.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_set(completion: u64, value: Value) -> c_int {
    guard(|| get(completion)?.finish(0, value))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_fail(completion: u64, error: c_int) -> c_int {
    guard(|| {
        let completion = get(completion)?;
        match error {
            1..=LAST_ERRNO => completion.finish(error, Value::NULL),
            _ => Err(Errno(libc::EINVAL)),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_wait(completion: u64, value: Out<*mut c_void>) -> c_int {
    guard(|| answer(get(completion)?.wait(None)?, value))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_wait_for(
    completion: u64,
    timeout_ns: i64,
    value: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let timeout = u64::try_from(timeout_ns).map_err(|_| Errno(libc::EINVAL))?;
        let end = get(completion)?.wait(Some(Duration::from_nanos(timeout)))?;
        answer(end, value)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_poll(completion: u64, value: Out<*mut c_void>) -> c_int {
    guard(|| match get(completion)?.end() {
        Some(end) => answer(end, value),
        None => Err(Errno(libc::EAGAIN)),
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_then(
    completion: u64,
    listen: Option<Listen>,
    argument: Value,
) -> c_int {
    guard(|| {
        let completion = get(completion)?;
        let listen = listen.ok_or(Errno(libc::EFAULT))?;
        if let Ok(end) = completion.end_or(|| (Waiter::Call(listen, argument), ())) {
            Waiter::Call(listen, argument).tell(end);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_completion_free(completion: u64) -> c_int {
    guard(|| {
        let handle = Handle::from_bits(completion).ok_or(Errno(libc::EBADF))?;
        done(free(handle))
    })
}
