//! What [`crate::scheduling::slow_rings`] keeps.

use core::cell::Cell;
use raddle_sched::Mark;

/// The marks of a carrier and the ring that it watches. The carrier's own; zeroed memory is a valid
/// watch.
pub(crate) struct Watch {
    /// The watched carrier's place in the engine's list.
    pub(crate) index: Cell<u32>,
    /// The watched ring at the time of the marks.
    pub(crate) watched: Cell<Mark>,
    /// The own ring then.
    pub(crate) own: Cell<Mark>,
    /// When both were marked.
    pub(crate) marked_ns: Cell<u64>,
}
