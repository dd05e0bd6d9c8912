//! Signals that wait behind a lock of their user's, with their details.

use super::{Addressee, Form, RECORDS};
use raddle_sched::left_signals::Records;
use raddle_sched::records::List;
use raddle_sys::abi::SigInfo;

/// A FIFO of signal records.
#[derive(Default)]
pub struct SignalList {
    list: List,
}

impl SignalList {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { list: List::EMPTY }
    }
}

impl Records for SignalList {
    type Record = SigInfo;

    fn push(&mut self, info: &SigInfo) -> bool {
        let (form, to) = (Form::Each, Addressee::Process);
        RECORDS.lock().add(&mut self.list, info, form, to, false)
    }

    fn take(&mut self, signal: u32) -> Option<SigInfo> {
        let taken = RECORDS.lock().remove(&mut self.list, signal, |_, _| true);
        taken.map(|(info, _)| info)
    }

    unsafe fn forget(&mut self) {
        // SAFETY: the caller's promise; as in `ThreadSignals::break_locks`.
        unsafe { RECORDS.break_lock() };
        RECORDS.lock().drop_all(&mut self.list);
    }
}
