//! What is kept of a thread that lives, and what its events mean for it.

use raddle_inspect::WaitKind;

use super::{Position, StackNumber};
use crate::profile::Activity;

/// A thread that lives.
pub(super) struct Live {
    pub position: Position,
    pub activity: Activity,
    pub object: u64,
    pub since_ns: u64,
    pub serial: u64,
    /// It was woken before it was told that it waits.
    pub is_woken: bool,
    pub mark: Option<Mark>,
    /// What it has waited for since it ran last.
    pub waited_for: Option<(WaitKind, u64)>,
    /// What it has waited for, and since when it has that: if it is a lock, it holds it.
    pub taken: Vec<Taken>,
}

impl Live {
    pub(super) fn before(&self) -> Before {
        Before {
            position: self.position,
            activity: self.activity,
            object: self.object,
            since_ns: self.since_ns,
            mark: self.mark,
        }
    }
}

/// A span that ends.
pub(super) struct Before {
    pub position: Position,
    pub activity: Activity,
    pub object: u64,
    pub since_ns: u64,
    pub mark: Option<Mark>,
}

/// A lock, or what may be one, and when a thread took it.
pub(super) type Taken = ((WaitKind, u64), u64);

/// The stack of a span.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub stack: StackNumber,
    /// How likely it was that it was read.
    pub chance: f64,
    /// It was read in this span, and not in the one before.
    pub is_own: bool,
}

/// Returns the mark of the next span, if the thread has the same stack there: it was woken, and has
/// not run. The chance that a short wait was seen is in proportion to its length.
pub(super) fn carried(live: &Live, next: Activity, at_ns: u64, interval_ns: u64) -> Option<Mark> {
    let waited = matches!(live.activity, Activity::Waiting(_));
    let mark = live.mark.filter(|_| waited && next == Activity::Runnable)?;
    let ns = at_ns.saturating_sub(live.since_ns).max(1);
    let seen = (ns as f64 / interval_ns.max(1) as f64).min(1.0);
    Some(Mark {
        chance: mark.chance * seen,
        is_own: false,
        ..mark
    })
}

/// Returns what a thread does that has left its carrier.
pub(super) fn waiting(kind: WaitKind) -> Activity {
    match kind {
        WaitKind::NONE | WaitKind::YIELD => Activity::Runnable,
        kind => Activity::Waiting(kind),
    }
}

/// Returns what a thread waits for if it is a word in memory, as locks are.
pub(super) fn word_of(kind: WaitKind, object: u64) -> Option<(WaitKind, u64)> {
    (object != 0 && kind.is_address()).then_some((kind, object))
}

/// Returns what a thread waits for, if the argument says it.
pub(super) fn object_of(activity: Activity, arg: u64) -> u64 {
    let says = |kind: WaitKind| {
        kind.is_address()
            || kind.is_descriptor()
            || matches!(kind, WaitKind::OTHER | WaitKind::CHILD)
    };
    match activity {
        Activity::Waiting(kind) if says(kind) => arg,
        _ => 0,
    }
}
