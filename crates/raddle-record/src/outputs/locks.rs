//! Locks that threads waited for, for a terminal.

use super::columns::{Page, Rows, count, percent, time};
use super::names;
use crate::managed_locks::of_program;
use crate::profile::{Function, Holds, Lock, Profile};

/// The most locks that are shown.
const LOCKS: usize = 20;
/// The most stacks of a lock.
const STACKS: usize = 3;
/// The most functions of a stack.
const FUNCTIONS: usize = 4;
/// So many threads that wait for a lock at a time are a convoy.
const CONVOY: f64 = 2.0;
/// Fewer waits are none.
const CONVOY_WAITS: u64 = 50;

/// Returns a text of lines of at most `width` columns: the locks, the longest time waited first.
pub fn text(profile: &Profile, width: usize) -> String {
    let mut out = Page::new(width);
    let command: Vec<String> = profile.command.iter().map(|it| names::plain(it)).collect();
    let command = format!("process {}: {}", profile.pid, command.join(" "));
    out.line(command.trim_end_matches(": "));
    out.sentence(&format!(
        "recorded {}; threads waited for {}",
        time(profile.duration_ns.into()),
        count(profile.locks.len() as u64, "lock")
    ));
    for remark in &profile.remarks {
        out.sentence(&names::plain(remark));
    }
    if profile.locks.is_empty() {
        return out.into_text();
    }
    out.gap();
    table(profile, &mut out);
    for (number, lock) in profile.locks.iter().take(LOCKS).enumerate() {
        out.gap();
        out.sentence(&format!("{}. {}", number + 1, name(lock)));
        if let Some(convoy) = convoy(profile, lock) {
            out.sentence(&convoy);
        }
        if let Some(elsewhere) = elsewhere(lock) {
            out.sentence(&elsewhere);
        }
        stacks(profile, lock, &mut out);
    }
    out.into_text()
}

fn table(profile: &Profile, out: &mut Page) {
    let heads = [
        "waited", "longest", "waits", "threads", "holds", "held", "longest", "lock",
    ];
    let mut rows = Rows::new(&heads);
    for (number, lock) in profile.locks.iter().take(LOCKS).enumerate() {
        let held = |figure: fn(Holds) -> String| lock.holds.map_or_else(|| "-".into(), figure);
        rows.row(vec![
            time(lock.waited_ns.into()),
            time(lock.longest_wait_ns.into()),
            lock.waits.to_string(),
            lock.waiters.to_string(),
            held(|holds| holds.count.to_string()),
            held(|holds| time(holds.ns.into())),
            held(|holds| time(holds.longest_ns.into())),
            format!("{}. {}", number + 1, name(lock)),
        ]);
    }
    rows.write(out);
}

fn name(lock: &Lock) -> String {
    let kind = names::plain(&lock.kind);
    match &lock.name {
        Some(name) if lock.address == 0 => format!("{kind} {}", names::plain(name)),
        Some(name) => format!("{kind} {} ({:#x})", names::plain(name), lock.address),
        None => format!("{kind} {:#x}", lock.address),
    }
}

/// Returns how many threads wait for a lock at a time, on average.
pub fn waiters_at_a_time(profile: &Profile, lock: &Lock) -> f64 {
    lock.waited_ns as f64 / profile.duration_ns.max(1) as f64
}

/// Returns true if threads stand in line for a lock most of the time.
pub fn is_convoy(profile: &Profile, lock: &Lock) -> bool {
    waiters_at_a_time(profile, lock) >= CONVOY && lock.waits >= CONVOY_WAITS
}

fn convoy(profile: &Profile, lock: &Lock) -> Option<String> {
    is_convoy(profile, lock).then(|| {
        format!(
            "   a convoy: {:.1} threads wait for it at a time; hold it shorter, or divide it",
            waiters_at_a_time(profile, lock)
        )
    })
}

/// Says which part of the time waited was ended by other processes, from a percent on.
fn elsewhere(lock: &Lock) -> Option<String> {
    let [part, whole] = [lock.ended_elsewhere_ns, lock.waited_ns].map(u128::from);
    (part != 0 && part * 100 >= whole).then(|| {
        format!(
            "   no thread of this process ended {} of the time waited: the holds before are not \
             known",
            percent(part, whole)
        )
    })
}

/// Where threads waited, and what holders did meanwhile.
fn stacks(profile: &Profile, lock: &Lock, out: &mut Page) {
    let whole = u128::from(lock.waited_ns);
    for &(stack, ns) in lock.waits_at.iter().take(STACKS) {
        let share = percent(ns.into(), whole);
        let line = format!("{share:>8} waited in {}", path(profile, lock, stack));
        out.line(&line);
    }
    for holder in lock.held_at.iter().take(STACKS) {
        let share = percent(holder.waited_ns.into(), whole);
        let Some(thread) = holder.thread else {
            out.line(&format!("{share:>8} held by threads that read"));
            continue;
        };
        let thread = profile.threads.get(thread as usize);
        let thread = thread.map_or("unknown".into(), |it| names::plain(&it.name));
        let place = match holder.stack {
            Some(stack) => path(profile, lock, stack),
            None => "code that it executed".into(),
        };
        let line = format!("{share:>8} held by {thread} in {place}");
        out.line(&line);
    }
}

/// Returns the innermost functions of a stack, without those of the C library that wait, or of a
/// managed runtime.
fn path(profile: &Profile, lock: &Lock, stack: u32) -> String {
    let is_libc = |function: &&Function| {
        let module = function.module.as_deref().unwrap_or_default();
        module.starts_with("libc.so") || module.starts_with("libc-2")
    };
    let all: Vec<&Function> = profile.functions_of(stack).rev().collect();
    let own: Vec<&Function> = all.iter().copied().skip_while(is_libc).collect();
    let shown = match (own.is_empty(), lock.address) {
        (true, _) => &all[..],
        (_, 0) => of_program(&all),
        _ => &own[..],
    };
    let mut path: Vec<String> = shown
        .iter()
        .take(FUNCTIONS)
        .map(|function| names::plain(&function.name))
        .collect();
    if shown.len() > FUNCTIONS {
        path.push("...".into());
    }
    path.join(" < ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::columns::WIDTH;
    use crate::profile::{Holder, Thread};

    fn profile() -> Profile {
        let function = |name: &str, module: &str| Function {
            module: Some(module.into()),
            ..Function::note(name)
        };
        let lock = Lock {
            kind: "mutex".into(),
            address: 0x40,
            name: Some("table_lock\n".into()),
            waits: 100,
            waited_ns: 3_000_000_000,
            longest_wait_ns: 40_000_000,
            waiters: 3,
            holds: Some(Holds {
                count: 99,
                ns: 900_000_000,
                longest_ns: 10_000_000,
            }),
            ended_elsewhere_ns: 0,
            waits_at: vec![(0, 3_000_000_000)],
            held_at: vec![
                Holder {
                    thread: Some(0),
                    stack: Some(1),
                    waited_ns: 2_000_000_000,
                },
                Holder {
                    thread: Some(9),
                    stack: None,
                    waited_ns: 1_000_000_000,
                },
            ],
        };
        Profile {
            pid: 7,
            duration_ns: 1_000_000_000,
            functions: vec![
                function("main", "server"),
                function("lookup", "server"),
                function("futex_wait", "libc.so.6"),
                function("fsync", "libc.so.6"),
            ],
            stacks: vec![vec![0, 1, 2], vec![0, 3], vec![77]],
            threads: vec![Thread {
                name: "writer".into(),
                ..Thread::default()
            }],
            locks: vec![lock],
            ..Profile::default()
        }
    }

    #[test]
    fn a_lock_is_shown_with_its_waiters_and_holders() {
        let text = text(&profile(), WIDTH);
        for part in [
            "threads waited for 1 lock\n",
            "3.000s  40.00ms    100        3     99  900.00ms  10.00ms  1. mutex table_lock (0x40)",
            "a convoy: 3.0 threads wait for it at a time",
            "100.0% waited in lookup < main",
            "66.7% held by writer in main",
            "33.3% held by unknown in code that it executed",
        ] {
            assert!(text.contains(part), "no {part}:\n{text}");
        }
        for width in [40, 80, 200] {
            let narrow = super::text(&profile(), width);
            assert!(
                narrow.lines().all(|line| line.chars().count() <= width),
                "{narrow}"
            );
            assert!(narrow.contains("waited in"), "{narrow}");
        }
    }

    #[test]
    fn holds_that_are_not_known_are_no_number() {
        let mut unknown = profile();
        unknown.locks[0].holds = None;
        unknown.locks[0].ended_elsewhere_ns = 600_000_000;
        let text = text(&unknown, WIDTH);
        let row = text.lines().find(|line| line.contains("1. mutex")).unwrap();
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(columns[2..7], ["100", "3", "-", "-", "-"], "{text}");
        assert!(
            text.contains("no thread of this process ended 20.0% of the time"),
            "{text}"
        );
    }

    #[test]
    fn without_locks_there_is_no_table() {
        let empty = text(&Profile::default(), WIDTH);
        assert_eq!(empty.lines().count(), 2, "{empty}");
        let mut few = profile();
        few.locks[0].waits = 2;
        assert!(!text(&few, WIDTH).contains("convoy"));
        few.locks[0].waits_at = vec![(u32::MAX, 1)];
        assert!(text(&few, WIDTH).contains("waited in"));
    }
}
