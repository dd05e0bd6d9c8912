//! Options of an item, and what a pool reports about its end and its past.

use super::cancel::CancelToken;

/// The priority of queued work. Higher work in the shared queue starts before lower work; now and
/// then the lowest starts first, so that no work waits for ever.
///
/// # Examples
/// ```
/// use raddle::pool::{Options, Pool, Priority};
/// let pool = Pool::new();
/// pool.queue_with(Options::new().priority(Priority::High), || ())?;
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all other work, also before the workers' own deques.
    High,
    /// The default.
    #[default]
    Normal,
    /// When there is little other work.
    Low,
}

impl Priority {
    pub(super) const COUNT: usize = 3;
}

/// Options of one queued item.
///
/// # Examples
/// ```
/// use raddle::pool::{CancelSource, Options, Pool, QueueError};
///
/// let (pool, source) = (Pool::new(), CancelSource::new());
/// source.cancel();
/// let refused = pool.queue_with(Options::new().token(&source.token()), || ());
/// assert!(matches!(refused, Err(QueueError::Cancelled)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(super) priority: Priority,
    pub(super) token: CancelToken,
}

impl Options {
    /// Makes the options of [`PoolRef::queue`](super::PoolRef::queue).
    ///
    /// # Examples
    /// ```
    /// let usual = raddle::pool::Options::new();
    /// # drop(usual);
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Options, Priority};
    /// let options = Options::new().priority(Priority::Low);
    /// # drop(options);
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets a token: once it is cancelled, the work is not started.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{CancelSource, Options};
    /// let options = Options::new().token(&CancelSource::new().token());
    /// # drop(options);
    /// ```
    pub fn token(mut self, token: &CancelToken) -> Self {
        self.token = token.clone();
        self
    }
}

/// What disposal does with waiting work.
///
/// # Examples
/// ```
/// use raddle::pool::{Pending, Pool};
/// use std::time::Duration;
/// let report = Pool::new().dispose(Pending::Drop, Some(Duration::from_secs(1)));
/// assert_eq!(report.dropped, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Waiting work is run, and so is the work that it queues.
    Run,
    /// Waiting work is dropped; the waiter for a dropped task gets
    /// [`TaskError::Discarded`](super::TaskError::Discarded).
    Drop,
}

/// The outcome of a disposal.
///
/// # Examples
/// ```
/// use raddle::pool::{Pending, Pool};
/// let pool = Pool::new();
/// pool.queue(|| ())?;
/// let report = pool.dispose(Pending::Run, None);
/// assert_eq!((report.dropped, report.still_running, report.panicked), (0, 0, 0));
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DisposeReport {
    /// Items that ran during the disposal.
    pub ran: u64,
    /// Items that were dropped.
    pub dropped: u64,
    /// Workers that still run an item at the deadline; they end after it.
    pub still_running: usize,
    /// Items without a handle that panicked in the pool's whole life.
    pub panicked: u64,
}

/// A pool's counters at about one moment.
///
/// # Examples
/// ```
/// let pool = raddle::pool::Pool::builder().workers(1).build()?;
/// pool.task(|| ())?.wait().unwrap();
/// let stats = pool.stats();
/// assert_eq!((stats.queued, stats.rejected, stats.peak_workers), (1, 0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Items queued so far.
    pub queued: u64,
    /// Items taken out and run so far, those that panicked included.
    pub executed: u64,
    /// Items without a handle that panicked.
    pub panicked: u64,
    /// Items that a worker took from another worker's deque.
    pub stolen: u64,
    /// Items that a full queue refused.
    pub rejected: u64,
    /// Items that were dropped before they ran.
    pub discarded: u64,
    /// Tasks that ran on their waiters.
    pub inlined: u64,
    /// Items that ran on the queueing thread, because the queue was full.
    pub caller_ran: u64,
    /// How often a worker was added because work was stuck, or to try a larger number.
    pub injected: u64,
    /// Items that wait.
    pub pending: usize,
    /// Workers.
    pub workers: usize,
    /// Workers without work.
    pub idle: usize,
    /// Workers in [`blocking`](super::blocking).
    pub blocked: usize,
    /// How many workers should be neither idle nor blocked.
    pub target: usize,
    /// The most workers there were at once.
    pub peak_workers: usize,
}
