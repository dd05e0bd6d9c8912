//! Counters over time: lengths of run queues, runnable threads, carriers that run.
//!
//! A carrier notes the lengths of its queue and of its engine's now and then. The sum over all is
//! the number of runnable threads, as old as the oldest note.

use std::collections::BTreeMap;

use raddle_inspect::Event;
use rustc_hash::FxHashMap;

use crate::rings::Lane;

/// Carriers begin and end to run at most so often in the trace.
const PAUSE_NS: u64 = 200_000;
/// The most counters of the program's.
const OWN_MAX: usize = 1 << 12;

/// A counter of the runtime's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Runnable,
    Running,
    Carrier(u32),
    Engine(u32),
}

#[derive(Default)]
struct Counter {
    value: u64,
    written: Option<u64>,
    /// It is among those that have changed.
    is_noted: bool,
    track: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Counters {
    all: BTreeMap<Kind, Counter>,
    /// Counters that have another value than in the trace.
    changed: Vec<Kind>,
    /// The carriers that run a thread.
    running: u64,
    running_due_ns: u64,
    /// Counters of the program's, by their names.
    own: FxHashMap<Box<str>, u64>,
    tracks: u64,
}

/// A value to be written.
pub(super) struct Change {
    pub track: u64,
    pub value: i64,
    /// Of a track that isn't there yet.
    pub new_name: Option<String>,
}

impl Counters {
    /// Takes the lengths of queues that a carrier has noted.
    pub(super) fn queues(&mut self, lane: Lane, event: &Event) {
        if let Lane::Carrier(id) = lane {
            self.set(Kind::Carrier(id), event.thread.into());
        }
        self.set(Kind::Engine(event.arg as u32), event.other.into());
        let is_queue = |kind: &Kind| matches!(kind, Kind::Carrier(_) | Kind::Engine(_));
        let queues = self.all.iter().filter(|(kind, _)| is_queue(kind));
        let sum = queues.map(|(_, counter)| counter.value).sum();
        self.set(Kind::Runnable, sum);
    }

    /// A carrier has begun to run threads, or has ended. Returns true if that is to be written.
    #[cold]
    pub(super) fn runs(&mut self, runs: bool, boot_ns: u64) -> bool {
        if runs {
            self.running += 1;
        } else {
            self.running -= 1;
        }
        self.set(Kind::Running, self.running);
        boot_ns >= self.running_due_ns
    }

    fn set(&mut self, kind: Kind, value: u64) {
        let counter = self.all.entry(kind).or_default();
        counter.value = value;
        if !counter.is_noted && counter.written != Some(value) {
            counter.is_noted = true;
            self.changed.push(kind);
        }
    }

    /// Has the next call of [`Counters::take_changes`] return all.
    pub(super) fn all_are_due(&mut self) {
        self.running_due_ns = 0;
    }

    /// Takes the values that have changed.
    pub(super) fn take_changes(&mut self, boot_ns: u64) -> Vec<Change> {
        let is_due = boot_ns >= self.running_due_ns;
        if is_due {
            self.running_due_ns = boot_ns + PAUSE_NS;
        }
        let mut changes = Vec::new();
        for kind in std::mem::take(&mut self.changed) {
            if kind == Kind::Running && !is_due {
                self.changed.push(kind);
                continue;
            }
            let Some(counter) = self.all.get_mut(&kind) else {
                continue;
            };
            counter.is_noted = false;
            if counter.written == Some(counter.value) {
                continue;
            }
            let is_new = counter.written.is_none();
            if is_new {
                self.tracks += 1;
                counter.track = self.tracks;
            }
            counter.written = Some(counter.value);
            changes.push(Change {
                track: counter.track,
                value: counter.value as i64,
                new_name: is_new.then(|| kind.name()),
            });
        }
        changes
    }

    /// Returns the track of a counter of the program's, and whether it is new. Those above the
    /// limit share one.
    pub(super) fn own(&mut self, name: &str) -> (u64, bool) {
        if let Some(&track) = self.own.get(name) {
            return (track, false);
        }
        if self.own.len() == OWN_MAX {
            let first = self.own.values().next().copied();
            return (first.unwrap_or_default(), false);
        }
        self.tracks += 1;
        self.own.insert(name.into(), self.tracks);
        (self.tracks, true)
    }
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Runnable => "runnable threads".to_owned(),
            Kind::Running => "carriers that run".to_owned(),
            Kind::Carrier(id) => format!("run queue of carrier {id}"),
            Kind::Engine(0) => "run queue of all carriers".to_owned(),
            Kind::Engine(number) => format!("run queue of engine {number}"),
        }
    }
}
