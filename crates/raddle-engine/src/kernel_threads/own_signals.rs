//! The runtime's own signals to kernel threads of the process, and the threads that must not get
//! them: see [`raddle_sched::signal_gate`].

use crate::kernel_threads::{kthread, roster};
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::process::PROCESS;
use core::sync::atomic::Ordering;
use raddle_sched::signal_gate::Closed;
use raddle_sys::{nr, sys};

/// Signal 33, which glibc keeps to itself and the runtime handles: interrupts a helper.
pub const POKE: usize = 33;

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
    let (mut closed, mut times) = (None, 0);
    loop {
        closed = closed.or_else(|| gate.close(own));
        let is_done = closed.is_some() && gate.is_quiet();
        kthread::give_cpu_away(times); // what was sent before is handled at the call's end
        times += 1;
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

impl Carrier {
    /// Tells the carrier to preempt the thread that it runs since its switch number `switches`.
    pub(crate) fn preempt(&self, switches: u64) {
        self.preempt_at.store(switches + 1, Ordering::Release);
        self.send(PREEMPT);
    }

    /// Sends one of the runtime's own signals to the carrier.
    pub(crate) fn send(&self, signal: usize) {
        send(self.kernel_tid.load(Ordering::Relaxed), signal);
    }
}
