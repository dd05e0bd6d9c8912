//! The gate that keeps the runtime's own signals away from kernel threads that call `execve`.
//!
//! A kernel thread that calls `execve` keeps its pending signals, and the new program has no
//! handler for ours: it would die of one.
//!
//! 1. A sender raises `senders`, looks whether the kernel thread is in `closed`, sends if it isn't,
//!    lowers `senders`.
//! 2. A thread that is about to exec enters itself in `closed` and then waits until `senders` is 0:
//!    every signal for it has been sent by then, and every later sender sees the entry.
//!
//! All SeqCst: either the sender sees the entry, or the thread in step 2 sees the sender.

use crate::sync::{AtomicU32, Ordering};

/// Kernel threads that may call `execve` at the same time; one more waits for them.
const SLOTS: usize = 4;

/// See the module.
pub struct SignalGate {
    /// Kernel thread ids; 0 is a free slot.
    closed: [AtomicU32; SLOTS],
    senders: AtomicU32,
}

/// A kernel thread's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed(usize);

impl SignalGate {
    /// A gate that is open for all threads.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            closed: [const { AtomicU32::new(0) }; SLOTS],
            senders: AtomicU32::new(0),
        }
    }

    /// A gate that is open for all threads.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            closed: core::array::from_fn(|_| AtomicU32::new(0)),
            senders: AtomicU32::new(0),
        }
    }

    /// Calls `send` unless the gate is closed for `tid`; returns `None` then.
    pub fn pass<R>(&self, tid: u32, send: impl FnOnce() -> R) -> Option<R> {
        self.senders.fetch_add(1, Ordering::SeqCst);
        let mut closed = self.closed.iter();
        let is_open = !closed.any(|slot| slot.load(Ordering::SeqCst) == tid);
        let sent = is_open.then(send);
        self.senders.fetch_sub(1, Ordering::SeqCst);
        sent
    }

    /// Closes the gate for `tid`, which isn't 0; `None` if all slots are taken. No signal is sent
    /// once [`SignalGate::is_quiet`] has returned true after this.
    #[must_use]
    pub fn close(&self, tid: u32) -> Option<Closed> {
        let seq = Ordering::SeqCst;
        let free = |slot: &AtomicU32| slot.compare_exchange(0, tid, seq, seq).is_ok();
        self.closed.iter().position(free).map(Closed)
    }

    /// Returns true if no thread is sending.
    pub fn is_quiet(&self) -> bool {
        self.senders.load(Ordering::SeqCst) == 0
    }

    /// Opens the gate again. The caller sees the earlier writes of senders that found it closed.
    pub fn open(&self, closed: Closed) {
        self.closed[closed.0].store(0, Ordering::SeqCst);
        self.senders.fetch_add(0, Ordering::SeqCst); // reads from each sender's write
    }

    /// Opens the gate for all threads and forgets senders: in the child of a fork.
    pub fn reset(&self) {
        let Self { closed, senders } = self;
        senders.store(0, Ordering::SeqCst);
        for slot in closed {
            slot.store(0, Ordering::SeqCst);
        }
    }
}

impl Default for SignalGate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn it_is_closed_for_one_and_open_for_others() {
        let gate = SignalGate::new();
        let closed = gate.close(7).expect("a free slot");
        assert_eq!(gate.pass(7, || ()), None);
        assert_eq!(gate.pass(8, || 3), Some(3));
        gate.open(closed);
        assert_eq!(gate.pass(7, || 4), Some(4));
        assert!(gate.is_quiet());
    }

    #[test]
    fn too_many_wait() {
        let gate = SignalGate::new();
        let slots: Vec<_> = (1..=SLOTS as u32).map(|tid| gate.close(tid)).collect();
        assert!(slots.iter().all(Option::is_some));
        assert_eq!(gate.close(99), None);
        gate.reset();
        assert!(gate.close(99).is_some());
    }
}
