//! Signals that kernel threads leave to the first kernel thread, which alone may queue them to the
//! process.
//!
//! 1. A kernel thread *leaves* a signal: under the lock it appends the record and sets the *mark*
//!    of the signal's number. Then it interrupts the first kernel thread.
//! 2. The first kernel thread takes a record under the lock, and queues it without the lock. If
//!    there is no record of the number any more, it clears the mark, under the same lock. After the
//!    last mark it raises `rounds` and wakes the waiters.
//! 3. A waiter reads `rounds`, then the marks. It sleeps on `rounds` if a mark of its signals is
//!    set.
//!
//! **A clear mark means that each signal that was left before is queued**: the mark is set with the
//! record, and cleared by the thread that has queued the last record, when no other is there.
//!
//! **No waiter sleeps on**: the marks are cleared before `rounds` is raised, and read after it. A
//! waiter that reads the raised number sees the marks clear; another one sleeps on a number that is
//! raised later.
//!
//! Rejected: marks that are set and cleared without the lock. A signal that was left between the
//! last take and the clearing has no mark until the first kernel thread has looked again, and its
//! waiter goes on too early.

use crate::sync::spin::SpinLock;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The records of signals, behind the lock of [`LeftSignals`].
pub trait Records {
    /// The details of a signal.
    type Record;

    /// Appends a record. Returns false if there is no room.
    fn push(&mut self, record: &Self::Record) -> bool;

    /// Takes the oldest record of a signal's number.
    fn take(&mut self, signal: u32) -> Option<Self::Record>;

    /// Drops all records.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    unsafe fn forget(&mut self);
}

/// See the module.
pub struct LeftSignals<R> {
    records: SpinLock<R>,
    /// Bit n-1 for signal n. Written under the lock, read without it.
    marks: AtomicU64,
    /// Raised by the first kernel thread after it has cleared marks.
    rounds: AtomicU32,
}

impl<R: Records> LeftSignals<R> {
    /// Returns the state without signals; `records` is empty.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new(records: R) -> Self {
        Self {
            records: SpinLock::new(records),
            marks: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
        }
    }

    /// Returns the state without signals; `records` is empty.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new(records: R) -> Self {
        Self {
            records: SpinLock::new(records),
            marks: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
        }
    }

    /// Leaves a signal. Returns false if there is no room for its record.
    pub fn leave(&self, signal: u32, record: &R::Record) -> bool {
        let mut records = self.records.lock();
        let is_left = records.push(record);
        if is_left {
            self.marks.fetch_or(bit(signal), Ordering::SeqCst);
        }
        is_left
    }

    /// Returns the signals that were left and may not be queued yet.
    #[inline(always)]
    pub fn marks(&self) -> u64 {
        self.marks.load(Ordering::SeqCst)
    }

    /// Returns true if signals were left, a moment ago.
    #[inline(always)]
    pub fn has_any(&self) -> bool {
        self.marks.load(Ordering::Relaxed) != 0
    }

    /// Queues what was left, by `queue`, which is called without the lock. The caller then wakes
    /// the waiters. Called by the first kernel thread only.
    pub fn queue_all(&self, mut queue: impl FnMut(R::Record)) {
        loop {
            let marks = self.marks.load(Ordering::Relaxed);
            if marks == 0 {
                break;
            }
            let signal = marks.trailing_zeros() + 1;
            while let Some(record) = self.take_or_clear(signal) {
                queue(record);
            }
        }
        self.rounds.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the oldest record of a signal; clears its mark if there is none.
    fn take_or_clear(&self, signal: u32) -> Option<R::Record> {
        let mut records = self.records.lock();
        let record = records.take(signal);
        if record.is_none() {
            self.marks.fetch_and(!bit(signal), Ordering::SeqCst);
        }
        record
    }

    /// Returns the number to sleep on, at [`LeftSignals::address`], if a signal of `set` was left
    /// and may not be queued yet. The caller looks again after its sleep.
    pub fn awaits(&self, set: u64) -> Option<u32> {
        let seen = self.rounds.load(Ordering::SeqCst);
        (self.marks() & set != 0).then_some(seen)
    }

    /// Returns true while a waiter that has seen this number may sleep: what the kernel compares.
    #[cfg(raddle_loom)]
    pub fn may_sleep(&self, seen: u32) -> bool {
        self.rounds.load(Ordering::SeqCst) == seen
    }

    /// Returns the address that waiters sleep on.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub fn address(&self) -> *mut u32 {
        self.rounds.as_ptr()
    }

    /// Forgets what was left.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        let Self {
            records,
            marks,
            rounds: _, // no waiter is left
        } = self;
        // SAFETY: the caller's promise; the records are emptied below if their lock was held.
        let was_held = unsafe { records.break_lock() };
        // A child writes to as few of its parent's pages as it can.
        if was_held || marks.load(Ordering::Relaxed) != 0 {
            // SAFETY: the caller's promise.
            unsafe { records.lock().forget() };
            marks.store(0, Ordering::Relaxed);
        }
    }
}

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    /// Records of two at most: number and value.
    #[derive(Default)]
    struct Two(Vec<(u32, u32)>);

    impl Records for Two {
        type Record = (u32, u32);

        fn push(&mut self, record: &Self::Record) -> bool {
            let has_room = self.0.len() < 2;
            if has_room {
                self.0.push(*record);
            }
            has_room
        }

        fn take(&mut self, signal: u32) -> Option<Self::Record> {
            let at = self.0.iter().position(|record| record.0 == signal)?;
            Some(self.0.remove(at))
        }

        unsafe fn forget(&mut self) {
            self.0.clear();
        }
    }

    #[test]
    fn signals_are_queued_by_number_and_in_their_order() {
        let left = LeftSignals::new(Two::default());
        assert!(left.leave(12, &(12, 1)) && left.leave(10, &(10, 2)));
        assert!(!left.leave(14, &(14, 3)), "there is no room");
        assert_eq!(left.marks(), bit(12) | bit(10));
        let mut queued = Vec::new();
        left.queue_all(|record| queued.push(record));
        assert_eq!(queued, [(10, 2), (12, 1)]);
        assert!(!left.has_any());
    }

    #[test]
    fn a_signal_that_is_left_while_another_is_queued_keeps_its_waiter() {
        let left = LeftSignals::new(Two::default());
        assert!(left.leave(10, &(10, 1)));
        let mut queued = Vec::new();
        left.queue_all(|record| {
            assert!(left.awaits(bit(10)).is_some(), "{record:?} is on its way");
            if queued.is_empty() {
                assert!(left.leave(10, &(10, 2)));
            }
            queued.push(record);
        });
        assert_eq!(queued, [(10, 1), (10, 2)]);
        assert_eq!(left.awaits(u64::MAX), None);
    }

    #[test]
    fn a_child_has_none_of_its_parents() {
        let left = LeftSignals::new(Two::default());
        assert!(left.leave(10, &(10, 1)));
        // SAFETY: no other thread uses it.
        unsafe { left.reset() };
        left.queue_all(|record| panic!("{record:?}"));
        assert!(!left.has_any());
    }
}
