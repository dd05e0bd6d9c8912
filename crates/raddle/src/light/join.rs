//! The right to wait for a light thread.

use super::host::Light;
use crate::completion::{Completion, Failure};
use crate::thread::SelfJoin;
use std::fmt;
use std::thread;

/// The right to wait for a light thread's end. Dropped, it lets the thread go on by itself.
///
/// ```
/// let thread = raddle::light::spawn(|| 5);
/// assert_eq!(thread.join().unwrap(), 5);
/// ```
pub struct JoinHandle<T> {
    completion: Completion<T>,
    /// Whose end it is, as long as that has not come; then it may be another's shell.
    light: &'static Light,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(completion: Completion<T>, light: &'static Light) -> Self {
        Self { completion, light }
    }

    /// Waits for the thread's end. A light thread lets others run meanwhile, a green thread parks,
    /// a kernel thread blocks.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| 6 * 7);
    /// assert_eq!(handle.join().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// What the thread panicked with; [`SelfJoin`] if it is the calling thread.
    ///
    /// # Blocking
    /// The light or green thread; outside raddle, the kernel thread.
    pub fn join(self) -> thread::Result<T> {
        // A shell is used again only when its last thread's completion is done.
        let own = |light: &Light| std::ptr::eq(self.light, light);
        if !self.completion.is_done() && super::current().is_some_and(own) {
            return Err(Box::new(SelfJoin));
        }
        self.completion.wait().map_err(|failure| match failure {
            Failure::Panicked(payload) => payload,
            Failure::Abandoned => Box::new(failure),
        })
    }

    /// True once the thread has ended, or is about to.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| ());
    /// while !handle.is_finished() { raddle::light::yield_now() }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.completion.is_done()
    }

    /// The thread's result as a completion: to wait with a timeout, or in a future.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| 6 * 7);
    /// assert_eq!(raddle::completion::block_on(handle.into_completion()).unwrap(), 42);
    /// ```
    pub fn into_completion(self) -> Completion<T> {
        self.completion
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}
