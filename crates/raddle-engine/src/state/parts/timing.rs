//! What [`crate::scheduling::timed`] keeps.

use crate::state::accounting::Slices;
use core::cell::Cell;
use raddle_sched::share::Chooser;

/// A carrier's part. Written by the carrier, but for `slices`.
pub(crate) struct Timing {
    /// When the running thread's turn began, and CPU time. Sysmon sets the beginning of the turn in
    /// which it makes the carrier timed.
    pub(crate) slices: Slices,
    pub(crate) chooser: Chooser,
    /// True during a pick.
    pub(crate) picks: Cell<bool>,
    /// When the carrier noted the load last.
    pub(crate) noted_ns: Cell<u64>,
}
