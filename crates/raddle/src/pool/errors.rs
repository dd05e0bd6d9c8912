//! Errors of pools.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;

/// The reason why a pool can't be made.
///
/// # Examples
/// ```
/// use raddle::pool::{BuildError, Pool};
/// let refused = Pool::builder().workers(3).max_workers(2).build().unwrap_err();
/// assert_eq!(refused, BuildError::MinAboveMax { min: 3, max: 2 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A pool without workers would never run anything.
    NoWorkers,
    /// The least number of workers is above the greatest.
    MinAboveMax {
        /// The least number asked for.
        min: usize,
        /// The greatest number asked for.
        max: usize,
    },
    /// More workers than a pool can have.
    TooManyWorkers {
        /// The greatest number that can be asked for.
        limit: usize,
    },
    /// A bounded queue must have room for one item.
    NoCapacity,
    /// The kernel takes no name with a NUL in it.
    NulInName,
}

impl fmt::Display for BuildError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWorkers => out.write_str("a pool needs at least one worker"),
            Self::MinAboveMax { min, max } => {
                write!(out, "at least {min} and at most {max} workers can't be had")
            }
            Self::TooManyWorkers { limit } => {
                write!(out, "a pool has at most {limit} workers")
            }
            Self::NoCapacity => out.write_str("a bounded queue needs room for one item"),
            Self::NulInName => out.write_str("a pool's name can't contain a NUL"),
        }
    }
}

impl Error for BuildError {}

/// The reason why work was not queued.
///
/// # Examples
/// ```
/// use raddle::pool::{QueueError, queue};
/// let refused = queue(|| ()).unwrap_err(); // on no worker
/// assert_eq!(refused.to_string(), "the calling thread is no worker of a pool");
/// assert!(matches!(refused, QueueError::NotAWorker));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum QueueError {
    /// The pool is disposed of.
    Closed,
    /// The queue is full, and its policy is to reject.
    Full,
    /// The work's token is cancelled already.
    Cancelled,
    /// The pool has no thread and can't get one. The item stays queued: the next item that is
    /// queued tries again.
    NoThread(io::Error),
    /// The calling thread is no worker of any pool.
    NotAWorker,
    /// The kernel can't watch the descriptor, or the pool's watcher can't get one.
    Watch(io::Error),
    /// A period of no length.
    ZeroPeriod,
    /// The pool belongs to a parent process: its workers are not in the child.
    Forked,
}

impl fmt::Display for QueueError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => out.write_str("the pool is disposed of"),
            Self::Full => out.write_str("the pool's queue is full"),
            Self::Cancelled => out.write_str("the work was cancelled before it was queued"),
            Self::NoThread(_) => out.write_str("the pool can't start a thread"),
            Self::NotAWorker => out.write_str("the calling thread is no worker of a pool"),
            Self::Watch(_) => out.write_str("the descriptor can't be watched"),
            Self::ZeroPeriod => out.write_str("a period must be longer than nothing"),
            Self::Forked => out.write_str("the pool is the parent process's"),
        }
    }
}

impl Error for QueueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoThread(error) | Self::Watch(error) => Some(error),
            _ => None,
        }
    }
}

/// The reason why a task has no result.
///
/// # Examples
/// ```
/// use raddle::pool::{Pending, Pool, TaskError};
/// let pool = Pool::builder().workers(1).max_workers(1).inline_waits(false).build()?;
/// let (gate, barrier) = std::sync::mpsc::channel::<()>();
/// pool.queue(move || drop(barrier.recv()))?;
/// let task = pool.task(|| unreachable!("it never starts"))?;
/// pool.dispose(Pending::Drop, Some(std::time::Duration::ZERO));
/// assert!(matches!(task.wait(), Err(TaskError::Discarded)));
/// drop(gate);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub enum TaskError {
    /// The task was cancelled before it started.
    Cancelled,
    /// The task was dropped before it started: by disposal, or for newer work.
    Discarded,
    /// The task was queued before a fork: its pool's workers are not in the child.
    Forked,
    /// The waiting thread runs the task itself, or another task that waits for it.
    WaitsForItself,
    /// The task panicked; holds the payload.
    Panicked(Box<dyn Any + Send>),
}

impl TaskError {
    /// Returns the panic's message, if the task panicked with one.
    ///
    /// # Examples
    /// ```
    /// # if cfg!(panic = "unwind") {
    /// let pool = raddle::pool::Pool::new();
    /// let error = pool.task(|| panic!("no luck"))?.wait().unwrap_err();
    /// assert_eq!(error.message(), Some("no luck"));
    /// # }
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Panicked(payload) => message(&**payload),
            _ => None,
        }
    }
}

/// Returns the text that `panic!` left in a payload.
pub(super) fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    let constant = payload.downcast_ref::<&str>().copied();
    constant.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

impl fmt::Debug for TaskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => out.write_str("Cancelled"),
            Self::Discarded => out.write_str("Discarded"),
            Self::Forked => out.write_str("Forked"),
            Self::WaitsForItself => out.write_str("WaitsForItself"),
            Self::Panicked(_) => out.debug_tuple("Panicked").field(&self.message()).finish(),
        }
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled => out.write_str("the task was cancelled"),
            Self::Discarded => out.write_str("the task was dropped before it started"),
            Self::Forked => out.write_str("the task was left to the parent process"),
            Self::WaitsForItself => out.write_str("a task can't wait for its own end"),
            Self::Panicked(_) => {
                write!(out, "the task panicked: {}", self.message().unwrap_or("?"))
            }
        }
    }
}

impl Error for TaskError {}
