//! A policy in C's form: a table of functions, `struct raddle_policy` of `raddle_policy.h`.
//!
//! `raddle run --policy FILE.so` takes the same table as a plug-in. There it runs inside the
//! runtime, and may call nothing; here it is called on ordinary threads, like any [`Policy`].
//!
//! The table's functions see a thread as a record inside the engine's own, so it lives as long as
//! the thread. An address that they return is looked up before it is used.

use super::custom::Worker;
use super::policy::{Policy, Reason, Runnable};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

/// The version of [`Table`].
const VERSION: u32 = 1;

/// A thread as a table's functions see it: `struct raddle_policy_thread`.
///
/// ```
/// use raddle::engine::TableThread;
/// /// A quantum of [`Table`](raddle::engine::Table): a millisecond more for each step of niceness
/// /// below 0, counted in a word of the policy's own.
/// unsafe extern "C-unwind" fn quantum(_: *mut std::ffi::c_void, thread: *mut TableThread) -> u64 {
///     // SAFETY: the engine's thread, until the policy gives it back.
///     let thread = unsafe { &mut *thread };
///     thread.user[0] += 1;
///     1_000_000 * (1 + u64::from(thread.nice.min(0).unsigned_abs()))
/// }
/// let mut thread = TableThread { nice: -3, ..TableThread::default() };
/// // SAFETY: a live thread, and a state that isn't used.
/// assert_eq!(unsafe { quantum(std::ptr::null_mut(), &mut thread) }, 4_000_000);
/// assert_eq!(thread.user[0], 1);
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TableThread {
    /// The policy's own: links, keys. Zero for a new thread.
    pub user: [u64; 4],
    /// How long it has had a carrier, in nanoseconds.
    pub ran_ns: u64,
    /// Deadline from becoming runnable, in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// The thread's id, as `gettid(2)` returns it.
    pub tid: u32,
    /// -20 to 19.
    pub nice: i32,
    /// SCHED_RR with a priority, else SCHED_DEADLINE with a deadline, else SCHED_OTHER.
    pub sched_class: u32,
    /// 1 to 99, or 0.
    pub priority: u32,
}

/// A policy's functions: `struct raddle_policy`, documented in its header. [`TablePolicy`] calls
/// them.
///
/// ```
/// use raddle::engine::{Table, TablePolicy};
/// let lacks_all = Table {
///     version: 1,
///     size: size_of::<Table>() as u32,
///     create: None,
///     enqueue: None,
///     pick: None,
///     quantum: None,
///     destroy: None,
/// };
/// // SAFETY: there is no function that could do wrong.
/// assert!(unsafe { TablePolicy::new(lacks_all) }.is_none());
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The version of the table: 1.
    pub version: u32,
    /// The size of this struct.
    pub size: u32,
    /// Makes the state.
    pub create: Option<unsafe extern "C-unwind" fn() -> *mut c_void>,
    /// Adds a runnable thread.
    pub enqueue: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut TableThread, u32, u64)>,
    /// Takes the thread that runs next.
    pub pick: Option<unsafe extern "C-unwind" fn(*mut c_void, u64) -> *mut TableThread>,
    /// Returns how many nanoseconds the picked thread may compute.
    pub quantum: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut TableThread) -> u64>,
    /// Ends the state.
    pub destroy: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
}

/// A thread's [`TableThread`] in the engine's record of it.
#[derive(Default)]
pub(super) struct ThreadCell(UnsafeCell<TableThread>);

// SAFETY: only the driver that has the engine's policy, one at a time, looks inside.
unsafe impl Sync for ThreadCell {}

/// A [`Policy`] that calls a [`Table`].
///
/// ```
/// use raddle::engine::{Engine, Table, TablePolicy, TableThread};
/// # use raddle::runtime::{Status, status};
/// # use std::ffi::c_void;
/// # use std::ptr::null_mut;
/// # if status() != Status::Green { return Ok(()); }
/// /// The newest first: each thread points to the one below it.
/// type Thread = TableThread;
/// unsafe extern "C-unwind" fn enqueue(top: *mut c_void, thread: *mut Thread, _: u32, _: u64) {
///     let top = top.cast::<*mut TableThread>();
///     // SAFETY: the state of `create`, and a thread that is this policy's until it is picked.
///     unsafe { (*thread).user[0] = std::mem::replace(&mut *top, thread) as u64 };
/// }
/// unsafe extern "C-unwind" fn pick(top: *mut c_void, _: u64) -> *mut TableThread {
///     let top = top.cast::<*mut TableThread>();
///     // SAFETY: as above.
///     unsafe { std::mem::replace(&mut *top, (**top).user[0] as *mut TableThread) }
/// }
/// unsafe extern "C-unwind" fn create() -> *mut c_void {
///     Box::into_raw(Box::new(null_mut::<TableThread>())).cast()
/// }
/// unsafe extern "C-unwind" fn destroy(top: *mut c_void) {
///     // SAFETY: the state of `create`, for the last time.
///     drop(unsafe { Box::from_raw(top.cast::<*mut TableThread>()) });
/// }
///
/// let table = Table {
///     version: 1,
///     size: size_of::<Table>() as u32,
///     create: Some(create),
///     enqueue: Some(enqueue),
///     pick: Some(pick),
///     quantum: None,
///     destroy: Some(destroy),
/// };
/// // SAFETY: the functions do what the header asks for.
/// let policy = unsafe { TablePolicy::new(table) }.expect("it has what it needs");
/// let engine = Engine::builder().carriers(1).policy(policy).build()?;
/// let threads: Vec<_> = (0..3).map(|i| engine.spawn(move || i)).collect::<Result<_, _>>()?;
/// let sum: i32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
/// assert_eq!((sum, engine.policy_failure()), (3, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TablePolicy {
    table: Table,
    state: *mut c_void,
    /// The threads that the table has, by their address.
    waiting: HashMap<usize, Runnable>,
}

// SAFETY: the caller of `new` promises that the functions and their state may be used by one thread
// after another.
unsafe impl Send for TablePolicy {}

impl TablePolicy {
    /// Makes a policy with a state of its own; `None` if the table is of another version, smaller
    /// than [`Table`], or has no `enqueue` or no `pick`.
    ///
    /// # Safety
    /// The functions must be what `raddle_policy.h` asks for, for as long as the policy lives, on
    /// any thread, one call at a time. Wrong answers are allowed.
    pub unsafe fn new(table: Table) -> Option<Self> {
        let is_usable = table.version == VERSION
            && table.size as usize >= size_of::<Table>()
            && table.enqueue.is_some()
            && table.pick.is_some();
        // SAFETY: the caller's promise.
        let create = |create: unsafe extern "C-unwind" fn() -> *mut c_void| unsafe { create() };
        is_usable.then(|| Self {
            state: table.create.map_or(null_mut(), create),
            table,
            waiting: HashMap::new(),
        })
    }
}

/// Updates the thread's record for the table's functions, and returns it.
fn shown(thread: &Runnable) -> *mut TableThread {
    const OTHER: u32 = libc::SCHED_OTHER as u32;
    const ROUND_ROBIN: u32 = libc::SCHED_RR as u32;
    const DEADLINE: u32 = 6;
    let at = thread.worker.seen.0.get();
    let deadline_ns = thread.worker.birth.deadline_ns;
    // SAFETY: the engine's record, which `thread` holds; only the policy's caller uses it.
    unsafe {
        *at = TableThread {
            user: (*at).user,
            ran_ns: thread.ran().as_nanos() as u64,
            deadline_ns,
            tid: thread.thread_id().cast_unsigned(),
            nice: thread.nice(),
            sched_class: match thread.priority() {
                0 if deadline_ns != 0 => DEADLINE,
                0 => OTHER,
                _ => ROUND_ROBIN,
            },
            priority: thread.priority().into(),
        };
    }
    at
}

/// Returns the monotonic time.
fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills a live structure; this clock can't fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Policy for TablePolicy {
    fn enqueue(&mut self, thread: Runnable, reason: Reason) {
        let reason = match reason {
            Reason::New => 0,
            Reason::Woken => 1,
            Reason::Yielded => 2,
            Reason::Preempted => 3,
        };
        let at = shown(&thread);
        self.waiting.insert(at.addr(), thread);
        if let Some(enqueue) = self.table.enqueue {
            // SAFETY: the promise of `new`'s caller; the thread is in `waiting`.
            unsafe { enqueue(self.state, at, reason, now_ns()) };
        }
    }

    fn pick(&mut self) -> Option<Runnable> {
        let pick = self.table.pick?;
        // SAFETY: the promise of `new`'s caller.
        let picked = unsafe { pick(self.state, now_ns()) };
        if picked.is_null() {
            return None;
        }
        let own = self.waiting.remove(&picked.addr());
        own.or_else(|| Some(stray(&self.waiting.values().next()?.worker)))
    }

    fn quantum(&mut self, thread: &Runnable) -> Option<Duration> {
        const USUAL: Duration = Duration::from_millis(2);
        let Some(quantum) = self.table.quantum else {
            return Some(USUAL);
        };
        if thread.lost.is_none() {
            return Some(USUAL); // the answer was garbage
        }
        // SAFETY: the promise of `new`'s caller; the record lives while `thread` does.
        match unsafe { quantum(self.state, shown(thread)) } {
            0 => Some(USUAL),
            ns => Some(Duration::from_nanos(ns)),
        }
    }
}

/// An answer that is refused, in place of one that was no thread.
fn stray(any: &Arc<Worker>) -> Runnable {
    Runnable {
        worker: Arc::clone(any),
        turn: u64::MAX,
        lost: None,
    }
}

impl Drop for TablePolicy {
    fn drop(&mut self) {
        if let Some(destroy) = self.table.destroy {
            // SAFETY: the promise of `new`'s caller; it is the last call.
            unsafe { destroy(self.state) };
        }
    }
}
