//! What [`crate::io::pump`] keeps.

use crate::os::chunks::{Chunks, Zeroed};
use crate::os::own_descriptor::OwnDescriptor;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use raddle_sched::SpinLock;
use raddle_sched::wait_list::WaitList;
use raddle_sched::wake::Announcement;

/// Descriptors beyond this pass to the kernel as they are.
pub(crate) const MAX_DESCRIPTORS: usize = 1 << 20;

/// Rows mapped at a time.
pub(crate) const ROWS_EACH: usize = 1024;

// SAFETY: atomics, free locks and an empty list.
unsafe impl Zeroed for Entry {}

/// One row a descriptor. Beside [`Pump`], because the child of a fork doesn't write to it.
pub(crate) type Rows = Chunks<Entry, { MAX_DESCRIPTORS / ROWS_EACH }, ROWS_EACH>;

/// See [`crate::io::pump`].
pub struct Pump {
    pub(crate) epoll: OwnDescriptor,
    pub(crate) kick: OwnDescriptor,
    /// Signalled for each direct read that is done, and never read: edges are all that counts.
    pub(crate) direct: OwnDescriptor,
    /// Raised at every start, so that a forked child's registrations start afresh.
    pub(crate) epoch: AtomicU32,
    /// Made while the poller sleeps or is about to; the thread that takes it kicks.
    pub(crate) asleep: Announcement,
    /// Threads waiting for descriptors.
    pub(crate) waiters: AtomicUsize,
    pub(crate) sweep: Sweep,
    pub(crate) limits: Limits,
    /// One more than the highest descriptor seen.
    pub(crate) high: AtomicUsize,
    /// Looks into the epoll, and events that these have found. For inspection.
    pub(crate) polls: AtomicU64,
    pub(crate) poll_events: AtomicU64,
}

impl Pump {
    pub(crate) const fn new() -> Self {
        Self {
            epoll: OwnDescriptor::none(),
            kick: OwnDescriptor::none(),
            direct: OwnDescriptor::none(),
            epoch: AtomicU32::new(0),
            asleep: Announcement::new(),
            waiters: AtomicUsize::new(0),
            sweep: Sweep::new(),
            limits: Limits::new(),
            high: AtomicUsize::new(0),
            polls: AtomicU64::new(0),
            poll_events: AtomicU64::new(0),
        }
    }
}

/// One descriptor's row.
pub struct Entry {
    pub(crate) list: SpinLock<WaitList>,
    /// Raised by every event.
    pub(crate) sequence: AtomicU32,
    /// The pump's epoch in which it was registered; 0 for never.
    pub(crate) epoch: AtomicU32,
    pub(crate) kind: AtomicU32,
    /// Held between the poll and the accept of a listener.
    pub accepting: SpinLock<()>,
    /// 1 if a short read empties it. Cleared under the list's lock, before the number is raised.
    pub(crate) drains: AtomicU32,
    /// Sequence number + 1 at which the descriptor was seen drained; 0 for never.
    pub(crate) drained: AtomicU32,
    /// Sequence number + 1 that the last sweep saw; 0 for none.
    pub(crate) noted: AtomicU32,
    /// 1 if its present waits were swept. Set under the list's lock; cleared by calls that succeed.
    pub(crate) swept: AtomicU32,
    /// The thread that a `TaskFolder` or a `ThreadName` is of.
    pub tid: AtomicU32,
    /// How fast reads and writes of a `Kind::Disk` have been: the user-mode kernel's hint. It
    /// outlives the file: the next one with this number is likely to be like it.
    pub pace: [AtomicU32; 2],
    /// How often `fsync` and its like didn't wait of late: a hint of the same kind.
    pub syncs: AtomicU32,
    /// Notes that the socket has no time limit for reads, and for writes: see
    /// [`limits`](crate::io::pump).
    pub(crate) unlimited: [AtomicU32; 2],
    /// Bits of `io::pump::entry`.
    pub(crate) marks: AtomicU32,
    /// The last event, and the carrier that took it: its number + 1, or 0 for sysmon. Both under
    /// the list's lock.
    pub(crate) told: AtomicU32,
    pub(crate) told_to: AtomicU32,
    /// How many further calls take the descriptor to be in non-blocking mode without a question.
    pub(crate) unasked: AtomicU32,
}

/// When the next sweep is due.
pub(crate) struct Sweep {
    /// 1 if there may be a wait that wasn't swept. Set by waiters, cleared by the sweep.
    pub(crate) due: AtomicU32,
    /// When; meaningful while `due`.
    pub(crate) at_ns: AtomicU64,
}

impl Sweep {
    pub(crate) const fn new() -> Self {
        Self {
            due: AtomicU32::new(0),
            at_ns: AtomicU64::new(0),
        }
    }
}

/// What the process knows of limits.
pub(crate) struct Limits {
    /// By how much the present round is above the first. Raised by the thread that has set a limit;
    /// read by waits. Relaxed: what orders a wait after a `setsockopt` of another thread orders the
    /// two accesses as well.
    pub(crate) raised: AtomicU32,
    /// 1 once a negative limit was set. Written and read as `raised`.
    pub(crate) has_negative: AtomicU32,
    /// Time stamp and time at the pump's start: they tell how long a time stamp tick is.
    pub(crate) start: [AtomicU64; 2],
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self {
            raised: AtomicU32::new(0),
            has_negative: AtomicU32::new(0),
            start: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}
