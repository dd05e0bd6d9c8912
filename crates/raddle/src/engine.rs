//! Engines: carriers, a policy and perhaps a quota of their own, side by side in one process.
//!
//! Every green thread belongs to one engine: to the first one, or to the one that its
//! [`Builder`](crate::Builder::engine) names. An engine's carriers run only its threads, and its
//! [policy](Choice) picks the runnable thread that runs next. All else is common: threads of
//! different engines share locks, channels and completions, and join each other.
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

mod builder;
mod custom;
mod policy;
mod table;

pub use builder::{Builder, Error, MAX_CARRIERS, MAX_SHARE};
pub use policy::{BuiltIn, Choice, Failure, Policy, Reason, Runnable};
pub use table::{Table, TablePolicy, TableThread};

use crate::runtime;
use crate::thread::{Builder as ThreadBuilder, JoinHandle, NextBirth};
use crate::ums;
use custom::Shared;
use raddle_interface::Birth;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    /// The engine that the calling thread belongs to; 0 for the first.
    static OWN: Cell<u32> = const { Cell::new(0) };
}

#[derive(Default)]
struct Members {
    count: usize,
    started: u64,
    is_shut: bool,
}

/// An engine's counters at about one moment.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// let engine = raddle::engine::Engine::builder().build()?;
/// assert_eq!(engine.stats().started, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Threads now.
    pub threads: usize,
    /// Threads so far.
    pub started: u64,
    /// CPU time that its carriers have used so far, also on threads of other engines.
    pub cpu: Duration,
}

/// Returns the CPU time that the carriers of this engine number have used, for any engine.
fn cpu(number: u32) -> Duration {
    Duration::from_nanos(runtime::table().map_or(0, |runtime| (runtime.engine_cpu_ns)(number)))
}

struct Inner {
    name: String,
    /// The engine's number in the runtime.
    number: u32,
    /// The CPU time of its carriers before this engine: an earlier engine had the same number.
    cpu_before: Duration,
    members: Mutex<Members>,
    /// Signals that the last thread has ended.
    empty: Condvar,
    /// The program's own policy, if there is one.
    custom: Option<Arc<Shared>>,
}

impl Inner {
    fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    /// Closes the engine: no thread of it runs, and none can be started.
    fn drop(&mut self) {
        if let Some(custom) = &self.custom {
            custom.end();
        }
        if let Some(runtime) = runtime::table() {
            (runtime.close_engine)(self.number);
        }
    }
}

/// An engine beside the first. Clones are the same engine, which lasts as long as one of them or a
/// thread of the engine.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::Engine;
/// let engine = Engine::builder().build()?;
/// let answer = engine.clone().spawn(|| 6 * 7)?;
/// drop(engine); // it goes on for its thread
/// assert_eq!(answer.join().unwrap(), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

impl Engine {
    /// Makes a builder.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().carriers(1).build()?;
    /// assert_eq!(engine.threads(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a green thread of this engine that runs `f`, with the defaults of [`crate::Builder`].
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// assert_eq!(engine.spawn(|| 6 * 7)?.join().unwrap(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`crate::Builder::spawn`].
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        ThreadBuilder::new().engine(self).spawn(f)
    }

    /// Returns the engine's name.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().name("batch").build()?;
    /// assert_eq!(engine.name(), "batch");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the engine's number in `raddle dump` and `raddle ctl`.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// assert_ne!(engine.number(), 0); // that is the default engine's
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Returns how many threads the engine has.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// let thread = engine.spawn(std::thread::park)?;
    /// assert_eq!(engine.threads(), 1);
    /// thread.thread().unpark();
    /// thread.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads(&self) -> usize {
        self.0.members().count
    }

    /// Returns the engine's counters.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().carriers(1).build()?;
    /// engine.spawn(|| ())?.join().unwrap();
    /// engine.wait()?;
    /// let stats = engine.stats();
    /// assert_eq!((stats.threads, stats.started), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let (threads, started) = {
            let members = self.0.members();
            (members.count, members.started)
        };
        Stats {
            threads,
            started,
            cpu: cpu(self.0.number).saturating_sub(self.0.cpu_before),
        }
    }

    /// Changes the share ([`Builder::cpu_share`]); `None` removes the limit.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().cpu_share(30).build()?;
    /// engine.set_cpu_share(None)?;
    /// assert!(engine.set_cpu_share(Some(0)).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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

    /// Refuses further threads: from now on none can be started here. The engine's threads go on.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// engine.shut_down();
    /// assert!(engine.spawn(|| ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) {
        self.0.members().is_shut = true;
    }

    /// Waits until the engine has no threads.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// let count = std::sync::Arc::new(());
    /// let counted = count.clone();
    /// let _thread = engine.spawn(move || drop(counted))?;
    /// engine.wait()?;
    /// assert_eq!(std::sync::Arc::strong_count(&count), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// The calling thread.
    ///
    /// # Errors
    /// [`Error::WaitsForItself`] on a thread of the engine.
    pub fn wait(&self) -> Result<(), Error> {
        self.refuse_own()?;
        let has_some = |members: &mut Members| members.count != 0;
        drop(self.0.empty.wait_while(self.0.members(), has_some));
        Ok(())
    }

    /// As [`Engine::wait`], but for `timeout` at most. Returns false if the engine still has
    /// threads.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// use std::time::Duration;
    /// let engine = raddle::engine::Engine::builder().carriers(1).build()?;
    /// let thread = engine.spawn(std::thread::park)?;
    /// assert!(!engine.wait_timeout(Duration::from_millis(1))?);
    /// thread.thread().unpark();
    /// assert!(engine.wait_timeout(Duration::from_secs(60))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// The calling thread.
    ///
    /// # Errors
    /// As [`Engine::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool, Error> {
        self.refuse_own()?;
        let has_some = |members: &mut Members| members.count != 0;
        let members = self.0.members();
        let waited = self.0.empty.wait_timeout_while(members, timeout, has_some);
        let (members, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Ok(members.count == 0)
    }

    fn refuse_own(&self) -> Result<(), Error> {
        if OWN.get() == self.0.number {
            Err(Error::WaitsForItself)
        } else {
            Ok(())
        }
    }

    /// Returns what the engine's own [`Policy`] did wrong, if it failed: threads run first come,
    /// first served since then.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// use raddle::engine::{Engine, Failure, Policy, Reason, Runnable};
    /// /// Forgets every thread.
    /// struct Careless;
    /// impl Policy for Careless {
    ///     fn enqueue(&mut self, _: Runnable, _: Reason) {}
    ///     fn pick(&mut self) -> Option<Runnable> {
    ///         None
    ///     }
    /// }
    /// let engine = Engine::builder().carriers(1).policy(Careless).build()?;
    /// engine.spawn(|| ())?.join().unwrap(); // all the same
    /// assert_eq!(engine.policy_failure(), Some(Failure::Lost));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy_failure(&self) -> Option<Failure> {
        self.0.custom.as_ref()?.failure()
    }

    /// Calls `make`, which makes a thread of this engine that holds the [`Member`].
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
        members.started += 1;
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
    /// Notes the engine of the calling thread, which holds this member.
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
