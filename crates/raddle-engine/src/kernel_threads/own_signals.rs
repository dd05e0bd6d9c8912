//! The runtime's own signals to kernel threads of the process, and the threads that must not get
//! them: see [`raddle_sched::signal_gate`].

use crate::kernel_threads::roster;
use crate::state::carrier::Carrier;
use crate::state::process::PROCESS;
use core::sync::atomic::Ordering;
use raddle_sched::signal_gate::Closed;
use raddle_sys::{nr, sys};

/// Sends `signal` to a kernel thread of this process; what the kernel says, or `None` if the thread
/// is about to become another program: what the signal is for waits until that has failed.
pub fn send(tid: u32, signal: usize) -> Option<isize> {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: signals a thread of the runtime, which handles the signal.
    let send = || unsafe { sys!(nr::__NR_tgkill, pid, tid, signal) };
    PROCESS.signal_gate.pass(tid, send)
}

/// Before `execve`: from here on the calling kernel thread gets none of them, and none is pending.
pub fn close() -> Closed {
    let gate = &PROCESS.signal_gate;
    let own = roster::own_tid();
    let mut closed = None;
    loop {
        closed = closed.or_else(|| gate.close(own));
        let is_done = closed.is_some() && gate.is_quiet();
        // SAFETY: no memory is involved. What was sent before is handled at this call's end.
        unsafe { sys!(nr::__NR_sched_yield) };
        if let Some(closed) = closed.filter(|_| is_done) {
            return closed;
        }
    }
}

/// After an `execve` that failed: the carrier looks for what it was not told meanwhile.
pub fn open(closed: Closed) {
    PROCESS.signal_gate.open(closed);
    PROCESS.roster.answer();
    Carrier::current().attention.store(1, Ordering::Relaxed);
}
