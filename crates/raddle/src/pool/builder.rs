//! Settings of a pool, checked before the pool is made.

use super::errors::{BuildError, message};
use super::shared::{MAX_WORKERS, Shared};
use super::{Pool, PoolRef};
use crate::engine::Engine;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a pool does with new work when its bounded queue is full.
///
/// # Examples
/// ```
/// use raddle::pool::{Overflow, Pool};
/// let pool = Pool::builder().capacity(100, Overflow::CallerRuns).build()?;
/// pool.queue(|| ())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The caller gets [`QueueError::Full`](super::QueueError::Full).
    #[default]
    Reject,
    /// The caller runs the work itself, and so queues nothing meanwhile.
    CallerRuns,
    /// The oldest item of the lowest priority is dropped for it.
    DiscardOldest,
    /// The caller waits for room. A worker of the pool runs the work itself instead: all workers
    /// waiting for room would wait for ever.
    Block,
}

/// A panic in work without a handle, as a [`PanicHook`] sees it.
///
/// ```
/// use raddle::pool::{OnPanic, PanicReport};
/// fn tell(report: &PanicReport<'_>) {
///     eprintln!("{}: {}", report.pool, report.message().unwrap_or("a panic"));
/// }
/// let policy = OnPanic::report(tell);
/// # drop(policy);
/// ```
pub struct PanicReport<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// The panic's payload.
    pub payload: &'a (dyn Any + Send),
}

impl PanicReport<'_> {
    /// Returns the panic's message, if it has one.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::PanicReport;
    /// let report = PanicReport { pool: "p", payload: &"no luck" };
    /// assert_eq!(report.message(), Some("no luck"));
    /// ```
    pub fn message(&self) -> Option<&str> {
        message(self.payload)
    }
}

impl fmt::Debug for PanicReport<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PanicReport")
            .field("pool", &self.pool)
            .field("message", &self.message())
            .finish()
    }
}

/// What a pool does after a panic in work without a handle. A task's panic goes to its waiter.
///
/// A program that is compiled with `panic = "abort"` ends at the panic in any case.
///
/// # Examples
/// ```
/// use raddle::pool::{OnPanic, Pool};
/// let report = OnPanic::report(|report| eprintln!("{}: {:?}", report.pool, report.message()));
/// let pool = Pool::builder().on_panic(report).build()?;
/// # Ok::<(), raddle::pool::BuildError>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnPanic {
    /// The worker goes on; the first payload is kept for [`PoolRef::take_panic`].
    #[default]
    Keep,
    /// The worker calls the hook and goes on.
    Report(PanicHook),
    /// The process aborts.
    Abort,
}

/// A callback for [`OnPanic::Report`].
///
/// ```
/// use raddle::pool::{OnPanic, PanicHook};
/// use std::sync::Arc;
/// let hook: PanicHook = Arc::new(|report| eprintln!("{report:?}"));
/// let both = [OnPanic::Report(hook.clone()), OnPanic::Report(hook)];
/// # drop(both);
/// ```
pub type PanicHook = Arc<dyn Fn(&PanicReport<'_>) + Send + Sync>;

impl OnPanic {
    /// Calls `hook` with each panic.
    ///
    /// # Examples
    /// ```
    /// let policy = raddle::pool::OnPanic::report(|report| drop(report.message()));
    /// # drop(policy);
    /// ```
    pub fn report(hook: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> Self {
        Self::Report(Arc::new(hook))
    }
}

impl fmt::Debug for OnPanic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Keep => "Keep",
            Self::Report(_) => "Report",
            Self::Abort => "Abort",
        })
    }
}

type WorkerHook = Box<dyn Fn(usize) + Send + Sync>;
type WorkHook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Hooks {
    pub start: Option<WorkerHook>,
    pub stop: Option<WorkerHook>,
    pub before: Option<WorkHook>,
    pub after: Option<WorkHook>,
}

pub(super) struct Config {
    pub name: String,
    pub min_workers: usize,
    pub max_workers: usize,
    pub stack_size_bytes: Option<usize>,
    pub engine: Option<Engine>,
    pub keep_alive: Duration,
    pub tick: Duration,
    pub memory_reserve_percent: u8,
    pub flow: bool,
    pub inline_waits: bool,
    pub capacity: usize,
    pub overflow: Overflow,
    pub on_panic: OnPanic,
    pub hooks: Hooks,
}

/// The settings of a new pool.
///
/// # Examples
/// ```
/// use raddle::pool::Pool;
/// use std::time::Duration;
///
/// let pool = Pool::builder()
///     .name("images")
///     .workers(2)
///     .max_workers(8)
///     .keep_alive(Duration::from_secs(5))
///     .build()?;
/// assert_eq!(pool.name(), "images");
/// # Ok::<(), raddle::pool::BuildError>(())
/// ```
#[must_use = "nothing is made before `build`"]
pub struct Builder {
    config: Config,
    max_workers: Option<usize>,
}

impl Builder {
    pub(super) fn new() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            config: Config {
                name: "pool".into(),
                min_workers: cpus.min(MAX_WORKERS),
                max_workers: 0,
                stack_size_bytes: None,
                engine: None,
                keep_alive: Duration::from_secs(20),
                tick: Duration::from_millis(100),
                memory_reserve_percent: 5,
                flow: true,
                inline_waits: true,
                capacity: usize::MAX,
                overflow: Overflow::Reject,
                on_panic: OnPanic::Keep,
                hooks: Hooks::default(),
            },
            max_workers: None,
        }
    }

    /// Sets the pool's name; its threads are named by it and a number. Default: `pool`.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().name("io").build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.name = name.into();
        self
    }

    /// Sets how many workers run at once when none of them blocks. Default: the number of CPUs that
    /// the process may use. Workers start when there is work for them.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().workers(4).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn workers(mut self, count: usize) -> Self {
        self.config.min_workers = count;
        self
    }

    /// Sets the most workers, those that block included. Default: 64 above [`Builder::workers`].
    /// The same number as there makes a pool of fixed size.
    ///
    /// # Examples
    /// ```
    /// let fixed = raddle::pool::Pool::builder().workers(4).max_workers(4).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn max_workers(mut self, count: usize) -> Self {
        self.max_workers = Some(count);
        self
    }

    /// Sets the least stack of each worker in bytes.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().stack_size(256 * 1024).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.config.stack_size_bytes = Some(bytes);
        self
    }

    /// Sets the workers' engine, which several pools may share. After its shutdown the pool gets no
    /// more workers. Dispose of the pool before [waiting](crate::engine::Engine::wait) for the
    /// engine: idle workers are threads, too. Default: the default engine.
    ///
    /// # Examples
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// use raddle::engine::{BuiltIn, Engine};
    /// use raddle::pool::Pool;
    /// let batch = Engine::builder().carriers(1).policy(BuiltIn::Fair).cpu_share(50).build()?;
    /// let pool = Pool::builder().engine(&batch).build()?;
    /// assert_eq!(pool.task(|| 6 * 7)?.wait()?, 42);
    /// assert!(batch.stats().started > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.config.engine = Some(engine.clone());
        self
    }

    /// Sets how long a worker beyond [`Builder::workers`] stays without work. Default: 20 seconds.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let pool = raddle::pool::Pool::builder().keep_alive(Duration::from_secs(1)).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.config.keep_alive = time;
        self
    }

    /// Sets how often a busy pool checks whether its work is stuck and whether another number of
    /// workers does more. Default: 100 ms, and at least 1. An idle pool never checks.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let pool = raddle::pool::Pool::builder().tick(Duration::from_millis(20)).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn tick(mut self, period: Duration) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        self.config.tick = period.clamp(Duration::from_millis(1), DAY);
        self
    }

    /// Sets the memory reserve in percent: no worker is added while less of the memory, the
    /// machine's or the control group's, is available. Default: 5 percent.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().memory_reserve(10).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn memory_reserve(mut self, percent: u8) -> Self {
        self.config.memory_reserve_percent = percent.min(100);
        self
    }

    /// Sets whether the [`Context`](super::Context) of the queueing thread flows to the work.
    /// Default: yes.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().flow_context(false).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn flow_context(mut self, flow: bool) -> Self {
        self.config.flow = flow;
        self
    }

    /// Sets whether the waiter for a task that has not started runs the task itself. Default: yes.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().inline_waits(false).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn inline_waits(mut self, inline: bool) -> Self {
        self.config.inline_waits = inline;
        self
    }

    /// Sets the most items that wait, and what happens to further ones. Default: no bound.
    ///
    /// In a pool with a bound all queued work goes through the shared queue. Work of
    /// [`join`](super::join), scopes, timers and descriptors doesn't count.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Overflow, Pool};
    /// let pool = Pool::builder().capacity(1000, Overflow::Block).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn capacity(mut self, items: usize, overflow: Overflow) -> Self {
        self.config.capacity = items;
        self.config.overflow = overflow;
        self
    }

    /// Sets what follows a panic in work without a handle. Default: [`OnPanic::Keep`].
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{OnPanic, Pool};
    /// let pool = Pool::builder().on_panic(OnPanic::Abort).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn on_panic(mut self, policy: OnPanic) -> Self {
        self.config.on_panic = policy;
        self
    }

    /// Sets a hook that each worker calls with its number, before its first work.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().on_start(|worker| println!("{worker}")).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn on_start(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.config.hooks.start = Some(Box::new(hook));
        self
    }

    /// Sets a hook that each worker calls with its number, after its last work.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().on_stop(|worker| println!("{worker}")).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn on_stop(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.config.hooks.stop = Some(Box::new(hook));
        self
    }

    /// Sets a hook that a worker calls before each item.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().before_work(|| ()).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn before_work(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.config.hooks.before = Some(Box::new(hook));
        self
    }

    /// Sets a hook that a worker calls after each item that did not panic.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::builder().after_work(|| ()).build()?;
    /// # Ok::<(), raddle::pool::BuildError>(())
    /// ```
    pub fn after_work(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.config.hooks.after = Some(Box::new(hook));
        self
    }

    /// Makes the pool. No thread starts before there is work.
    ///
    /// # Errors
    /// [`BuildError`] names the setting that is out of range.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{BuildError, Pool};
    /// assert_eq!(Pool::builder().workers(0).build().unwrap_err(), BuildError::NoWorkers);
    /// ```
    pub fn build(mut self) -> Result<Pool, BuildError> {
        let min = self.config.min_workers;
        let max = self
            .max_workers
            .unwrap_or(min.saturating_add(64).min(MAX_WORKERS));
        self.config.max_workers = max;
        let problem = match &self.config {
            _ if min == 0 => Some(BuildError::NoWorkers),
            _ if min.max(max) > MAX_WORKERS => {
                Some(BuildError::TooManyWorkers { limit: MAX_WORKERS })
            }
            _ if min > max => Some(BuildError::MinAboveMax { min, max }),
            config if config.capacity == 0 => Some(BuildError::NoCapacity),
            config if config.name.contains('\0') => Some(BuildError::NulInName),
            _ => None,
        };
        match problem {
            Some(problem) => Err(problem),
            None => Ok(Pool(PoolRef {
                shared: Shared::new(self.config),
            })),
        }
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Builder")
            .field("name", &self.config.name)
            .field("workers", &self.config.min_workers)
            .field("max_workers", &self.max_workers)
            .finish_non_exhaustive()
    }
}
