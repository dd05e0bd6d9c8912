//! Findings of locks.
//!
//! Threads that wait for one word are counted at each look. Whether the word is a lock, and which
//! thread holds it, is told by the stacks of some waiters and by the lock itself, as for
//! `raddle dump` ([`raddle_stacks::locks`]). That takes longer, so it is asked only if many threads
//! have waited long, and not at each look.
//!
//! A lock is *passed on* if its owner changes, or its oldest waiter. A lock that is not, of which
//! the owner waits for clients, is left alone: a thread of a pool may wait for them on behalf of
//! the others.

use std::collections::HashMap;

use raddle_inspect::{ThreadState, WaitKind};
use raddle_stacks::locks::{Edge, ObjectKind, Owner, Variables, edges};
use raddle_stacks::{Symbols, capture};

use super::find::{named, shortage};
use super::{Kind, Lint};
use crate::top::look::{Frame, Row};
use crate::top::select::plain;
use crate::top::source::Source;
use crate::top::text::short;

/// So many threads make a queue.
const QUEUE: usize = 3;
/// Half of them have waited for so long.
const QUEUED_NS: u64 = 10_000_000;
/// The most locks that are looked at.
const LOCKS_MAX: usize = 3;
/// The most waiters with stacks that are read.
const STACKS_MAX: usize = 4;
/// How often locks are asked for their owners at most.
const ASK_NS: u64 = 400_000_000;

/// What is remembered of locks between looks.
#[derive(Default)]
pub(super) struct Locks {
    /// By their addresses, the words that are waited for.
    known: HashMap<u64, Known>,
    /// When owners were asked for last.
    asked_ns: u64,
}

#[derive(Clone, Default)]
struct Known {
    /// `None` if it is no lock, or was not asked for.
    lock: Option<Lock>,
    /// Since when there has been a queue.
    since_ns: u64,
    oldest_ns: u64,
    is_passed_on: bool,
}

#[derive(Clone)]
struct Lock {
    /// `mutex 0x1234 (queue_lock)`.
    text: String,
    owner: Owner,
}

/// Threads that wait for one word: since when, and which.
#[derive(Default)]
struct Queue(Vec<(u64, u32)>);

impl Queue {
    fn has(&self, tid: u32) -> bool {
        self.0.iter().any(|&(_, it)| it == tid)
    }

    /// Returns the threads that came last, which are likely to wait for longest still.
    fn latest(&self) -> impl Iterator<Item = u32> {
        self.0.iter().rev().take(STACKS_MAX).map(|&(_, tid)| tid)
    }

    /// Returns since when the middle one waits.
    fn median_ns(&self) -> u64 {
        self.0
            .get(self.0.len() / 2)
            .map_or(0, |&(since_ns, _)| since_ns)
    }
}

impl Locks {
    pub(super) fn look(&mut self, source: &Source, frame: &Frame) -> Vec<Lint> {
        let queues = queues(frame);
        let before = std::mem::take(&mut self.known);
        let is_due = frame.now_ns.saturating_sub(self.asked_ns) >= ASK_NS;
        let mut locks = if is_due && !queues.is_empty() {
            self.asked_ns = frame.now_ns;
            Some(ask(source, &queues))
        } else {
            None
        };
        let mut findings = Vec::new();
        for (address, queue) in queues {
            let mut known = before.get(&address).cloned().unwrap_or(Known {
                since_ns: frame.now_ns,
                ..Known::default()
            });
            if let Some(locks) = &mut locks {
                let lock = locks.remove(&address).or_else(|| {
                    // Its waiters have run while they were looked at.
                    let lock = known.lock.clone()?;
                    Some(Lock {
                        owner: Owner::Unknown,
                        ..lock
                    })
                });
                let owner = |lock: &Option<Lock>| lock.as_ref().map(|lock| lock.owner);
                let had = owner(&known.lock);
                known.is_passed_on |= had.is_some() && had != owner(&lock);
                known.lock = lock;
            }
            let oldest_ns = queue.0.first().map_or(0, |&(since_ns, _)| since_ns);
            known.is_passed_on |= known.oldest_ns != 0 && oldest_ns != known.oldest_ns;
            known.oldest_ns = oldest_ns;
            findings.extend(finding(source, frame, (address, &queue), &known));
            self.known.insert(address, known);
        }
        findings
    }
}

/// Returns the longest queues in which half of the threads have waited for long.
fn queues(frame: &Frame) -> Vec<(u64, Queue)> {
    let mut queues: HashMap<u64, Queue> = HashMap::new();
    for row in &frame.rows {
        let record = &row.record;
        let is_word = matches!(record.wait_kind, WaitKind::FUTEX | WaitKind::MUTEX);
        if record.state == ThreadState::WAITING && is_word && record.since_ns != 0 {
            let queue = queues.entry(record.wait_arg).or_default();
            queue.0.push((record.since_ns, record.tid));
        }
    }
    let own = 1.0 - shortage(frame);
    let is_long = |queue: &Queue| {
        let waited_ns = frame.now_ns.saturating_sub(queue.median_ns());
        waited_ns as f64 * own >= QUEUED_NS as f64
    };
    let mut long: Vec<(u64, Queue)> = queues.into_iter().collect();
    long.retain_mut(|(_, queue)| {
        queue.0.sort_unstable();
        queue.0.len() >= QUEUE && is_long(queue)
    });
    long.sort_by_key(|(at, queue)| (std::cmp::Reverse(queue.0.len()), *at));
    long.truncate(LOCKS_MAX);
    long
}

/// Returns the locks among the words that are waited for.
fn ask(source: &Source, queues: &[(u64, Queue)]) -> HashMap<u64, Lock> {
    let target = source.target();
    let some: Vec<u32> = queues
        .iter()
        .flat_map(|(_, queue)| queue.latest())
        .collect();
    let Some(stacks) = capture(&target, &|record| some.contains(&record.tid)) else {
        return HashMap::new();
    };
    let mut symbols = Symbols::new(target.memory, target.modules);
    symbols.prepare(stacks.stacks.iter().flat_map(|stack| stack.frames.iter()));
    let edges = edges(&target, &stacks, &mut symbols);
    let mut variables = Variables::new(target.memory, target.modules);
    let mut locks = HashMap::new();
    for (address, queue) in queues {
        let waits = |edge: &&Edge| queue.has(edge.waiter) && is_lock(edge);
        let Some(edge) = edges.iter().find(waits) else {
            continue;
        };
        let object = &edge.object;
        let name = variables.name(object.address);
        let name = name.map_or(String::new(), |name| format!(" ({name})"));
        let text = format!("{} {:#x}{name}", object.kind.word(), object.address);
        locks.insert(
            *address,
            Lock {
                text: plain(text.as_bytes()),
                owner: edge.owner,
            },
        );
    }
    locks
}

fn is_lock(edge: &Edge) -> bool {
    edge.object.kind.is_lock() && edge.object.kind != ObjectKind::ParkingLot
}

fn finding(
    source: &Source,
    frame: &Frame,
    (address, queue): (u64, &Queue),
    known: &Known,
) -> Option<Lint> {
    let lock = known.lock.as_ref()?;
    let pid = source.pid;
    let waiting = format!(
        "{} threads wait for {}, half of them for {} or more",
        queue.0.len(),
        lock.text,
        short(frame.now_ns.saturating_sub(queue.median_ns()))
    );
    let owner = match lock.owner {
        Owner::Thread(tid) | Owner::LastTaker(tid) => {
            frame.rows.iter().find(|row| row.record.tid == tid)
        }
        _ => None,
    };
    let (kind, text, cure) = match owner {
        Some(row) if known.is_passed_on || !waits(row) => {
            let text = format!("{waiting}; now {} has it", named(row));
            let cure = format!(
                "hold it for a shorter time, or split it: raddle dump {pid} --tid {} says where \
                 it is held",
                row.record.tid
            );
            (Kind::Convoy, text, cure)
        }
        Some(row) if is_at_rest(row) => return None,
        Some(row) => {
            let since = short(frame.now_ns.saturating_sub(row.since_ns()));
            let text = format!(
                "{waiting}; {} has it, and waits itself ({}, for {since})",
                named(row),
                row.record.wait_kind.word()
            );
            let cure = format!(
                "don't wait with the lock: raddle dump {pid} --tid {} says where",
                row.record.tid
            );
            (Kind::HeldLock, text, cure)
        }
        None if known.is_passed_on => {
            let cure = format!("hold it for a shorter time, or split it: raddle locks {pid}");
            (Kind::Convoy, waiting, cure)
        }
        None => {
            let Owner::Ended(tid) = lock.owner else {
                return None;
            };
            let text = format!("{waiting}; #{tid} had it when it ended");
            let cure = format!("raddle dump {pid} --deadlocks says more");
            (Kind::HeldLock, text, cure)
        }
    };
    const NAMED: usize = 100;
    Some(Lint {
        tids: queue.0.iter().take(NAMED).map(|&(_, tid)| tid).collect(),
        lock: Some(address),
        ..Lint::new(kind, address, known.since_ns, text, cure)
    })
}

fn waits(row: &Row) -> bool {
    row.record.state == ThreadState::WAITING
}

/// Returns true for a thread that waits for what comes from outside: it may do so for others.
fn is_at_rest(row: &Row) -> bool {
    matches!(
        row.record.wait_kind,
        WaitKind::FD_READ
            | WaitKind::FD_WRITE
            | WaitKind::POLL
            | WaitKind::EPOLL
            | WaitKind::SIGNAL
            | WaitKind::CHILD
            | WaitKind::API
            | WaitKind::UNPARK
            | WaitKind::COMPLETION
    )
}
