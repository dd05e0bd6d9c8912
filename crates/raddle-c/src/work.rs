//! More of pools for C: work by time and by descriptors, ranges in parallel, counters.

use crate::call::{Compute, Job, Out, Value};
use crate::error::{Answer, Errno, done, guard};
use crate::options;
use crate::pool::remote;
use libc::{c_int, c_void};
use raddle::handles::{Handle, Table};
use raddle::pool::{Interest, PoolRef, QueueError, Stats, Watched, join, parallel_for};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::time::Duration;

/// RADDLE_READABLE.
const READABLE: c_int = 1;
/// RADDLE_WRITABLE.
const WRITABLE: c_int = 2;

/// A part of a range: gets its argument, the part's first element, and the one behind its last.
type Part = unsafe extern "C-unwind" fn(*mut c_void, usize, usize);

static WATCHES: LazyLock<Table<Watched>> = LazyLock::new(Table::new);

/// Starts a watch, and gives C a handle if it wants one.
fn watch(
    pool: u64,
    compute: Option<Compute>,
    argument: Value,
    place: Out<u64>,
    start: impl FnOnce(PoolRef, Job) -> Result<Watched, QueueError>,
) -> Answer {
    let job = Job::new(compute, argument)?;
    let watched = start(remote(pool)?, job)?;
    if let Ok(place) = place.required() {
        let handle = WATCHES.insert(watched);
        place.put(handle.map_or(0, Handle::to_bits)); // without memory it can't be cancelled
    }
    Ok(0)
}

/// Starts work that the clock watches, once or again and again.
fn watch_time(
    pool: u64,
    ns: u64,
    compute: Option<Compute>,
    argument: Value,
    place: Out<u64>,
    start: impl FnOnce(&PoolRef, Duration, Job) -> Result<Watched, QueueError>,
) -> c_int {
    let time = Duration::from_nanos(ns);
    guard(|| {
        watch(pool, compute, argument, place, |pool, job| {
            start(&pool, time, job)
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_after(
    pool: u64,
    delay_ns: u64,
    compute: Option<Compute>,
    argument: Value,
    handle: Out<u64>,
) -> c_int {
    watch_time(
        pool,
        delay_ns,
        compute,
        argument,
        handle,
        |pool, time, job| pool.after(time, job.work()),
    )
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_every(
    pool: u64,
    period_ns: u64,
    compute: Option<Compute>,
    argument: Value,
    handle: Out<u64>,
) -> c_int {
    watch_time(
        pool,
        period_ns,
        compute,
        argument,
        handle,
        |pool, time, job| pool.every(time, job.work()),
    )
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_when_ready(
    pool: u64,
    descriptor: c_int,
    interest: c_int,
    compute: Option<Compute>,
    argument: Value,
    handle: Out<u64>,
) -> c_int {
    guard(|| {
        let interest = match interest {
            READABLE => Interest::Readable,
            WRITABLE => Interest::Writable,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if descriptor < 0 {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: not -1. The pool makes a duplicate, or returns an error for a closed descriptor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        watch(pool, compute, argument, handle, |pool, job| {
            pool.when_ready(descriptor, interest, job.work())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_watch_cancel(watch: u64) -> c_int {
    guard(|| {
        let handle = Handle::from_bits(watch).ok_or(Errno(libc::EBADF))?;
        let watched = WATCHES.get(handle)?;
        WATCHES.remove(handle)?;
        Ok(watched.cancel().into())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_for(
    pool: u64,
    begin: usize,
    end: usize,
    grain: usize,
    part: Option<Part>,
    argument: Value,
) -> c_int {
    guard(|| {
        let part = part.ok_or(Errno(libc::EFAULT))?;
        let pool = remote(pool)?;
        let each = |range: std::ops::Range<usize>| {
            let whole: &Value = &argument; // captures the whole, which is `Sync`
            // SAFETY: C promises that the function may be called with these arguments, on any
            // thread.
            unsafe { part(whole.0, range.start, range.end) }
        };
        pool.install(|| parallel_for(begin..end, grain, each))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_join(
    pool: u64,
    first: Option<Compute>,
    first_argument: Value,
    first_result: Out<*mut c_void>,
    second: Option<Compute>,
    second_argument: Value,
    second_result: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let first = Job::new(first, first_argument)?;
        let second = Job::new(second, second_argument)?;
        let both = || join(|| first.run(), || second.run());
        let results = remote(pool)?.install(both)?;
        first_result.put(results.0.0);
        second_result.put(results.1.0);
        Ok(0)
    })
}

/// `raddle_pool_counters`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Counters {
    _size: usize,
    queued: u64,
    executed: u64,
    stolen: u64,
    rejected: u64,
    discarded: u64,
    inlined: u64,
    caller_ran: u64,
    injected: u64,
    pending: u64,
    workers: u64,
    idle: u64,
    blocked: u64,
    peak_workers: u64,
    target: u64,
}

// SAFETY: a size, and counters of eight bytes after it.
unsafe impl options::Counters for Counters {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_pool_count(
    pool: u64,
    counters: Option<NonNull<Counters>>,
) -> c_int {
    guard(|| {
        let counters = counters.ok_or(Errno(libc::EFAULT))?;
        let pool = remote(pool)?;
        // SAFETY: C promises a struct as large as its first member says.
        done(unsafe { options::store(counters, || Counters::of(pool.stats())) })
    })
}

impl Counters {
    fn of(stats: Stats) -> Self {
        Self {
            _size: 0,
            queued: stats.queued,
            executed: stats.executed,
            stolen: stats.stolen,
            rejected: stats.rejected,
            discarded: stats.discarded,
            inlined: stats.inlined,
            caller_ran: stats.caller_ran,
            injected: stats.injected,
            pending: stats.pending as u64,
            workers: stats.workers as u64,
            idle: stats.idle as u64,
            blocked: stats.blocked as u64,
            peak_workers: stats.peak_workers as u64,
            target: stats.target as u64,
        }
    }
}
