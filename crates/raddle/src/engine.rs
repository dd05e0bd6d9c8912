//! Engines: carriers, a policy and perhaps a quota of their own, side by side in one process.
//!
//! Every green thread belongs to one engine: to the first one, or to that which its
//! [`Builder`](crate::Builder::engine) names. An engine's carriers run its threads alone; which of
//! those that can run goes on next is the engine's [policy](Choice)'s to say. All else is common:
//! threads of different engines share locks, channels and completions, and join each other.
//!
//! ```
//! use raddle::engine::{BuiltIn, Engine};
//! # use raddle::runtime::{Status, status};
//! # if status() != Status::Green { return Ok(()); }
//! let batch = Engine::builder().name("batch").carriers(1).policy(BuiltIn::Fair).cpu_share(30);
//! let batch = batch.build()?;
//! let work = raddle::Builder::new().engine(&batch).niceness(5).spawn(|| 6 * 7)?;
//! assert_eq!(work.join().unwrap(), 42);
//! batch.shut_down();
//! batch.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Policy`] of your own is a type with two functions, in safe Rust:
//! `examples/custom_policy.rs` shows one.

mod custom;
mod policy;

pub use policy::{BuiltIn, Choice, Failure, Policy, Reason, Runnable};

use crate::runtime;
use crate::thread::{Builder as ThreadBuilder, JoinHandle, NextBirth};
use crate::ums;
use custom::Shared;
use raddle_interface::{Birth, EnginePlan};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The most carriers of one engine.
pub const MAX_CARRIERS: usize = 64;
/// The largest share, in percent of one CPU.
pub const MAX_SHARE: u32 = 102_400;

thread_local! {
    /// The engine that the calling thread belongs to; 0 for the first.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

/// What can't be done with an engine, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Threads are kernel threads here ([`runtime::status`]).
    Unsupported,
    /// An engine without carriers was asked for.
    NoCarriers,
    /// One with more than [`MAX_CARRIERS`] was.
    TooManyCarriers,
    /// A share must be from 1 to [`MAX_SHARE`].
    BadShare,
    /// The process has as many engines as it can have (48).
    TooManyEngines,
    /// The threads of a policy of one's own can't be made.
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

/// How an engine is made.
#[derive(Debug, Default)]
pub struct Builder {
    name: String,
    carriers: Option<usize>,
    share: Option<u32>,
    choice: Choice,
}

impl Builder {
    /// The engine's name, for messages about it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many kernel threads run its threads, 1 to [`MAX_CARRIERS`]. Default: as many as its
    /// share is worth, or as CPUs may be used.
    pub fn carriers(mut self, count: usize) -> Self {
        self.carriers = Some(count);
        self
    }

    /// Who runs next: a [`BuiltIn`] policy, or a [`Policy`] of your own. Default: fifo.
    pub fn policy(mut self, policy: impl Into<Choice>) -> Self {
        self.choice = policy.into();
        self
    }

    /// The most CPU time that its threads use together, in percent of one CPU, whatever else is
    /// idle: 150 is one CPU and a half. It holds on average over some 20 milliseconds.
    pub fn cpu_share(mut self, percent: u32) -> Self {
        self.share = Some(percent);
        self
    }

    /// Makes the engine. Its carriers are made with its first thread.
    ///
    /// # Errors
    /// [`Error`], but the last two.
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

#[derive(Default)]
struct Members {
    count: usize,
    is_shut: bool,
}

struct Inner {
    name: String,
    /// The runtime's name for it.
    number: u32,
    members: Mutex<Members>,
    /// The last thread has ended.
    empty: Condvar,
    /// If the policy is a program's.
    custom: Option<Arc<Shared>>,
}

impl Inner {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    /// Nobody can start threads, and none runs.
    fn drop(&mut self) {
        if let Some(custom) = &self.custom {
            custom.end();
        }
        if let Some(runtime) = runtime::table() {
            (runtime.close_engine)(self.number);
        }
    }
}

/// An engine beside the first. Clones are the same engine; it lasts as long as one of them or a
/// thread of its does.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

impl Engine {
    /// How to make one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a green thread of this engine that runs `f`: [`crate::Builder::engine`] with no
    /// other wish.
    ///
    /// # Errors
    /// Those of [`crate::Builder::spawn`].
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        ThreadBuilder::new().engine(self).spawn(f)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number by which `raddle dump` and `raddle ctl` know it.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.0.members().count
    }

    /// Changes the share ([`Builder::cpu_share`]); `None` for as much as there is.
    ///
    /// # Errors
    /// [`Error::BadShare`].
    pub fn set_cpu_share(&self, percent: Option<u32>) -> Result<(), Error> {
        if percent.is_some_and(|percent| !(1..=MAX_SHARE).contains(&percent)) {
            return Err(Error::BadShare);
        }
        if let Some(runtime) = runtime::table() {
            (runtime.set_quota)(self.0.number, percent.unwrap_or(0));
        }
        Ok(())
    }

    /// From now on no thread can be started here. Those that run go on.
    pub fn shut_down(&self) {
        self.0.members().is_shut = true;
    }

    /// Waits until the engine has no threads.
    ///
    /// # Blocking
    /// The calling thread.
    ///
    /// # Errors
    /// [`Error::WaitsForItself`] on one of its threads.
    pub fn wait(&self) -> Result<(), Error> {
        if OWN.get() == self.0.number {
            return Err(Error::WaitsForItself);
        }
        let mut members = self.0.members();
        while members.count != 0 {
            let woken = self.0.empty.wait(members);
            members = woken.unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// What the engine's own [`Policy`] did wrong, if it did: threads run first come, first served
    /// since then.
    pub fn policy_failure(&self) -> Option<Failure> {
        self.0.custom.as_ref()?.failure()
    }

    /// Calls `make`, which makes a thread that holds the [`Member`], so that it is this engine's.
    pub(crate) fn adopt<T>(
        &self,
        birth: Birth,
        name: Option<&str>,
        make: impl FnOnce(Member) -> io::Result<T>,
    ) -> io::Result<T> {
        let member = self.member()?;
        let make = || {
            let _birth = NextBirth::ask(Birth {
                engine: self.0.number,
                ..birth
            });
            make(member)
        };
        match &self.0.custom {
            None => make(),
            Some(custom) => custom.adopt(&birth, name, |context| ums::as_worker(context, make)),
        }
    }

    fn member(&self) -> Result<Member, Error> {
        let mut members = self.0.members();
        if members.is_shut {
            return Err(Error::ShutDown);
        }
        members.count += 1;
        Ok(Member(self.clone()))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut engine = to.debug_struct("Engine");
        engine.field("name", &self.name());
        engine.field("threads", &self.threads()).finish()
    }
}

/// One thread of an engine, from before it is made until it has run.
pub(crate) struct Member(Engine);

impl Member {
    /// On the thread itself.
    pub(crate) fn begin(&self) {
        OWN.set(self.0.number());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.0.0.members();
        members.count -= 1;
        if members.count == 0 {
            self.0.0.empty.notify_all();
        }
    }
}
