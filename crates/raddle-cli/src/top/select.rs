//! Which threads are shown, in which order, and threads of similar names as one row.

use std::cmp::Reverse;
use std::collections::HashMap;

use raddle_inspect::{NAME_BYTES, ThreadState};
use raddle_record::text;

use super::look::{Frame, Row};
use crate::cli::SortKey;
use crate::dump::filter::Filter;

/// Threads with names that differ in digits only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The name, with `*` for digits.
    pub name: String,
    pub threads: u64,
    pub running: u64,
    pub runnable: u64,
    pub waiting: u64,
    pub cpu_ns: u64,
    pub wakes: u64,
    pub turns: u64,
    pub preempts: u64,
    /// The longest wait, and the longest time of a runnable thread without a turn.
    pub wait_ns: u64,
    pub delay_ns: u64,
    /// The smallest id.
    pub tid: u32,
}

/// Returns for how long a thread has waited; 0 if it doesn't wait.
pub(super) fn wait_ns(row: &Row, now_ns: u64) -> u64 {
    in_state(row, ThreadState::WAITING, now_ns)
}

/// Returns for how long a thread has been runnable; 0 if it isn't.
pub(super) fn delay_ns(row: &Row, now_ns: u64) -> u64 {
    in_state(row, ThreadState::RUNNABLE, now_ns)
}

fn in_state(row: &Row, state: ThreadState, now_ns: u64) -> u64 {
    match row.since_ns() {
        since_ns if row.record.state == state && since_ns != 0 => now_ns.saturating_sub(since_ns),
        _ => 0,
    }
}

/// Returns the positions of the rows that the filter picks, in the order of the key: the first
/// `most` sorted, and how many there are.
pub(super) fn sorted(
    frame: &Frame,
    filter: &Filter,
    key: SortKey,
    most: usize,
) -> (Vec<u32>, usize) {
    let rows = &frame.rows;
    let now_ns = frame.now_ns;
    let mut picked: Vec<(u64, u32, u32)> = Vec::new();
    for (position, row) in rows.iter().enumerate() {
        if filter.picks(&row.record) {
            let value = value(row, key, now_ns);
            picked.push((value, row.record.tid, position as u32));
        }
    }
    let all = picked.len();
    match key {
        SortKey::Name => {
            let name = |&(_, tid, at): &(u64, u32, u32)| (rows[at as usize].record.name, tid);
            keep_first(&mut picked, most, name);
        }
        SortKey::Tid => keep_first(&mut picked, most, |&(_, tid, _)| tid),
        _ => keep_first(&mut picked, most, |&(value, tid, _)| (Reverse(value), tid)),
    }
    (picked.into_iter().map(|(_, _, at)| at).collect(), all)
}

/// Sorts the first `most` of `all`, and drops the others.
fn keep_first<T, K: Ord>(all: &mut Vec<T>, most: usize, key: impl Fn(&T) -> K) {
    if most != 0 && most < all.len() {
        all.select_nth_unstable_by_key(most - 1, &key);
    }
    all.truncate(most);
    all.sort_unstable_by_key(key);
}

fn value(row: &Row, key: SortKey, now_ns: u64) -> u64 {
    match key {
        SortKey::Cpu => row.cpu_ns,
        SortKey::Wait => wait_ns(row, now_ns),
        SortKey::Delay => delay_ns(row, now_ns),
        SortKey::Wakes => row.wakes,
        SortKey::Turns => row.turns,
        SortKey::Preempts => row.preempts,
        SortKey::Name | SortKey::Tid => 0,
    }
}

/// Returns the groups of the rows that the filter picks, in the order of the key.
pub(super) fn groups(frame: &Frame, filter: &Filter, key: SortKey) -> Vec<Group> {
    let mut groups: HashMap<Prefix, Group> = HashMap::new();
    for row in frame.rows.iter().filter(|row| filter.picks(&row.record)) {
        let prefix = Prefix::of(row.record.name_bytes());
        let group = groups.entry(prefix).or_insert_with(|| Group::new(prefix));
        group.add(row, frame.now_ns);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let order = match key {
            SortKey::Cpu => b.cpu_ns.cmp(&a.cpu_ns),
            SortKey::Wait => b.wait_ns.cmp(&a.wait_ns),
            SortKey::Delay => b.delay_ns.cmp(&a.delay_ns),
            SortKey::Wakes => b.wakes.cmp(&a.wakes),
            SortKey::Turns => b.turns.cmp(&a.turns),
            SortKey::Preempts => b.preempts.cmp(&a.preempts),
            SortKey::Name => a.name.cmp(&b.name),
            SortKey::Tid => a.tid.cmp(&b.tid),
        };
        order.then_with(|| a.name.cmp(&b.name))
    });
    groups
}

/// A name in which each run of digits is a star.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Prefix([u8; NAME_BYTES]);

impl Prefix {
    pub(super) fn of(name: &[u8]) -> Prefix {
        let mut prefix = [0; NAME_BYTES];
        let mut len = 0;
        let mut last_is_digit = false;
        for &byte in name.iter().take(NAME_BYTES) {
            let is_digit = byte.is_ascii_digit();
            if !(is_digit && last_is_digit) {
                prefix[len] = if is_digit { b'*' } else { byte };
                len += 1;
            }
            last_is_digit = is_digit;
        }
        Prefix(prefix)
    }

    pub(super) fn text(&self) -> String {
        let len = self.0.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.0[..len.unwrap_or(NAME_BYTES)]).into_owned()
    }
}

impl Group {
    fn new(prefix: Prefix) -> Group {
        Group {
            name: prefix.text(),
            threads: 0,
            running: 0,
            runnable: 0,
            waiting: 0,
            cpu_ns: 0,
            wakes: 0,
            turns: 0,
            preempts: 0,
            wait_ns: 0,
            delay_ns: 0,
            tid: u32::MAX,
        }
    }

    fn add(&mut self, row: &Row, now_ns: u64) {
        self.threads += 1;
        match row.record.state {
            ThreadState::RUNNING => self.running += 1,
            ThreadState::RUNNABLE => self.runnable += 1,
            ThreadState::WAITING => self.waiting += 1,
            _ => {}
        }
        self.cpu_ns += row.cpu_ns;
        self.wakes += row.wakes;
        self.turns += row.turns;
        self.preempts += row.preempts;
        self.wait_ns = self.wait_ns.max(wait_ns(row, now_ns));
        self.delay_ns = self.delay_ns.max(delay_ns(row, now_ns));
        self.tid = self.tid.min(row.record.tid);
    }
}

/// A thread's name, which is the program's choice, as the terminal may have it.
pub(super) fn plain(name: &[u8]) -> String {
    text::plain(&String::from_utf8_lossy(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_digits_have_one_prefix() {
        let text = |name: &str| Prefix::of(name.as_bytes()).text();
        assert_eq!(text("worker-12"), "worker-*");
        assert_eq!(text("GC Thread#0"), "GC Thread#*");
        assert_eq!(text("a1b22c"), "a*b*c");
        assert_eq!(text(""), "");
        assert_eq!(text("1234567890123456"), "*");
        assert_eq!(text("x\x1b[2J"), "x\x1b[*J");
    }

    #[test]
    fn the_first_are_sorted_and_the_rest_is_dropped() {
        for most in [0, 1, 3, 7, 100] {
            let mut all: Vec<u32> = vec![5, 3, 9, 1, 7, 3, 0];
            let mut wanted = all.clone();
            wanted.sort_unstable();
            wanted.truncate(most);
            keep_first(&mut all, most, |it| *it);
            assert_eq!(all, wanted, "{most}");
        }
    }
}
