//! What is left of a thread's quantum when it makes room for who was woken (`policy::judge`).
//!
//! It holds for the very next time that the thread runs: one that left by itself begins anew.
//!
//! A thread that runs again after it was preempted says since when: sysmon needs no look of its own
//! to begin to count its time.

use crate::thread::Thread;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_sched::policy::Terms;

/// Written by the thread, read by sysmon. A mixture of old and new changes one turn's length.
pub(crate) struct Turn {
    /// One more than the thread's count of switches when it was interrupted.
    at: AtomicU64,
    left_ns: AtomicU64,
    /// How long others had the carrier.
    away_ns: AtomicU64,
    /// Since when it runs again; 0 before that.
    since_ns: AtomicU64,
}

impl Turn {
    /// For the next thread in a slot, which has made no switch.
    pub(crate) fn reset(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// The running thread is about to make room; `left_ns` is 0 at a quantum's end.
    pub(crate) fn interrupted(thread: &Thread, left_ns: u64) {
        let turn = &thread.turn;
        let switches = thread.switches.load(Ordering::Relaxed);
        turn.at.store(switches + 1, Ordering::Relaxed);
        turn.left_ns.store(left_ns, Ordering::Relaxed);
        turn.away_ns.store(0, Ordering::Relaxed);
        turn.since_ns.store(0, Ordering::Relaxed);
    }

    /// It runs again, from `now_ns` on, after `away_ns`.
    pub(crate) fn resumed(thread: &Thread, now_ns: u64, away_ns: u64) {
        thread.turn.away_ns.store(away_ns, Ordering::Relaxed);
        thread.turn.since_ns.store(now_ns, Ordering::Release);
    }

    /// Since when a thread that was interrupted runs again, if it hasn't left the carrier since.
    pub(crate) fn goes_on_since_ns(thread: &Thread) -> Option<u64> {
        let since_ns = thread.turn.since_ns.load(Ordering::Acquire);
        (since_ns != 0 && Self::goes_on(thread)).then_some(since_ns)
    }

    fn goes_on(thread: &Thread) -> bool {
        thread.switches.load(Ordering::Relaxed) == thread.turn.at.load(Ordering::Relaxed)
    }

    /// What is left of the running thread's quantum, at `now_ns`; all of it if the thread hasn't
    /// been preempted since it got the carrier, for then it isn't known since when it runs.
    pub(crate) fn left_ns(thread: &Thread, quantum_ns: u64, now_ns: u64) -> u64 {
        let Some(since_ns) = Self::goes_on_since_ns(thread) else {
            return quantum_ns;
        };
        let had_ns = Self::terms(thread, quantum_ns).quantum_ns;
        had_ns.saturating_sub(now_ns.saturating_sub(since_ns))
    }

    /// What the thread that holds a carrier may still do.
    pub(crate) fn terms(thread: &Thread, quantum_ns: u64) -> Terms {
        let turn = &thread.turn;
        let left_ns = turn.left_ns.load(Ordering::Relaxed);
        match Self::goes_on(thread) && left_ns != 0 && left_ns < quantum_ns {
            true => Terms {
                quantum_ns: left_ns,
                undisturbed_ns: turn.away_ns.load(Ordering::Relaxed),
                timed: false,
            },
            false => Terms::whole(quantum_ns),
        }
    }
}
