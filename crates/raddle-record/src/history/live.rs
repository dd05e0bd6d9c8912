//! What is kept of a thread that lives, and what its events mean for it.
//!
//! A thread does the same few things again and again. Their sums are kept here, and are added to
//! those of all threads when the thread ends or does something else: an event then needs no look
//! into a table of all that threads have done.

use raddle_inspect::WaitKind;

use super::objects::{Number, Objects};
use super::{Position, StackNumber, Total};
use crate::profile::Activity;

/// A place for a thread that lives. The place of one that has ended is another's later.
pub(super) struct Live {
    /// 0 if the place is free.
    pub tid: u32,
    pub position: Position,
    pub activity: Activity,
    pub object: u64,
    pub since_ns: u64,
    /// Goes on from one thread of the place to the next.
    pub serial: u64,
    /// It was woken before it was told that it waits.
    pub is_woken: bool,
    /// It is in the list of threads that have begun a span since the reader looked last.
    pub is_fresh: bool,
    /// The span that was put back, if the thread is in the list of those.
    pub old: Option<u64>,
    pub mark: Option<Mark>,
    /// What it has waited for since it ran last.
    pub waited_for: Option<(WaitKind, u64)>,
    /// What it has waited for, and since when it has that: if it is a lock, it holds it.
    pub taken: Vec<Taken>,
    /// How often it began to run, and was woken.
    pub turns: u64,
    pub wakes: u64,
    /// Of [`OWN`], in its order.
    pub own: [Total; OWN.len()],
    pub waits: [Waited; WAITS],
    /// Which of them is the wait that lasts, or was the last one.
    pub wait: usize,
}

/// Activities without an object.
pub(super) const OWN: [Activity; 3] = [Activity::Running, Activity::Runnable, Activity::InKernel];
/// Different waits of a thread of which the sums are kept here.
const WAITS: usize = 4;

/// Waits of one thread for one object.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    pub kind: WaitKind,
    pub object: u64,
    pub number: Number,
    pub total: Total,
    /// The thread that has ended the last of them, and how many before were ended by the same one.
    pub waker: Position,
    pub wakes: u64,
}

impl Waited {
    const NONE: Waited = Waited {
        kind: WaitKind::NONE,
        object: 0,
        number: Number::NONE,
        total: Total::NONE,
        waker: 0,
        wakes: 0,
    };
}

impl Live {
    pub(super) const FREE: Live = Live {
        tid: 0,
        position: 0,
        activity: Activity::Runnable,
        object: 0,
        since_ns: 0,
        serial: 0,
        is_woken: false,
        is_fresh: false,
        old: None,
        mark: None,
        waited_for: None,
        taken: Vec::new(),
        turns: 0,
        wakes: 0,
        own: [Total::NONE; OWN.len()],
        waits: [Waited::NONE; WAITS],
        wait: 0,
    };

    /// Returns true if it is this thread's, in this span.
    pub(super) fn is_in(&self, tid: u32, serial: u64) -> bool {
        self.tid == tid && self.serial == serial
    }

    /// Counts the span that ends. Returns its length.
    #[inline]
    pub(super) fn count(&mut self, at_ns: u64) -> u64 {
        let ns = at_ns.saturating_sub(self.since_ns);
        let total = match self.activity {
            Activity::Running | Activity::WithoutCpu => &mut self.own[0],
            Activity::Runnable => &mut self.own[1],
            Activity::InKernel => &mut self.own[2],
            Activity::Waiting(_) => &mut self.waits[self.wait].total,
        };
        total.add(ns, self.since_ns);
        ns
    }

    /// Returns the thread's waits of this kind for this object, if they are known.
    #[inline]
    pub(super) fn find_wait(&self, kind: WaitKind, object: u64) -> Option<usize> {
        let is_it = |it: &Waited| it.kind == kind && it.object == object;
        if is_it(&self.waits[self.wait]) {
            return Some(self.wait);
        }
        self.waits.iter().position(is_it)
    }

    /// Counts a wake-up from a wait, by the thread at a position.
    #[inline]
    pub(super) fn count_wake(
        &mut self,
        kind: WaitKind,
        object: u64,
        waker: Position,
        objects: &mut Objects,
    ) {
        let Some(at) = self.find_wait(kind, object) else {
            let number = objects.number(kind, object);
            return objects.count_wakes(number, waker, 1);
        };
        let waited = &mut self.waits[at];
        if waited.waker != waker && waited.wakes != 0 {
            objects.count_wakes(waited.number, waited.waker, waited.wakes);
            waited.wakes = 0;
        }
        waited.waker = waker;
        waited.wakes += 1;
    }

    /// Begins a wait. Returns the one that had its place before, if there was one.
    #[inline]
    pub(super) fn begin_wait(
        &mut self,
        kind: WaitKind,
        object: u64,
        objects: &mut Objects,
    ) -> Option<Waited> {
        if let Some(known) = self.find_wait(kind, object) {
            self.wait = known;
            return None;
        }
        self.wait = (self.wait + 1) % WAITS;
        let waited = Waited {
            kind,
            object,
            number: objects.number(kind, object),
            ..Waited::NONE
        };
        let before = std::mem::replace(&mut self.waits[self.wait], waited);
        (before.kind != WaitKind::NONE).then_some(before)
    }
}

impl Total {
    const NONE: Total = Total {
        ns: 0,
        count: 0,
        longest_ns: 0,
        first_ns: 0,
    };

    #[inline]
    fn add(&mut self, ns: u64, since_ns: u64) {
        if self.count == 0 {
            self.first_ns = since_ns;
        }
        self.ns += ns;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Adds other spans.
    pub(super) fn merge(&mut self, other: &Total) {
        if self.count == 0 {
            *self = *other;
        } else if other.count != 0 {
            self.ns += other.ns;
            self.count += other.count;
            self.longest_ns = self.longest_ns.max(other.longest_ns);
            self.first_ns = self.first_ns.min(other.first_ns);
        }
    }
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
    /// The time between the look at which it was read and the one before.
    pub look_ns: u64,
}

/// Returns the mark of the next span, if the thread has the same stack there: it was woken, and has
/// not run. The chance that a short wait was seen is in proportion to its length.
#[inline]
pub(super) fn carried(live: &Live, next: Activity, at_ns: u64) -> Option<Mark> {
    let mark = live.mark?;
    let waited = matches!(live.activity, Activity::Waiting(_));
    if !waited || next != Activity::Runnable {
        return None;
    }
    let ns = at_ns.saturating_sub(live.since_ns).max(1);
    let seen = (ns as f64 / mark.look_ns.max(1) as f64).min(1.0);
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
