//! Engines for C: carriers with a policy and a share of the CPUs of their own.
//!
//! A handle keeps its engine, and so does each thread of the engine: after the handle is freed, the
//! engine goes on until its last thread has ended.

use crate::call::Out;
use crate::error::{Errno, done, guard};
use crate::options::{self, name};
use libc::{c_char, c_int};
use raddle::engine::{BuiltIn, Engine, Failure, Table as PolicyTable, TablePolicy};
use raddle::handles::{Handle, Table};
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::time::Duration;

/// RADDLE_PICKED_GARBAGE: the policy picked something that is none of its threads.
const PICKED_GARBAGE: c_int = 1;
/// RADDLE_PICKED_NOTHING: the policy picked nothing while threads waited.
const PICKED_NOTHING: c_int = 2;
/// RADDLE_STUCK: the policy was in one call for a second.
const STUCK: c_int = 3;

/// `raddle_engine_options`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EngineOptions {
    size: usize,
    name: *const c_char,
    policy: *const c_char,
    table: Option<NonNull<PolicyTable>>,
    carriers: u32,
    cpu_share: u32,
}

// SAFETY: a size, and integers and addresses for which zero asks for nothing.
unsafe impl options::Options for EngineOptions {
    const FIRST: usize = size_of::<EngineOptions>();
}

/// `raddle_engine_counters`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EngineCounters {
    _size: usize,
    threads: u64,
    started: u64,
    cpu_ns: u64,
}

// SAFETY: a size, and counters of eight bytes after it.
unsafe impl options::Counters for EngineCounters {}

static ENGINES: LazyLock<Table<Engine>> = LazyLock::new(Table::new);

fn handle(engine: u64) -> Result<Handle<Engine>, Errno> {
    Handle::from_bits(engine).ok_or(Errno(libc::EBADF))
}

/// Returns the engine that a handle names.
pub(crate) fn named(engine: u64) -> Result<Engine, Errno> {
    Ok(Engine::clone(&*ENGINES.get(handle(engine)?)?))
}

/// Returns the built-in policy that C names; `None` for null.
pub(crate) fn built_in(policy: *const c_char) -> Result<Option<BuiltIn>, Errno> {
    // SAFETY: C promises a string that ends, or null.
    let Some(policy) = (unsafe { name(policy) }) else {
        return Ok(None);
    };
    let known = BuiltIn::by_name(&policy);
    known.map(Some).ok_or(Errno(libc::EINVAL))
}

/// Converts a share from C; 0 means no limit.
fn share(percent: u32) -> Option<u32> {
    (percent != 0).then_some(percent)
}

fn build(options: Option<NonNull<EngineOptions>>) -> Result<Engine, Errno> {
    let mut builder = Engine::builder();
    let Some(options) = options else {
        return Ok(builder.build()?);
    };
    // SAFETY: C promises the contract of `read`.
    let options = unsafe { options::read(options) }?;
    // SAFETY: C promises a string that ends, or null.
    if let Some(name) = unsafe { name(options.name) } {
        builder = builder.name(name);
    }
    if options.carriers != 0 {
        builder = builder.carriers(options.carriers as usize);
    }
    if let Some(percent) = share(options.cpu_share) {
        builder = builder.cpu_share(percent);
    }
    match (built_in(options.policy)?, options.table) {
        (Some(_), Some(_)) => return Err(Errno(libc::EINVAL)),
        (Some(policy), None) => builder = builder.policy(policy),
        (None, Some(table)) => builder = builder.policy(policy(table)?),
        (None, None) => {}
    }
    Ok(builder.build()?)
}

/// Makes a policy of a table of C's.
fn policy(table: NonNull<PolicyTable>) -> Result<TablePolicy, Errno> {
    // SAFETY: C promises what the first two members say; the rest is only read if they allow it.
    unsafe {
        let [_version, size] = table.cast::<[u32; 2]>().read();
        if (size as usize) < size_of::<PolicyTable>() {
            return Err(Errno(libc::EINVAL));
        }
        TablePolicy::new(table.read()).ok_or(Errno(libc::EINVAL))
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_create(
    engine: Out<u64>,
    options: Option<NonNull<EngineOptions>>,
) -> c_int {
    guard(|| {
        let place = engine.required()?;
        place.put(ENGINES.insert(build(options)?)?.to_bits());
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_shut_down(engine: u64) -> c_int {
    guard(|| {
        named(engine)?.shut_down();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_wait(engine: u64, timeout_ns: i64) -> c_int {
    guard(|| {
        let engine = named(engine)?;
        let Ok(timeout_ns) = u64::try_from(timeout_ns) else {
            return done(engine.wait());
        };
        if engine.wait_timeout(Duration::from_nanos(timeout_ns))? {
            Ok(0)
        } else {
            Err(Errno(libc::ETIMEDOUT))
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_set_share(engine: u64, percent: u32) -> c_int {
    guard(|| done(named(engine)?.set_cpu_share(share(percent))))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_failure(engine: u64) -> c_int {
    guard(|| {
        Ok(match named(engine)?.policy_failure() {
            None => 0,
            Some(Failure::Nothing) => PICKED_NOTHING,
            Some(Failure::Stuck) => STUCK,
            Some(_) => PICKED_GARBAGE,
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_count(
    engine: u64,
    counters: Option<NonNull<EngineCounters>>,
) -> c_int {
    guard(|| {
        let counters = counters.ok_or(Errno(libc::EFAULT))?;
        let engine = named(engine)?;
        let now = || {
            let stats = engine.stats();
            EngineCounters {
                _size: 0,
                threads: stats.threads as u64,
                started: stats.started,
                cpu_ns: stats.cpu.as_nanos() as u64,
            }
        };
        // SAFETY: C promises a struct as large as its first member says.
        done(unsafe { options::store(counters, now) })
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_engine_free(engine: u64) -> c_int {
    guard(|| done(ENGINES.remove(handle(engine)?)))
}
