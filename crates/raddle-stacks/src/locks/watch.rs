//! A quick look for deadlocks, again and again, without stacks and names: most processes have none.
//!
//! A look reads the table of threads. A thread is *stuck* if it waits without a time limit and has
//! not run since the look before. The words at which a mutex, a lock or a join would have its owner
//! lead from one stuck thread to others. If these lead back, or all threads are stuck, the process
//! is suspected, and it is for [`edges`](super::edges) to find out more.
//!
//! Java threads lead by their locks to others ([`java`]). A suspicion with a Java thread is true at
//! one moment, and may not be confirmed yet: the virtual machine didn't answer, or objects have
//! moved. So it comes again after ever more looks, until it is [settled](Watch::settle).

mod java;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use raddle_inspect::{ThreadState, WaitKind};

use super::layouts::TID_MASK;
use super::native::Owners;
use super::{Deadlock, Owner, asleep};
use crate::capture::Target;
use crate::java::WatchedLock;
use crate::table::{Slot, Table};
use java::{JavaWait, JavaWaits};

/// The most looks between two for a virtual machine.
const SEARCH_GAP_MAX: u32 = 64;
/// The most looks between two suspicions of the same threads: of a week.
const RETRY_GAP_MAX: u32 = 1 << 20;

/// What is remembered between looks.
pub struct Watch {
    /// How often each thread that waited without a limit had been switched to.
    waited: HashMap<u32, u64>,
    suspected: BTreeSet<Suspect>,
    /// Suspects that are in deadlocks which were found.
    settled: BTreeSet<Suspect>,
    /// When suspects with a Java thread among them are suspected again.
    retry: Looks,
    java: JavaWaits,
}

/// A thread, and how often it had been switched to, or the address of the monitor that it wants.
type Suspect = (u32, u64);

/// Ever more looks in between.
struct Looks {
    left: u32,
    gap: u32,
    gap_max: u32,
}

impl Looks {
    fn new(gap_max: u32) -> Looks {
        Looks {
            left: 0,
            gap: 0,
            gap_max,
        }
    }

    /// Returns true for the first look, and then for looks with ever more between them.
    fn is_due(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        self.left = self.gap;
        self.gap = (self.gap * 2 + 1).min(self.gap_max);
        true
    }
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            waited: HashMap::new(),
            suspected: BTreeSet::new(),
            settled: BTreeSet::new(),
            retry: Looks::new(RETRY_GAP_MAX),
            java: JavaWaits::new(Looks::new(SEARCH_GAP_MAX)),
        }
    }
}

impl Watch {
    /// Looks at a process. Returns true if it may have a deadlock that was not suspected before, or
    /// that has Java threads and is to be looked at again.
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
        let java = self.java.look(target, &slots, &stuck);
        let suspects = if is_asleep {
            stuck.keys().copied().collect::<HashSet<u32>>()
        } else {
            suspects(target, &stuck, &java)
        };
        let mut open = BTreeMap::new();
        for slot in slots.iter().filter(|it| suspects.contains(&it.record.tid)) {
            let tid = slot.record.tid;
            let what = match java.get(&tid).map(|wait| wait.lock) {
                Some(WatchedLock::Monitor(monitor)) => monitor,
                _ => slot.record.switches,
            };
            if !self.settled.contains(&(tid, what)) {
                open.insert((tid, what), slot);
            }
        }
        let mut of_java = open
            .values()
            .copied()
            .filter(|it| java.contains_key(&it.record.tid))
            .peekable();
        let has_java = of_java.peek().is_some();
        if has_java && !java::have_not_run(&mut table, of_java) {
            return false;
        }
        self.suspect(open.into_keys().collect(), has_java)
    }

    /// Returns true if these are to be looked at now.
    fn suspect(&mut self, suspects: BTreeSet<Suspect>, has_java: bool) -> bool {
        let is_new = !suspects.is_subset(&self.suspected);
        self.suspected = suspects;
        if is_new {
            self.retry = Looks::new(RETRY_GAP_MAX);
        }
        let is_due = has_java && self.retry.is_due();
        is_new || is_due
    }

    /// Takes note of the deadlocks that were found after a suspicion.
    pub fn settle(&mut self, found: &[Deadlock]) {
        let threads = found.iter().flat_map(|it| &it.edges);
        let threads: HashSet<u32> = threads.map(|edge| edge.waiter).collect();
        let settled = self.suspected.iter().filter(|it| threads.contains(&it.0));
        self.settled.extend(settled);
    }

    /// Forgets what was suspected, so that it is again.
    pub fn forget(&mut self) {
        self.suspected.clear();
        self.settled.clear();
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
fn suspects(
    target: &Target<'_>,
    stuck: &HashMap<u32, &Slot>,
    java: &HashMap<u32, JavaWait>,
) -> HashSet<u32> {
    let has_owner = |slot: &&Slot| owner_places(slot.record.wait_kind).is_some();
    if java.is_empty() && !stuck.values().any(has_owner) {
        return HashSet::new();
    }
    let owners = Owners::new(target);
    let next = java.iter().map(|(&tid, wait)| (tid, vec![wait.owner]));
    let mut next: HashMap<u32, Vec<u32>> = next.collect();
    let mut suspects = HashSet::new();
    for (&tid, slot) in stuck {
        let record = &slot.record;
        for place in owner_places(record.wait_kind).unwrap_or_default() {
            let word = record
                .wait_arg
                .checked_add(*place)
                .and_then(|at| target.memory.half(at));
            match owners.named(word.unwrap_or(0) & TID_MASK, false) {
                Owner::Thread(owner) if stuck.contains_key(&owner) || java.contains_key(&owner) => {
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
    use crate::locks::{Edge, Object, ObjectKind, Why};

    #[test]
    fn a_suspicion_comes_again_with_java_threads_until_it_is_settled() {
        let mut watch = Watch::default();
        let suspects = BTreeSet::from([(1, 0x10), (2, 7)]);
        let looks = |watch: &mut Watch, has_java| -> Vec<u32> {
            let is_due = |_: &u32| watch.suspect(suspects.clone(), has_java);
            (0..10).filter(is_due).collect()
        };
        assert_eq!(looks(&mut watch, false), [0]);
        watch.forget();
        assert_eq!(looks(&mut watch, true), [0, 1, 3, 7]);
        let edge = |waiter| Edge {
            waiter,
            switches: 0,
            object: Object {
                kind: ObjectKind::Other("Java lock X".into()),
                address: 0x1000,
                note: None,
                is_timed: false,
            },
            owner: Owner::Unknown,
        };
        watch.settle(&[Deadlock {
            why: Why::Cycle,
            edges: vec![edge(2), edge(9)],
            behind: Vec::new(),
        }]);
        assert_eq!(watch.settled, BTreeSet::from([(2, 7)]));
    }

    #[test]
    fn looks_are_due_ever_more_rarely() {
        let mut looks = Looks::new(SEARCH_GAP_MAX);
        let due: Vec<u32> = (0..200).filter(|_| looks.is_due()).collect();
        assert_eq!(due, [0, 1, 3, 7, 15, 31, 63, 127, 192]);
    }

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
