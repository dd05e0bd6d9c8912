//! Join handles of light threads.

use super::Thread;
use crate::completion::{Completion, Failure};
use crate::thread::SelfJoin;
use std::fmt;
use std::thread;

/// The right to wait for a light thread's end. Dropping it detaches the thread.
///
/// ```
/// let thread = raddle::light::spawn(|| 5);
/// assert_eq!(thread.join().unwrap(), 5);
/// ```
pub struct JoinHandle<T> {
    completion: Completion<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(completion: Completion<T>, thread: Thread) -> Self {
        Self { completion, thread }
    }

    /// Returns the thread, for `unpark`.
    ///
    /// ```
    /// let handle = raddle::light::spawn(raddle::light::park);
    /// handle.thread().unpark();
    /// handle.join().unwrap();
    /// ```
    pub fn thread(&self) -> Thread {
        self.thread
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
    /// The payload of the thread's panic; [`SelfJoin`] on the thread itself.
    ///
    /// # Blocking
    /// The light or green thread; outside raddle, the kernel thread.
    pub fn join(self) -> thread::Result<T> {
        if self.thread.is_current() {
            return Err(Box::new(SelfJoin));
        }
        self.completion.wait().map_err(|failure| match failure {
            Failure::Panicked(payload) => payload,
            Failure::Abandoned => Box::new(failure),
        })
    }

    /// Returns true once the thread has ended, or is about to.
    ///
    /// ```
    /// let handle = raddle::light::spawn(|| ());
    /// while !handle.is_finished() { raddle::light::yield_now() }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.completion.is_done()
    }

    /// Returns the thread's result as a completion: to wait with a timeout, or in a future.
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
