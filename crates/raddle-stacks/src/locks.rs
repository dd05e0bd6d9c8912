//! What threads wait for, and which threads have to act before they go on.
//!
//! Nouns: an [`Edge`] is one wait: a thread, an [`Object`], and the object's [`Owner`]. A
//! [`Deadlock`] is a set of edges that can't end. The edges of all sources are one graph: those of
//! [`edges`] come from the objects of libc in the process's memory, those of [`monitor_edges`] from
//! the memory of a JVM, and those of [`java_edges`] from what it says. A further source makes edges
//! with [`ObjectKind::Other`] and adds them before [`deadlocks`]. Its waits have to hold at one
//! moment between the first and the second reading; if it can tell that by itself, `switches` is 0.
//!
//! Protocol, by which no healthy program is reported:
//!
//! 1. An owner is known, or it is not named: [`Owner`] has no probable value that counts.
//! 2. An edge with a time limit, and one with an owner that is not known, is part of no cycle.
//! 3. All is read twice. [`confirmed`] keeps what was the same both times, for threads that have
//!    not run between. The first reading may mix states of different moments; an edge of a thread
//!    that has not run since is one that held at the second reading, and so are all of a cycle.
//!
//! Rejected: owners from the stacks of other threads, on which a guard or the lock's address lies.
//! A word on a stack may be what a finished call has left. `mentions` says it as a remark.

mod asleep;
mod java;
mod layouts;
mod mentions;
mod native;
mod pipes;
mod variables;
mod watch;

use std::collections::{HashMap, HashSet};

pub(crate) use asleep::has_handler;
pub use asleep::{Wakers, wakers};
pub use java::{java_edges, monitor_edges};
pub use native::{edges, has_readers, holder, waited_for};
pub use variables::Variables;
pub use watch::Watch;

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The thread that waits.
    pub waiter: u32,
    /// How often the waiter has been switched to: it has not run while this is the same.
    pub switches: u64,
    pub object: Object,
    pub owner: Owner,
}

/// A lock, or another thing that threads wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub kind: ObjectKind,
    /// Where it is in memory; 0 if that isn't known.
    pub address: u64,
    /// What else is known, as text.
    pub note: Option<String>,
    /// The wait ends by itself.
    pub is_timed: bool,
}

/// Kinds of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Mutex,
    RecursiveMutex,
    ErrorCheckingMutex,
    AdaptiveMutex,
    RobustMutex,
    /// A mutex, or another futex, that inherits priorities.
    PriorityInheritingMutex,
    ReadLock,
    WriteLock,
    /// The end of a thread.
    Thread,
    Barrier,
    Semaphore,
    Condition,
    Once,
    /// A lock inside libc: of a stream, of the heap.
    Libc,
    RustMutex,
    RustReadWriteLock,
    ParkingMutex,
    ParkingReadWriteLock,
    ParkingLot,
    /// CPython's lock of one byte: `threading.Lock` without the global lock, and from 3.14 on.
    PythonMutex,
    /// Another object of CPython's: an event, a read-write lock.
    PythonLot,
    /// A word of memory, for a reason that isn't known.
    Futex,
    /// A pipe that is empty.
    EmptyPipe,
    /// A pipe that is full.
    FullPipe,
    /// Of another runtime, by its name for it.
    Other(String),
}

impl ObjectKind {
    /// Returns true for what one thread holds while others wait, or several readers; semaphores
    /// are used so, too (CPython's locks are some).
    pub fn is_lock(&self) -> bool {
        !matches!(
            self,
            ObjectKind::Thread
                | ObjectKind::Barrier
                | ObjectKind::Condition
                | ObjectKind::Once
                | ObjectKind::Futex
                | ObjectKind::PythonLot
                | ObjectKind::EmptyPipe
                | ObjectKind::FullPipe
                | ObjectKind::Other(_)
        )
    }

    /// Returns the name for what threads want in several ways.
    pub fn word_of_all(&self) -> &str {
        match self {
            ObjectKind::ReadLock | ObjectKind::WriteLock => "read-write lock",
            _ => self.word(),
        }
    }

    /// Returns the name for it.
    pub fn word(&self) -> &str {
        match self {
            ObjectKind::Mutex => "mutex",
            ObjectKind::RecursiveMutex => "recursive mutex",
            ObjectKind::ErrorCheckingMutex => "error-checking mutex",
            ObjectKind::AdaptiveMutex => "adaptive mutex",
            ObjectKind::RobustMutex => "robust mutex",
            ObjectKind::PriorityInheritingMutex => "priority-inheriting mutex",
            ObjectKind::ReadLock => "read-write lock (to read)",
            ObjectKind::WriteLock => "read-write lock (to write)",
            ObjectKind::Thread => "end of a thread",
            ObjectKind::Barrier => "barrier",
            ObjectKind::Semaphore => "semaphore",
            ObjectKind::Condition => "condition variable",
            ObjectKind::Once => "initialisation by another thread",
            ObjectKind::Libc => "lock of libc",
            ObjectKind::RustMutex => "std::sync::Mutex",
            ObjectKind::RustReadWriteLock => "std::sync::RwLock",
            ObjectKind::ParkingMutex => "parking_lot::Mutex",
            ObjectKind::ParkingReadWriteLock => "parking_lot::RwLock",
            ObjectKind::ParkingLot => "lock of parking_lot",
            ObjectKind::PythonMutex => "PyMutex",
            ObjectKind::PythonLot => "object of CPython",
            ObjectKind::Futex => "futex",
            ObjectKind::EmptyPipe => "empty pipe",
            ObjectKind::FullPipe => "full pipe",
            ObjectKind::Other(name) => name,
        }
    }
}

/// Which thread has to act before the waiter goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Only this thread can.
    Thread(u32),
    /// Only this thread could, and it has ended.
    Ended(u32),
    /// A thread of another process.
    Elsewhere(u32),
    /// This thread took it last; any other may release it.
    LastTaker(u32),
    /// The object doesn't say.
    Unknown,
}

/// Why waits can't end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// Each thread waits for the next one, and the last for the first.
    Cycle,
    /// The owner has ended.
    OwnerEnded,
    /// All threads wait, and nothing can wake them.
    Asleep,
}

impl Why {
    /// Returns the word for it, as the JSON document has it.
    pub fn word(self) -> &'static str {
        match self {
            Why::Cycle => "cycle",
            Why::OwnerEnded => "owner_ended",
            Why::Asleep => "asleep",
        }
    }
}

/// Waits that can't end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    pub why: Why,
    /// The waits; those of a cycle in its order.
    pub edges: Vec<Edge>,
    /// Threads that are no part of it, and wait for such a part.
    pub behind: Vec<u32>,
}

/// All waits of a process at one reading.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    pub edges: Vec<Edge>,
    /// Threads, and how often each has been switched to.
    pub switches: HashMap<u32, u64>,
    /// Nothing but the threads themselves can wake one.
    pub is_asleep: bool,
}

/// Finds what can't end.
pub fn deadlocks(waits: &Waits) -> Vec<Deadlock> {
    // Of several edges of a thread, one with an owner decides.
    let mut next: HashMap<u32, &Edge> = HashMap::new();
    for edge in waits.edges.iter().filter(|edge| !edge.object.is_timed) {
        if matches!(edge.owner, Owner::Thread(_) | Owner::Ended(_)) {
            next.entry(edge.waiter).or_insert(edge);
        }
    }
    let mut found = Vec::new();
    let mut done: HashSet<u32> = HashSet::new();
    let mut starts: Vec<u32> = next.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut path: Vec<&Edge> = Vec::new();
        let mut at = start;
        while let Some(&edge) = next.get(&at).filter(|_| !done.contains(&at)) {
            done.insert(at);
            path.push(edge);
            match edge.owner {
                Owner::Thread(owner) => at = owner,
                _ => {
                    found.push(deadlock(Why::OwnerEnded, &[edge]));
                    break;
                }
            }
        }
        if let Some(from) = path.iter().position(|edge| edge.waiter == at)
            && path
                .last()
                .is_some_and(|last| last.owner == Owner::Thread(at))
        {
            found.push(deadlock(Why::Cycle, &path[from..]));
        }
    }
    let stuck = add_behind(&mut found, &next);
    if waits.is_asleep && !waits.switches.keys().all(|tid| stuck.contains(tid)) {
        let all: Vec<&Edge> = waits.edges.iter().collect();
        found.push(deadlock(Why::Asleep, &all));
    }
    found
}

fn deadlock(why: Why, edges: &[&Edge]) -> Deadlock {
    Deadlock {
        why,
        edges: edges.iter().copied().cloned().collect(),
        behind: Vec::new(),
    }
}

/// Notes the threads that wait for one of a deadlock's, perhaps through others. Each thread waits
/// for one other at most, so that its path leads to one deadlock at most. Returns all threads that
/// are in deadlocks or behind.
fn add_behind(found: &mut [Deadlock], next: &HashMap<u32, &Edge>) -> HashSet<u32> {
    // The number of the deadlock to which each thread's path leads, if it does.
    let mut ends: HashMap<u32, Option<usize>> = HashMap::new();
    for (number, deadlock) in found.iter().enumerate() {
        ends.extend(deadlock.edges.iter().map(|it| (it.waiter, Some(number))));
    }
    for &start in next.keys() {
        let (mut path, mut at) = (Vec::new(), start);
        let end = loop {
            if let Some(&end) = ends.get(&at) {
                break end;
            }
            // Until the end is known: a path that comes back here leads nowhere.
            ends.insert(at, None);
            path.push(at);
            match next.get(&at).map(|edge| edge.owner) {
                Some(Owner::Thread(owner)) => at = owner,
                _ => break None,
            }
        };
        for tid in path {
            ends.insert(tid, end);
            if let Some(deadlock) = end.and_then(|end| found.get_mut(end)) {
                deadlock.behind.push(tid);
            }
        }
    }
    for deadlock in found {
        deadlock.behind.sort_unstable();
    }
    let is_stuck = |(tid, end): (u32, Option<usize>)| end.map(|_| tid);
    ends.into_iter().filter_map(is_stuck).collect()
}

/// Returns the deadlocks of the later reading that were there at the earlier one already, by
/// threads that have not run between.
pub fn confirmed(earlier: &Waits, later: &Waits) -> Vec<Deadlock> {
    let waits = |edge: &Edge| {
        let object = &edge.object;
        (edge.waiter, edge.switches, object.address, edge.owner)
    };
    let key = |it: &Deadlock| -> (Why, Vec<_>) { (it.why, it.edges.iter().map(waits).collect()) };
    let before: HashSet<_> = deadlocks(earlier).iter().map(key).collect();
    let is_same = |deadlock: &Deadlock| {
        let is_still = deadlock.why != Why::Asleep || earlier.switches == later.switches;
        is_still && before.contains(&key(deadlock))
    };
    let mut found = deadlocks(later);
    found.retain(is_same);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(waiter: u32, owner: Owner) -> Edge {
        Edge {
            waiter,
            switches: 1,
            object: Object {
                kind: ObjectKind::Mutex,
                address: u64::from(waiter) * 64,
                note: None,
                is_timed: false,
            },
            owner,
        }
    }

    fn waits(edges: Vec<Edge>) -> Waits {
        Waits {
            switches: edges.iter().map(|edge| (edge.waiter, 1)).collect(),
            edges,
            is_asleep: false,
        }
    }

    fn members(deadlock: &Deadlock) -> Vec<u32> {
        deadlock.edges.iter().map(|edge| edge.waiter).collect()
    }

    #[test]
    fn a_cycle_is_found_once_with_those_behind_it() {
        let to = |waiter, owner| edge(waiter, Owner::Thread(owner));
        let graph = waits(vec![
            to(1, 2),
            to(2, 3),
            to(3, 4),
            to(4, 2),
            to(5, 1),
            to(6, 9),
        ]);
        let found = deadlocks(&graph);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].why, members(&found[0])),
            (Why::Cycle, vec![2, 3, 4])
        );
        assert_eq!(found[0].behind, [1, 5]);
        let own = deadlocks(&waits(vec![to(7, 7)]));
        assert_eq!((own.len(), members(&own[0])), (1, vec![7]));
    }

    #[test]
    fn two_cycles_are_two_deadlocks() {
        let to = |waiter, owner| edge(waiter, Owner::Thread(owner));
        let found = deadlocks(&waits(vec![
            to(1, 2),
            to(2, 1),
            to(3, 4),
            to(4, 3),
            to(5, 3),
        ]));
        assert_eq!(
            found.iter().map(members).collect::<Vec<_>>(),
            [[1, 2], [3, 4]]
        );
        assert_eq!(found[1].behind, [5]);
    }

    #[test]
    fn time_limits_and_unknown_owners_break_cycles() {
        let mut timed = edge(1, Owner::Thread(2));
        timed.object.is_timed = true;
        let back = edge(2, Owner::Thread(1));
        assert!(deadlocks(&waits(vec![timed, back.clone()])).is_empty());
        for owner in [Owner::Unknown, Owner::LastTaker(2), Owner::Elsewhere(2)] {
            assert!(deadlocks(&waits(vec![edge(1, owner), back.clone()])).is_empty());
        }
    }

    #[test]
    fn an_owner_that_has_ended_is_a_deadlock_for_all_that_wait() {
        let found = deadlocks(&waits(vec![
            edge(1, Owner::Ended(9)),
            edge(2, Owner::Thread(1)),
            edge(3, Owner::Ended(9)),
        ]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|it| it.why == Why::OwnerEnded));
        assert_eq!(found[0].behind, [2]);
    }

    #[test]
    fn what_has_moved_between_two_readings_is_none() {
        let cycle = waits(vec![edge(1, Owner::Thread(2)), edge(2, Owner::Thread(1))]);
        assert_eq!(confirmed(&cycle, &cycle).len(), 1);
        let mut moved = cycle.clone();
        moved.edges[0].switches = 2;
        assert!(confirmed(&cycle, &moved).is_empty());
        let mut asleep = waits(vec![edge(1, Owner::Unknown)]);
        asleep.is_asleep = true;
        assert_eq!(confirmed(&asleep, &asleep).len(), 1);
        let mut other = asleep.clone();
        other.switches.insert(1, 2);
        assert!(confirmed(&asleep, &other).is_empty());
    }

    #[test]
    fn all_asleep_is_said_beside_a_cycle_only_for_others() {
        let mut graph = waits(vec![edge(1, Owner::Thread(1)), edge(2, Owner::Thread(1))]);
        graph.is_asleep = true;
        assert_eq!(deadlocks(&graph).len(), 1);
        graph.edges.push(edge(3, Owner::Unknown));
        graph.switches.insert(3, 1);
        let found = deadlocks(&graph);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].why, found[1].edges.len()), (Why::Asleep, 3));
    }
}
