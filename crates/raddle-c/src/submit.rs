//! Work for pools, and tasks: queued work with a result for C.
//!
//! A task's handle is its waiter's: waiting takes the task out of its record, and ends the handle.
//! A source beside the task cancels it, so that this works during a wait, too.
//!
//! The record is locked while its task is being queued, so that a waiter always finds the task. The
//! queueing thread may have to run the work itself, and the work may wait for its own task: then it
//! gets EDEADLK instead of waiting for the lock.

use crate::call::{Compute, Job, Out, Value};
use crate::cancel;
use crate::completion::{Listen, tell};
use crate::error::{Answer, Errno, done, guard};
use crate::options;
use crate::pool::remote;
use libc::{c_int, c_void};
use raddle::handles::{Handle, Table};
use raddle::pool::{CancelSource, CancelToken, Options, Priority, Task, TaskError};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `raddle_work_options`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WorkOptions {
    size: usize,
    priority: c_int,
    reserved: u32,
    cancel: u64,
}

// SAFETY: a size, and integers for which zero asks for nothing.
unsafe impl options::Options for WorkOptions {
    const FIRST: usize = size_of::<WorkOptions>();
}

struct Waitable {
    /// `None` while a thread waits for it.
    task: Mutex<Option<Task<Value>>>,
    source: CancelSource,
    /// The thread that is queueing it, or 0. Written by that thread; no other thread finds itself
    /// here.
    maker: AtomicUsize,
}

static TASKS: LazyLock<Table<Waitable>> = LazyLock::new(Table::new);

/// Returns a number of the calling thread's own.
fn this_thread() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| (&raw const *place).addr())
}

impl Waitable {
    fn lock(&self) -> Result<MutexGuard<'_, Option<Task<Value>>>, Errno> {
        if self.maker.load(Ordering::Relaxed) == this_thread() {
            Err(Errno(libc::EDEADLK))
        } else {
            Ok(self.task.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    /// Takes the task for good.
    fn take(&self) -> Result<Task<Value>, Errno> {
        self.lock()?.take().ok_or(Errno(libc::EBUSY))
    }
}

fn task(task: u64) -> Result<(Handle<Waitable>, Arc<Waitable>), Errno> {
    let handle = Handle::from_bits(task).ok_or(Errno(libc::EBADF))?;
    Ok((handle, TASKS.get(handle)?))
}

impl From<TaskError> for Errno {
    fn from(error: TaskError) -> Self {
        Self(match error {
            TaskError::Cancelled | TaskError::Discarded => libc::ECANCELED,
            TaskError::Forked => libc::ECHILD,
            TaskError::WaitsForItself => libc::EDEADLK,
            _ => libc::ENOTRECOVERABLE,
        })
    }
}

/// RADDLE_HIGH, RADDLE_USUAL, RADDLE_LOW.
fn priority(priority: c_int) -> Result<Priority, Errno> {
    match priority {
        -1 => Ok(Priority::Low),
        0 => Ok(Priority::Normal),
        1 => Ok(Priority::High),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Queues work without a result.
fn queue(
    pool: u64,
    priority: Priority,
    token: Option<CancelToken>,
    compute: Option<Compute>,
    argument: Value,
) -> Answer {
    let job = Job::new(compute, argument)?;
    let mut options = Options::new().priority(priority);
    if let Some(token) = token {
        options = options.token(&token);
    }
    done(remote(pool)?.queue_with(options, move || {
        job.run();
    }))
}

/// Queues a task, which `token` can cancel, too.
fn queue_task(
    pool: u64,
    priority: Priority,
    token: Option<CancelToken>,
    place: Out<u64>,
    (compute, argument): (Option<Compute>, Value),
) -> Answer {
    let place = place.required()?;
    let job = Job::new(compute, argument)?;
    let pool = remote(pool)?;
    let source = token.map_or_else(CancelSource::new, |token| CancelSource::linked(&[&token]));
    let waitable = Arc::new(Waitable {
        task: Mutex::new(None),
        source,
        maker: AtomicUsize::new(this_thread()),
    });
    let handle = TASKS.insert_arc(Arc::clone(&waitable))?;
    place.put(handle.to_bits()); // the work may look there
    // Held until the task is queued, so that a waiter finds it.
    let mut task = waitable.task.lock().unwrap_or_else(PoisonError::into_inner);
    let options = Options::new().token(&waitable.source.token());
    let queued = pool.task_with(options.priority(priority), move || job.run());
    waitable.maker.store(0, Ordering::Relaxed);
    match queued {
        Ok(queued) => *task = Some(queued),
        Err(error) => {
            place.put(0);
            TASKS.remove(handle)?;
            return Err(error.into());
        }
    }
    Ok(0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_queue(
    pool: u64,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| queue(pool, Priority::Normal, None, compute, argument))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_queue_at(
    pool: u64,
    at: c_int,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| queue(pool, priority(at)?, None, compute, argument))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_task(
    pool: u64,
    task: Out<u64>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| queue_task(pool, Priority::Normal, None, task, (compute, argument)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_task_at(
    pool: u64,
    at: c_int,
    task: Out<u64>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| queue_task(pool, priority(at)?, None, task, (compute, argument)))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_submit(
    pool: u64,
    options: Option<NonNull<WorkOptions>>,
    task: Out<u64>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| {
        let (mut at, mut token) = (Priority::Normal, None);
        if let Some(options) = options {
            // SAFETY: C promises the contract of `read`.
            let options = unsafe { options::read(options) }?;
            if options.reserved != 0 {
                return Err(Errno(libc::EINVAL));
            }
            (at, token) = (priority(options.priority)?, cancel::token(options.cancel)?);
        }
        if task.is_wanted() {
            queue_task(pool, at, token, task, (compute, argument))
        } else {
            queue(pool, at, token, compute, argument)
        }
    })
}

/// Waits for a task and ends its handle; after a timeout both remain.
fn wait(task_id: u64, timeout: Option<Duration>, result: Out<*mut c_void>) -> Answer {
    let (handle, waitable) = task(task_id)?;
    let taken = waitable.take()?;
    let outcome = match timeout {
        None => taken.wait(),
        Some(timeout) => match taken.wait_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(task) => {
                *waitable.lock()? = Some(task);
                return Err(Errno(libc::ETIMEDOUT));
            }
        },
    };
    TASKS.remove(handle)?;
    result.put(outcome?.0);
    Ok(0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_wait(task: u64, result: Out<*mut c_void>) -> c_int {
    guard(|| wait(task, None, result))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_wait_for(
    task: u64,
    timeout_ns: i64,
    result: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let timeout = u64::try_from(timeout_ns).map_err(|_| Errno(libc::EINVAL))?;
        wait(task, Some(Duration::from_nanos(timeout)), result)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_is_done(task_id: u64) -> c_int {
    guard(|| {
        let waitable = task(task_id)?.1;
        let task = waitable.lock()?;
        Ok(task.as_ref().ok_or(Errno(libc::EBUSY))?.is_done().into())
    })
}

/// A listener of a task's end. Dropping it unused notifies C that the work was dropped.
struct Teller(Option<(Listen, Value)>);

impl Teller {
    fn tell(mut self, outcome: Result<Value, TaskError>) {
        if let Some((listen, argument)) = self.0.take() {
            let end =
                outcome.map_or_else(|error| (Errno::from(error).0, Value::NULL), |it| (0, it));
            tell(listen, argument, end);
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if let Some((listen, argument)) = self.0.take() {
            tell(listen, argument, (libc::ECANCELED, Value::NULL));
        }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_then(
    task_id: u64,
    listen: Option<Listen>,
    argument: Value,
) -> c_int {
    guard(|| {
        let (handle, waitable) = task(task_id)?;
        let listen = listen.ok_or(Errno(libc::EFAULT))?;
        let taken = waitable.take()?;
        TASKS.remove(handle)?;
        let teller = Teller(Some((listen, argument)));
        drop(taken.then(move |outcome| teller.tell(outcome)));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_cancel(task_id: u64) -> c_int {
    guard(|| {
        task(task_id)?.1.source.cancel();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_is_cancelled(task_id: u64) -> c_int {
    guard(|| Ok(task(task_id)?.1.source.is_cancelled().into()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_task_free(task_id: u64) -> c_int {
    guard(|| {
        let (handle, waitable) = task(task_id)?;
        drop(waitable.take()?);
        done(TASKS.remove(handle))
    })
}
