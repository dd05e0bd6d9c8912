//! Blocking records and blocking sites, as they are on the wire.
//!
//! A *blocking record* says that a green thread blocked in the kernel, and that another carrier
//! took the place of the thread's carrier. A *blocking site* is a call and its address in the
//! program, at which threads blocked so, with a count and a stack. Both follow the histogram in the
//! answer to a request for statistics, the records first.

use crate::records::Wire;

/// How many of the latest records are kept.
pub const BLOCKING_RECORDS: usize = 32;

/// One blocking record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingRecord {
    /// When sysmon noticed it (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// The instruction behind the call, or the one that faulted; 0 if unknown.
    pub address: u64,
    /// The number of the system call, [`BlockingRecord::FAULT`] or [`BlockingRecord::UNKNOWN`].
    pub call: i64,
    /// The green thread; 0 if it had left the carrier.
    pub tid: u64,
}

impl BlockingRecord {
    /// The thread was in no call: a page fault, or it was stopped.
    pub const FAULT: i64 = -1;
    /// The kernel didn't tell, or the thread had just come back.
    pub const UNKNOWN: i64 = -2;
}

/// How many sites are kept.
pub const BLOCKING_SITES: usize = 16;
/// How many words of a stack are kept.
pub const STACK_WORDS: usize = 512;

/// A call and its address, at which threads blocked in the kernel and kept a carrier.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingSite {
    /// How often; 0 for no site. Too high if this site has replaced another one.
    pub count: u64,
    /// As in [`BlockingRecord`], of the latest time.
    pub at_ns: u64,
    pub tid: u64,
    pub call: i64,
    pub address: u64,
    /// The stack pointer when `stack` was read, perhaps not at the latest time.
    pub stack_pointer: u64,
    /// The number of valid words of `stack`.
    pub words: u64,
    /// The words on the stack, from the stack pointer on.
    pub stack: [u64; STACK_WORDS],
}

impl BlockingSite {
    /// No site.
    pub const NONE: BlockingSite = BlockingSite {
        count: 0,
        at_ns: 0,
        tid: 0,
        call: 0,
        address: 0,
        stack_pointer: 0,
        words: 0,
        stack: [0; STACK_WORDS],
    };

    /// Returns the valid words of the stack.
    pub fn stack(&self) -> &[u64] {
        &self.stack[..self.words.min(STACK_WORDS as u64) as usize]
    }
}

/// All sites, in no order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingSites(pub [BlockingSite; BLOCKING_SITES]);

/// All blocking records that are reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingRecords {
    /// The number of all records so far.
    pub total: u64,
    /// The latest records, oldest first; the rest is zero.
    pub latest: [BlockingRecord; BLOCKING_RECORDS],
}

impl BlockingRecords {
    /// No record.
    pub const NONE: BlockingRecords = BlockingRecords {
        total: 0,
        latest: [BlockingRecord {
            at_ns: 0,
            address: 0,
            call: 0,
            tid: 0,
        }; BLOCKING_RECORDS],
    };

    /// Returns the latest records, oldest first.
    pub fn latest(&self) -> &[BlockingRecord] {
        let count = self.total.min(BLOCKING_RECORDS as u64) as usize;
        &self.latest[..count]
    }
}

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for BlockingRecords {}

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for BlockingSite {}

// SAFETY: an array of such structures.
unsafe impl Wire for BlockingSites {}

const _SITE_LAYOUT: () = assert!(size_of::<BlockingSite>() == 7 * 8 + STACK_WORDS * 8);

const _LAYOUT: () = assert!(size_of::<BlockingRecords>() == 8 + BLOCKING_RECORDS * 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_were_are_shown() {
        assert!(BlockingRecords::NONE.latest().is_empty());
        let three = BlockingRecords {
            total: 3,
            ..BlockingRecords::NONE
        };
        assert_eq!(three.latest().len(), 3);
        let many = BlockingRecords {
            total: 1000,
            ..BlockingRecords::NONE
        };
        assert_eq!(many.latest().len(), BLOCKING_RECORDS);
    }
}
