//! Pinning events: when a green thread sat in the kernel and another carrier took its carrier's
//! place. They follow the histogram in the answer to a request for statistics.

use crate::records::Wire;

/// How many of the latest are kept.
pub const PINS: usize = 32;

/// One of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinRecord {
    /// When it was noticed (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// The instruction behind the call, or the one that faulted; 0 if unknown.
    pub address: u64,
    /// The number of the system call, [`PinRecord::FAULT`] or [`PinRecord::UNKNOWN`].
    pub call: i64,
    /// The green thread; 0 if it had left.
    pub tid: u64,
}

impl PinRecord {
    /// It was in no call: a page fault, or it was stopped.
    pub const FAULT: i64 = -1;
    /// The kernel didn't say, or the thread had just come back.
    pub const UNKNOWN: i64 = -2;
}

/// All that is told of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// All that ever were.
    pub total: u64,
    /// The latest, oldest first; the rest is zero.
    pub latest: [PinRecord; PINS],
}

impl Pins {
    /// None were.
    pub const NONE: Pins = Pins {
        total: 0,
        latest: [PinRecord {
            at_ns: 0,
            address: 0,
            call: 0,
            tid: 0,
        }; PINS],
    };

    /// The latest, oldest first.
    pub fn latest(&self) -> &[PinRecord] {
        let count = self.total.min(PINS as u64) as usize;
        &self.latest[..count]
    }
}

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for Pins {}

const _LAYOUT: () = assert!(size_of::<Pins>() == 8 + PINS * 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_were_are_shown() {
        assert!(Pins::NONE.latest().is_empty());
        let three = Pins {
            total: 3,
            ..Pins::NONE
        };
        assert_eq!(three.latest().len(), 3);
        let many = Pins {
            total: 1000,
            ..Pins::NONE
        };
        assert_eq!(many.latest().len(), PINS);
    }
}
