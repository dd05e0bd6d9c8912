//! Signals that wait behind a lock of their user's, with their details.

use super::{Form, POOL, drop_records};
use raddle_sched::left_signals::Records;
use raddle_sys::abi::SigInfo;

/// A FIFO of signal records.
#[derive(Default)]
pub struct SignalList {
    /// As in [`super::SignalQueue`].
    head: u16,
}

impl SignalList {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { head: 0 }
    }
}

impl Records for SignalList {
    type Record = SigInfo;

    fn push(&mut self, info: &SigInfo) -> bool {
        POOL.lock()
            .add(&mut self.head, info, Form::Each, false, false)
    }

    fn take(&mut self, signal: u32) -> Option<SigInfo> {
        POOL.lock().remove(&mut self.head, signal, |_| true)
    }

    unsafe fn forget(&mut self) {
        // SAFETY: the caller's promise; as in `SignalQueue::break_locks`.
        unsafe { POOL.break_lock() };
        drop_records(&mut self.head);
    }
}
