//! What [`crate::state::events`] keeps.

use crate::state::word_wakes::WordWakes;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use raddle_sched::{EventRing, SpinLock};

/// Texts that are remembered as written.
pub(crate) const TEXTS: usize = 256;

/// See [`crate::state::events`].
pub(crate) struct Recorder {
    /// Until when events are recorded (CLOCK_MONOTONIC); 0 for not at all.
    pub(crate) until_ns: AtomicU64,
    /// How many events a ring keeps; 0 before the first request.
    pub(crate) capacity: AtomicU64,
    /// Events that no ring had room for.
    pub(crate) lost: AtomicU64,
    /// The ring of kernel threads that are no carriers.
    pub(crate) common: EventRing,
    /// The counter and CLOCK_BOOTTIME when recording began, and later: `Layout::event_moments`.
    /// Written by sysmon.
    pub(crate) moments: [AtomicU64; 4],
    /// When the later moment is due (CLOCK_MONOTONIC). Used by sysmon.
    pub(crate) moment_due_ns: AtomicU64,
    /// 1 if events are recorded from the start of the engine. Set at start-up.
    pub(crate) is_flight_recorder: AtomicU32,
    /// The folder for the file of a crash, a string that lives for ever; null for none. Set at
    /// start-up.
    pub(crate) folder: AtomicPtr<u8>,
    /// 1 once a crash has been written, or is being written.
    pub(crate) crashed: AtomicU32,
    /// Addresses of texts that are in the file of a crash, by their lowest bits. Used by the thread
    /// that writes the file.
    pub(crate) texts: [AtomicU64; TEXTS],
    /// See [`crate::state::samples`]: the time between two samples of a carrier, 0 for none; and
    /// until when they are taken (CLOCK_MONOTONIC). Written by sysmon.
    pub(crate) sample_period_ns: AtomicU64,
    pub(crate) samples_until_ns: AtomicU64,
    /// See [`crate::state::wakers`]: the ticks of the counter between two samples of a carrier's
    /// wake-ups, 0 for none; and until when they are taken (CLOCK_MONOTONIC). Written by sysmon.
    pub(crate) wakes_period: AtomicU64,
    pub(crate) wakes_until_ns: AtomicU64,
    /// See [`crate::state::word_wakes`].
    pub(crate) words: WordWakes,
    /// Held by the one that writes to `common`.
    pub(crate) writer: SpinLock<()>,
}

impl Recorder {
    pub(crate) const fn new() -> Self {
        Self {
            until_ns: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            common: EventRing::new(),
            moments: [const { AtomicU64::new(0) }; 4],
            moment_due_ns: AtomicU64::new(0),
            is_flight_recorder: AtomicU32::new(0),
            folder: AtomicPtr::new(core::ptr::null_mut()),
            crashed: AtomicU32::new(0),
            texts: [const { AtomicU64::new(0) }; TEXTS],
            sample_period_ns: AtomicU64::new(0),
            samples_until_ns: AtomicU64::new(0),
            wakes_period: AtomicU64::new(0),
            wakes_until_ns: AtomicU64::new(0),
            words: WordWakes::new(),
            writer: SpinLock::new(()),
        }
    }
}
