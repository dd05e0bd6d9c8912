//! Pinning events: a green thread blocked in the kernel, and another carrier took the place of its
//! carrier. They follow the histogram in the answer to a request for statistics. The most frequent
//! *places* follow them: the calls that threads blocked in, with address and stack.

use crate::records::Wire;

/// How many of the latest events are kept.
pub const PINS: usize = 32;

/// One pinning event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinRecord {
    /// When sysmon noticed it (CLOCK_MONOTONIC).
    pub at_ns: u64,
    /// The instruction behind the call, or the one that faulted; 0 if unknown.
    pub address: u64,
    /// The number of the system call, [`PinRecord::FAULT`] or [`PinRecord::UNKNOWN`].
    pub call: i64,
    /// The green thread; 0 if it had left the carrier.
    pub tid: u64,
}

impl PinRecord {
    /// The thread was in no call: a page fault, or it was stopped.
    pub const FAULT: i64 = -1;
    /// The kernel didn't tell, or the thread had just come back.
    pub const UNKNOWN: i64 = -2;
}

/// How many places are kept.
pub const PLACES: usize = 16;
/// How many words of a stack are kept.
pub const STACK_WORDS: usize = 512;

/// A place where threads blocked in the kernel and kept a carrier.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPlace {
    /// How often; 0 for no place. Too high if this place has replaced another one.
    pub count: u64,
    /// As in [`PinRecord`], of the latest time.
    pub at_ns: u64,
    pub tid: u64,
    pub call: i64,
    pub address: u64,
    /// The stack pointer when `stack` was read, perhaps not at the latest event.
    pub stack_pointer: u64,
    /// The number of valid words of `stack`.
    pub words: u64,
    /// The words on the stack, from the stack pointer on.
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

    /// Returns the valid words of the stack.
    pub fn stack(&self) -> &[u64] {
        &self.stack[..self.words.min(STACK_WORDS as u64) as usize]
    }
}

/// All places, in no order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPlaces(pub [PinPlace; PLACES]);

/// All pinning events that are reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// The number of all events so far.
    pub total: u64,
    /// The latest events, oldest first; the rest is zero.
    pub latest: [PinRecord; PINS],
}

impl Pins {
    /// No event.
    pub const NONE: Pins = Pins {
        total: 0,
        latest: [PinRecord {
            at_ns: 0,
            address: 0,
            call: 0,
            tid: 0,
        }; PINS],
    };

    /// Returns the latest events, oldest first.
    pub fn latest(&self) -> &[PinRecord] {
        let count = self.total.min(PINS as u64) as usize;
        &self.latest[..count]
    }
}

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for Pins {}

// SAFETY: integers and arrays of them only, eight bytes each: no padding.
unsafe impl Wire for PinPlace {}

// SAFETY: an array of such structures.
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
