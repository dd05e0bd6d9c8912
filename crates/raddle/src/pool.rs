//! Thread pools: isolated from each other, started lazily, sized by the behaviour of their work.
//!
//! A [`Pool`] owns workers, which are threads of [`crate::thread`]. Work without a result is queued
//! by [`queue`](PoolRef::queue), work with a result by [`task`](PoolRef::task). A worker queues its
//! own work to its own deque and runs it newest first; idle workers steal from there, oldest first.
//! So recursive work ([`join`], [`PoolRef::scope`], [`parallel_for`]) needs no shared queue.
//!
//! | what | where |
//! |---|---|
//! | names, sizes, hooks, bounds, policies | [`Builder`] |
//! | values that flow from the queueing thread to the work | [`Context`], [`ContextLocal`] |
//! | results, waiting, `then`, `await` | [`Task`] |
//! | stopping work | [`CancelSource`], [`CancelToken`] |
//! | timers, descriptors | [`PoolRef::after`], [`PoolRef::every`], [`PoolRef::when_ready`] |
//! | work that blocks | [`blocking`] |
//! | the end | [`Pool::dispose`] |
//!
//! # How many workers
//!
//! A pool starts as many workers as the CPUs that the process may use, one after another and only
//! as there is work. While a worker is in [`blocking`] (waiting for a task counts), another may run
//! in its place. If work waits and none is finished for a tick although the processors have time to
//! spare, the work seems to block outside [`blocking`]: one more worker runs. Otherwise a busy pool
//! tries whether one worker more or less gets more items done. Additions stay within
//! [`Builder::max_workers`] and leave the memory reserve alone. Workers that are idle for long end.
//!
//! # Forks
//!
//! The child of a fork has none of the workers. There its parent's pools refuse work
//! ([`QueueError::Forked`]), tasks that have not run and that the waiter can't run itself end with
//! [`TaskError::Forked`], and disposal has no effect. A worker that forks has the child's only
//! thread: its item may make pools and threads of the child's own, and if the item returns, the
//! child ends.
//!
//! # Examples
//! ```
//! use raddle::pool::Pool;
//! use std::sync::mpsc;
//!
//! let pool = Pool::new();
//! let (sender, receiver) = mpsc::channel();
//! for number in 0..10 {
//!     let sender = sender.clone();
//!     pool.queue(move || sender.send(number).unwrap())?;
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<i32>(), 45);
//! # Ok::<(), raddle::pool::QueueError>(())
//! ```

mod builder;
mod cancel;
mod climb;
mod context;
mod counters;
#[allow(unreachable_pub)] // for its models
mod deque;
mod dispose;
mod errors;
mod fork;
mod forks;
#[allow(unreachable_pub)] // for its models
mod job;
mod lanes;
mod lock;
mod memory;
mod poll;
mod rest;
mod settings;
mod shared;
#[allow(unreachable_pub)] // for its models
mod summons;
mod sync;
mod task;
#[cfg(test)]
mod tests;
mod watch;
mod worker;

pub use builder::{Builder, OnPanic, Overflow, PanicHook, PanicReport};
pub use cancel::{CancelSource, CancelToken, Cancelled, Registration};
pub use context::{Change, Context, ContextLocal, SuppressFlow};
pub use errors::{BuildError, QueueError, TaskError};
pub use fork::{Scope, join, parallel_for};
pub use poll::Interest;
pub use settings::{DisposeReport, Options, Pending, Priority, Stats};
pub use task::Task;
pub use watch::Watched;
pub use worker::blocking;

use job::Job;
use shared::{Origin, Phase, Shared};
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use worker::Local;

/// A pool with its end: dropping it disposes of it, as [`Pool::dispose`] with [`Pending::Run`] and
/// without a deadline.
///
/// The functions that queue work are [`PoolRef`]'s, to which a pool dereferences.
///
/// # Examples
/// ```
/// let pool = raddle::pool::Pool::new();
/// let remote = pool.remote();
/// std::thread::spawn(move || remote.queue(|| ()).unwrap()).join().unwrap();
/// ```
pub struct Pool(PoolRef);

impl Pool {
    /// Makes a pool with the default settings of [`Builder`].
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// assert_eq!(pool.stats().workers, 0); // lazy
    /// ```
    pub fn new() -> Self {
        Self::builder().build().expect("the usual settings can be")
    }

    /// Returns the default settings, to be changed.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().workers(3).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns another reference to this pool, which does not keep it from being disposed of.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Pool, QueueError};
    /// let pool = Pool::new();
    /// let remote = pool.remote();
    /// drop(pool);
    /// assert!(matches!(remote.queue(|| ()), Err(QueueError::Closed)));
    /// ```
    pub fn remote(&self) -> PoolRef {
        self.0.clone()
    }

    /// Ends the pool: work from outside is refused, timers and watched descriptors are forgotten,
    /// waiting work is run or dropped, and the workers end. At the deadline the work that still
    /// waits is dropped, and workers that still run something end after it.
    ///
    /// Parts of running work ([`join`], scopes) are finished in any case. On a worker of this pool
    /// the call doesn't wait, since the worker can't see its own end: with [`Pending::Run`] the
    /// workers run the waiting work, whatever the time, and then end.
    ///
    /// # Blocking
    /// Blocks the calling thread until all workers have ended or the time is over; without a
    /// timeout as long as the work takes.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Pending, Pool};
    /// use std::time::Duration;
    ///
    /// let pool = Pool::builder().workers(1).build()?;
    /// for _ in 0..3 {
    ///     pool.queue(|| std::thread::sleep(Duration::from_millis(1)))?;
    /// }
    /// let report = pool.dispose(Pending::Run, Some(Duration::from_secs(10)));
    /// assert_eq!((report.dropped, report.still_running), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dispose(self, pending: Pending, timeout: Option<Duration>) -> DisposeReport {
        self.shared.dispose(pending, timeout)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // After `dispose` only workers are left that still run something.
        if !self.is_closed() {
            self.shared.dispose(Pending::Run, None);
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Pool {
    type Target = PoolRef;

    fn deref(&self) -> &PoolRef {
        &self.0
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A reference to a pool, through which work is queued; cheap to clone.
///
/// # Examples
/// ```
/// use raddle::pool::{Pool, PoolRef};
///
/// fn countdown(pool: PoolRef, left: u32) {
///     if left > 0 {
///         let next = pool.clone();
///         pool.queue(move || countdown(next, left - 1)).unwrap();
///     }
/// }
/// let pool = Pool::new();
/// countdown(pool.remote(), 10); // the pool's end waits for all of it
/// ```
#[derive(Clone)]
pub struct PoolRef {
    shared: Arc<Shared>,
}

impl PoolRef {
    /// Returns the pool that the calling worker belongs to; `None` on other threads.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Pool, PoolRef};
    /// assert!(PoolRef::current().is_none());
    /// let pool = Pool::builder().name("here").build()?;
    /// let name = pool.install(|| PoolRef::current().map(|pool| pool.name().to_string()))?;
    /// assert_eq!(name.as_deref(), Some("here"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current() -> Option<Self> {
        Local::with(|local| {
            local.map(|local| Self {
                shared: local.shared.clone(),
            })
        })
    }

    /// Returns the pool's name.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(raddle::pool::Pool::new().name(), "pool");
    /// ```
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// Returns whether the pool refuses work from outside.
    ///
    /// # Examples
    /// ```
    /// assert!(!raddle::pool::Pool::new().is_closed());
    /// ```
    pub fn is_closed(&self) -> bool {
        self.shared.phase() != Phase::Open || self.shared.is_forked()
    }

    /// Queues work without a result.
    ///
    /// # Errors
    /// [`QueueError`] if the pool is disposed of, its bounded queue is full, or it has no thread.
    ///
    /// # Blocking
    /// Nothing, but for a full queue with [`Overflow::Block`] or [`Overflow::CallerRuns`].
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// pool.queue(|| println!("some time"))?;
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    #[inline]
    pub fn queue(&self, f: impl FnOnce() + Send + 'static) -> Result<(), QueueError> {
        self.submit(self.job(f), Priority::Normal)
    }

    /// Queues work without a result, with a priority or a token.
    ///
    /// # Errors
    /// As [`PoolRef::queue`]; [`QueueError::Cancelled`] if the token is cancelled already. If the
    /// token is cancelled later, the work is dropped instead of started.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Options, Pool, Priority};
    /// let pool = Pool::new();
    /// pool.queue_with(Options::new().priority(Priority::Low), || println!("later"))?;
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn queue_with(
        &self,
        options: Options,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueError> {
        let Options { priority, token } = options;
        token.check().map_err(|_| QueueError::Cancelled)?;
        let job = if !token.can_be_cancelled() {
            self.job(f)
        } else {
            self.job(move || {
                if !token.is_cancelled() {
                    f();
                }
            })
        };
        self.submit(job, priority)
    }

    /// Queues work with a result.
    ///
    /// # Errors
    /// As [`PoolRef::queue`].
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// let tasks: Vec<_> = (0..4).map(|n| pool.task(move || n * n)).collect::<Result<_, _>>()?;
    /// let sum: i32 = tasks.into_iter().map(|task| task.wait().unwrap()).sum();
    /// assert_eq!(sum, 14);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn task<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Task<T>, QueueError> {
        self.task_with(Options::new(), f)
    }

    /// Queues work with a result, with a priority or a token.
    ///
    /// # Errors
    /// As [`PoolRef::queue_with`].
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{CancelSource, Options, Pool};
    ///
    /// let (pool, source) = (Pool::new(), CancelSource::new());
    /// let token = source.token();
    /// let task = pool.task_with(Options::new().token(&token.clone()), move || {
    ///     (0..1000).try_for_each(|_| token.check())
    /// })?;
    /// assert_eq!(task.wait().unwrap(), Ok(()));
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn task_with<T: Send + 'static>(
        &self,
        options: Options,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Task<T>, QueueError> {
        let Options { priority, token } = options;
        token.check().map_err(|_| QueueError::Cancelled)?;
        let (task, queued) = task::new(self, self.in_context(f), token, true);
        // The context is the closure's own: the same on a worker and on a waiter that runs the
        // task.
        self.submit(Job::new(queued), priority)?;
        Ok(task)
    }

    /// Queues `f` after `delay`, to the millisecond and not before.
    ///
    /// # Errors
    /// [`QueueError`] if the pool is disposed of, or has no thread or descriptor for its watcher.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::{Duration, Instant};
    ///
    /// let (pool, start) = (raddle::pool::Pool::new(), Instant::now());
    /// let (sender, receiver) = mpsc::channel();
    /// pool.after(Duration::from_millis(5), move || sender.send(()).unwrap())?;
    /// receiver.recv()?;
    /// assert!(start.elapsed() >= Duration::from_millis(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(
        &self,
        delay: Duration,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<Watched, QueueError> {
        self.shared.watch.after(&self.shared, delay, self.job(f))
    }

    /// Queues `f` every `period`, the first time after one period. A period in which the last call
    /// has not ended is left out.
    ///
    /// # Errors
    /// As [`PoolRef::after`]; [`QueueError::ZeroPeriod`] for a period of no length.
    ///
    /// # Examples
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let pool = raddle::pool::Pool::new();
    /// let (sender, receiver) = mpsc::channel();
    /// let ticks = pool.every(Duration::from_millis(2), move || drop(sender.send(())))?;
    /// receiver.recv()?;
    /// receiver.recv()?;
    /// assert!(ticks.cancel());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn every(
        &self,
        period: Duration,
        f: impl Fn() + Send + Sync + 'static,
    ) -> Result<Watched, QueueError> {
        let flow = self.shared.config.flow;
        let context = if flow { Context::flowing() } else { None };
        let work = move || match &context {
            None => f(),
            Some(context) => context.run(&f),
        };
        let work = Box::new(work);
        self.shared.watch.every(&self.shared, period, work)
    }

    /// Queues `f` once, when the descriptor is ready. The pool watches a duplicate, so that the
    /// descriptor may be closed meanwhile.
    ///
    /// # Errors
    /// As [`PoolRef::after`]; [`QueueError::Watch`] for a descriptor that is always ready, like a
    /// file's, and if no descriptor is left.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Interest, Pool};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (here, _there) = UnixStream::pair()?;
    /// let pool = Pool::new();
    /// pool.when_ready(&here, Interest::Writable, || println!("writable"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn when_ready(
        &self,
        descriptor: impl AsFd,
        interest: Interest,
        f: impl FnOnce() + Send + 'static,
    ) -> Result<Watched, QueueError> {
        let (job, watch) = (self.job(f), &self.shared.watch);
        watch.when_ready(&self.shared, descriptor.as_fd(), interest, job)
    }

    /// Cancels `source` after `delay`, unless the timer is cancelled before.
    ///
    /// # Errors
    /// As [`PoolRef::after`].
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{CancelSource, Pool};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let (pool, source) = (Pool::new(), Arc::new(CancelSource::new()));
    /// pool.cancel_after(Duration::from_millis(1), &source)?;
    /// assert!(source.token().wait_timeout(Duration::from_secs(10)));
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn cancel_after(
        &self,
        delay: Duration,
        source: &Arc<CancelSource>,
    ) -> Result<Watched, QueueError> {
        let source = Arc::downgrade(source);
        self.after(delay, move || {
            if let Some(source) = source.upgrade() {
                source.cancel();
            }
        })
    }

    /// Returns the first panic that [`OnPanic::Keep`] kept since the last call.
    ///
    /// # Examples
    /// ```
    /// assert!(raddle::pool::Pool::new().take_panic().is_none());
    /// ```
    pub fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.shared.take_panic()
    }

    /// Returns the pool's counters.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// pool.task(|| ())?.wait().unwrap();
    /// assert_eq!(pool.stats().queued, 1);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Makes a job of `f`, in the caller's context if that flows.
    #[inline(always)]
    fn job(&self, f: impl FnOnce() + Send + 'static) -> Job {
        if self.shared.config.flow
            && let Some(context) = Context::flowing()
        {
            return Job::new(move || context.run(f));
        }
        Job::new(f)
    }

    fn in_context<T>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl FnOnce() -> T + Send + 'static {
        let flow = self.shared.config.flow;
        let context = if flow { Context::flowing() } else { None };
        move || match context {
            None => f(),
            Some(context) => context.run(f),
        }
    }

    #[inline(always)]
    fn submit(&self, job: Job, priority: Priority) -> Result<(), QueueError> {
        Local::submit(&self.shared, job, priority)
    }

    /// Queues a continuation of work that was accepted before.
    fn queue_exempt(&self, f: impl FnOnce() + Send + 'static) -> Result<(), QueueError> {
        self.shared
            .queue(Job::new(f), Priority::Normal, Origin::Exempt)
    }
}

impl fmt::Debug for PoolRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Pool")
            .field("name", &self.name())
            .field("stats", &self.stats())
            .finish()
    }
}

/// Queues work to the pool that the calling worker belongs to.
///
/// # Errors
/// [`QueueError::NotAWorker`] on other threads; otherwise as [`PoolRef::queue`].
///
/// # Examples
/// ```
/// use raddle::pool::{Pool, QueueError, queue};
/// assert!(matches!(queue(|| ()), Err(QueueError::NotAWorker)));
/// let pool = Pool::new();
/// pool.install(|| queue(|| println!("from within")))??;
/// # Ok::<(), QueueError>(())
/// ```
#[inline]
pub fn queue(f: impl FnOnce() + Send + 'static) -> Result<(), QueueError> {
    Local::with(|local| {
        let local = local.ok_or(QueueError::NotAWorker)?;
        let job = match local.shared.config.flow.then(Context::flowing).flatten() {
            None => Job::new(f),
            Some(context) => Job::new(move || context.run(f)),
        };
        local.queue(job, Priority::Normal)
    })
}
