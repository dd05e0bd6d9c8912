//! Since when a thread that was preempted runs again.
//!
//! So sysmon can count the thread's time from that moment without a look of its own then.

use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};

/// Written by the thread, read by sysmon. A mixture of old and new changes one turn's length.
pub(crate) struct Turn {
    /// One more than the thread's count of switches when it was preempted.
    at: AtomicU64,
    /// Since when it runs again; 0 before that.
    since_ns: AtomicU64,
}

impl Turn {
    /// For the next thread in a slot, which has made no switch.
    pub(crate) fn reset(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// The running thread is about to make room.
    pub(crate) fn interrupted(thread: &Thread) {
        let turn = &thread.turn;
        let switches = thread.switches.load(Ordering::Relaxed);
        turn.at.store(switches + 1, Ordering::Relaxed);
        turn.since_ns.store(0, Ordering::Relaxed);
    }

    /// The thread runs again, from `now_ns` on.
    pub(crate) fn resumed(thread: &Thread, now_ns: u64) {
        thread.turn.since_ns.store(now_ns, Ordering::Release);
    }

    /// Since when a thread that was preempted runs again, if it hasn't left the carrier since.
    pub(crate) fn goes_on_since_ns(thread: &Thread) -> Option<u64> {
        let turn = &thread.turn;
        let since_ns = turn.since_ns.load(Ordering::Acquire);
        let switches = thread.switches.load(Ordering::Relaxed);
        let goes_on = switches == turn.at.load(Ordering::Relaxed);
        (since_ns != 0 && goes_on).then_some(since_ns)
    }
}
