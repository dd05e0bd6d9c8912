//! Errors that a waiter gets instead of a value.

use super::Completion;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::resume_unwind;

/// The reason why there will be no value.
///
/// ```
/// use raddle::completion::{Failure, pair};
/// let (promise, completion) = pair::<u8>();
/// drop(promise);
/// match completion.wait() {
///     Ok(value) => println!("{value}"),
///     Err(Failure::Abandoned) => println!("the promise was dropped"),
///     Err(panicked) => panicked.resume(),
/// }
/// ```
pub enum Failure {
    /// The promise was dropped unset.
    Abandoned,
    /// The computation panicked; holds the panic's payload.
    Panicked(Box<dyn Any + Send>),
}

impl Failure {
    /// Continues the computation's panic in this thread; panics after an abandoned one, too.
    ///
    /// ```should_panic
    /// let (promise, completion) = raddle::completion::pair::<u8>();
    /// promise.run(|| panic!("no answer"));
    /// completion.wait().unwrap_or_else(|failure| failure.resume());
    /// ```
    ///
    /// # Panics
    /// Always.
    pub fn resume(self) -> ! {
        match self {
            Self::Abandoned => panic!("{self}"),
            Self::Panicked(payload) => resume_unwind(payload),
        }
    }

    /// Returns the panic's message, if it was a text.
    fn message(&self) -> Option<&str> {
        let Self::Panicked(payload) = self else {
            return None;
        };
        let text = payload.downcast_ref::<&str>().copied();
        text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.message()) {
            (Self::Abandoned, _) => f.write_str("the promise was dropped without a value"),
            (_, Some(message)) => write!(f, "the computation panicked: {message}"),
            (_, None) => f.write_str("the computation panicked"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned => f.write_str("Abandoned"),
            Self::Panicked(_) => f
                .debug_tuple("Panicked")
                .field(&self.message().unwrap_or(".."))
                .finish(),
        }
    }
}

impl Error for Failure {}

/// The error of [`Completion::wait_timeout`].
///
/// ```
/// use raddle::completion::{TimedWait, pair};
/// use std::time::Duration;
/// let (_promise, completion) = pair::<u8>();
/// let timed = completion.wait_timeout(Duration::from_millis(1)).unwrap_err();
/// assert!(matches!(timed, TimedWait::TimedOut(_)));
/// ```
pub enum TimedWait<T> {
    /// The time is over; the completion can be waited for again.
    TimedOut(Completion<T>),
    /// There will be no value.
    Failed(Failure),
}

impl<T> fmt::Debug for TimedWait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(completion) => f.debug_tuple("TimedOut").field(completion).finish(),
            Self::Failed(failure) => f.debug_tuple("Failed").field(failure).finish(),
        }
    }
}

impl<T> fmt::Display for TimedWait<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(_) => f.write_str("the time is over"),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl<T> Error for TimedWait<T> {}
