//! What [`crate::sysmon::pinning`] keeps.

use core::sync::atomic::AtomicU64;
use raddle_inspect::{PINS, PLACES, STACK_WORDS};

pub(crate) struct PinningEvent {
    pub(crate) at_ns: AtomicU64,
    pub(crate) tid: AtomicU64,
    pub(crate) call: AtomicU64,
    pub(crate) address: AtomicU64,
}

/// See [`crate::sysmon::pinning`].
pub(crate) struct Log {
    /// The count of all events; the latest [`PINS`] are kept.
    pub(crate) total: AtomicU64,
    pub(crate) kept: [PinningEvent; PINS],
    pub(crate) places: [Place; PLACES],
    /// When the kernel last refused to say where a carrier sits; 0 for never.
    pub(crate) refused_ns: AtomicU64,
}

/// See [`raddle_inspect::PinPlace`].
pub(crate) struct Place {
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

impl PinningEvent {
    pub(crate) const fn new() -> Self {
        Self {
            at_ns: AtomicU64::new(0),
            tid: AtomicU64::new(0),
            call: AtomicU64::new(0),
            address: AtomicU64::new(0),
        }
    }
}

impl Log {
    pub(crate) const fn new() -> Self {
        Self {
            total: AtomicU64::new(0),
            kept: [const { PinningEvent::new() }; PINS],
            places: [const { Place::new() }; PLACES],
            refused_ns: AtomicU64::new(0),
        }
    }
}

impl Place {
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
