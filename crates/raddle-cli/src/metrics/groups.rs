//! The threads of a process by their names: digits of a name are one `*`, as in `raddle dump`.
//!
//! Each look reads at most [`SEGMENTS_PER_LOOK`] pieces of the table: first those that were never
//! read, then those with the oldest look. What was seen of the others counts on. The first look
//! reads all. So a process of usual size is read whole each time, and a huge one in turns.
//!
//! Counters grow by what a thread has counted since its last look. What a thread counts between its
//! last look and its end is missing. A thread with another name counts on in another group, and
//! what it has counted before stays where it was counted.
//!
//! A name that has a group keeps that group, without threads too, because a counter that vanishes
//! and comes back lower looks like a new program. So there are [`GROUPS_MAX`] names, and all later
//! ones count in [`REST`] for ever. They are not remembered: a program may invent names without
//! end.
//!
//! Rejected: a name without threads gives its place to a new one, and [`REST`] takes its counters.
//! The old name would have to be remembered, or it comes back with less, and the rate of [`REST`]
//! would jump.

use std::collections::HashMap;
use std::time::Instant;

use raddle_inspect::settings::THREADS_MAX;
use raddle_inspect::{Layout, ThreadState};
use raddle_stacks::{Counters, Memory, Slots};

use super::reading::GroupTable;
use crate::dump::without_numbers;

/// The most groups with names of a process; further threads are in [`REST`].
const GROUPS_MAX: usize = 50;
/// The name of the group of all other threads.
const REST: &str = "other";
/// The name of the group of threads without a name.
const UNNAMED: &str = "unnamed";

/// Slots of which the looks are noted together.
const SEGMENT: u64 = 1024;
/// See the module.
const SEGMENTS_PER_LOOK: usize = 8;

/// States that are shown, by their place in [`GroupRow::threads`].
pub(super) const STATES: [ThreadState; 4] = [
    ThreadState::RUNNING,
    ThreadState::RUNNABLE,
    ThreadState::WAITING,
    ThreadState::EXITING,
];

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupRow {
    pub name: String,
    /// By [`STATES`].
    pub threads: [u64; STATES.len()],
    pub counts: Counts,
}

/// Counters of a thread, or of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub switches: u64,
    pub steal: u64,
    pub preempt: u64,
    pub park: u64,
}

impl Counts {
    fn of(counters: &Counters) -> Counts {
        Counts {
            switches: counters.switches,
            steal: counters.steal,
            preempt: counters.preempt,
            park: counters.park,
        }
    }

    /// Adds what `now` has more than `before`.
    fn add(&mut self, now: Counts, before: Counts) {
        let more = |sum: &mut u64, now: u64, before: u64| {
            *sum = sum.wrapping_add(now.saturating_sub(before));
        };
        more(&mut self.switches, now.switches, before.switches);
        more(&mut self.steal, now.steal, before.steal);
        more(&mut self.preempt, now.preempt, before.preempt);
        more(&mut self.park, now.park, before.park);
    }
}

/// The thread that was seen in a slot.
#[derive(Clone, Copy)]
struct Seen {
    /// 0 for none.
    tid: u32,
    group: u8,
    state: u8,
    name: [u8; raddle_inspect::NAME_BYTES],
    counts: Counts,
}

const NOTHING: Seen = Seen {
    tid: 0,
    group: 0,
    state: 0,
    name: [0; raddle_inspect::NAME_BYTES],
    counts: Counts {
        switches: 0,
        steal: 0,
        preempt: 0,
        park: 0,
    },
};

/// See the module.
#[derive(Default)]
pub(super) struct Groups {
    slots: Vec<Seen>,
    /// When each segment was read last.
    looks: Vec<Option<Instant>>,
    /// The rest first.
    groups: Vec<GroupRow>,
    numbers: HashMap<String, u8>,
}

impl Groups {
    /// Reads slots, until some time at most, and returns all groups; `None` if the table can't be
    /// read.
    pub(super) fn look(
        &mut self,
        memory: &dyn Memory,
        layout: &Layout,
        until: Instant,
    ) -> Option<GroupTable> {
        let mut slots = Slots::new(memory, layout)?;
        let used = slots.used()?.min(THREADS_MAX.into());
        self.begin(used);
        let now = Instant::now();
        let mut seen = Vec::new();
        for segment in self.next_segments() {
            if Instant::now() >= until {
                break;
            }
            let from = segment as u64 * SEGMENT;
            slots.read(from, (from + SEGMENT).min(used), |number, counters| {
                seen.push((number as usize, counters));
            });
            self.looks[segment] = Some(now);
        }
        self.admit(&seen);
        for (number, counters) in seen {
            self.note(number, counters.as_ref());
        }
        let oldest = self.looks.iter().flatten().min();
        let rest = self.groups.first();
        let has_rest = rest
            .is_some_and(|row| row.threads != [0; STATES.len()] || row.counts != Counts::default());
        Some(GroupTable {
            rows: self.groups[usize::from(!has_rest)..].to_vec(),
            age_s: oldest.map_or(0.0, |oldest| oldest.elapsed().as_secs_f64()),
        })
    }

    /// Makes room for the slots that are used.
    fn begin(&mut self, used: u64) {
        let segments = used.div_ceil(SEGMENT) as usize;
        if self.groups.is_empty() {
            self.groups.push(GroupRow {
                name: REST.into(),
                ..GroupRow::default()
            });
            self.numbers.insert(REST.into(), 0);
            self.slots.reserve_exact(used as usize);
        }
        self.slots
            .resize(self.slots.len().max(used as usize), NOTHING);
        self.looks.resize(self.looks.len().max(segments), None);
    }

    /// The segments of this look.
    fn next_segments(&self) -> Vec<usize> {
        let mut segments: Vec<usize> = (0..self.looks.len()).collect();
        let is_first = self.looks.iter().all(Option::is_none);
        if !is_first {
            segments.sort_by_key(|&segment| self.looks[segment]);
            segments.truncate(SEGMENTS_PER_LOOK);
        }
        segments
    }

    /// Makes groups of the names that are new, those first that most threads have, while there is
    /// room.
    fn admit(&mut self, seen: &[(usize, Option<Counters>)]) {
        let mut names: HashMap<String, usize> = HashMap::new();
        for (number, counters) in seen {
            let is_new = |it: &&Counters| !self.slots[*number].is_of(it);
            if let Some(counters) = counters.as_ref().filter(is_new) {
                *names.entry(group_name(counters)).or_default() += 1;
            }
        }
        names.retain(|name, _| !self.numbers.contains_key(name));
        let mut names: Vec<(String, usize)> = names.into_iter().collect();
        names.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let left = (GROUPS_MAX + 1).saturating_sub(self.groups.len());
        for (name, _) in names.into_iter().take(left) {
            self.numbers.insert(name.clone(), self.groups.len() as u8);
            self.groups.push(GroupRow {
                name,
                ..GroupRow::default()
            });
        }
    }

    /// Notes what is in a slot now.
    fn note(&mut self, number: usize, counters: Option<&Counters>) {
        let before = self.slots[number];
        if before.tid != 0 {
            let threads = &mut self.groups[before.group as usize].threads;
            threads[before.state as usize] -= 1;
        }
        let Some(counters) = counters.filter(|counters| counters.tid != 0) else {
            self.slots[number] = NOTHING;
            return;
        };
        let group = if before.is_of(counters) {
            before.group
        } else {
            let name = group_name(counters);
            self.numbers.get(&name).copied().unwrap_or(0)
        };
        let state = STATES.iter().position(|state| *state == counters.state);
        let state = state.unwrap_or(0);
        let counts = Counts::of(counters);
        let counted = if before.tid == counters.tid {
            before.counts
        } else {
            Counts::default()
        };
        let row = &mut self.groups[group as usize];
        row.threads[state] += 1;
        row.counts.add(counts, counted);
        self.slots[number] = Seen {
            tid: counters.tid,
            group,
            state: state as u8,
            name: counters.name,
            counts,
        };
    }
}

impl Seen {
    /// Returns true if this is the same thread, with the same name.
    fn is_of(&self, counters: &Counters) -> bool {
        self.tid == counters.tid && self.name == counters.name
    }
}

/// The name of the thread's group.
fn group_name(counters: &Counters) -> String {
    let name = without_numbers(counters.name_bytes());
    match String::from_utf8_lossy(&name).into_owned() {
        name if name.is_empty() => UNNAMED.into(),
        name => name,
    }
}

#[cfg(test)]
mod tests;
