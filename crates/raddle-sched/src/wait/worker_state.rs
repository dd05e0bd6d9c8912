//! The state of a UMS worker, which decides whether a scheduler may execute it.
//!
//! 1. A waker of a worker stores LISTED and pushes it onto its completion list, perhaps before the
//!    worker has left its stack.
//! 2. The scheduler that takes it from the list stores READY. So does the scheduler of a worker
//!    that has yielded and left its stack.
//! 3. Any number of threads may try to claim it; one moves READY to RUNNING. If the worker is still
//!    on its stack, the claimer stores READY again, and reports that the worker is locked.
//!
//! A worker that has yielded may also stay RUNNING: then the thread that saw it yield has claimed
//! it already, and can pass that right on. The worker is locked while it is on its stack, or
//! decides there in its scheduler's place.

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// A state: one of the constants below.
#[repr(transparent)]
pub struct WorkerState(AtomicU32);

/// The result of a claim.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller has the right to execute the worker.
    Claimed = 0,
    /// The worker's registers are still being saved: try again.
    Locked = 1,
    /// The worker runs, or is blocked.
    Busy = 2,
    /// The worker must be taken from its list first.
    Listed = 3,
    /// The worker has ended.
    Ended = 4,
    /// The worker has no thread.
    New = 5,
}

impl WorkerState {
    /// No thread yet.
    pub const NEW: u32 = 0;
    /// On its completion list. Stored by the thread that pushes it there.
    pub const LISTED: u32 = 1;
    /// Ready to be executed. Stored by the thread that took it from the list, or gave up executing
    /// it.
    pub const READY: u32 = 2;
    /// Executed, or blocked. Stored by the thread that is going to execute it.
    pub const RUNNING: u32 = 3;
    /// Its thread has ended. Stored before it is listed for the last time.
    pub const ENDED: u32 = 4;

    /// The state of a worker without a thread.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(Self::NEW))
    }

    /// The state of a worker without a thread.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self(AtomicU32::new(Self::NEW))
    }

    /// Returns the state. Acquire: the caller sees what was done before the store.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a state. The constants say which thread may.
    #[inline(always)]
    pub fn set(&self, state: u32) {
        self.0.store(state, Ordering::Release);
    }

    /// Tries to give the calling thread the sole right to execute the worker; calls [`is_locked`]
    /// only if the worker was ready.
    #[inline(always)]
    pub fn claim(&self, is_locked: impl FnOnce() -> bool) -> Claim {
        let (ready, running) = (Self::READY, Self::RUNNING);
        // Acquire: partner of the store of READY.
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

/// Returns true while a worker can't be executed even by the thread with the right to. `on_cpu`
/// isn't 0 while a carrier is on its stack ([`crate::Task::on_cpu`]). `worker`, a word of the
/// worker's thread, is `own` (this worker), unless that thread decides in its scheduler's place:
/// then it names another worker or is null.
///
/// A thread that decides may park and go on, so `worker` is read first: once it is `own` again, the
/// thread doesn't park before the switch that leaves its stack, and is on its stack until then.
#[inline(always)]
pub fn is_locked<T>(worker: &AtomicPtr<T>, own: *mut T, on_cpu: &AtomicU32) -> bool {
    // Acquire: partners of the store by the thread that has decided, and of the switch's last
    // store.
    worker.load(Ordering::Acquire) != own || on_cpu.load(Ordering::Acquire) != 0
}

/// As [`is_locked`], for a light worker, which has no thread of its own. `host` is the host that it
/// sits in, or null while it rests; `sits` returns true if the host's worker is this one, off its
/// stack. `on_cpu` isn't 0 while the worker leaves its stack to rest.
///
/// A worker that gives its host away stores 1 to `on_cpu`, then null to `host`, then switches,
/// which stores 0; its host has another worker before it parks. So a thread that still sees the
/// host finds the worker locked.
#[inline(always)]
pub fn is_locked_or_rests<T>(
    host: &AtomicPtr<T>,
    on_cpu: &AtomicU32,
    sits: impl FnOnce(*mut T) -> bool,
) -> bool {
    // Acquire: partner of the store that gives the host away.
    let host = host.load(Ordering::Acquire);
    if host.is_null() {
        on_cpu.load(Ordering::Acquire) != 0 // acquire: partner of the switch
    } else {
        !sits(host)
    }
}

impl Default for WorkerState {
    fn default() -> Self {
        Self::new()
    }
}
