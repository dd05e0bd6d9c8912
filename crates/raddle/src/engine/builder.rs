//! Options of an engine, and errors of engines.

use super::custom::Shared;
use super::policy::{BuiltIn, Choice};
use super::{Engine, Inner, Members, cpu};
use crate::runtime;
use raddle_interface::EnginePlan;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

/// The most carriers of one engine.
///
/// ```
/// use raddle::engine::{Engine, MAX_CARRIERS};
/// assert!(Engine::builder().carriers(MAX_CARRIERS + 1).build().is_err());
/// ```
pub const MAX_CARRIERS: usize = 64;
/// The largest share, in percent of one CPU.
///
/// ```
/// use raddle::engine::{Engine, MAX_SHARE};
/// assert!(Engine::builder().cpu_share(MAX_SHARE + 1).build().is_err());
/// ```
pub const MAX_SHARE: u32 = raddle_sched::quota::MAX_PERCENT;

/// Errors of engines.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{Engine, Error};
/// assert_eq!(Engine::builder().carriers(0).build().unwrap_err(), Error::NoCarriers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Threads are kernel threads here ([`crate::runtime::status`]).
    Unsupported,
    /// An engine without carriers was asked for.
    NoCarriers,
    /// An engine with more than [`MAX_CARRIERS`] was asked for.
    TooManyCarriers,
    /// The share is not from 1 to [`MAX_SHARE`].
    BadShare,
    /// The process has as many engines as possible (48).
    TooManyEngines,
    /// The threads for the program's own policy can't be made.
    NoThreads,
    /// The engine gets no more threads: it was shut down.
    ShutDown,
    /// A thread of the engine can't wait for all of them to end.
    WaitsForItself,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Unsupported => "there is no runtime for green threads here",
            Self::NoCarriers => "an engine needs a carrier",
            Self::TooManyCarriers => "an engine has at most 64 carriers",
            Self::BadShare => "a share is from 1 to 102400 percent of a CPU",
            Self::TooManyEngines => "the process has 48 engines already",
            Self::NoThreads => "no thread can be made for the policy",
            Self::ShutDown => "the engine was shut down",
            Self::WaitsForItself => "a thread can't wait for its own engine's end",
        })
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Unsupported => io::ErrorKind::Unsupported,
            Error::TooManyEngines | Error::NoThreads => io::ErrorKind::WouldBlock,
            Error::WaitsForItself => io::ErrorKind::Deadlock,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// Options of a new engine.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{BuiltIn, Engine};
/// let batch = Engine::builder().name("batch").carriers(2).policy(BuiltIn::Fair).cpu_share(50);
/// assert_eq!(batch.build()?.name(), "batch");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    name: String,
    carriers: Option<usize>,
    share: Option<u32>,
    choice: Choice,
}

impl Builder {
    /// Sets the engine's name, for messages about it.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().name("batch").build()?;
    /// assert_eq!(engine.name(), "batch");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many kernel threads run the engine's threads, 1 to [`MAX_CARRIERS`]. Default: as
    /// many as its share is worth, or as the CPUs that the process may use.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().carriers(1).build()?;
    /// assert!(engine.spawn(raddle::is_green_thread)?.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn carriers(mut self, count: usize) -> Self {
        self.carriers = Some(count);
        self
    }

    /// Sets the policy, which picks the next thread: a [`BuiltIn`] one, or a
    /// [`Policy`](super::Policy) of your own. Default: fifo.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// use raddle::engine::{BuiltIn, Engine};
    /// let engine = Engine::builder().policy(BuiltIn::Deadline).build()?;
    /// assert_eq!(engine.policy_failure(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(mut self, policy: impl Into<Choice>) -> Self {
        self.choice = policy.into();
        self
    }

    /// Sets the most CPU time that the engine's threads use together, in percent of one CPU, even
    /// on an idle machine: 150 is one CPU and a half. The limit holds on average over some 20
    /// milliseconds.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().cpu_share(30).build()?;
    /// let sum = engine.spawn(|| (0..1000).sum::<u64>())?;
    /// assert_eq!(sum.join().unwrap(), 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cpu_share(mut self, percent: u32) -> Self {
        self.share = Some(percent);
        self
    }

    /// Makes the engine. Its carriers are made with its first thread.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// use raddle::engine::{Engine, Error};
    /// assert!(Engine::builder().build().is_ok());
    /// assert_eq!(Engine::builder().cpu_share(0).build().unwrap_err(), Error::BadShare);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::ShutDown`] and [`Error::WaitsForItself`].
    pub fn build(self) -> Result<Engine, Error> {
        let runtime = runtime::table().ok_or(Error::Unsupported)?;
        let carriers = match self.carriers {
            Some(0) => return Err(Error::NoCarriers),
            Some(count) if count > MAX_CARRIERS => return Err(Error::TooManyCarriers),
            count => count.unwrap_or(0) as u32,
        };
        let quota = match self.share {
            Some(percent) if !(1..=MAX_SHARE).contains(&percent) => return Err(Error::BadShare),
            percent => percent.unwrap_or(0),
        };
        let policy = match &self.choice {
            Choice::BuiltIn(kind) => *kind as u32,
            Choice::Own(_) => BuiltIn::Fifo as u32,
        };
        let plan = EnginePlan {
            policy,
            carriers,
            quota,
        };
        let number = (runtime.open_engine)(&plan);
        if number == 0 {
            return Err(Error::TooManyEngines);
        }
        let inner = |custom| {
            Engine(Arc::new(Inner {
                name: self.name.clone(),
                number,
                cpu_before: cpu(number),
                members: Mutex::new(Members::default()),
                empty: Condvar::new(),
                custom,
            }))
        };
        let Choice::Own(policy) = self.choice else {
            return Ok(inner(None));
        };
        let drivers = match (carriers, quota) {
            (0, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (0, percent) => percent.div_ceil(100) as usize,
            (carriers, _) => carriers as usize,
        };
        let shared = Shared::start(&self.name, number, drivers.min(MAX_CARRIERS), policy);
        shared.map(|shared| inner(Some(shared))).map_err(|_| {
            (runtime.close_engine)(number);
            Error::NoThreads
        })
    }
}
