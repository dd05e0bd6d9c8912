//! Thread pools for C: their options and their ends.

use crate::call::{Compute, Job, Out, Value};
use crate::engine;
use crate::error::{Errno, guard};
use crate::options::{self, name, stack_size};
use libc::{c_char, c_int, c_void};
use raddle::handles::{Handle, Table};
use raddle::pool::{self, BuildError, Builder, Overflow, Pending, Pool, PoolRef, QueueError};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

/// RADDLE_DROP_PENDING: waiting work isn't run.
const DROP_PENDING: u32 = 1;

/// RADDLE_WAITS_ONLY: the waiter for a task doesn't run it.
const WAITS_ONLY: u32 = 1;

/// A hook for a worker's start or end: gets its argument and the worker's number.
type Hook = unsafe extern "C-unwind" fn(*mut c_void, usize);

/// A hook for work on a worker: gets its argument.
type WorkHook = unsafe extern "C-unwind" fn(*mut c_void);

/// `raddle_pool_options`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolOptions {
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
    /// `None` once a thread disposes of it.
    pool: Mutex<Option<Pool>>,
    remote: PoolRef,
}

static POOLS: LazyLock<Table<Disposable>> = LazyLock::new(Table::new);

thread_local! {
    /// The handle of the calling worker's pool, or 0.
    static SELF: Cell<u64> = const { Cell::new(0) };
}

/// A pool's handle, for its workers, which start after it is set.
type Own = Arc<OnceLock<u64>>;

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

fn pool(pool: u64) -> Result<(Handle<Disposable>, Arc<Disposable>), Errno> {
    let handle = Handle::from_bits(pool).ok_or(Errno(libc::EBADF))?;
    Ok((handle, POOLS.get(handle)?))
}

/// Returns the pool that a handle names.
pub(crate) fn remote(id: u64) -> Result<PoolRef, Errno> {
    Ok(pool(id)?.1.remote.clone())
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

fn tell_of_work(hook: WorkHook, argument: Value) {
    // SAFETY: C promises that the hook may be called with its argument, on the pool's threads.
    unsafe { hook(argument.0) }
}

fn tell(hook: Hook, argument: Value, worker: usize) {
    // SAFETY: C promises that the hook may be called with its argument, on the pool's threads.
    unsafe { hook(argument.0, worker) }
}

fn with_hooks(mut builder: Builder, options: &PoolOptions, own: Own) -> Builder {
    let (argument, hook) = (options.hook_argument, options.on_start);
    builder = builder.on_start(move |worker| {
        enter(&own);
        if let Some(hook) = hook {
            tell(hook, argument, worker);
        }
    });
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

/// The first act of a worker.
fn enter(own: &Own) {
    SELF.set(own.get().copied().unwrap_or(0));
}

fn build(options: Option<NonNull<PoolOptions>>, own: Own) -> Result<Pool, Errno> {
    let mut builder = Pool::builder();
    let Some(options) = options else {
        return Ok(builder.on_start(move |_| enter(&own)).build()?);
    };
    // SAFETY: C promises the contract of `read`; plain integers and an address.
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
    builder = with_hooks(builder, &options, own);
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
pub(crate) extern "C" fn raddle_pool_create(
    pool: Out<u64>,
    options: Option<NonNull<PoolOptions>>,
) -> c_int {
    guard(|| {
        let place = pool.required()?;
        let own = Own::default();
        let pool = build(options, own.clone())?;
        let remote = pool.remote();
        let pool = Mutex::new(Some(pool));
        let handle = POOLS.insert(Disposable { pool, remote })?.to_bits();
        place.put(*own.get_or_init(|| handle));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_self() -> u64 {
    SELF.get()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_blocking(
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
pub(crate) extern "C" fn raddle_pool_dispose(pool_id: u64, flags: u32, timeout_ns: i64) -> c_int {
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
        // The handle is valid until the end: work that is queued meanwhile belongs to it.
        let report = pool.dispose(pending, timeout);
        POOLS.remove(handle)?;
        Ok(report.still_running as c_int)
    })
}
