//! What is known of one descriptor: its kind, its waiters, its events.
//!
//! *Drained*: a read that got less than it asked for, or nothing, left the socket empty. So the
//! next read waits without a fruitless try, and `poll` without a question. That is true
//!
//! 1. of TCP only. Other streams end a read before they are empty: a Unix socket at passed
//!    descriptors or another writer's credentials. And only while no event told of more than data:
//!    a read also ends at urgent data, and before the end of the stream or an error, and nothing
//!    is reported again for what was already there. So PRI, RDHUP, HUP and ERR end it for good, and
//!    so does whatever gives the socket other reads (an upper layer protocol, a low-water mark).
//! 2. for one sequence number, read before the read. What arrives after the read makes an event
//!    that is still to be taken, which raises the number: the wait then doesn't begin, or ends.
//!    What was there before the read, with its event taken before the number was read, is what the
//!    read got, or is of point 1.
//! 3. if the descriptor is registered when the mark is made. Without a registration there are no
//!    events; a registration made after the read reports the present state as one.

use crate::io::pump::{ERR, HUP, PRI, RDHUP};
use crate::state::carrier::Carrier;
pub use crate::state::parts::pump::Entry;
use core::sync::atomic::Ordering;
use raddle_sched::TaskList;
use raddle_sched::wait_table::WaitList;

/// What a descriptor is to the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    Unknown = 0,
    /// Files that epoll refuses: the kernel blocks or it doesn't.
    File = 1,
    Stream = 2,
    Datagram = 3,
    Pipe = 4,
    /// Watches of files: they wait exactly when poll says that they aren't ready.
    Pollable = 5,
    /// A folder of threads, and the name of a thread: files to the kernel.
    TaskFolder = 6,
    ThreadName = 7,
    /// Regular files and block devices that a disk may be behind.
    Disk = 8,
    /// A read by a process in its background stops it.
    Terminal = 9,
    /// Counters, timers and other sources of fixed records: a short read is refused, not waited
    /// for.
    Counter = 10,
    /// Anything else that epoll accepts, and sockets with a low-water mark. A call may be refused
    /// or answered though poll says that it isn't ready.
    Device = 11,
}

/// Why a descriptor can't be waited for with epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPollable {
    /// Its file has no events: it is always as ready as it is now.
    NoEvents,
    /// The kernel refuses it, for want of memory, say.
    Refused,
}

/// What has looked into the pump: a carrier, or another kernel thread.
#[derive(Clone, Copy)]
pub(super) struct Looker(u32);

impl Looker {
    pub(super) fn of(carrier: Option<&Carrier>) -> Self {
        Self(carrier.map_or(0, |carrier| carrier.id.get().wrapping_add(1)))
    }
}

/// A mark: the descriptor was seen listening.
const LISTENS: u32 = 1;
/// A mark: an event has told of an end, a hang-up or an error.
const ENDED: u32 = 2;
/// How many calls after an answer take the descriptor to be in non-blocking mode, too.
const UNASKED: u32 = 64;

impl Entry {
    /// The number to read before a try.
    #[inline(always)]
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Acquire)
    }

    /// What the descriptor is, if it was looked at.
    #[inline(always)]
    pub fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            1 => Kind::File,
            2 => Kind::Stream,
            3 => Kind::Datagram,
            4 => Kind::Pipe,
            5 => Kind::Pollable,
            6 => Kind::TaskFolder,
            7 => Kind::ThreadName,
            8 => Kind::Disk,
            9 => Kind::Terminal,
            10 => Kind::Counter,
            11 => Kind::Device,
            _ => Kind::Unknown,
        }
    }

    /// Notes what the descriptor is, and whether a short read empties it.
    pub fn set_kind(&self, kind: Kind, drains: bool) {
        self.drains.store(u32::from(drains), Ordering::Relaxed);
        self.drained.store(0, Ordering::Relaxed);
        self.kind.store(kind as u32, Ordering::Relaxed);
    }

    /// Notes that a read at `sequence` got less than it asked for, or found nothing.
    #[inline(always)]
    pub fn set_drained(&self, sequence: u32) {
        if self.drains.load(Ordering::Relaxed) != 0 && self.epoch.load(Ordering::Relaxed) != 0 {
            self.drained
                .store(sequence.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Returns true if nothing can have come since the socket was seen empty. Never for the number
    /// before zero: its mark is "never".
    #[inline(always)]
    pub fn is_drained(&self, sequence: u32) -> bool {
        let mark = sequence.wrapping_add(1);
        mark != 0 && self.drained.load(Ordering::Relaxed) == mark
    }

    /// Returns true if an event has told of an end, a hang-up or an error: a call that doesn't
    /// block may say EAGAIN then where one that blocks ends.
    #[inline(always)]
    pub fn has_ended(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & ENDED != 0
    }

    /// Returns true if a short read empties it: a TCP socket of which no event has told more than
    /// data.
    pub fn is_plain_tcp(&self) -> bool {
        self.drains.load(Ordering::Relaxed) != 0
    }

    /// Returns true if the descriptor was seen listening. If it has stopped since, it is ready for
    /// ever.
    pub fn is_listening(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & LISTENS != 0
    }

    /// Notes that the descriptor listens.
    pub fn set_listening(&self) {
        self.marks.fetch_or(LISTENS, Ordering::Relaxed);
    }

    /// Notes that the descriptor is in non-blocking mode, or that it may be in the other one.
    pub fn set_nonblocking(&self, is_nonblocking: bool) {
        let calls = if is_nonblocking { UNASKED } else { 0 };
        self.unasked.store(calls, Ordering::Relaxed);
    }

    /// Returns true if the descriptor was in non-blocking mode some calls ago. It may be in the
    /// other mode since, by another process or another number of the file: only the kernel may
    /// make the call.
    #[inline(always)]
    pub fn was_nonblocking(&self) -> bool {
        let calls = self.unasked.load(Ordering::Relaxed);
        if calls != 0 {
            self.unasked.store(calls - 1, Ordering::Relaxed);
        }
        calls != 0
    }

    /// A call succeeded, or its wait is over: the next wait is a new one.
    #[inline(always)]
    pub fn progress(&self) {
        if self.swept.load(Ordering::Relaxed) != 0 {
            self.swept.store(0, Ordering::Relaxed);
        }
    }

    /// An event that a carrier took ([`Looker`]): raises the number and claims the waiters that it
    /// concerns.
    pub(super) fn event(&self, ready: u32, looker: Looker, woken: &TaskList) {
        let mut list = self.list.lock();
        if ready & (PRI | RDHUP | ERR | HUP) != 0 {
            self.drains.store(0, Ordering::Relaxed);
            if ready & (RDHUP | ERR | HUP) != 0 {
                self.marks.fetch_or(ENDED, Ordering::Relaxed);
            }
        }
        self.told_to.store(looker.0, Ordering::Relaxed);
        self.raise(ready);
        list.wake(usize::MAX, woken, |_, wanted| wanted & ready != 0);
    }

    /// Returns what an event has told of the descriptor, if that is what a question would find; 0
    /// if it must be asked. `looker` is the carrier on which the thread has waited, from `sequence`
    /// on, and the list is locked.
    ///
    /// epoll reports what is true when it is asked. An event that the thread's own carrier has
    /// taken was asked for after the thread had left the carrier. Another carrier may have asked
    /// before the thread read what was there. What others have read meanwhile shows as drained.
    pub(super) fn told_since(&self, sequence: u32, looker: Looker) -> u32 {
        let now = self.sequence.load(Ordering::Relaxed);
        let is_own = self.told_to.load(Ordering::Relaxed) == looker.0;
        if is_own && now != sequence && self.is_plain_tcp() && !self.is_drained(now) {
            self.told.load(Ordering::Relaxed)
        } else {
            0
        }
    }

    /// In the child of a fork: no thread waits, and nothing is registered.
    ///
    /// # Safety
    /// No other thread exists.
    pub(super) unsafe fn reset(&self) {
        let Self {
            list,
            accepting,
            epoch,
            drained,
            sequence: _, // compared with a count of the same thread
            noted: _,
            swept: _, // of waits
            kind: _,
            drains: _,
            tid: _,
            pace: _,
            syncs: _,
            unlimited: _,
            marks: _, // of the file
            told: _,  // read by waiters only
            told_to: _,
            unasked: _, // of the file
        } = self;
        // SAFETY: the caller's promise.
        unsafe {
            list.break_lock();
            accepting.break_lock();
        }
        *list.lock() = WaitList::new();
        epoch.store(0, Ordering::Relaxed);
        drained.store(0, Ordering::Relaxed);
    }

    /// Raises the number, with what is known of the descriptor now. Under the list's lock.
    pub(super) fn raise(&self, told: u32) {
        self.told.store(told, Ordering::Relaxed);
        self.sequence.fetch_add(1, Ordering::Release);
    }

    /// The number has become another file; under the list's lock.
    pub(super) fn renew(&self) {
        self.raise(0);
        self.forget();
    }

    /// The number means another file from now on, or none.
    #[cold]
    pub(super) fn forget(&self) {
        let unlimited = &self.unlimited;
        let known = [&self.epoch, &self.kind, &unlimited[0], &unlimited[1]];
        if known.iter().all(|at| at.load(Ordering::Relaxed) == 0) {
            return; // don't touch the memory of rows that were never used
        }
        self.epoch.store(0, Ordering::Relaxed);
        self.swept.store(0, Ordering::Relaxed);
        self.set_kind(Kind::Unknown, false);
        unlimited[0].store(0, Ordering::Relaxed);
        unlimited[1].store(0, Ordering::Relaxed);
        self.marks.store(0, Ordering::Relaxed);
        self.unasked.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::pump::IN;

    /// A socket that a short read empties.
    fn tcp() -> Entry {
        // SAFETY: `Entry` is `Zeroed`.
        let entry: Entry = unsafe { core::mem::zeroed() };
        entry.epoch.store(1, Ordering::Relaxed);
        entry.set_kind(Kind::Stream, true);
        entry
    }

    #[test]
    fn an_event_tells_the_carrier_that_asked_after_the_wait_began() {
        let (own, other) = (Looker(1), Looker(2));
        let entry = tcp();
        let woken = TaskList::new();
        let waits_from = entry.sequence();
        assert_eq!(entry.told_since(waits_from, own), 0, "no event yet");
        entry.event(IN, own, &woken);
        assert_eq!(entry.told_since(waits_from, own), IN);
        assert_eq!(entry.told_since(waits_from, other), 0);
        assert_eq!(entry.told_since(entry.sequence(), own), 0, "an older event");
        entry.event(IN, other, &woken);
        assert_eq!(entry.told_since(waits_from, own), 0);
        entry.event(IN, Looker::of(None), &woken);
        assert_eq!(entry.told_since(waits_from, own), 0);
    }

    #[test]
    fn an_event_tells_nothing_of_what_was_read_or_is_more_than_data() {
        let own = Looker(1);
        let entry = tcp();
        let woken = TaskList::new();
        entry.event(IN, own, &woken);
        entry.set_drained(entry.sequence());
        assert_eq!(entry.told_since(0, own), 0, "another thread has read it");
        entry.event(IN, own, &woken);
        assert_eq!(entry.told_since(0, own), IN);
        entry.raise(0);
        assert_eq!(entry.told_since(0, own), 0, "raised without an event");
        entry.event(IN | RDHUP, own, &woken);
        assert_eq!(entry.told_since(0, own), 0, "the end of the stream");
        let other = tcp();
        other.event(IN, own, &woken);
        other.renew();
        assert_eq!(other.told_since(0, own), 0, "another file");
    }
}
