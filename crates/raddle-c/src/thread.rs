//! Threads: green ones, light ones, and calls on kernel threads.
//!
//! A thread's handle is in the table from before the thread runs until it is joined or detached.
//! The handle's record has the join handle, behind a lock that the maker holds until the thread is
//! made: a thread that detaches itself at once waits for that.

use crate::call::{Compute, Job, Out, Value};
use crate::completion;
use crate::engine;
use crate::error::{Answer, Errno, guard};
use crate::options::{self, name, stack_size};
use crate::park::Permit;
use libc::{c_char, c_int, c_void};
use raddle::engine::Engine;
use raddle::handles::{Handle, Table};
use raddle::{light, thread};
use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// RADDLE_LIGHT: a light thread.
const LIGHT: u32 = 1;
/// RADDLE_DETACHED: a thread without a handle.
const DETACHED: u32 = 2;
/// RADDLE_NICE: with the niceness of the options.
const NICE: u32 = 4;
/// RADDLE_KERNEL_THREAD: a kernel thread of its own.
const KERNEL: u32 = 8;

/// `raddle_thread_options`. Later versions append to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Options {
    size: usize,
    stack_size: usize,
    name: *const c_char,
    flags: u32,
    nice: i32,
    engine: u64,
    deadline_ns: u64,
    priority: u32,
    reserved: u32,
}

// SAFETY: a size, and integers and an address for which zero asks for nothing.
unsafe impl options::Options for Options {
    const FIRST: usize = offset_of!(Options, engine);
}

/// Options in the form in which they are used.
#[derive(Default)]
struct Settings {
    stack_size: Option<usize>,
    name: Option<String>,
    nice: Option<i8>,
    flags: u32,
    engine: Option<Engine>,
    deadline_ns: u64,
    priority: u8,
}

impl Settings {
    fn read(options: Option<NonNull<Options>>) -> Result<Self, Errno> {
        let Some(at) = options else {
            return Ok(Self::default());
        };
        // SAFETY: C promises the contract of `read`; plain integers and an address.
        let options = unsafe { options::read(at) }?;
        let is = |flag| options.flags & flag != 0;
        let contradiction = is(KERNEL) && is(LIGHT | NICE) || is(LIGHT) && is(NICE);
        let terms = options.engine != 0 || options.deadline_ns != 0 || options.priority != 0;
        let contradiction = contradiction || is(KERNEL | LIGHT) && terms;
        let priority = u8::try_from(options.priority).ok();
        let priority = priority.filter(|priority| *priority < 100 && options.reserved == 0);
        let priority = priority.ok_or(Errno(libc::EINVAL))?;
        let nice = i8::try_from(options.nice)
            .ok()
            .filter(|nice| (-20..20).contains(nice));
        let unknown = options.flags & !(LIGHT | DETACHED | NICE | KERNEL) != 0;
        if unknown || contradiction || nice.is_none() || !is(NICE) && nice != Some(0) {
            return Err(Errno(libc::EINVAL));
        }
        Ok(Self {
            stack_size: stack_size(options.stack_size)?,
            // SAFETY: C promises a string that ends, or null.
            name: unsafe { name(options.name) },
            nice: nice.filter(|_| is(NICE)),
            flags: options.flags,
            engine: match options.engine {
                0 => None,
                engine => Some(engine::named(engine)?),
            },
            deadline_ns: options.deadline_ns,
            priority,
        })
    }
}

/// The right to wait for a thread's end.
enum Join {
    Green(thread::JoinHandle<Value>),
    Light(light::JoinHandle<Value>),
    Kernel(std::thread::JoinHandle<Value>),
}

/// A thread that was neither joined nor detached.
#[derive(Default)]
pub(crate) struct Record {
    /// `None` while a thread waits for it.
    join: Mutex<Option<Join>>,
    /// The permission that it parks for.
    pub permit: Permit,
}

impl Record {
    fn take(&self) -> Option<Join> {
        let mut join = self.join.lock().unwrap_or_else(PoisonError::into_inner);
        join.take()
    }
}

static THREADS: LazyLock<Table<Record>> = LazyLock::new(Table::new);

thread_local! {
    /// The handle of a thread that isn't light; 0 if it wasn't made here.
    static SELF: Cell<u64> = const { Cell::new(0) };
}

/// Returns the calling thread's handle, or 0. Not inlined: a light thread may be on another host
/// after each call, and compilers keep the addresses of thread-locals.
#[inline(never)]
pub(crate) fn this_thread() -> u64 {
    match light::local() {
        Some(word) => word as u64,
        None => SELF.get(),
    }
}

/// The first act of a thread that was made here.
fn enter(handle: u64) {
    if !light::set_local(handle as usize) {
        SELF.set(handle);
    }
}

/// Returns the record that a handle names.
pub(crate) fn record(thread: u64) -> Result<(Handle<Record>, Arc<Record>), Errno> {
    let handle = Handle::from_bits(thread).ok_or(Errno(libc::EBADF))?;
    Ok((handle, THREADS.get(handle)?))
}

/// Starts a thread that runs `body`, with `handle` as its own.
fn start(
    settings: Settings,
    handle: u64,
    body: impl FnOnce() -> Value + Send + 'static,
) -> Result<Join, Errno> {
    let body = move || {
        enter(handle);
        body()
    };
    if settings.flags & LIGHT != 0 {
        let mut builder = light::Builder::new();
        if let Some(bytes) = settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        return Ok(Join::Light(builder.spawn(body)?));
    }
    if settings.flags & KERNEL != 0 {
        let mut builder = std::thread::Builder::new();
        builder = builder.stack_size(settings.stack_size.unwrap_or(thread::STACK_SIZE));
        if let Some(name) = settings.name {
            builder = builder.name(name);
        }
        return Ok(Join::Kernel(builder.spawn(body)?));
    }
    let mut builder = thread::Builder::new();
    if let Some(bytes) = settings.stack_size {
        builder = builder.stack_size(bytes);
    }
    if let Some(name) = settings.name {
        builder = builder.name(name);
    }
    if let Some(nice) = settings.nice {
        builder = builder.niceness(nice);
    }
    if let Some(engine) = &settings.engine {
        builder = builder.engine(engine);
    }
    if settings.deadline_ns != 0 {
        builder = builder.deadline(Duration::from_nanos(settings.deadline_ns));
    }
    builder = builder.priority(settings.priority);
    Ok(Join::Green(builder.spawn(body)?))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_spawn(
    thread: Out<u64>,
    options: Option<NonNull<Options>>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| {
        let job = Job::new(compute, argument)?;
        let settings = Settings::read(options)?;
        if settings.flags & DETACHED != 0 {
            thread.put(0);
            return start(settings, 0, move || job.run()).map(|_| 0);
        }
        let place = thread.required()?;
        let record = Arc::new(Record::default());
        let handle = THREADS.insert_arc(Arc::clone(&record))?;
        place.put(handle.to_bits()); // the thread may look there
        let mut join = record.join.lock().unwrap_or_else(PoisonError::into_inner);
        match start(settings, handle.to_bits(), move || job.run()) {
            Ok(made) => *join = Some(made),
            Err(errno) => {
                place.put(0);
                THREADS.remove(handle)?;
                return Err(errno);
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_join(thread: u64, result: Out<*mut c_void>) -> c_int {
    guard(|| {
        let (handle, record) = record(thread)?;
        if thread == this_thread() {
            return Err(Errno(libc::EDEADLK));
        }
        let joined = match record.take().ok_or(Errno(libc::EBUSY))? {
            Join::Green(join) => join.join(),
            Join::Light(join) => join.join(),
            Join::Kernel(join) => join.join(),
        };
        THREADS.remove(handle)?;
        let value = joined.map_err(|_| Errno(libc::ENOTRECOVERABLE))?;
        result.put(value.0);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_detach(thread: u64) -> c_int {
    guard(|| {
        let (handle, record) = record(thread)?;
        drop(record.take().ok_or(Errno(libc::EBUSY))?);
        THREADS.remove(handle)?;
        record.permit.end();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_is_finished(thread: u64) -> c_int {
    guard(|| {
        let (_, record) = record(thread)?;
        let join = record.join.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match join.as_ref().ok_or(Errno(libc::EBUSY))? {
            Join::Green(join) => join.is_finished(),
            Join::Light(join) => join.is_finished(),
            Join::Kernel(join) => join.is_finished(),
        }
        .into())
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_self() -> u64 {
    this_thread()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_yield() -> c_int {
    guard(|| {
        light::yield_now();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_sleep(time_ns: u64) -> c_int {
    guard(|| {
        light::sleep(Duration::from_nanos(time_ns));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_is_green() -> c_int {
    guard(|| Ok(raddle::is_green_thread().into()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_is_light() -> c_int {
    guard(|| Ok(light::is_light_thread().into()))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_on_kernel_thread(
    stack_bytes: usize,
    compute: Option<Compute>,
    argument: Value,
    result: Out<*mut c_void>,
) -> c_int {
    guard(|| {
        let job = Job::new(compute, argument)?;
        let bytes = stack_size(stack_bytes)?.unwrap_or(thread::STACK_SIZE);
        let value = thread::on_kernel_thread(bytes, || job.run())?;
        result.put(value.0);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_run(
    completion: Out<u64>,
    options: Option<NonNull<Options>>,
    compute: Option<Compute>,
    argument: Value,
) -> c_int {
    guard(|| -> Answer {
        let place = completion.required()?;
        let job = Job::new(compute, argument)?;
        let settings = Settings::read(options)?;
        let (handle, ends) = completion::create()?;
        let body = move || {
            let value = job.run();
            // Fails if the completion was freed meanwhile: then the value is dropped.
            let _ = ends.finish(0, value);
            value
        };
        place.put(handle.to_bits()); // the thread may look there
        if let Err(errno) = start(settings, 0, body) {
            place.put(0);
            completion::free(handle)?;
            return Err(errno);
        }
        Ok(0)
    })
}
