//! Whether anything outside of its threads can wake a process in which all threads wait.
//!
//! All are asleep for good if each waits, without a time limit, for another thread: for a lock, a
//! semaphore, a condition, a barrier or an end. A thread that waits for a descriptor, a signal, a
//! child, a time or a helper can be woken from outside. So can any thread by
//!
//! - another process, if the word that it waits for is in shared memory;
//! - a handler of the program's for a signal that may come from outside, by a timer too;
//! - a kernel thread that runs the program's code without being known as a thread.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use raddle_inspect::{ThreadState, WaitKind};

use super::{Edge, Owner};
use crate::capture::{Stacks, Target};
use crate::kernel::tasks_are_within;

/// What can wake a thread of a process in which all threads wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakers {
    /// Nothing.
    None,
    /// A handler of SIGINT alone.
    Interrupt,
    /// Something.
    Some,
}

impl Wakers {
    /// Returns true if the threads are asleep for good. A handler of SIGINT alone counts as none if
    /// two threads and more wait for what the next one took last: such a handler interrupts the
    /// main thread of an interpreter, and releases nothing.
    pub fn leave_asleep(self, edges: &[Edge]) -> bool {
        match self {
            Wakers::None => true,
            Wakers::Interrupt => takers_go_round(edges),
            Wakers::Some => false,
        }
    }
}

/// Returns what can wake the threads of a process, which were read just now.
pub fn wakers(target: &Target<'_>, stacks: &Stacks, edges: &[Edge]) -> Wakers {
    const INSIDE: [WaitKind; 5] = [
        WaitKind::FUTEX,
        WaitKind::CONDVAR,
        WaitKind::SEMAPHORE,
        WaitKind::MUTEX,
        WaitKind::JOIN,
    ];
    let waits_inside = stacks.green().all(|it| {
        let record = &it.record;
        record.state == ThreadState::WAITING
            && record.deadline_ns == 0
            && INSIDE.contains(&record.wait_kind)
    });
    let count = stacks.green().count();
    let has_all = edges.len() == count;
    if count == 0 || !waits_inside || !has_all {
        return Wakers::Some;
    }
    let handled = handled_signals(target);
    if handled & !bit(INTERRUPT) != 0 {
        return Wakers::Some;
    }
    let Some(shared) = shared_memory(target.pid) else {
        return Wakers::Some;
    };
    let is_shared = |address: u64| shared.iter().any(|range| range.contains(&address));
    let words = stacks.green().map(|it| it.record.wait_arg);
    let code = &target.layout.code;
    if words.into_iter().any(is_shared)
        || !tasks_are_within(target.pid, code.text_start..code.text_end)
    {
        return Wakers::Some;
    }
    match handled {
        0 => Wakers::None,
        _ => Wakers::Interrupt,
    }
}

/// Returns true if the program handles a signal from outside, other than SIGINT.
pub(super) fn is_handled(target: &Target<'_>) -> bool {
    handled_signals(target) & !bit(INTERRUPT) != 0
}

const INTERRUPT: u32 = 2;

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Returns the signals that may come from outside and have a handler of the program's: all but
/// those that the program's own instructions raise, and those of libc's own.
fn handled_signals(target: &Target<'_>) -> u64 {
    const SIGNALS: u32 = 64;
    /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, and libc's two.
    const NOT_COUNTED: [u32; 9] = [4, 5, 6, 7, 8, 11, 31, 32, 33];
    let signals = (1..=SIGNALS).filter(|signal| !NOT_COUNTED.contains(signal));
    // What can't be read may be a handler.
    let handled = signals.filter(|&signal| handler(target, signal).is_none_or(is_handler));
    handled.fold(0, |set, signal| set | bit(signal))
}

/// Returns the program's action for a signal, if it can be read.
fn handler(target: &Target<'_>, signal: u32) -> Option<u64> {
    const ENTRY: u64 = 32;
    let entry = u64::from(signal) * ENTRY;
    let at = target.layout.code.actions.checked_add(entry)?;
    target.memory.word(at)
}

fn is_handler(action: u64) -> bool {
    const IGNORED: u64 = 1;
    action > IGNORED
}

/// Returns true if the program handles a signal.
pub(crate) fn has_handler(target: &Target<'_>, signal: u32) -> bool {
    handler(target, signal).is_some_and(is_handler)
}

/// Returns the process's shared memory; `None` if the kernel doesn't show it.
fn shared_memory(pid: u32) -> Option<Vec<Range<u64>>> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let mut shared = Vec::new();
    for line in maps.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split(' ');
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
        if let Some((from, to)) = range.split_once('-')
            && rights.ends_with('s')
        {
            shared.push(hexadecimal(from)?..hexadecimal(to)?);
        }
    }
    Some(shared)
}

/// Returns true if two threads or more wait for semaphores that the next of them took last.
fn takers_go_round(edges: &[Edge]) -> bool {
    let mut takers: HashMap<u32, Option<u32>> = HashMap::new();
    for edge in edges {
        let taker = match edge.owner {
            Owner::LastTaker(taker) | Owner::Thread(taker) => Some(taker),
            _ => None,
        };
        // One that waits for itself is no ring.
        let taker = taker.filter(|&taker| taker != edge.waiter);
        takers.entry(edge.waiter).or_insert(taker);
    }
    // The walk on which each thread was seen first.
    let mut seen: HashMap<u32, u32> = HashMap::new();
    takers.keys().any(|&start| {
        let mut at = start;
        loop {
            match seen.get(&at) {
                Some(&walk) => return walk == start,
                None => seen.insert(at, start),
            };
            match takers.get(&at).copied().flatten() {
                Some(taker) => at = taker,
                None => return false,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{Object, ObjectKind};

    fn edge(waiter: u32, owner: Owner) -> Edge {
        let object = Object {
            kind: ObjectKind::Semaphore,
            address: 0,
            note: None,
            is_timed: false,
        };
        Edge {
            waiter,
            switches: 0,
            object,
            owner,
        }
    }

    #[test]
    fn takers_that_wait_for_each_other_are_told_from_one_that_waits_for_itself() {
        let pair = [edge(1, Owner::LastTaker(2)), edge(2, Owner::LastTaker(1))];
        assert!(takers_go_round(&pair));
        assert!(!takers_go_round(&[
            edge(1, Owner::LastTaker(1)),
            edge(2, Owner::Thread(1))
        ]));
        assert!(!takers_go_round(&[edge(1, Owner::Unknown)]));
        assert!(Wakers::Interrupt.leave_asleep(&pair) && !Wakers::Some.leave_asleep(&pair));
    }

    #[test]
    fn shared_memory_is_that_of_the_maps() {
        assert!(shared_memory(std::process::id()).is_some());
        assert!(shared_memory(u32::MAX).is_none());
    }
}
