//! The right to read this process's memory, where Yama gives it to parents and declared tracers
//! only: `prctl(PR_SET_PTRACER)`. One process can have it. In this order:
//!
//! 1. the inspection client that has asked for it, while it is connected;
//! 2. the client that has asked for events last, while they are recorded;
//! 3. the process that the program has declared, if any.

use crate::state::process::PROCESS;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use raddle_sys::{is_err, nr, prctl, sys};

/// The process that the program declared as its tracer. Written by the program's threads, read by
/// sysmon. A mixture with [`DECLARER`] of another process can't be: a fork copies both.
static DECLARED: AtomicUsize = AtomicUsize::new(0);
/// The process that declared it: a child of a fork inherits no tracer.
static DECLARER: AtomicU32 = AtomicU32::new(0);

/// Notes that the program declares a tracer.
pub fn program_declares(tracer: usize) {
    DECLARED.store(tracer, Ordering::Relaxed);
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    DECLARER.store(pid, Ordering::Relaxed);
}

/// The client that reads while it is connected, and the one that reads events. For sysmon alone.
static READER: ClientId = ClientId(AtomicU64::new(0));
static RECORDER: ClientId = ClientId(AtomicU64::new(0));

/// A client's process id, and above it this process's: the child of a fork has no clients. 0 for
/// none.
struct ClientId(AtomicU64);

impl ClientId {
    fn set(&self, pid: u32) {
        let own = u64::from(PROCESS.pid.load(Ordering::Relaxed));
        let both = if pid == 0 {
            0
        } else {
            own << 32 | u64::from(pid)
        };
        self.0.store(both, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        let both = self.0.load(Ordering::Relaxed);
        let is_ours = both >> 32 == u64::from(PROCESS.pid.load(Ordering::Relaxed));
        if is_ours { both as u32 } else { 0 }
    }
}

/// Gives the right to a connected client, by its id in this process's namespace. Returns false
/// where there is no Yama, or no such process.
pub(super) fn reader_comes(pid: u32) -> bool {
    let has_it = pid != 0 && set(pid as usize);
    READER.set(if has_it { pid } else { 0 });
    has_it
}

/// The connected client has no right any longer.
pub(super) fn reader_leaves() {
    READER.set(0);
    decide();
}

/// Gives the right to a client that reads events, for as long as they are recorded.
pub(super) fn recorder_comes(pid: u32) {
    RECORDER.set(pid);
    decide();
}

/// No more events are recorded.
pub(crate) fn recorder_leaves() {
    if RECORDER.get() != 0 {
        RECORDER.set(0);
        decide();
    }
}

/// Gives the right to the first process in the order.
fn decide() {
    let is_ours = DECLARER.load(Ordering::Relaxed) == PROCESS.pid.load(Ordering::Relaxed);
    let declared = if is_ours {
        DECLARED.load(Ordering::Relaxed)
    } else {
        0
    };
    let clients = [&READER, &RECORDER].map(|client| client.get() as usize);
    let mut wanted = clients.into_iter().filter(|&pid| pid != 0);
    if !wanted.any(set) && !set(declared) {
        set(0);
    }
}

fn set(tracer: usize) -> bool {
    let zero = 0usize;
    // SAFETY: changes a right to this process, and no memory.
    !is_err(unsafe {
        sys!(
            nr::__NR_prctl,
            prctl::PR_SET_PTRACER,
            tracer,
            zero,
            zero,
            zero
        )
    })
}
