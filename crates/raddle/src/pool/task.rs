//! Tasks: queued work with a result.

use super::PoolRef;
use super::cancel::{CancelToken, Registration};
use super::context::Context;
use super::errors::TaskError;
use super::sync::{lock, quietly};
use super::worker::blocking;
use crate::completion::cell::{self, Consumer, Producer, Step};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Polling, Poll};
use std::time::Duration;

type Outcome<T> = Result<T, TaskError>;

const POLLED: &str = "the task was polled to its end before";

/// Queued work, and its result. Dropping the task lets the work run, and drops the result.
///
/// A task is a [`Future`], too, for any executor.
///
/// # Examples
/// ```
/// let pool = raddle::pool::Pool::new();
/// let task = pool.task(|| 6 * 7)?;
/// assert_eq!(task.wait().unwrap(), 42);
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
#[must_use = "`queue` is for work whose result nobody wants"]
pub struct Task<T> {
    work: Arc<dyn Work>,
    /// `None` once the outcome was taken, or a continuation has it.
    outcome: Option<Consumer<Outcome<T>>>,
    pool: PoolRef,
    /// Takes the task out of a token's callbacks; dropped with the task.
    _cancellation: Option<Registration>,
}

/// A task's closure and the producer of its outcome, without their types.
trait Work: Send + Sync {
    /// Runs the closure if it is ready and was not taken. Returns whether this call did.
    fn run(&self) -> bool;
    /// Allows the closure to run.
    fn make_ready(&self);
    /// Withdraws the closure, if it has not started. Returns `None` if it had, else the step that
    /// is to be run next, if there is one.
    fn withdraw(&self, why: TaskError) -> Option<Option<Step>>;
    /// Returns whether the calling thread is running the closure.
    fn is_running_here(&self) -> bool;
}

/// Returns a number of the calling thread, unique among live threads that aren't light; never 0. A
/// light thread runs only tasks that it has consumed.
fn own_number() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| (&raw const *place).addr())
}

struct Body<F, T> {
    /// The closure and the producer of its outcome, taken by the thread that runs the closure.
    closure: Mutex<Option<(F, Producer<Outcome<T>>)>>,
    /// True once the closure's input is there. Written before the task is queued (release), read by
    /// a thread that is about to run it (acquire).
    ready: AtomicBool,
    /// The [`own_number`] of the thread that runs the closure, else 0. Written by that thread.
    runner: AtomicUsize,
    token: CancelToken,
}

impl<F: FnOnce() -> T + Send, T: Send> Work for Body<F, T> {
    fn run(&self) -> bool {
        if !self.ready.load(Ordering::Acquire) {
            return false;
        }
        let Some((closure, producer)) = lock(&self.closure).take() else {
            return false;
        };
        let outcome = if self.token.is_cancelled() {
            quietly(|| drop(closure));
            Err(TaskError::Cancelled)
        } else {
            self.runner.store(own_number(), Ordering::Relaxed);
            let outcome = catch_unwind(AssertUnwindSafe(closure));
            self.runner.store(0, Ordering::Relaxed);
            outcome.map_err(TaskError::Panicked)
        };
        producer.finish(outcome);
        true
    }

    fn make_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    fn withdraw(&self, why: TaskError) -> Option<Option<Step>> {
        let (closure, producer) = lock(&self.closure).take()?;
        let mut told = Told(producer.finish_in_chain(Err(why)));
        drop(closure); // may panic
        Some(told.0.take())
    }

    fn is_running_here(&self) -> bool {
        self.runner.load(Ordering::Relaxed) == own_number()
    }
}

/// A step that is run when it is dropped.
struct Told(Option<Step>);

impl Drop for Told {
    fn drop(&mut self) {
        Step::run_all(self.0.take());
    }
}

impl dyn Work {
    /// Withdraws the closure, if it has not started, and tells the outcome. Returns whether it had
    /// not.
    fn cancel(&self) -> bool {
        let step = self.withdraw(TaskError::Cancelled);
        step.map(Step::run_all).is_some()
    }
}

/// The queue's reference to a task. Dropping it discards a task that was not run.
struct Queued(Arc<dyn Work>);

impl Drop for Queued {
    fn drop(&mut self) {
        let step = self.0.withdraw(TaskError::Discarded).flatten();
        match step {
            Some(step) if QUEUES.replace(false) => NEXT.set(Some(step)),
            step => Step::run_all(step),
        }
    }
}

thread_local! {
    /// True while a continuation queues its task.
    static QUEUES: Cell<bool> = const { Cell::new(false) };
    /// The step of a task that was discarded meanwhile.
    static NEXT: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Calls `queue`, and returns the step of the first task that this discards: a chain of tasks of a
/// closed pool takes no stack.
fn queue_in_chain(queue: impl FnOnce()) -> Option<Step> {
    QUEUES.set(true);
    queue();
    QUEUES.set(false);
    NEXT.take()
}

/// Makes a task and the closure to queue for it.
pub(super) fn new<F, T>(
    pool: &PoolRef,
    closure: F,
    token: CancelToken,
    ready: bool,
) -> (Task<T>, impl FnOnce() + Send + 'static)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (producer, consumer) = cell::pair();
    let work: Arc<dyn Work> = Arc::new(Body {
        closure: Mutex::new(Some((closure, producer))),
        ready: AtomicBool::new(ready),
        runner: AtomicUsize::new(0),
        token: token.clone(),
    });
    let queued = Queued(work.clone());
    let weak = Arc::downgrade(&work);
    let cancellable = token.can_be_cancelled();
    let task = Task {
        work,
        outcome: Some(consumer),
        pool: pool.clone(),
        _cancellation: cancellable.then(|| {
            token.on_cancel(move || {
                if let Some(work) = weak.upgrade() {
                    work.cancel();
                }
            })
        }),
    };
    let run = move || {
        queued.0.run();
    };
    (task, run)
}

impl<T: Send + 'static> Task<T> {
    /// Returns whether there is a result, or never will be one.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// let task = pool.task(|| ())?;
    /// while !task.is_done() {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn is_done(&self) -> bool {
        self.outcome.as_ref().is_none_or(Consumer::is_done)
    }

    /// Waits for the result. A task that has not started runs here and now, unless the pool was
    /// built with [`Builder::inline_waits`](super::Builder::inline_waits) off.
    ///
    /// # Errors
    /// [`TaskError`] says why there is no result; [`TaskError::WaitsForItself`] if the calling
    /// thread is running the task, which goes on without a handle.
    ///
    /// # Panics
    /// If the task was polled as a future before, and was ready.
    ///
    /// # Blocking
    /// The light or green thread; outside raddle, the kernel thread. For a worker of a pool this
    /// counts as [`blocking`], so that workers that wait for tasks don't starve the tasks.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// assert_eq!(pool.task(|| "done")?.wait().unwrap(), "done");
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn wait(mut self) -> Result<T, TaskError> {
        self.run_inline();
        let outcome = self.wait_within(None);
        outcome.expect("a wait without an end has no timeout")
    }

    /// Waits for the result no longer than `timeout`. Never runs the task itself, which could take
    /// longer.
    ///
    /// # Errors
    /// The task itself, if the time is over.
    ///
    /// # Panics
    /// As [`Task::wait`].
    ///
    /// # Blocking
    /// As [`Task::wait`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = raddle::pool::Pool::new();
    /// let task = pool.task(|| std::thread::sleep(Duration::from_millis(50)))?;
    /// let task = task.wait_timeout(Duration::from_millis(1)).unwrap_err();
    /// task.wait().unwrap();
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn wait_timeout(mut self, timeout: Duration) -> Result<Result<T, TaskError>, Self> {
        self.wait_within(Some(timeout)).ok_or(self)
    }

    /// Cancels the task if it has not started. Returns whether it had not.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Pool, TaskError};
    /// let pool = Pool::builder().workers(1).max_workers(1).build()?;
    /// let (gate, barrier) = std::sync::mpsc::channel::<()>();
    /// pool.queue(move || drop(barrier.recv()))?;
    /// let task = pool.task(|| unreachable!("cancelled first"))?;
    /// assert!(task.cancel());
    /// drop(gate);
    /// assert!(matches!(task.wait(), Err(TaskError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) -> bool {
        self.work.cancel()
    }

    /// Adds a continuation: a task that is queued when this one is done, and gets its outcome.
    ///
    /// # Examples
    /// ```
    /// let pool = raddle::pool::Pool::new();
    /// let twice = pool.task(|| 21)?.then(|number| 2 * number.unwrap());
    /// assert_eq!(twice.wait().unwrap(), 42);
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn then<U: Send + 'static>(
        mut self,
        f: impl FnOnce(Result<T, TaskError>) -> U + Send + 'static,
    ) -> Task<U> {
        let input = Arc::new(Mutex::new(None));
        let taken = input.clone();
        let body = move || {
            let outcome: Option<Outcome<T>> = lock(&taken).take();
            f(outcome.unwrap_or(Err(TaskError::Discarded)))
        };
        let body = self.pool.in_context(body);
        let (task, queued) = new(&self.pool, body, CancelToken::default(), false);
        let pool = self.pool.clone();
        let next = task.work.clone();
        let go_on = move |outcome| {
            *lock(&input) = Some(outcome);
            next.make_ready();
            // A pool that accepts no more work drops the closure, and so discards the task.
            queue_in_chain(|| _ = pool.queue_exempt(queued))
        };
        self.outcome.take().expect(POLLED).give_to(go_on);
        task
    }

    /// Waits for the outcome. Returns `None` if the time was over first.
    fn wait_within(&mut self, timeout: Option<Duration>) -> Option<Outcome<T>> {
        let outcome = self.outcome.as_ref().expect(POLLED);
        if !outcome.is_done() {
            if self.pool.shared.is_forked() {
                return Some(Err(TaskError::Forked));
            }
            if self.work.is_running_here() {
                return Some(Err(TaskError::WaitsForItself));
            }
            if !blocking(|| outcome.wait(timeout)) {
                return None;
            }
        }
        self.outcome.take().map(Consumer::take)
    }

    fn run_inline(&self) {
        // The task sees only the context that flowed to it, wherever it runs.
        let run = || Context::default().run(|| self.work.run());
        let shared = &self.pool.shared;
        if shared.config.inline_waits && run() && !shared.is_forked() {
            shared.state().counts.inlined += 1;
        }
    }
}

impl<T: Send + 'static> Future for Task<T> {
    type Output = Result<T, TaskError>;

    /// Never runs the task itself, so that the executor's thread isn't held up.
    ///
    /// # Panics
    /// If it returned `Ready` before.
    fn poll(mut self: Pin<&mut Self>, polling: &mut Polling<'_>) -> Poll<Self::Output> {
        if !self.outcome.as_ref().expect(POLLED).poll(polling) {
            return Poll::Pending;
        }
        let outcome = self.outcome.take().expect(POLLED);
        Poll::Ready(outcome.take())
    }
}

// The outcome is not in the task itself.
impl<T> Unpin for Task<T> {}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome.take() {
            outcome.close();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Task<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Task")
            .field("pool", &self.pool.shared.config.name)
            .field("done", &self.is_done())
            .finish()
    }
}
