//! Cancellation: a source requests it, and work stops when it checks its token.
//!
//! Nothing is interrupted by force. Work that was not started yet is never started; running work
//! checks its token, or registers a callback that interrupts it.

use super::sync::{keep_first, lock, quietly, wait, wait_until};
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use std::vec;

/// What a cancellation does.
enum Callback {
    Call(Box<dyn FnOnce() + Send>),
    /// Cancels a linked source, too.
    Link(Weak<Inner>),
}

#[derive(Default)]
struct Inner {
    /// Written once by the canceller (release), read by tokens (acquire).
    cancelled: AtomicBool,
    callbacks: Mutex<Callbacks>,
    /// Threads that wait for the cancellation.
    waiters: Condvar,
}

#[derive(Default)]
struct Callbacks {
    next: u64,
    waiting: Vec<(u64, Callback)>,
}

/// The error of cancelled work.
///
/// ```
/// use raddle::pool::{CancelSource, Cancelled};
/// let source = CancelSource::new();
/// source.cancel();
/// assert_eq!(source.token().check(), Err(Cancelled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the work was cancelled")
    }
}

impl Error for Cancelled {}

/// The end that cancels.
///
/// # Examples
/// ```
/// use raddle::pool::CancelSource;
///
/// let source = CancelSource::new();
/// let token = source.token();
/// assert!(token.check().is_ok());
/// source.cancel();
/// assert!(token.check().is_err());
/// ```
pub struct CancelSource {
    inner: Arc<Inner>,
    /// Callbacks on the tokens that this source is linked to; dropped with it.
    _links: Vec<Registration>,
}

impl CancelSource {
    /// Makes a source without parents.
    ///
    /// # Examples
    /// ```
    /// assert!(!raddle::pool::CancelSource::new().is_cancelled());
    /// ```
    pub fn new() -> Self {
        Self {
            inner: Arc::default(),
            _links: Vec::new(),
        }
    }

    /// Makes a source that is also cancelled when any of `parents` is. Cancelling it does not
    /// cancel them.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::CancelSource;
    ///
    /// let (shutdown, request) = (CancelSource::new(), CancelSource::new());
    /// let both = CancelSource::linked(&[&shutdown.token(), &request.token()]);
    /// shutdown.cancel();
    /// assert!(both.is_cancelled() && !request.is_cancelled());
    /// ```
    pub fn linked(parents: &[&CancelToken]) -> Self {
        let inner = Arc::<Inner>::default();
        let link = |parent: &&CancelToken| {
            let child = Callback::Link(Arc::downgrade(&inner));
            parent.register(child).unwrap_or_else(|_| {
                inner.cancel(); // no callback is there yet
                Registration::none()
            })
        };
        let _links = parents.iter().map(link).collect();
        Self { inner, _links }
    }

    /// Returns a token for work.
    ///
    /// # Examples
    /// ```
    /// let token = raddle::pool::CancelSource::new().token();
    /// assert!(!token.is_cancelled());
    /// ```
    pub fn token(&self) -> CancelToken {
        CancelToken {
            inner: Some(self.inner.clone()),
        }
    }

    /// Cancels. Returns true the first time. Callbacks run here, in the order of their
    /// registration.
    ///
    /// # Panics
    /// With a callback's panic, after all callbacks have run.
    ///
    /// # Examples
    /// ```
    /// let source = raddle::pool::CancelSource::new();
    /// assert!(source.cancel());
    /// assert!(!source.cancel());
    /// ```
    pub fn cancel(&self) -> bool {
        self.inner.cancel()
    }

    /// Returns whether the source was cancelled.
    ///
    /// # Examples
    /// ```
    /// let source = raddle::pool::CancelSource::new();
    /// source.cancel();
    /// assert!(source.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

impl Default for CancelSource {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CancelSource")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

/// The end that work checks; cheap to clone. The default token is never cancelled.
///
/// # Examples
/// ```
/// use raddle::pool::{CancelSource, CancelToken, Cancelled};
///
/// fn work(token: &CancelToken) -> Result<u32, Cancelled> {
///     for _ in 0..1000 {
///         token.check()?;
///     }
///     Ok(1000)
/// }
/// let source = CancelSource::new();
/// assert_eq!(work(&source.token()), Ok(1000));
/// source.cancel();
/// assert_eq!(work(&source.token()), Err(Cancelled));
/// ```
#[derive(Clone, Default)]
pub struct CancelToken {
    /// `None` for a token that can't be cancelled.
    inner: Option<Arc<Inner>>,
}

impl CancelToken {
    /// Returns whether the source was cancelled.
    ///
    /// # Examples
    /// ```
    /// assert!(!raddle::pool::CancelToken::default().is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.inner
            .as_ref()
            .is_some_and(|inner| inner.is_cancelled())
    }

    /// Returns whether there is a source that could cancel the token.
    pub(super) fn can_be_cancelled(&self) -> bool {
        self.inner.is_some()
    }

    /// Returns an error once the source was cancelled, for `?`.
    ///
    /// # Errors
    /// [`Cancelled`] if the source was cancelled.
    ///
    /// # Examples
    /// ```
    /// assert!(raddle::pool::CancelToken::default().check().is_ok());
    /// ```
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() {
            Err(Cancelled)
        } else {
            Ok(())
        }
    }

    /// Calls `f` when the source is cancelled, on the thread that cancels it; or here and now, if
    /// it was cancelled before. Dropping the registration takes `f` back; the drop does not wait
    /// for an `f` that runs.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let (sender, receiver) = mpsc::channel();
    /// let source = raddle::pool::CancelSource::new();
    /// let kept = source.token().on_cancel(move || sender.send("stop").unwrap());
    /// source.cancel();
    /// assert_eq!(receiver.recv(), Ok("stop"));
    /// # drop(kept);
    /// ```
    #[must_use = "dropping the registration takes the callback back"]
    pub fn on_cancel(&self, f: impl FnOnce() + Send + 'static) -> Registration {
        let callback = Callback::Call(Box::new(f));
        self.register(callback).unwrap_or_else(|callback| {
            if let Callback::Call(f) = callback {
                f();
            }
            Registration::none()
        })
    }

    /// Registers a callback; gives it back if the source was cancelled before.
    fn register(&self, callback: Callback) -> Result<Registration, Callback> {
        let Some(inner) = &self.inner else {
            return Ok(Registration::none());
        };
        let mut callbacks = lock(&inner.callbacks);
        // Checked under the lock that the canceller takes after it has set the flag.
        if inner.is_cancelled() {
            return Err(callback);
        }
        let id = callbacks.next;
        callbacks.next += 1;
        callbacks.waiting.push((id, callback));
        Ok(Registration {
            inner: Arc::downgrade(inner),
            id,
        })
    }

    /// Waits for the cancellation, at most `timeout`. Returns whether it came.
    ///
    /// # Blocking
    /// Blocks the calling thread, and a worker of a pool without compensation: see
    /// [`blocking`](super::blocking).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let token = raddle::pool::CancelToken::default();
    /// assert!(!token.wait_timeout(Duration::from_millis(1)));
    /// ```
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let Some(inner) = &self.inner else {
            std::thread::sleep(timeout);
            return false;
        };
        let deadline = Instant::now().checked_add(timeout);
        let mut callbacks = lock(&inner.callbacks);
        while !inner.is_cancelled() {
            callbacks = match deadline {
                Some(at) if at <= Instant::now() => return false,
                Some(at) => wait_until(&inner.waiters, callbacks, at),
                None => wait(&inner.waiters, callbacks),
            };
        }
        true
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

impl Inner {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Marks the source as cancelled, and returns its callbacks the first time.
    fn begin_to_cancel(&self) -> Option<vec::IntoIter<(u64, Callback)>> {
        if self.cancelled.swap(true, Ordering::AcqRel) {
            return None;
        }
        let callbacks = std::mem::take(&mut lock(&self.callbacks).waiting);
        self.waiters.notify_all();
        Some(callbacks.into_iter())
    }

    /// Cancels this source and all that are linked to it, each at its place among the callbacks. A
    /// chain of sources may have any length: it takes no stack.
    fn cancel(&self) -> bool {
        let Some(own) = self.begin_to_cancel() else {
            return false;
        };
        let mut panic = None;
        let mut under_way = vec![own];
        while let Some(callbacks) = under_way.last_mut() {
            match callbacks.next() {
                None => _ = under_way.pop(),
                Some((_, Callback::Link(child))) => {
                    let child = child.upgrade();
                    under_way.extend(child.and_then(|child| child.begin_to_cancel()));
                }
                Some((_, Callback::Call(f))) => {
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
                        let other = keep_first(&mut panic, payload);
                        quietly(|| drop(other));
                    }
                }
            }
        }
        match panic {
            Some(payload) => resume_unwind(payload),
            None => true,
        }
    }
}

/// A registered callback; dropping this takes the callback back.
///
/// ```
/// use raddle::pool::CancelSource;
/// let source = CancelSource::new();
/// let registration = source.token().on_cancel(|| unreachable!("it was taken back"));
/// drop(registration);
/// source.cancel();
/// ```
#[must_use = "dropping the registration takes the callback back"]
pub struct Registration {
    inner: Weak<Inner>,
    id: u64,
}

impl Registration {
    /// A registration of nothing.
    fn none() -> Self {
        Self {
            inner: Weak::new(),
            id: 0,
        }
    }

    /// Takes the callback back. Returns true if it has not run and never will.
    ///
    /// # Examples
    /// ```
    /// let source = raddle::pool::CancelSource::new();
    /// let registration = source.token().on_cancel(|| unreachable!());
    /// assert!(registration.unregister());
    /// source.cancel();
    /// ```
    pub fn unregister(self) -> bool {
        self.remove().is_some()
    }

    /// Leaves the callback registered for as long as there is a source.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::CancelSource;
    /// use std::sync::mpsc;
    /// let (source, (told, is_told)) = (CancelSource::new(), mpsc::channel());
    /// source.token().on_cancel(move || told.send(()).unwrap()).keep();
    /// source.cancel();
    /// assert!(is_told.try_recv().is_ok());
    /// ```
    pub fn keep(mut self) {
        self.inner = Weak::new();
    }

    fn remove(&self) -> Option<Callback> {
        let inner = self.inner.upgrade()?;
        let waiting = &mut lock(&inner.callbacks).waiting;
        let at = waiting.iter().position(|(id, _)| *id == self.id)?;
        Some(waiting.remove(at).1)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Outside the lock: destructors of the callback's captures may do anything.
        drop(self.remove());
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Registration").finish_non_exhaustive()
    }
}
