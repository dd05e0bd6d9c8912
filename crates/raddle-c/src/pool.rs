//! Thread pools for C.
//!
//! A task's handle is its waiter's: waiting takes the task out of its record, and ends the handle.
//! It is cancelled by a source beside the task, so that this works while somebody waits.

use crate::call::{Compute, Job, Out, Value};
use crate::engine;
use crate::error::{Answer, Errno, done, guard};
use crate::options::{self, name, stack_size};
use libc::{c_char, c_int, c_void};
use raddle::handles::{Handle, Table};
use raddle::pool::{
    self, BuildError, Builder, CancelSource, Options, Overflow, Pending, Pool, PoolRef, Priority,
    QueueError, Task, TaskError,
};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// RADDLE_DROP_PENDING: what waits isn't run.
const DROP_PENDING: u32 = 1;

/// RADDLE_WAITS_ONLY: who waits for a task doesn't run it.
const WAITS_ONLY: u32 = 1;

/// Is told of a worker's start or end: its argument, the worker's number.
type Hook = unsafe extern "C-unwind" fn(*mut c_void, usize);

/// Is told of work on a worker: its argument.
type WorkHook = unsafe extern "C-unwind" fn(*mut c_void);

/// `raddle_pool_options`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PoolOptions {
    size: usize,
    workers: usize,
    max_workers: usize,
    capacity: usize,
    stack_size: usize,
    name: *const c_char,
    overflow: c_int,
    reserved: c_int,
    keep_alive_ns: u64,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
    hook_argument: Value,
    engine: u64,
    before_work: Option<WorkHook>,
    after_work: Option<WorkHook>,
    tick_ns: u64,
    memory_reserve: u32,
    flags: u32,
}

// SAFETY: a size, and integers, addresses and functions for which zero asks for nothing.
unsafe impl options::Options for PoolOptions {
    const FIRST: usize = offset_of!(PoolOptions, engine);
}

struct Disposable {
    /// `None` once somebody disposes of it.
    pool: Mutex<Option<Pool>>,
    remote: PoolRef,
}

struct Waitable {
    /// `None` while somebody waits for it.
    task: Mutex<Option<Task<Value>>>,
    source: CancelSource,
}

static POOLS: LazyLock<Table<Disposable>> = LazyLock::new(Table::new);
static TASKS: LazyLock<Table<Waitable>> = LazyLock::new(Table::new);

impl From<BuildError> for Errno {
    fn from(_: BuildError) -> Self {
        Self(libc::EINVAL)
    }
}

impl From<QueueError> for Errno {
    fn from(error: QueueError) -> Self {
        Self(match error {
            QueueError::Closed => libc::ESHUTDOWN,
            QueueError::Full => libc::ENOBUFS,
            QueueError::Cancelled => libc::ECANCELED,
            QueueError::Forked => libc::ECHILD,
            QueueError::ZeroPeriod => libc::EINVAL,
            QueueError::Watch(error) => error.raw_os_error().unwrap_or(libc::EPERM),
            _ => libc::EAGAIN, // no thread
        })
    }
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

fn pool(pool: u64) -> Result<(Handle<Disposable>, Arc<Disposable>), Errno> {
    let handle = Handle::from_bits(pool).ok_or(Errno(libc::EBADF))?;
    Ok((handle, POOLS.get(handle)?))
}

/// The pool that a handle names.
pub fn remote(id: u64) -> Result<PoolRef, Errno> {
    Ok(pool(id)?.1.remote.clone())
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

/// RADDLE_REJECT and so on.
fn overflow(overflow: c_int) -> Result<Overflow, Errno> {
    match overflow {
        0 => Ok(Overflow::Reject),
        1 => Ok(Overflow::CallerRuns),
        2 => Ok(Overflow::DiscardOldest),
        3 => Ok(Overflow::Block),
        _ => Err(Errno(libc::EINVAL)),
    }
}

fn task(task: u64) -> Result<(Handle<Waitable>, Arc<Waitable>), Errno> {
    let handle = Handle::from_bits(task).ok_or(Errno(libc::EBADF))?;
    Ok((handle, TASKS.get(handle)?))
}

fn tell_of_work(hook: WorkHook, argument: Value) {
    // SAFETY: C promises that the hook may be called so, on the pool's threads.
    unsafe { hook(argument.0) }
}

fn tell(hook: Hook, argument: Value, worker: usize) {
    // SAFETY: C promises that the hook may be called so, on the pool's threads.
    unsafe { hook(argument.0, worker) }
}

fn with_hooks(mut builder: Builder, options: &PoolOptions) -> Builder {
    let argument = options.hook_argument;
    if let Some(hook) = options.on_start {
        builder = builder.on_start(move |worker| tell(hook, argument, worker));
    }
    if let Some(hook) = options.on_stop {
        builder = builder.on_stop(move |worker| tell(hook, argument, worker));
    }
    if let Some(hook) = options.before_work {
        builder = builder.before_work(move || tell_of_work(hook, argument));
    }
    if let Some(hook) = options.after_work {
        builder = builder.after_work(move || tell_of_work(hook, argument));
    }
    builder
}

fn build(options: Option<NonNull<PoolOptions>>) -> Result<Pool, Errno> {
    let mut builder = Pool::builder();
    let Some(options) = options else {
        return Ok(builder.build()?);
    };
    // SAFETY: C promises what `read` asks for; plain integers and an address.
    let options = unsafe { options::read(options) }?;
    if options.workers != 0 {
        builder = builder.workers(options.workers);
    }
    if options.max_workers != 0 {
        builder = builder.max_workers(options.max_workers);
    }
    let overflow = overflow(options.overflow)?;
    let reserve = u8::try_from(options.memory_reserve).ok();
    let reserve = reserve.filter(|percent| *percent <= 100);
    let is_known = options.reserved == 0 && options.flags & !WAITS_ONLY == 0;
    let reserve = reserve.filter(|_| is_known).ok_or(Errno(libc::EINVAL))?;
    if options.capacity != 0 {
        builder = builder.capacity(options.capacity, overflow);
    }
    if options.keep_alive_ns != 0 {
        builder = builder.keep_alive(Duration::from_nanos(options.keep_alive_ns));
    }
    if options.tick_ns != 0 {
        builder = builder.tick(Duration::from_nanos(options.tick_ns));
    }
    if reserve != 0 {
        builder = builder.memory_reserve(reserve);
    }
    builder = with_hooks(builder, &options);
    builder = builder.inline_waits(options.flags & WAITS_ONLY == 0);
    if options.engine != 0 {
        builder = builder.engine(&engine::named(options.engine)?);
    }
    if let Some(bytes) = stack_size(options.stack_size)? {
        builder = builder.stack_size(bytes);
    }
    // SAFETY: C promises a string that ends, or null.
    if let Some(name) = unsafe { name(options.name) } {
        builder = builder.name(name);
    }
    Ok(builder.build()?)
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_create(
    pool: Out<u64>,
    options: Option<NonNull<PoolOptions>>,
) -> c_int {
    guard(|| {
        let place = pool.required()?;
        let pool = build(options)?;
        let remote = pool.remote();
        let pool = Mutex::new(Some(pool));
        place.put(POOLS.insert(Disposable { pool, remote })?.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_queue(pool: u64, compute: Option<Compute>, argument: Value) -> c_int {
    raddle_pool_queue_at(pool, 0, compute, argument)
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_queue_at(
    pool: u64,
    at: c_int,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| {
        let job = Job::new(compute, argument)?;
        let options = Options::new().priority(priority(at)?);
        done(remote(pool)?.queue_with(options, move || {
            job.run();
        }))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_task(
    pool: u64,
    task: Out<u64>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    raddle_pool_task_at(pool, 0, task, compute, argument)
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_task_at(
    pool: u64,
    at: c_int,
    task: Out<u64>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| {
        let place = task.required()?;
        let job = Job::new(compute, argument)?;
        let priority = priority(at)?;
        let pool = remote(pool)?;
        let waitable = Arc::new(Waitable {
            task: Mutex::new(None),
            source: CancelSource::new(),
        });
        let handle = TASKS.insert_arc(Arc::clone(&waitable))?;
        place.put(handle.to_bits()); // the work may look there
        // Held so that nobody finds no task before it is queued.
        let mut task = waitable.task.lock().unwrap_or_else(PoisonError::into_inner);
        let token = waitable.source.token();
        let options = Options::new().token(&token).priority(priority);
        match pool.task_with(options, move || job.run()) {
            Ok(queued) => *task = Some(queued),
            Err(error) => {
                place.put(0);
                TASKS.remove(handle)?;
                return Err(error.into());
            }
        }
        Ok(0)
    })
}

/// Waits for a task and ends its handle; after a timeout both go on.
fn wait(task_id: u64, timeout: Option<Duration>, result: Out<*mut c_void>) -> Answer {
    let (handle, waitable) = task(task_id)?;
    let lock = || waitable.task.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = lock().take().ok_or(Errno(libc::EBUSY))?;
    let outcome = match timeout {
        None => taken.wait(),
        Some(timeout) => match taken.wait_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(task) => {
                *lock() = Some(task);
                return Err(Errno(libc::ETIMEDOUT));
            }
        },
    };
    TASKS.remove(handle)?;
    result.put(outcome?.0);
    Ok(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_task_wait(task: u64, result: Out<*mut c_void>) -> c_int {
    guard(|| wait(task, None, result))
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_task_wait_for(
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
pub extern "C" fn raddle_task_cancel(task_id: u64) -> c_int {
    guard(|| {
        task(task_id)?.1.source.cancel();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_task_is_cancelled(task_id: u64) -> c_int {
    guard(|| Ok(task(task_id)?.1.source.is_cancelled().into()))
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_task_free(task_id: u64) -> c_int {
    guard(|| {
        let (handle, waitable) = task(task_id)?;
        let mut task = waitable.task.lock().unwrap_or_else(PoisonError::into_inner);
        drop(task.take().ok_or(Errno(libc::EBUSY))?);
        done(TASKS.remove(handle))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_blocking(
    compute: Option<Compute>,
    argument: Value,
    result: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let job = Job::new(compute, argument)?;
        result.put(pool::blocking(|| job.run()).0);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn raddle_pool_dispose(pool_id: u64, flags: u32, timeout_ns: i64) -> c_int {
    guard(|| {
        let pending = match flags {
            0 => Pending::Run,
            DROP_PENDING => Pending::Drop,
            _ => return Err(Errno(libc::EINVAL)),
        };
        // A negative time has no end.
        let timeout = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
        let (handle, disposable) = pool(pool_id)?;
        let pool = {
            let mut pool = disposable.pool.lock();
            let pool = pool.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
            pool.take().ok_or(Errno(libc::EBUSY))?
        };
        // The handle is good until the end: what the work queues meanwhile belongs to it.
        let report = pool.dispose(pending, timeout);
        POOLS.remove(handle)?;
        Ok(report.still_running as c_int)
    })
}
