//! A value that one thread computes and another one waits for.
//!
//! [`pair`] makes the two ends: a [`Promise`], which is set once, and a [`Completion`], which is
//! waited for. Light, green and kernel threads may hold either end, and a wait blocks that thread
//! alone.
//!
//! ```
//! use raddle::completion;
//!
//! let (promise, answer) = completion::pair();
//! let thread = raddle::thread::spawn(move || promise.set(6 * 7));
//! assert_eq!(answer.wait()?, 42);
//! # thread.join().unwrap().unwrap();
//! # Ok::<(), completion::Failure>(())
//! ```
//!
//! # One consumer
//!
//! The owner of a completion waits for it once: the value is moved out, so it needs neither `Clone`
//! nor a lock, and a second wait does not compile. For many waiters, put an [`Arc`](std::sync::Arc)
//! into a promise for each of them.
//!
//! # How it ends
//!
//! Each completion ends in one of three ways, which the waiter sees: the promise was set; it was
//! dropped unset ([`Failure::Abandoned`]); or the computation that [`Promise::run`] called panicked
//! ([`Failure::Panicked`]). A program that is built with `panic = "abort"` has only the first two.
//!
//! # Protocol
//!
//! One word holds the state; two cells hold the result and the listener (see `cell.rs`). No lock is
//! taken: setting a promise without a waiter is one atomic exchange.

mod block_on;
pub(crate) mod cell;
mod failure;
mod sync;

pub use block_on::block_on;
pub use failure::{Failure, TimedWait};

use cell::{Consumer, Producer, Step};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
#[cfg(not(any(raddle_loom, raddle_shuttle)))]
use sync::Waiter;

/// Makes the two ends of a completion.
///
/// ```
/// let (promise, completion) = raddle::completion::pair();
/// promise.set("done").unwrap();
/// assert_eq!(completion.wait().unwrap(), "done");
/// ```
pub fn pair<T>() -> (Promise<T>, Completion<T>) {
    let (producer, consumer) = cell::pair();
    let promise = Promise {
        cell: Some(producer),
    };
    let completion = Completion {
        cell: Some(consumer),
    };
    (promise, completion)
}

/// The end that is set, once.
///
/// A promise that is dropped unset ends the completion with [`Failure::Abandoned`].
///
/// ```
/// # use raddle::completion::{self, Failure};
/// let (promise, completion) = completion::pair::<u8>();
/// drop(promise);
/// assert!(matches!(completion.wait(), Err(Failure::Abandoned)));
/// ```
///
/// Setting it twice does not compile:
///
/// ```compile_fail
/// let (promise, completion) = raddle::completion::pair();
/// promise.set(1);
/// promise.set(2);
/// ```
pub struct Promise<T> {
    /// `None` once it is set.
    cell: Option<Producer<Result<T, Failure>>>,
}

impl<T> Promise<T> {
    /// Sets the value.
    ///
    /// # Errors
    /// The value, if the completion was dropped.
    ///
    /// ```
    /// let (promise, completion) = raddle::completion::pair();
    /// drop(completion);
    /// assert_eq!(promise.set(5), Err(5));
    /// ```
    ///
    /// # Blocking
    /// Never. The closure of [`Completion::then`] runs here, on the setting thread.
    pub fn set(self, value: T) -> Result<(), T> {
        match self.finish(Ok(value)) {
            // A failure isn't given back as a value.
            Some(Ok(value)) => Err(value),
            Some(Err(_)) | None => Ok(()),
        }
    }

    /// Computes the value and sets it. A panic of `compute` goes to the waiter as
    /// [`Failure::Panicked`], and not to the caller; a value without a waiter is dropped.
    ///
    /// The body of a thread that is made for one computation:
    ///
    /// ```
    /// # use raddle::completion::{self, Completion, Failure};
    /// fn run_in_thread<T: Send + 'static>(
    ///     compute: impl FnOnce() -> T + Send + 'static,
    /// ) -> Completion<T> {
    ///     let (promise, completion) = completion::pair();
    ///     raddle::thread::spawn(move || promise.run(compute));
    ///     completion
    /// }
    ///
    /// assert_eq!(run_in_thread(|| 6 * 7).wait()?, 42);
    /// let failure = run_in_thread(|| -> u8 { panic!("no answer") }).wait().unwrap_err();
    /// assert_eq!(failure.to_string(), "the computation panicked: no answer");
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn run(self, compute: impl FnOnce() -> T) {
        self.run_told(compute);
    }

    /// As [`Promise::run`], as the last act of a light thread: the waiter may get its host at once.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    #[inline]
    pub(crate) fn run_to_end(mut self, compute: impl FnOnce() -> T) {
        // Unwind safety: as in `run_told`.
        let result = catch_unwind(AssertUnwindSafe(compute)).map_err(Failure::Panicked);
        if let Some(cell) = self.cell.take() {
            drop(cell.finish_and(result, Waiter::wake_at_end));
        }
    }

    /// As [`Promise::run`]. Returns false if the computation panicked.
    pub(crate) fn run_told(self, compute: impl FnOnce() -> T) -> bool {
        // A computation that panicked is gone with its captures: no torn state is seen.
        let result = catch_unwind(AssertUnwindSafe(compute)).map_err(Failure::Panicked);
        let computed = result.is_ok();
        drop(self.finish(result));
        computed
    }

    /// Returns whether the value may still be asked for. Once false, it stays false.
    ///
    /// ```
    /// let (promise, completion) = raddle::completion::pair::<u8>();
    /// assert!(promise.is_awaited());
    /// drop(completion);
    /// assert!(!promise.is_awaited()); // stop computing
    /// ```
    pub fn is_awaited(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| !cell.is_closed())
    }

    fn finish(mut self, result: Result<T, Failure>) -> Option<Result<T, Failure>> {
        let cell = self.cell.take()?;
        cell.finish(result)
    }

    fn finish_in_chain(mut self, result: Result<T, Failure>) -> Option<Step> {
        self.cell.take()?.finish_in_chain(result)
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            drop(cell.finish(Err(Failure::Abandoned)));
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise")
            .field("is_awaited", &self.is_awaited())
            .finish()
    }
}

/// The end that is waited for: by a thread ([`Completion::wait`]), by a task (it is a [`Future`]),
/// or by a continuation ([`Completion::then`]).
///
/// Dropping it ends the interest in the value; a later value is given back to [`Promise::set`].
///
/// ```
/// # use raddle::completion;
/// async fn double(answer: completion::Completion<u32>) -> Result<u32, completion::Failure> {
///     Ok(answer.await? * 2)
/// }
///
/// let (promise, answer) = completion::pair();
/// promise.set(21).unwrap();
/// assert_eq!(completion::block_on(double(answer))?, 42);
/// # Ok::<(), completion::Failure>(())
/// ```
///
/// Waiting twice does not compile:
///
/// ```compile_fail
/// let (promise, completion) = raddle::completion::pair::<u8>();
/// completion.wait();
/// completion.wait();
/// ```
#[must_use = "a value that nobody waits for is lost"]
pub struct Completion<T> {
    /// `None` once the result was taken, or a continuation has the cell.
    cell: Option<Consumer<Result<T, Failure>>>,
}

impl<T> Completion<T> {
    /// Makes a completion that is done.
    ///
    /// ```
    /// # use raddle::completion::Completion;
    /// assert_eq!(Completion::ready(5).wait().unwrap(), 5);
    /// ```
    pub fn ready(value: T) -> Self {
        let (promise, completion) = pair();
        drop(promise.finish(Ok(value)));
        completion
    }

    /// Returns whether [`Completion::wait`] would return at once.
    ///
    /// ```
    /// let (promise, completion) = raddle::completion::pair();
    /// assert!(!completion.is_done());
    /// promise.set(5).unwrap();
    /// assert!(completion.is_done());
    /// ```
    pub fn is_done(&self) -> bool {
        self.cell.as_ref().is_none_or(|cell| cell.is_done())
    }

    /// Waits for the value.
    ///
    /// ```
    /// let answer = raddle::run_as_green_thread(|| 6 * 7);
    /// assert_eq!(answer.wait().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// [`Failure::Abandoned`] if the promise was dropped, [`Failure::Panicked`] if its computation
    /// panicked.
    ///
    /// # Panics
    /// If the completion was polled as a future before, and was ready.
    ///
    /// # Blocking
    /// The light or green thread; outside raddle, the kernel thread.
    pub fn wait(self) -> Result<T, Failure> {
        match self.wait_within(None) {
            Ok(result) => result,
            Err(_) => unreachable!("a wait without an end has no timeout"),
        }
    }

    /// Waits for the value, but not longer than `timeout`.
    ///
    /// ```
    /// # use raddle::completion::{self, TimedWait};
    /// # use std::time::Duration;
    /// let (promise, completion) = completion::pair();
    /// let Err(TimedWait::TimedOut(completion)) = completion.wait_timeout(Duration::ZERO) else {
    ///     panic!("it is not set");
    /// };
    /// promise.set(5).unwrap();
    /// assert_eq!(completion.wait_timeout(Duration::ZERO).unwrap(), 5);
    /// ```
    ///
    /// # Errors
    /// [`TimedWait::TimedOut`] gives the completion back; [`TimedWait::Failed`] holds the error of
    /// [`Completion::wait`].
    ///
    /// # Panics
    /// As [`Completion::wait`].
    ///
    /// # Blocking
    /// As [`Completion::wait`].
    pub fn wait_timeout(self, timeout: Duration) -> Result<T, TimedWait<T>> {
        match self.wait_within(Some(timeout)) {
            Ok(result) => result.map_err(TimedWait::Failed),
            Err(completion) => Err(TimedWait::TimedOut(completion)),
        }
    }

    fn wait_within(mut self, timeout: Option<Duration>) -> Result<Result<T, Failure>, Self> {
        let Some(cell) = self.cell.take() else {
            panic!("{TAKEN}");
        };
        if !cell.wait(timeout) {
            self.cell = Some(cell);
            return Err(self);
        }
        Ok(cell.take())
    }

    /// Adds a continuation, and returns the completion of its result. `next` is called on the
    /// thread that sets the promise, or here if it is set. After a failed computation `next` is not
    /// called, and the new completion fails likewise; a panic of `next` is a failure of the new
    /// completion. A chain may have any length: it takes no stack.
    ///
    /// ```
    /// let (promise, completion) = raddle::completion::pair::<u32>();
    /// let text = completion.then(|value| value * 2).then(|value| value.to_string());
    /// promise.set(21).unwrap();
    /// assert_eq!(text.wait().unwrap(), "42");
    /// ```
    ///
    /// # Panics
    /// As [`Completion::wait`].
    ///
    /// # Blocking
    /// Nothing. `next` should not block either: it holds up the thread that sets the promise.
    pub fn then<U>(mut self, next: impl FnOnce(T) -> U + Send + 'static) -> Completion<U>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        let Some(cell) = self.cell.take() else {
            panic!("{TAKEN}");
        };
        let (promise, completion) = pair();
        let call = |result| match result {
            // Unwind safety: as in `run_told`.
            Ok(value) => promise.finish_in_chain(
                catch_unwind(AssertUnwindSafe(|| next(value))).map_err(Failure::Panicked),
            ),
            Err(failure) => promise.finish_in_chain(Err(failure)),
        };
        cell.give_to(call);
        completion
    }
}

const TAKEN: &str = "the completion was polled to its end before";

impl<T> Future for Completion<T> {
    type Output = Result<T, Failure>;

    /// # Panics
    /// If it returned `Ready` before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(cell) = &self.cell else {
            panic!("{TAKEN}");
        };
        if !cell.poll(context) {
            return Poll::Pending;
        }
        match self.cell.take() {
            Some(cell) => Poll::Ready(cell.take()),
            None => panic!("{TAKEN}"),
        }
    }
}

// Nothing in it is pinned.
impl<T> Unpin for Completion<T> {}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            cell.close();
        }
    }
}

impl<T> fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("is_done", &self.is_done())
            .finish()
    }
}
