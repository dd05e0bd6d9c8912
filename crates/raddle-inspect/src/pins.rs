//! Pinning events: when a green thread sat in the kernel and another carrier took its carrier's
//! place. They follow the histogram in the answer to a request for statistics, and behind them the
//! most frequent *places*: what calls threads sat in, where, with what was on their stacks.

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

/// How many places are kept.
pub const PLACES: usize = 16;
/// Words of a stack that are kept.
pub const STACK_WORDS: usize = 512;

/// A place where threads sat in the kernel and kept a carrier.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPlace {
    /// How often; 0 for no place. Too high where another place was given up for it.
    pub count: u64,
    /// As in [`PinRecord`], of the latest time.
    pub at_ns: u64,
    pub tid: u64,
    pub call: i64,
    pub address: u64,
    /// The stack pointer when `stack` was read, which needn't have been the latest time.
    pub stack_pointer: u64,
    /// How many words of `stack` were read.
    pub words: u64,
    /// What was on the stack, from the stack pointer on.
    pub stack: [u64; STACK_WORDS],
}

impl PinPlace {
    /// No place.
    pub const NONE: PinPlace = PinPlace {
        count: 0,
        at_ns: 0,
        tid: 0,
        call: 0,
        address: 0,
        stack_pointer: 0,
        words: 0,
        stack: [0; STACK_WORDS],
    };

    /// What is known of the stack.
    pub fn stack(&self) -> &[u64] {
        &self.stack[..self.words.min(STACK_WORDS as u64) as usize]
    }
}

/// All places, in no order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPlaces(pub [PinPlace; PLACES]);

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

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for PinPlace {}

// SAFETY: an array of such.
unsafe impl Wire for PinPlaces {}

const _PLACE_LAYOUT: () = assert!(size_of::<PinPlace>() == 7 * 8 + STACK_WORDS * 8);

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
