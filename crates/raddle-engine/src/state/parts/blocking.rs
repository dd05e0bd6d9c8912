//! What [`crate::sysmon::blocking`] keeps.

use core::sync::atomic::AtomicU64;
use raddle_inspect::{BLOCKING_RECORDS, BLOCKING_SITES, STACK_WORDS};

/// See [`raddle_inspect::BlockingRecord`].
pub(crate) struct RecordEntry {
    pub(crate) at_ns: AtomicU64,
    pub(crate) tid: AtomicU64,
    pub(crate) call: AtomicU64,
    pub(crate) address: AtomicU64,
}

/// See [`crate::sysmon::blocking`].
pub(crate) struct BlockingLog {
    /// The count of all records; the latest [`BLOCKING_RECORDS`] are kept.
    pub(crate) total: AtomicU64,
    pub(crate) records: [RecordEntry; BLOCKING_RECORDS],
    pub(crate) sites: [SiteEntry; BLOCKING_SITES],
    /// When the kernel last refused to say where a carrier sits; 0 for never.
    pub(crate) refused_ns: AtomicU64,
}

/// See [`raddle_inspect::BlockingSite`].
pub(crate) struct SiteEntry {
    pub(crate) count: AtomicU64,
    pub(crate) at_ns: AtomicU64,
    pub(crate) tid: AtomicU64,
    pub(crate) call: AtomicU64,
    pub(crate) address: AtomicU64,
    pub(crate) stack_pointer: AtomicU64,
    pub(crate) words: AtomicU64,
    /// When a read of the stack was last tried.
    pub(crate) read_ns: AtomicU64,
    pub(crate) stack: [AtomicU64; STACK_WORDS],
}

impl RecordEntry {
    pub(crate) const fn new() -> Self {
        Self {
            at_ns: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            call: AtomicU64::new(0),
            address: AtomicU64::new(0),
        }
    }
}

impl BlockingLog {
    pub(crate) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            records: [const { RecordEntry::new() }; BLOCKING_RECORDS],
            sites: [const { SiteEntry::new() }; BLOCKING_SITES],
            refused_ns: AtomicU64::new(0),
        }
    }
}

impl SiteEntry {
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            at_ns: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            call: AtomicU64::new(0),
            address: AtomicU64::new(0),
            stack_pointer: AtomicU64::new(0),
            words: AtomicU64::new(0),
            read_ns: AtomicU64::new(0),
            stack: [const { AtomicU64::new(0) }; STACK_WORDS],
        }
    }
}
