//! What the runtime's library and the explicit API know of each other.
//!
//! The runtime must lie within two gigabytes of libc, whose system calls jump into it, so it is
//! always a shared library: preloaded by `raddle run`, or loaded by a program that was built with
//! the API. Either way it exports one table, [`Runtime`], under the name [`SYMBOL`].
#![no_std]

mod seat;
mod ums;

use core::ffi::{CStr, c_void};
use core::sync::atomic::AtomicU32;
pub use raddle_sched::WorkerState;
pub use raddle_sched::worker_state::Claim;
use raddle_sched::{Injector, RunQueue};
pub use seat::Seat;
pub use ums::{Decide, Ended, Lease, ListControl, ThreadView, WorkerControl};

/// The table's name among the library's dynamic symbols.
pub const SYMBOL: &CStr = c"raddle_runtime";

/// Changes whenever the table's meaning does.
pub const VERSION: u32 = 7;

/// The environment variable by which a program that loads the runtime itself asks that threads be
/// green on request only.
pub const EXPLICIT: &CStr = c"RADDLE_EXPLICIT";

/// What the runtime does for the API. All functions may be called on any thread of the process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// [`VERSION`] of the runtime; what follows is known only if it is one's own.
    pub version: u32,
    /// 1 if the process's system calls reach the runtime; 0 if it stays on kernel threads.
    pub is_up: extern "C" fn() -> u32,
    /// 1 if the calling thread is green, 0 if it has a kernel thread to itself.
    pub is_green: extern "C" fn() -> u32,
    /// The next thread that the calling thread creates is to be green (1) or not (0).
    pub next_is_green: extern "C" fn(u32),
    /// How many carriers may be active; 0 for as many as CPUs may be used.
    pub set_carriers: extern "C" fn(u32),
    /// How many carriers may be active now.
    pub carriers: extern "C" fn() -> u32,
    /// The calling thread hosts light threads; it does so until it ends.
    pub set_host: extern "C" fn(*const HostControl),
    /// The next thread that the calling thread creates is to be this UMS worker, or none (null).
    /// The control lives until it was listed as ended.
    pub next_is_worker: extern "C" fn(*const WorkerControl),
    /// The address of a function of a [`WorkerControl`] and a [`Lease`]. It runs a worker that the
    /// calling thread, which is no worker, has claimed, until the worker parks, yields or ends: the
    /// lease says which. To be called by jumps, which saves both sides a return that the CPU
    /// predicts wrongly.
    pub execute_worker: Jumped,
    /// The same of a number, the parameter of a yield: gives the carrier back to whoever executed
    /// the calling worker. It returns 0 if that is none, and 1 when the worker is executed again.
    ///
    /// Or it returns the address of the worker's lease, if that lets workers decide: the caller has
    /// taken it, is an ordinary thread that nobody can execute, decides ([`Lease::decide`]), and
    /// calls one of the next two. If the address is odd (one more), it has decided: a light worker
    /// calls what decides here, and switches to another one that rests without a return.
    pub yield_worker: Jumped,
    /// As `execute_worker`, of a lease that was taken and the thread of a claimed worker, or of the
    /// calling one: that one gets the lease. Returns when the calling worker is executed again.
    pub pass_lease: Jumped,
    /// Gives a lease that was taken to its scheduler, which continues as after a yield; returns
    /// when the calling worker is executed again.
    pub return_lease: extern "C" fn(&Lease),
    /// Takes the calling worker's lease if that lets workers decide: as `yield_worker`, but null
    /// otherwise, and nothing has changed.
    pub take_lease: extern "C" fn() -> *const Lease,
    /// The calling thread, which is no worker, enters (1) or leaves (0) scheduling mode.
    pub set_scheduler: extern "C" fn(u32),
    /// From its next execution on, a claimed worker computes for so many nanoseconds at most before
    /// its scheduler continues; 0 for ever.
    pub limit_worker: extern "C" fn(&WorkerControl, u64),
    /// The calling worker, null if it is none.
    pub current_worker: extern "C" fn() -> *const WorkerControl,
    /// A new engine beside the first; its number, or 0 if there are too many.
    pub open_engine: extern "C" fn(&EnginePlan) -> u32,
    /// The engine of this number gets no more threads.
    pub close_engine: extern "C" fn(u32),
    /// Changes an engine's quota, in percent of one CPU; 0 for none.
    pub set_quota: extern "C" fn(u32, u32),
    /// What the next thread that the calling thread creates is to be.
    pub next_birth: extern "C" fn(&Birth),
    /// Changes the policy of the first engine to the built-in one of this number.
    pub set_policy: extern "C" fn(u32),
    /// The policy of the first engine, by its number; 5 is a plug-in.
    pub policy: extern "C" fn() -> u32,
    /// CPU time that the carriers of the engine of this number have used so far.
    pub engine_cpu_ns: extern "C" fn(u32) -> u64,
    /// A count of what the loader has mapped and unmapped, which changes before a library comes or
    /// goes; 0 where nobody counts.
    pub loads: extern "C" fn() -> usize,
    /// 1 if the calling thread, whose stack has so many bytes, may be kept when it has ended. It
    /// accepts no signal from then on; the set of those that it has blocked before is stored.
    pub may_keep: extern "C" fn(usize, &mut u64) -> u32,
    /// The calling thread, which [`Runtime::may_keep`], ends for good. It blocks this set again.
    pub keep_not: extern "C" fn(u64),
    /// The address of a function of a [`Seat`]: the calling thread, which [`Runtime::may_keep`],
    /// has ended. It returns when it is another thread, or is to go home: its seat says which. To
    /// be called by jumps.
    pub keep: Jumped,
    /// A thread with so large a stack that was kept begins anew, as a green thread that the calling
    /// thread creates, with that to do. Its [`Seat::id`]; 0 if there is none, or if it would differ
    /// from a new one.
    pub reuse: extern "C" fn(usize, *mut c_void) -> usize,
    /// Waits while the word has this value; may return at other times, too.
    pub wait: extern "C" fn(&AtomicU32, u32),
    /// Wakes one who waits on the word at this address, which may be gone.
    pub wake: extern "C" fn(usize),
}

/// What a new engine is to be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnginePlan {
    /// A built-in policy's number: fifo, lifo, priority, fair, deadline.
    pub policy: u32,
    /// 0 for as many as its quota is worth, or as CPUs may be used.
    pub carriers: u32,
    /// Percent of one CPU; 0 for all.
    pub quota: u32,
}

/// What a new thread is to be, where that isn't what its maker is. All zero says nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Birth {
    /// From becoming runnable to the deadline, for policies that go by it.
    pub deadline_ns: u64,
    /// The number of its engine; 0 for the first.
    pub engine: u32,
    /// 1 to 99, for policies that go by it.
    pub priority: u32,
    /// -20 to 19.
    pub nice: i32,
    /// Zero.
    pub reserved: u32,
}

/// A thread that hosts light threads, as the runtime sees it: when it parks while it lends itself
/// to one, the runtime counts it out ([`GroupControl::active`]) and wakes another host.
#[repr(C)]
pub struct HostControl {
    /// 1 while a light thread is on the host. Written by the host.
    pub lends: AtomicU32,
    /// 1 from the time the runtime counted the host out until the host counts itself in again.
    pub left: AtomicU32,
    /// Light threads that wait for this host.
    pub queue: RunQueue,
    /// The group that the host belongs to; it lives for ever.
    pub group: &'static GroupControl,
}

/// A function of at most two words that is called, and that returns, by jumps: it finds where it is
/// to return to on the stack, and keeps rbx and rbp alone.
pub type Jumped = unsafe extern "C" fn();

impl HostControl {
    /// A host that lends itself to nobody yet.
    pub const fn new(group: &'static GroupControl) -> Self {
        Self {
            lends: AtomicU32::new(0),
            left: AtomicU32::new(0),
            queue: RunQueue::new(),
            group,
        }
    }
}

/// All hosts of a process, as the runtime sees them.
#[repr(C)]
pub struct GroupControl {
    /// Light threads that wait for any host.
    pub injector: Injector,
    /// Hosts that neither sleep nor have left.
    pub active: AtomicU32,
    /// Hosts that sleep, or are about to, on `word`.
    pub sleepers: AtomicU32,
    /// Not 0 if a host has left with light threads in its queue since somebody looked.
    pub stranded: AtomicU32,
    /// Changed to wake a sleeper: a futex.
    pub word: AtomicU32,
}

impl GroupControl {
    /// A group without hosts.
    pub const fn new() -> Self {
        Self {
            injector: Injector::new(),
            active: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            stranded: AtomicU32::new(0),
            word: AtomicU32::new(0),
        }
    }
}

impl Default for GroupControl {
    fn default() -> Self {
        Self::new()
    }
}
