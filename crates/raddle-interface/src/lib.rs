//! The interface between the runtime's library and the explicit API.
//!
//! The runtime must lie within two gigabytes of libc, because libc's system calls jump into it. So
//! it is always a shared library: `raddle run` preloads it, or a program that was built with the
//! API loads it. Either way it exports one table, [`Runtime`], under the name [`SYMBOL`].
#![no_std]

mod reuse;
mod ums;

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32};
pub use raddle_inspect::{LIGHT_MAGIC, LightOffsets, LightPlaces, LightRegion};
pub use raddle_sched::WorkerState;
use raddle_sched::wake::{ActiveCount, SharedWakeWord};
pub use raddle_sched::worker_state::Claim;
use raddle_sched::{Injector, RunQueue};
pub use reuse::ReuseControl;
pub use ums::{Decide, Ended, ListControl, SchedulerToken, ThreadView, WorkerControl};

/// The table's name among the library's dynamic symbols.
pub const SYMBOL: &CStr = c"raddle_runtime";

/// The table's version, which changes whenever the table's meaning does.
pub const VERSION: u32 = 9;

/// An environment variable: a program that loads the runtime itself sets it so that threads are
/// green on request only.
pub const EXPLICIT: &CStr = c"RADDLE_EXPLICIT";

/// The runtime's functions for the API. Any thread of the process may call them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// [`VERSION`] of the runtime; the caller may use the rest of the table only if it has the
    /// same.
    pub version: u32,
    /// Returns 1 if the process's system calls reach the runtime; 0 if it stays on kernel threads.
    pub is_up: extern "C" fn() -> u32,
    /// Returns 1 if the calling thread is green, 0 if it has a kernel thread to itself.
    pub is_green: extern "C" fn() -> u32,
    /// Decides whether the next thread that the calling thread creates is green (1) or not (0).
    pub next_is_green: extern "C" fn(u32),
    /// Sets how many carriers may be active; 0 for as many as CPUs may be used.
    pub set_carriers: extern "C" fn(u32),
    /// Returns how many carriers may be active now.
    pub carriers: extern "C" fn() -> u32,
    /// Makes the calling thread a host of light threads until it ends.
    pub set_host: extern "C" fn(*const HostControl),
    /// Makes the next thread that the calling thread creates this UMS worker, or none (null). The
    /// control lives until it was listed as ended.
    pub next_is_worker: extern "C" fn(*const WorkerControl),
    /// The address of a function of a [`WorkerControl`] and a [`SchedulerToken`]. It runs a worker
    /// that the calling thread, which is no worker, has claimed, until the worker parks, yields or
    /// ends; the token says which. Call it by jumps, which saves both sides a return that the CPU
    /// predicts wrongly.
    pub execute_worker: Jumped,
    /// The address of a function of a number, the parameter of a yield: gives the carrier back to
    /// the executor of the calling worker. Call it by jumps. Returns 0 if the caller is no executed
    /// worker, and 1 when the worker is executed again.
    ///
    /// If the worker's token lets workers decide, it returns the token's address instead: the
    /// caller has taken the token, is an ordinary thread that no thread can execute, decides
    /// ([`SchedulerToken::decide`]), and calls one of the next two. If the address is odd (one
    /// more), the caller has decided already: a light worker calls the deciding function here, and
    /// switches without a return to a light worker at rest.
    pub yield_worker: Jumped,
    /// As `execute_worker`, of a token that was taken and the thread of a claimed worker, or of the
    /// calling one: the token passes to that worker. Returns when the calling worker is executed
    /// again.
    pub pass_token: Jumped,
    /// Returns a taken token to its scheduler, which continues as after a yield. Returns when the
    /// calling worker is executed again.
    pub return_token: extern "C" fn(&SchedulerToken),
    /// Takes the calling worker's token as `yield_worker` does, if the token lets workers decide.
    /// Returns null otherwise, without a change.
    pub take_token: extern "C" fn() -> *const SchedulerToken,
    /// Makes the calling thread, which is no worker, enter (1) or leave (0) scheduling mode.
    pub set_scheduler: extern "C" fn(u32),
    /// Limits each later execution of a claimed worker: the worker computes for at most so many
    /// nanoseconds before its scheduler continues; 0 for no limit.
    pub limit_worker: extern "C" fn(&WorkerControl, u64),
    /// Returns the calling worker; null if the caller is none.
    pub current_worker: extern "C" fn() -> *const WorkerControl,
    /// Makes an engine beside the first; returns its number, or 0 if there are too many.
    pub open_engine: extern "C" fn(&EnginePlan) -> u32,
    /// Closes the engine of this number to new threads.
    pub close_engine: extern "C" fn(u32),
    /// Changes an engine's quota, in percent of one CPU; 0 for none.
    pub set_quota: extern "C" fn(u32, u32),
    /// Sets the properties of the next thread that the calling thread creates.
    pub next_birth: extern "C" fn(&Birth),
    /// Changes the policy of the default engine to the built-in one of this number.
    pub set_policy: extern "C" fn(u32),
    /// Returns the number of the default engine's policy; 5 is a plug-in.
    pub policy: extern "C" fn() -> u32,
    /// Returns the CPU time that the carriers of the engine of this number have used so far.
    pub engine_cpu_ns: extern "C" fn(u32) -> u64,
    /// Returns a count of the loader's mappings and unmappings, which changes before a library
    /// comes or goes; 0 if they aren't counted.
    pub loads: extern "C" fn() -> usize,
    /// Returns 1 if the calling thread, with a stack of so many bytes, may be kept when it has
    /// ended. Then the thread accepts no signal any more, and its signal mask so far is stored.
    pub may_reuse: extern "C" fn(usize, &mut u64) -> u32,
    /// After [`Runtime::may_reuse`]: the calling thread isn't kept, but ends for good, and has this
    /// signal mask again.
    pub forgo_reuse: extern "C" fn(u64),
    /// The address of a function of a [`ReuseControl`]: ends the calling thread, after
    /// [`Runtime::may_reuse`], and keeps it. Returns when the thread is another thread, or must end
    /// for good: its reuse control says which. Call it by jumps.
    pub keep: Jumped,
    /// Reuses a kept thread with a stack of this size as a new green thread of the calling thread,
    /// with the second argument as its work. Returns its [`ReuseControl::id`]; 0 if there is none,
    /// or if the result would differ from a new thread.
    pub reuse: extern "C" fn(usize, *mut c_void) -> usize,
    /// Waits while the word has this value; may return early, too.
    pub wait: extern "C" fn(&AtomicU32, u32),
    /// Wakes a thread that waits on the word at this address; the word may be gone.
    pub wake: extern "C" fn(usize),
    /// A word in which the bits of [`Runtime::trace_mask`] are set while events are recorded.
    pub trace_word: &'static AtomicU32,
    /// See [`Runtime::trace_word`].
    pub trace_mask: u32,
    /// Records an event of the program's, if events are recorded: a [`TraceKind`], a text that
    /// lives as long as the process, its length or 0 for one that ends with a zero, and a value.
    pub trace: extern "C" fn(u32, *const u8, u32, i64),
}

/// What [`Runtime::trace`] records.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A span of the calling thread begins.
    Begin = 0,
    /// Its latest span ends.
    End = 1,
    /// Something happens on it.
    Instant = 2,
    /// A counter has this value.
    Counter = 3,
}

/// The properties of a new engine.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnginePlan {
    /// Number of a built-in policy: fifo, lifo, priority, fair, deadline.
    pub policy: u32,
    /// Number of carriers; 0 for as many as the quota is worth, or as CPUs may be used.
    pub carriers: u32,
    /// Percent of one CPU; 0 for all.
    pub quota: u32,
}

/// The properties of a new thread that differ from its maker's. All zero changes nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Birth {
    /// Time from becoming runnable to the deadline, for policies that use it.
    pub deadline_ns: u64,
    /// The number of its engine; 0 for the first.
    pub engine: u32,
    /// 1 to 99, for policies that use it.
    pub priority: u32,
    /// -20 to 19.
    pub nice: i32,
    /// Zero.
    pub reserved: u32,
}

/// The runtime's part of a thread that hosts light threads. If the host parks while it lends itself
/// to a light thread, the runtime counts it out of [`GroupControl::count`] and wakes another host.
#[repr(C)]
pub struct HostControl {
    /// 1 while a light thread is on the host. Written by the host.
    pub lends: AtomicU32,
    /// 1 from the moment the runtime lowers the group's count until the host raises it again.
    pub left: AtomicU32,
    /// Light threads that wait for this host.
    pub queue: RunQueue,
    /// The group that the host belongs to; it lives for ever.
    pub group: &'static GroupControl,
}

/// A function of at most two words that is called, and returns, by jumps: it takes its return
/// address from the stack, and preserves rbx and rbp only.
pub type Jumped = unsafe extern "C" fn();

impl HostControl {
    /// A host that runs no light thread yet.
    pub const fn new(group: &'static GroupControl) -> Self {
        Self {
            lends: AtomicU32::new(0),
            left: AtomicU32::new(0),
            queue: RunQueue::new(),
            group,
        }
    }
}

/// The runtime's part of all hosts of a process.
#[repr(C)]
pub struct GroupControl {
    /// Light threads that wait for any host.
    pub injector: Injector,
    /// Hosts that neither sleep nor have left, and those that sleep, or are about to, on `word`.
    pub count: ActiveCount,
    /// Not 0 if a host has left with light threads in its queue since the last look.
    pub stranded: AtomicU32,
    /// Changed to wake a sleeper.
    pub word: SharedWakeWord,
    /// Where tools find the light threads; null before the first. Stored (release) once by the
    /// group, which keeps it for ever; read from outside of the process only.
    pub lights: AtomicPtr<LightPlaces>,
}

impl GroupControl {
    /// A group without hosts.
    pub const fn new() -> Self {
        Self {
            injector: Injector::new(),
            count: ActiveCount::new(),
            stranded: AtomicU32::new(0),
            word: SharedWakeWord::new(),
            lights: AtomicPtr::new(core::ptr::null_mut()),
        }
    }
}

impl Default for GroupControl {
    fn default() -> Self {
        Self::new()
    }
}
