//! Where a task's result waits for who wants it. Everything that depends on how results are waited
//! for is here.

use super::errors::TaskError;
use super::sync::{lock, wait, wait_until};
use std::sync::{Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Instant;

pub type Outcome<T> = Result<T, TaskError>;

type Then<T> = Box<dyn FnOnce(Outcome<T>) + Send>;

struct State<T> {
    done: bool,
    outcome: Option<Outcome<T>>,
    waker: Option<Waker>,
    then: Option<Then<T>>,
}

/// Set once, taken once.
pub struct ResultCell<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> ResultCell<T> {
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State {
                done: false,
                outcome: None,
                waker: None,
                then: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Gives the outcome to who waits; without effect the second time.
    pub fn set(&self, outcome: Outcome<T>) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.done, true) {
            return;
        }
        let waker = state.waker.take();
        let then = state.then.take();
        let outcome = match &then {
            Some(_) => Some(outcome),
            None => {
                state.outcome = Some(outcome);
                None
            }
        };
        drop(state);
        self.changed.notify_all();
        if let (Some(then), Some(outcome)) = (then, outcome) {
            then(outcome);
        }
        waker.into_iter().for_each(Waker::wake);
    }

    pub fn is_done(&self) -> bool {
        lock(&self.state).done
    }

    /// Waits until there is an outcome or the deadline; takes it. `None` at the deadline, or if it
    /// was taken.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T>> {
        let mut state = lock(&self.state);
        while !state.done {
            state = match deadline {
                Some(at) if at <= Instant::now() => return None,
                Some(at) => wait_until(&self.changed, state, at),
                None => wait(&self.changed, state),
            };
        }
        state.outcome.take()
    }

    /// Takes the outcome, or leaves `waker` to be called when there is one.
    pub fn poll(&self, waker: &Waker) -> Poll<Outcome<T>> {
        let mut state = lock(&self.state);
        if !state.done {
            state.waker = Some(waker.clone());
            return Poll::Pending;
        }
        let outcome = state.outcome.take();
        Poll::Ready(outcome.expect("a task is polled no more once it was ready"))
    }

    /// Hands the outcome to `then` when there is one, on the thread that sets it; at once, here, if
    /// there is.
    pub fn then(&self, then: impl FnOnce(Outcome<T>) + Send + 'static) {
        let mut state = lock(&self.state);
        match state.outcome.take() {
            None => state.then = Some(Box::new(then)),
            Some(outcome) => {
                drop(state);
                then(outcome);
            }
        }
    }
}
