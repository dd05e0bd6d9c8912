//! User-mode scheduling: threads that are run by a policy of the program's own.
//!
//! A *UMS worker* is a green thread like any other: it has its own thread-locals, id and stack, and
//! may make any call that a thread may make. But no carrier picks it. A *scheduler*, a thread that
//! has entered scheduling mode, [executes](Scheduler::execute) it; when the worker blocks or
//! yields, that scheduler runs again at once, on the same carrier, and gets the reason. The shape
//! is that of Windows' user-mode scheduling.
//!
//! | noun | what it is |
//! |---|---|
//! | [`Context`] | the name of a worker, by which it is executed, queried and set |
//! | [`CompletionList`] | new workers, ones that no longer block, and ones that have ended |
//! | [`Claimed`] | the right to execute a worker, which its scheduler gets when it yields |
//! | [`spawn_light`] | a worker that is quick to make and to end |
//! | [`spawn_migrating`] | a worker without a thread of its own, with the quickest yield |
//! | [`enter_scheduling_mode`] | makes the thread a scheduler with a procedure |
//! | [`enter_in_place`] | the same, but workers that yield call the procedure: faster |
//! | [`Reason`] | why the procedure is called: startup, blocked, yield |
//!
//! A worker that yields goes to its scheduler; a worker that blocks comes back on its list.
//!
//! A scheduler should not wait for a lock that its workers use: the lock may be with a worker, or
//! its wake-up may go to one, that waits for the scheduler to execute it. libc's `malloc` has such
//! locks, which several threads share, and `fork` takes all of them. A procedure that makes room
//! for its queues beforehand allocates nothing.
//!
//! ```
//! # use raddle::runtime::{Status, status};
//! # if status() != Status::Green { return Ok(()); }
//! use raddle::ums::{self, CompletionList, Reason};
//! let list = CompletionList::new()?;
//! let count = || (0..3).map(|i| { ums::yield_now(i).unwrap(); i }).sum();
//! let (_, worker) = ums::spawn(&list, count)?;
//! let mut ready = std::collections::VecDeque::new();
//! let mut yields = vec![];
//! raddle::spawn(move || {
//!     ums::enter_scheduling_mode(&list, |scheduler, reason| {
//!         if let Reason::Yielded { worker, parameter } = reason {
//!             yields.push(parameter);
//!             ready.push_back(worker);
//!         }
//!         loop {
//!             if ready.is_empty() {
//!                 for context in list.dequeue(None).expect("it waits for ever") {
//!                     match context.claim() {
//!                         Ok(worker) => ready.push_back(worker),
//!                         Err(_has_ended) => return scheduler.leave(),
//!                     }
//!                 }
//!             }
//!             if let Some(worker) = ready.pop_front() {
//!                 match scheduler.resume(worker) {
//!                     Ok(next) => return next,
//!                     Err(locked) => ready.push_back(locked), // try again
//!                 }
//!             }
//!         }
//!     })
//!     .unwrap();
//!     assert_eq!(yields, [0, 1, 2]);
//! })
//! .join()
//! .unwrap();
//! let sum: usize = worker.join().unwrap();
//! assert_eq!(sum, 3);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # What is blocking
//!
//! A worker blocks in every call of libc in which a green thread would park: locks, condition
//! variables, `join`, sleeps, sockets, pipes, `poll`, waits for children, and reads that wait for a
//! disk. The scheduler runs at once ([`Cause::Call`]). Blocking that the runtime can't see (a page
//! fault, a call that it doesn't know) is noticed by its watcher after some hundred microseconds,
//! and the scheduler goes on on another carrier ([`Cause::Kernel`]).
//!
//! A kernel thread is a green one as long as it is a scheduler, unless it differs from others (a
//! real-time class, credentials of its own) or was asked for by a rule of `raddle run`: then each
//! execution costs two wake-ups of kernel threads, and page faults aren't reported.
//!
//! `sched_yield(2)` is a yield with the parameter 0. A worker at the end of its quantum lets other
//! threads of the process run, and its scheduler waits, too.
//!
//! # What to know
//!
//! - A scheduler must not wait for a lock that one of its workers may hold: the worker would never
//!   be executed to release it.
//! - Waking a worker lists it. Until it is executed again, signals, timeouts and cancellation wait,
//!   too.
//! - Several threads may schedule workers of one list, and a worker may be executed by another
//!   scheduler each time; each scheduler has a carrier to itself while it runs.
//! - A worker that asks for something that Linux gives to kernel threads only (a real-time class,
//!   namespaces, ...) gets a kernel thread, and leaves user-mode scheduling: it is blocked, and
//!   comes back on its list when it has ended.
//! - In the child of a fork all contexts but the caller's have ended, and the caller is no worker.
//! - A worker that is never taken from its list is never freed.
//!
//! The C interface is `raddle_ums.h` of `libraddle`.

mod attributes;
mod c;
mod c_in_place;
mod claimed;
mod colour;
mod context;
mod dispatch;
mod hosts;
mod light;
mod list;
mod scheduler;

pub use claimed::Claimed;
pub(crate) use context::as_worker;
pub use context::{Context, State, current, spawn, spawn_with, yield_now};
pub(crate) use hosts::is_host;
pub use light::{spawn_light, spawn_light_with, spawn_migrating, spawn_migrating_with};
pub use list::{CompletionList, Items};
pub use scheduler::{
    Cause, Next, Reason, Refused, Scheduler, Why, enter_in_place, enter_scheduling_mode,
};
pub(crate) use scheduler::{Mode, claim, run_for};

use std::fmt;

/// Errors of user-mode scheduling.
///
/// ```
/// use raddle::ums::{self, Error};
/// assert_eq!(ums::yield_now(0), Err(Error::NoWorker));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no engine ([`crate::runtime::status`]).
    Unsupported,
    /// The calling thread is a scheduler already.
    IsScheduler,
    /// The calling thread is a worker.
    IsWorker,
    /// The calling thread is no worker.
    NoWorker,
    /// The calling thread is a light one.
    IsLight,
    /// The context has a thread already, or had one.
    InUse,
    /// Nothing was listed in time.
    TimedOut,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Unsupported => "there is no engine for green threads here",
            Self::IsScheduler => "the calling thread is a scheduler already",
            Self::IsWorker => "a UMS worker can't be a scheduler",
            Self::NoWorker => "the calling thread is no UMS worker",
            Self::IsLight => "a light thread can't be a scheduler",
            Self::InUse => "the context has a thread already",
            Self::TimedOut => "nothing was listed in time",
        })
    }
}

impl std::error::Error for Error {}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Unsupported => std::io::ErrorKind::Unsupported,
            Error::TimedOut => std::io::ErrorKind::TimedOut,
            _ => std::io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
