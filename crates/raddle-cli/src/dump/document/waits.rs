//! Waits and deadlocks in the JSON document. `docs/dump.schema.json` describes the fields.

use raddle_stacks::locks::{self, Edge, Owner};
use serde::Serialize;

use crate::dump::stacks::Taken;

/// What a thread waits for.
#[derive(Serialize)]
pub(super) struct WaitsFor {
    kind: String,
    /// `null` if it isn't known.
    address: Option<u64>,
    /// The static variable that it is.
    variable: Option<String>,
    /// The thread that has to act, and how that is known; `null` if the object doesn't say.
    owner: Option<OwnerOf>,
    /// What else is known.
    note: Option<String>,
    /// The wait has a time limit.
    timed: bool,
}

#[derive(Serialize)]
struct OwnerOf {
    tid: u32,
    /// `thread`, `ended`, `other_process` or `last_taker`.
    kind: &'static str,
}

/// Waits that can't end.
#[derive(Serialize)]
pub(super) struct Deadlock {
    /// `cycle`, `owner_ended` or `asleep`.
    kind: &'static str,
    /// The threads, in the order of a cycle.
    threads: Vec<u32>,
    /// Threads that wait for one of these.
    behind: Vec<u32>,
}

impl WaitsFor {
    pub(super) fn of(taken: &Taken, tid: u32) -> Option<WaitsFor> {
        let Edge { object, owner, .. } = taken.edges.get(&tid)?;
        let owner = match *owner {
            Owner::Thread(tid) => Some((tid, "thread")),
            Owner::Ended(tid) => Some((tid, "ended")),
            Owner::Elsewhere(tid) => Some((tid, "other_process")),
            Owner::LastTaker(tid) => Some((tid, "last_taker")),
            Owner::Unknown => None,
        };
        Some(WaitsFor {
            kind: object.kind.word().to_owned(),
            address: (object.address != 0).then_some(object.address),
            variable: taken.variables.get(&object.address).cloned(),
            owner: owner.map(|(tid, kind)| OwnerOf { tid, kind }),
            note: object.note.clone(),
            timed: object.is_timed,
        })
    }
}

impl Deadlock {
    pub(super) fn new(deadlock: &locks::Deadlock) -> Deadlock {
        Deadlock {
            kind: deadlock.why.word(),
            threads: deadlock.edges.iter().map(|edge| edge.waiter).collect(),
            behind: deadlock.behind.clone(),
        }
    }
}
