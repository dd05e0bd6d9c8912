//! A quick look for deadlocks, again and again, without stacks and names: most processes have none.
//!
//! A look reads the table of threads. A thread is *stuck* if it waits without a time limit and has
//! not run since the look before. The words at which a mutex, a lock or a join would have its owner
//! lead from one stuck thread to others. If these lead back, or all threads are stuck, the process
//! is suspected, and it is for [`edges`](super::edges) to find out more.

use std::collections::{BTreeSet, HashMap, HashSet};

use raddle_inspect::{ThreadState, WaitKind};

use super::layouts::TID_MASK;
use super::native::Owners;
use super::{Owner, asleep};
use crate::capture::Target;
use crate::table::{Slot, Table};

/// What is remembered between looks.
#[derive(Default)]
pub struct Watch {
    /// How often each thread that waited without a limit had been switched to.
    waited: HashMap<u32, u64>,
    /// What was suspected: threads, and how often each had been switched to.
    suspected: BTreeSet<(u32, u64)>,
}

impl Watch {
    /// Looks at a process. Returns true if it may have a deadlock that was not suspected before.
    pub fn look(&mut self, target: &Target<'_>) -> bool {
        let Some(mut table) = Table::new(target) else {
            return false;
        };
        let mut slots = Vec::new();
        table.for_each(|slot| slots.push(slot));
        let waits: Vec<&Slot> = slots.iter().filter(|slot| waits_inside(slot)).collect();
        let is_old =
            |slot: &&&Slot| self.waited.get(&slot.record.tid) == Some(&slot.record.switches);
        let stuck: HashMap<u32, &Slot> = waits
            .iter()
            .filter(is_old)
            .map(|slot| (slot.record.tid, *slot))
            .collect();
        self.waited = waits
            .iter()
            .map(|slot| (slot.record.tid, slot.record.switches))
            .collect();
        let is_asleep =
            !slots.is_empty() && stuck.len() == slots.len() && !asleep::is_handled(target);
        let suspects: BTreeSet<(u32, u64)> = if is_asleep {
            stuck.keys().copied().collect::<HashSet<u32>>()
        } else {
            suspects(target, &stuck)
        }
        .into_iter()
        .filter_map(|tid| Some((tid, stuck.get(&tid)?.record.switches)))
        .collect();
        let is_new = !suspects.is_subset(&self.suspected);
        self.suspected = suspects;
        is_new
    }

    /// Forgets what was suspected, so that it is again.
    pub fn forget(&mut self) {
        self.suspected.clear();
    }
}

/// Returns true if the thread waits, without a limit, for what another thread may do.
fn waits_inside(slot: &Slot) -> bool {
    let record = &slot.record;
    let kinds = [
        WaitKind::FUTEX,
        WaitKind::MUTEX,
        WaitKind::JOIN,
        WaitKind::CONDVAR,
        WaitKind::SEMAPHORE,
    ];
    record.state == ThreadState::WAITING
        && record.deadline_ns == 0
        && kinds.contains(&record.wait_kind)
}

/// Returns the stuck threads that may wait for each other, or for a thread that has ended.
fn suspects(target: &Target<'_>, stuck: &HashMap<u32, &Slot>) -> HashSet<u32> {
    let has_owner = |slot: &&Slot| owner_places(slot.record.wait_kind).is_some();
    if !stuck.values().any(has_owner) {
        return HashSet::new();
    }
    let owners = Owners::new(target);
    let mut next: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut suspects = HashSet::new();
    for (&tid, slot) in stuck {
        let record = &slot.record;
        for place in owner_places(record.wait_kind).unwrap_or_default() {
            let word = record
                .wait_arg
                .checked_add(*place)
                .and_then(|at| target.memory.half(at));
            match owners.named(word.unwrap_or(0) & TID_MASK, false) {
                Owner::Thread(owner) if stuck.contains_key(&owner) => {
                    next.entry(tid).or_default().push(owner);
                }
                Owner::Ended(_) if record.wait_kind != WaitKind::JOIN => {
                    suspects.insert(tid);
                }
                _ => {}
            }
        }
    }
    suspects.extend(on_cycles(&next));
    suspects
}

/// Returns where an owner may be, from the word for which a thread waits: in the word itself of a
/// join, or if the word inherits priorities; behind it in a mutex and a read-write lock.
fn owner_places(kind: WaitKind) -> Option<&'static [u64]> {
    match kind {
        WaitKind::JOIN => Some(&[0]),
        WaitKind::MUTEX => Some(&[0, 8]),
        WaitKind::FUTEX => Some(&[0, 8, 12, 16, 24]),
        _ => None,
    }
}

/// Returns the threads from which a way leads back to themselves: what is left when those without a
/// way on, and then those without a way to them, are taken away again and again.
fn on_cycles(next: &HashMap<u32, Vec<u32>>) -> HashSet<u32> {
    let mut left: HashSet<u32> = next.keys().copied().collect();
    loop {
        let goes_on = |tid: &u32| next[tid].iter().any(|owner| left.contains(owner));
        let forward: HashSet<u32> = left.iter().copied().filter(goes_on).collect();
        let reached: HashSet<u32> = forward
            .iter()
            .flat_map(|tid| next[tid].iter().copied())
            .collect();
        let both: HashSet<u32> = forward.intersection(&reached).copied().collect();
        if both.len() == left.len() {
            return both;
        }
        left = both;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_a_cycle_is_left() {
        let ways = |ways: &[(u32, &[u32])]| -> HashMap<u32, Vec<u32>> {
            ways.iter()
                .map(|(tid, next)| (*tid, next.to_vec()))
                .collect()
        };
        let found = on_cycles(&ways(&[(1, &[2]), (2, &[3, 9]), (3, &[2]), (4, &[1])]));
        assert_eq!(found, HashSet::from([2, 3]));
        assert_eq!(on_cycles(&ways(&[(5, &[5])])), HashSet::from([5]));
        assert!(on_cycles(&ways(&[(1, &[2]), (2, &[3])])).is_empty());
        assert!(on_cycles(&HashMap::new()).is_empty());
    }
}
