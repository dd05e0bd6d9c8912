//! Recursive work: `join`, scopes and `parallel_for`.
//!
//! The second half of a [`join`] goes to the worker's deque as a pointer to a closure on the
//! worker's stack. After the first half the worker takes it out of the deque if it is still there
//! (the usual case), and otherwise does other work until the thief is done. Dropping such a job
//! runs it, when a pool is disposed of: the worker waits for it.

use super::context::Context;
use super::job::Job;
use super::shared::{Origin, Shared};
use super::sync::{keep_first, lock, quietly, wait};
use super::worker::{Local, blocking};
use super::{PoolRef, Priority, QueueError};
use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Looks for other work of a worker that waits for a thief, before it sleeps.
const LOOKS: u32 = 64;

const OPEN: u32 = 0;
const SLEEPING: u32 = 1;
const SET: u32 = 2;

/// A worker's wait: a flag on its stack, and its parker.
///
/// The latch names the worker by number: a worker that waits on a fiber of its thread may end
/// before the latch is set. Then no worker sleeps on it.
struct Latch {
    /// OPEN at first; SLEEPING, written by the waiter; SET, written by the job (release), after
    /// which the latch may be gone.
    state: AtomicU32,
    /// The waiter's pool and number.
    shared: *const Shared,
    id: usize,
}

impl Latch {
    fn new(local: &Local) -> Self {
        Self {
            state: AtomicU32::new(OPEN),
            shared: Arc::as_ptr(&local.shared),
            id: local.id,
        }
    }

    fn is_set(&self) -> bool {
        self.state.load(Ordering::Acquire) == SET
    }

    /// # Safety
    /// The latch must live until this sets it; after that nothing of it is touched.
    unsafe fn set(this: *const Self) {
        // SAFETY: the caller's promise.
        let (id, shared) = unsafe { ((*this).id, (*this).shared) };
        // SAFETY: as above: this is the last access.
        if unsafe { (*this).state.swap(SET, Ordering::AcqRel) } == SLEEPING {
            // SAFETY: the thread that runs or drops a pool's work holds a reference to the pool.
            unsafe { (&(*shared).slots)[id].parker.unpark() };
        }
    }

    /// Does other work until the latch is set. Called by the worker.
    fn wait(&self, local: &Local) {
        let mut looks = 0;
        while !self.is_set() {
            if let Some(job) = local.find() {
                // A job of other work, nested in this wait. Its panic must not end the wait: the
                // latch's job is on this stack.
                let run = || Context::default().run(|| local.execute(job));
                local.attempt(run);
                looks = 0;
            } else if looks < LOOKS {
                looks += 1;
                (0..looks).for_each(|_| spin_loop());
            } else {
                blocking(|| self.sleep(local));
                looks = 0;
            }
        }
    }

    fn sleep(&self, local: &Local) {
        let order = Ordering::AcqRel;
        if self
            .state
            .compare_exchange(OPEN, SLEEPING, order, Ordering::Acquire)
            .is_ok()
        {
            // A stray token ends the park early; `wait` looks again.
            while !self.is_set() {
                local.shared.slots[local.id].parker.park(None);
            }
        }
    }
}

/// A closure on a worker's stack, and its result.
struct StackJob<F, R> {
    closure: UnsafeCell<Option<F>>,
    result: UnsafeCell<Option<std::thread::Result<R>>>,
    latch: Latch,
}

/// The queue's reference to a [`StackJob`]: runs the job, even if dropped instead of run.
struct StackRef<F: FnOnce() -> R, R>(*const StackJob<F, R>);

impl<F: FnOnce() -> R, R> Drop for StackRef<F, R> {
    fn drop(&mut self) {
        // SAFETY: the job lives until its latch is set below, and has one StackRef, so no other
        // thread touches closure and result before.
        unsafe {
            let job = self.0;
            let closure = (*(*job).closure.get()).take();
            let closure = closure.expect("a stack job runs once");
            *(*job).result.get() = Some(catch_unwind(AssertUnwindSafe(closure)));
            Latch::set(&raw const (*job).latch);
        }
    }
}

/// Runs both closures, in parallel if another worker is free to take the second, and returns both
/// results.
///
/// On a thread that is no worker of a pool, the closures run one after the other;
/// [`PoolRef::install`] takes a computation into a pool.
///
/// # Panics
/// With the panic of either closure, after both have ended.
///
/// # Blocking
/// Meanwhile the worker does other work of its pool; without any it blocks.
///
/// # Examples
/// ```
/// use raddle::pool::{Pool, join};
///
/// fn fibonacci(n: u64) -> u64 {
///     if n < 2 {
///         return n;
///     }
///     let (a, b) = join(|| fibonacci(n - 1), || fibonacci(n - 2));
///     a + b
/// }
/// let pool = Pool::new();
/// assert_eq!(pool.install(|| fibonacci(16))?, 987);
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    Local::with(|local| match local {
        None => (a(), b()),
        Some(local) => join_in(local, a, in_context(local.shared.config.flow, b)),
    })
}

/// Wraps `f` in the caller's context, if that flows.
pub(super) fn in_context<R>(flow: bool, f: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let context = if flow { Context::flowing() } else { None };
    move || match context {
        None => f(),
        Some(context) => context.run(f),
    }
}

fn join_in<A, B, RA, RB>(local: &Local, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    let job = StackJob {
        closure: UnsafeCell::new(Some(b)),
        result: UnsafeCell::new(None),
        latch: Latch::new(local),
    };
    let share = StackRef(&raw const job);
    // SAFETY: this function does not return before the latch is set, after which the job is not
    // touched; closure and result are `Send`.
    local.push(unsafe { Job::new_unchecked(move || drop(share)) });
    let first = catch_unwind(AssertUnwindSafe(a));
    job.latch.wait(local);
    let second = job.result.into_inner().expect("the latch is set after it");
    match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(panic), _) | (_, Err(panic)) => resume_unwind(panic),
    }
}

/// A scope, in which work is spawned that may borrow from outside of it; from [`PoolRef::scope`].
///
/// ```
/// use raddle::pool::{Pool, Scope};
/// fn halves<'scope>(scope: &Scope<'scope>, numbers: &'scope mut [u32]) {
///     let (low, high) = numbers.split_at_mut(numbers.len() / 2);
///     scope.spawn(move |_| low.sort_unstable());
///     scope.spawn(move |_| high.sort_unstable());
/// }
/// let mut numbers = [4, 3, 2, 1];
/// Pool::new().scope(|scope| halves(scope, &mut numbers))?;
/// assert_eq!(numbers, [3, 4, 1, 2]);
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
pub struct Scope<'scope> {
    /// Spawned items that have not ended, and one for the scope's own closure.
    pending: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    latch: *const Latch,
    pool: Arc<Shared>,
    /// Invariant: neither longer nor shorter.
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

// SAFETY: any thread may set the latch; all else is `Sync`.
unsafe impl Sync for Scope<'_> {}

/// The queue's reference to a scope's item: runs the item, even if dropped instead of run.
struct Item<'scope, F: FnOnce(&Scope<'scope>)> {
    scope: *const Scope<'scope>,
    closure: Option<F>,
}

impl<'scope, F: FnOnce(&Scope<'scope>)> Drop for Item<'scope, F> {
    fn drop(&mut self) {
        // SAFETY: the scope waits for this item.
        let scope = unsafe { &*self.scope };
        if let Some(closure) = self.closure.take()
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| closure(scope)))
        {
            let other = keep_first(&mut lock(&scope.panic), payload);
            quietly(|| drop(other));
        }
        // SAFETY: as above; the scope may be gone afterwards.
        unsafe { Scope::end_one(self.scope) };
    }
}

impl<'scope> Scope<'scope> {
    /// Queues `f`, which ends before the scope does, and may spawn more work.
    ///
    /// # Examples
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let (pool, count) = (raddle::pool::Pool::new(), AtomicU32::new(0));
    /// pool.scope(|scope| {
    ///     for _ in 0..10 {
    ///         scope.spawn(|_| drop(count.fetch_add(1, Ordering::Relaxed)));
    ///     }
    /// })?;
    /// assert_eq!(count.into_inner(), 10);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn spawn(&self, f: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let pool = &self.pool;
        let context = if pool.config.flow {
            Context::flowing()
        } else {
            None
        };
        let item = Item {
            scope: self,
            closure: Some(move |scope: &Scope<'scope>| match context {
                None => f(scope),
                Some(context) => context.run(|| f(scope)),
            }),
        };
        // SAFETY: `pending` keeps the scope, and its borrows, until the item has ended.
        let job = unsafe { Job::new_unchecked(move || drop(item)) };
        Local::with(|local| match local {
            Some(local) if local.belongs_to(pool) => local.push(job),
            // A pool that accepts no more work drops the job, and the drop runs it here.
            _ => drop(pool.queue(job, Priority::Normal, Origin::Exempt)),
        });
    }

    /// # Safety
    /// The scope must live until this counts its caller out.
    unsafe fn end_one(this: *const Self) {
        // SAFETY: the caller's promise; the latch is on the waiting worker's stack.
        unsafe {
            let latch = (*this).latch;
            if (*this).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                Latch::set(latch);
            }
        }
    }
}

fn scope_in<'scope, R>(local: &Local, f: impl FnOnce(&Scope<'scope>) -> R) -> R {
    let latch = Latch::new(local);
    let scope = Scope {
        pending: AtomicUsize::new(1),
        panic: Mutex::new(None),
        latch: &raw const latch,
        pool: Arc::clone(&local.shared),
        borrows: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    // SAFETY: the scope is on this stack, until the latch is set and seen.
    unsafe { Scope::end_one(&raw const scope) };
    latch.wait(local);
    let panic = lock(&scope.panic).take();
    match (result, panic) {
        (Ok(result), None) => result,
        (Err(panic), _) | (_, Some(panic)) => resume_unwind(panic),
    }
}

/// Calls `f` with disjoint parts of `range` until all of it is covered, in parallel on a pool's
/// worker; parts have at most `grain` elements, or, if `grain` is 0, an eighth of a worker's share.
///
/// # Panics
/// With the panic of a call, after all calls that began have ended.
///
/// # Blocking
/// As [`join`].
///
/// # Examples
/// ```
/// use raddle::pool::{Pool, parallel_for};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let (pool, sum) = (Pool::new(), AtomicU64::new(0));
/// pool.install(|| {
///     parallel_for(0..1000, 0, |part| {
///         sum.fetch_add(part.map(|i| i as u64).sum(), Ordering::Relaxed);
///     })
/// })?;
/// assert_eq!(sum.into_inner(), 499_500);
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
pub fn parallel_for(range: Range<usize>, grain: usize, f: impl Fn(Range<usize>) + Sync) {
    let grain = match grain {
        0 => {
            let count = |local: &Local| local.shared.config.min_workers;
            let workers = Local::with(|local| local.map_or(1, count));
            range.len() / (8 * workers)
        }
        grain => grain,
    };
    split(range, grain.max(1), &f);
}

fn split(range: Range<usize>, grain: usize, f: &(impl Fn(Range<usize>) + Sync)) {
    if range.is_empty() {
        return;
    }
    if range.len() <= grain {
        return f(range);
    }
    let middle = range.start + range.len() / 2;
    join(
        || split(range.start..middle, grain, f),
        || split(middle..range.end, grain, f),
    );
}

/// An outside thread's wait: a closure, until it runs or is taken back, and its result.
struct Arrival<F, R> {
    state: Mutex<ArrivalState<F, R>>,
    arrived: Condvar,
}

struct ArrivalState<F, R> {
    closure: Option<F>,
    result: Option<std::thread::Result<R>>,
    /// The queue has run or dropped its reference.
    over: bool,
}

/// The queue's reference to an installed computation.
struct Installed<F: FnOnce() -> R, R>(Arc<Arrival<F, R>>);

impl<F: FnOnce() -> R, R> Installed<F, R> {
    fn run(self) {
        let closure = lock(&self.0.state).closure.take();
        if let Some(closure) = closure {
            let result = catch_unwind(AssertUnwindSafe(closure));
            lock(&self.0.state).result = Some(result);
        }
    }
}

impl<F: FnOnce() -> R, R> Drop for Installed<F, R> {
    fn drop(&mut self) {
        lock(&self.0.state).over = true;
        self.0.arrived.notify_one();
    }
}

impl PoolRef {
    /// Runs `f` on a worker of this pool and waits for it; on such a worker, runs it at once.
    /// Inside, [`join`], [`parallel_for`] and [`PoolRef::scope`] use this pool.
    ///
    /// # Errors
    /// [`QueueError`] if the pool accepts no work, has no thread, or has discarded `f` for newer
    /// work ([`QueueError::Full`]). `f` has not run then.
    ///
    /// # Panics
    /// With the panic of `f`.
    ///
    /// # Blocking
    /// Blocks the calling thread; for a worker of another pool this counts as [`blocking`].
    ///
    /// # Examples
    /// ```
    /// let (pool, text) = (raddle::pool::Pool::new(), String::from("borrowed"));
    /// assert_eq!(pool.install(|| text.len())?, 8);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R, QueueError> {
        if Local::is_in(&self.shared) {
            return Ok(f());
        }
        if self.shared.is_forked() {
            return Err(QueueError::Forked);
        }
        if self.is_closed() {
            return Err(QueueError::Closed);
        }
        let arrival = Arc::new(Arrival {
            state: Mutex::new(ArrivalState {
                closure: Some(in_context(self.shared.config.flow, f)),
                result: None,
                over: false,
            }),
            arrived: Condvar::new(),
        });
        let installed = Installed(arrival.clone());
        // SAFETY: this function does not return before the closure has ended or was taken back;
        // closure and result are `Send`.
        let job = unsafe { Job::new_unchecked(move || installed.run()) };
        let queued = self.shared.queue(job, Priority::Normal, Origin::Exempt);
        if let Err(error) = queued
            && lock(&arrival.state).closure.take().is_some()
        {
            return Err(error);
        }
        let result = blocking(|| {
            let mut state = lock(&arrival.state);
            while !state.over {
                state = wait(&arrival.arrived, state);
            }
            state.closure = None;
            state.result.take()
        });
        match result {
            None if self.is_closed() => Err(QueueError::Closed),
            None => Err(QueueError::Full), // it was dropped as the oldest item
            Some(Ok(result)) => Ok(result),
            Some(Err(panic)) => resume_unwind(panic),
        }
    }

    /// Calls `f` with a [`Scope`] on a worker of this pool, and returns when all work that was
    /// spawned in it has ended.
    ///
    /// # Errors
    /// As [`PoolRef::install`].
    ///
    /// # Panics
    /// With the panic of `f` or of spawned work, after all of it has ended.
    ///
    /// # Blocking
    /// As [`PoolRef::install`].
    ///
    /// # Examples
    /// ```
    /// let (pool, mut numbers) = (raddle::pool::Pool::new(), vec![1, 2, 3]);
    /// pool.scope(|scope| {
    ///     for number in &mut numbers {
    ///         scope.spawn(move |_| *number *= 2);
    ///     }
    /// })?;
    /// assert_eq!(numbers, [2, 4, 6]);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn scope<'scope, R: Send>(
        &self,
        f: impl FnOnce(&Scope<'scope>) -> R + Send,
    ) -> Result<R, QueueError> {
        self.install(|| Local::with(|local| scope_in(local.expect("installed on a worker"), f)))
    }
}
