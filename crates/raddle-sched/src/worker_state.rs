//! The state of a UMS worker: who may execute it.
//!
//! 1. Who wakes a worker stores LISTED and pushes it onto its completion list, perhaps before the
//!    worker has left its stack.
//! 2. Who takes it from the list stores READY; so does its scheduler when it has yielded, and is
//!    off its stack.
//! 3. Any number may try to claim it; one moves READY to RUNNING. If the worker is still on its
//!    stack, that one stores READY again, and says that it is locked.
//!
//! A worker that has yielded may also stay RUNNING: then who saw it yield has claimed it already,
//! and can hand that right to others. It is locked as long as it is on its stack, or decides there
//! in its scheduler's place.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// One of the constants below.
#[repr(transparent)]
pub struct WorkerState(AtomicU32);

/// What came of a claim.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The worker is the caller's to execute, and only to execute.
    Claimed = 0,
    /// Its registers are still being saved: try again.
    Locked = 1,
    /// It runs, or is blocked.
    Busy = 2,
    /// It must be taken from its list first.
    Listed = 3,
    /// It has ended.
    Ended = 4,
    /// It has no thread.
    New = 5,
}

impl WorkerState {
    /// It has no thread yet.
    pub const NEW: u32 = 0;
    /// On its completion list. Stored by whoever puts it there.
    pub const LISTED: u32 = 1;
    /// It may be executed. Stored by who took it from the list, or gave up executing it.
    pub const READY: u32 = 2;
    /// Executed, or blocked. Stored by who is going to execute it.
    pub const RUNNING: u32 = 3;
    /// Its thread has ended. Stored before it is listed for the last time.
    pub const ENDED: u32 = 4;

    /// Of a worker without a thread.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(Self::NEW))
    }

    /// Of a worker without a thread.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(Self::NEW))
    }

    /// The state. Acquire: what was done before it was stored is seen.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Changes the state; by who has the right to (see the constants).
    #[inline(always)]
    pub fn set(&self, state: u32) {
        self.0.store(state, Ordering::Release);
    }

    /// Makes the calling thread the only one who may execute the worker; [`is_locked`] is only
    /// asked if the worker was ready.
    #[inline(always)]
    pub fn claim(&self, is_locked: impl FnOnce() -> bool) -> Claim {
        let (ready, running) = (Self::READY, Self::RUNNING);
        // Acquire: partner of who stored READY.
        let taken = self
            .0
            .compare_exchange(ready, running, Ordering::Acquire, Ordering::Acquire);
        match taken {
            Ok(_) if is_locked() => {
                self.set(ready);
                Claim::Locked
            }
            Ok(_) => Claim::Claimed,
            Err(Self::LISTED) => Claim::Listed,
            Err(Self::ENDED) => Claim::Ended,
            Err(Self::NEW) => Claim::New,
            Err(_) => Claim::Busy,
        }
    }
}

/// True while a worker can't be executed by who has the right to. `on_cpu` isn't 0 while a carrier
/// is on its stack ([`crate::Task::on_cpu`]); `worker` names another one, or is null, while its
/// thread is not this one, `own`, because it decides in its scheduler's place.
///
/// A thread that decides may park and go on, so `worker` is looked at first: once it is `own`
/// again the thread doesn't park before the switch that leaves its stack, and is on it until then.
#[inline(always)]
pub fn is_locked<T>(worker: &AtomicPtr<T>, own: *mut T, on_cpu: &AtomicU32) -> bool {
    // Acquire: partners of who has decided, and of the switch, which stores 0 at its end.
    worker.load(Ordering::Acquire) != own || on_cpu.load(Ordering::Acquire) != 0
}

/// As [`is_locked`], of a light worker, which has no thread of its own: `host` is the one that it
/// sits in, of which `sits` says whether it is this worker and off its stack, or null while it
/// rests; `on_cpu` isn't 0 while its stack is being left for that.
///
/// A worker that gives its host away stores 1 there, then null, then switches, which stores 0; and
/// its host is another worker before it parks. So who still sees the host finds it locked.
#[inline(always)]
pub fn is_locked_or_rests<T>(
    host: &AtomicPtr<T>,
    on_cpu: &AtomicU32,
    sits: impl FnOnce(*mut T) -> bool,
) -> bool {
    // Acquire: partner of who gives the host away.
    let host = host.load(Ordering::Acquire);
    match host.is_null() {
        true => on_cpu.load(Ordering::Acquire) != 0, // acquire: partner of the switch
        false => !sits(host),
    }
}

impl Default for WorkerState {
    fn default() -> Self {
        Self::new()
    }
}
