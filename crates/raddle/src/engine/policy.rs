//! Policies of engines: which thread runs next.

use super::custom::Worker;
use raddle_sched::policies::Kind;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The policies of Raddle.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{BuiltIn, Engine};
/// let engine = Engine::builder().policy(BuiltIn::Lifo).build()?;
/// assert_eq!(engine.spawn(|| 5)?.join().unwrap(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
#[non_exhaustive]
pub enum BuiltIn {
    /// First come, first served, without shares: a thread with short turns waits for a quantum of
    /// each one that computes.
    #[default]
    Fifo = Kind::Fifo as u32,
    /// The newest first; every 16th time the oldest.
    Lifo = Kind::Lifo as u32,
    /// By [priority](crate::Builder::priority), then [niceness](crate::Builder::niceness); a thread
    /// that has waited for 50 milliseconds runs all the same.
    Priority = Kind::Priority as u32,
    /// CPU time by weight: a quarter more for each step of [niceness](crate::Builder::niceness)
    /// down.
    Fair = Kind::Fair as u32,
    /// The earliest [deadline](crate::Builder::deadline) first, then those without one.
    Deadline = Kind::Deadline as u32,
}

impl BuiltIn {
    /// Returns the policy with this name of `raddle run --policy`: fifo, lifo, priority, fair or
    /// deadline.
    ///
    /// ```
    /// use raddle::engine::BuiltIn;
    /// assert_eq!(BuiltIn::by_name("fair"), Some(BuiltIn::Fair));
    /// assert_eq!(BuiltIn::by_name("unfair"), None);
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        Self::of_kind(Kind::from_name(name.as_bytes())?)
    }

    pub(crate) fn of_kind(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Fifo => Self::Fifo,
            Kind::Lifo => Self::Lifo,
            Kind::Priority => Self::Priority,
            Kind::Fair => Self::Fair,
            Kind::Deadline => Self::Deadline,
            Kind::Plugin => return None,
        })
    }

    /// For libraddle: the name.
    #[doc(hidden)]
    pub fn c_name(self) -> &'static std::ffi::CStr {
        Kind::from_code(self as u32).c_name()
    }
}

/// The policy of an engine: a built-in one, or the program's own.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{BuiltIn, Choice, Engine};
/// let chosen: Choice = BuiltIn::by_name("fair").unwrap_or_default().into();
/// assert!(Engine::builder().policy(chosen).build().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum Choice {
    /// A policy of Raddle's, which runs inside the runtime.
    BuiltIn(BuiltIn),
    /// A policy of the program's own, which runs on threads of the engine.
    Own(Box<dyn Policy>),
}

impl Default for Choice {
    fn default() -> Self {
        Self::BuiltIn(BuiltIn::Fifo)
    }
}

impl From<BuiltIn> for Choice {
    fn from(kind: BuiltIn) -> Self {
        Self::BuiltIn(kind)
    }
}

impl<P: Policy> From<P> for Choice {
    fn from(policy: P) -> Self {
        Self::Own(Box::new(policy))
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn(kind) => kind.fmt(to),
            Self::Own(_) => to.write_str("Own"),
        }
    }
}

/// The reason why a thread can run.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{Engine, Policy, Reason, Runnable};
/// use std::collections::VecDeque;
/// /// In turn, but threads that waited for something come before threads that compute.
/// struct Interactive(VecDeque<Runnable>);
/// impl Policy for Interactive {
///     fn enqueue(&mut self, thread: Runnable, reason: Reason) {
///         match reason {
///             Reason::Woken => self.0.push_front(thread),
///             _ => self.0.push_back(thread),
///         }
///     }
///     fn pick(&mut self) -> Option<Runnable> {
///         self.0.pop_front()
///     }
/// }
/// let engine = Engine::builder().policy(Interactive(VecDeque::new())).build()?;
/// assert_eq!(engine.spawn(|| 5)?.join().unwrap(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The thread has never run.
    New,
    /// The thread's wait has ended.
    Woken,
    /// The thread let others run.
    Yielded,
    /// The thread has used its quantum up.
    Preempted,
}

/// A policy of the program's own, which picks the next thread of an engine.
///
/// A policy is ordinary code, on threads of the engine that run nothing else: it may allocate, log
/// and lock. Calls never overlap. It must not wait for the engine's own threads, which run when it
/// returns.
///
/// The policy is given each runnable thread as a [`Runnable`], and gives back the one that runs
/// next. A policy has [failed](Failure) if it panics, gives back a thread of another engine, drops
/// a thread, gives back none while it has some, or is in a call for a second. A failed policy
/// isn't called again: its threads run first come, first served from then on, a line on standard
/// error reports the failure, and [`Engine::policy_failure`](super::Engine::policy_failure)
/// returns it.
///
/// ```
/// use raddle::engine::{Engine, Policy, Reason, Runnable};
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// /// The newest first.
/// struct Newest(Vec<Runnable>);
///
/// impl Policy for Newest {
///     fn enqueue(&mut self, thread: Runnable, _: Reason) {
///         self.0.push(thread);
///     }
///     fn pick(&mut self) -> Option<Runnable> {
///         self.0.pop()
///     }
/// }
///
/// let engine = Engine::builder().carriers(1).policy(Newest(vec![])).build()?;
/// let threads: Vec<_> = (0..3).map(|i| engine.spawn(move || i)).collect::<Result<_, _>>()?;
/// let sum: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
/// assert_eq!((sum, engine.policy_failure()), (3, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Policy: Send + 'static {
    /// Adds a runnable thread.
    fn enqueue(&mut self, thread: Runnable, reason: Reason);

    /// Takes the thread that runs next; `None` only if there is none.
    fn pick(&mut self) -> Option<Runnable>;

    /// Returns how long the thread that was just picked may compute before it is
    /// [`Reason::Preempted`]; `None` for ever. At least 50 microseconds. Where others than threads
    /// of the policy wait for the carrier, they have a turn after the process's quantum (2 ms), of
    /// which the policy isn't told; then the thread's time begins anew.
    ///
    /// ```
    /// use raddle::engine::{Policy, Reason, Runnable};
    /// use std::time::Duration;
    /// /// First come, first served; important threads are not interrupted.
    /// struct Patient(std::collections::VecDeque<Runnable>);
    /// impl Policy for Patient {
    ///     fn enqueue(&mut self, thread: Runnable, _: Reason) {
    ///         self.0.push_back(thread);
    ///     }
    ///     fn pick(&mut self) -> Option<Runnable> {
    ///         self.0.pop_front()
    ///     }
    ///     fn quantum(&mut self, thread: &Runnable) -> Option<Duration> {
    ///         (thread.priority() == 0).then_some(Duration::from_millis(1))
    ///     }
    /// }
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().policy(Patient(Default::default())).build()?;
    /// assert_eq!(engine.spawn(|| 5)?.join().unwrap(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn quantum(&mut self, thread: &Runnable) -> Option<Duration> {
        let _ = thread;
        Some(Duration::from_millis(2))
    }
}

/// A fault of a policy.
///
/// ```
/// use raddle::engine::Failure;
/// assert_eq!(Failure::Lost.to_string(), "dropped a thread");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The policy panicked.
    Panicked,
    /// The policy picked another engine's thread.
    Foreign,
    /// The policy picked nothing while it had threads.
    Nothing,
    /// The policy dropped a thread.
    Lost,
    /// The policy was in one call for a second. The driver that called it is lost to the engine.
    Stuck,
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Panicked => "panicked",
            Self::Foreign => "picked a thread that is not its own",
            Self::Nothing => "picked nothing while threads waited",
            Self::Lost => "dropped a thread",
            Self::Stuck => "did not return from a call",
        })
    }
}

/// A runnable thread in its engine's policy: there is at most one for each thread.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return Ok(()); }
/// use raddle::engine::{Engine, Policy, Reason, Runnable};
/// use std::time::Duration;
/// /// By priority, then niceness, then deadline, then the least run time, then age.
/// struct ByTerms(Vec<Runnable>);
/// impl Policy for ByTerms {
///     fn enqueue(&mut self, thread: Runnable, _: Reason) {
///         assert_eq!(thread.name(), Some("weaver"));
///         println!("{} can run", thread.thread_id());
///         self.0.push(thread);
///     }
///     fn pick(&mut self) -> Option<Runnable> {
///         let soon = |thread: &Runnable| thread.deadline().unwrap_or(Duration::MAX);
///         self.0.sort_by_key(|t| (255 - t.priority(), t.nice(), soon(t), t.ran(), t.id()));
///         (!self.0.is_empty()).then(|| self.0.remove(0))
///     }
/// }
/// let engine = Engine::builder().policy(ByTerms(vec![])).build()?;
/// let weaver = raddle::Builder::new().engine(&engine).name("weaver").priority(5);
/// assert_eq!(weaver.spawn(|| 5)?.join().unwrap(), 5);
/// assert_eq!(engine.policy_failure(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runnable {
    pub(super) worker: Arc<Worker>,
    /// Its key in the engine's record of waiting threads.
    pub(super) turn: u64,
    /// Set if this is dropped; taken when it is picked.
    pub(super) lost: Option<Arc<AtomicBool>>,
}

impl Runnable {
    /// Returns the thread's number in this engine.
    pub fn id(&self) -> u64 {
        self.worker.id
    }

    /// Returns the thread's name ([`crate::Builder::name`]).
    pub fn name(&self) -> Option<&str> {
        self.worker.name.as_deref()
    }

    /// Returns [`crate::Builder::priority`]; 0 without one.
    pub fn priority(&self) -> u8 {
        self.worker.birth.priority as u8
    }

    /// Returns [`crate::Builder::niceness`].
    pub fn nice(&self) -> i32 {
        self.worker.birth.nice
    }

    /// Returns the thread's id (`gettid(2)`).
    pub fn thread_id(&self) -> i32 {
        self.worker.context.thread_id().unwrap_or(0) // listed workers have a thread
    }

    /// Returns [`crate::Builder::deadline`], counted from becoming runnable.
    pub fn deadline(&self) -> Option<Duration> {
        let ns = self.worker.birth.deadline_ns;
        (ns != 0).then(|| Duration::from_nanos(ns))
    }

    /// Returns how long the thread has had a carrier so far.
    pub fn ran(&self) -> Duration {
        Duration::from_nanos(self.worker.ran_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Runnable {
    fn drop(&mut self) {
        if let Some(lost) = &self.lost {
            lost.store(true, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Runnable {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut thread = to.debug_struct("Runnable");
        thread.field("id", &self.id());
        thread.field("name", &self.name()).finish()
    }
}
