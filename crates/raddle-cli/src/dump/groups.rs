//! Stacks as text: below each thread, or once for all threads that have the same one and do the
//! same.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use raddle_inspect::{ThreadFlags, ThreadState, WaitKind};
use raddle_record::text::quoted;
use raddle_stacks::{Captured, End, Kind};

use super::lines::{count, seconds, wait};
use super::managed;
use super::stacks::{IN_RUNTIME, NamedStack, Taken, doing, lines, shown};
use super::{Shown, waits};

/// The most threads that are shown one by one by default.
pub(super) const UNGROUPED_MAX: usize = 64;
/// The most names, and ids, that are shown of a group.
const LISTED_MAX: usize = 4;

/// Writes a line that begins a thread or a group.
pub(super) fn headline(shown: &Shown, text: &str, out: &mut impl Write) -> io::Result<()> {
    const BOLD: &str = "\x1b[1m";
    const PLAIN: &str = "\x1b[0m";
    if shown.colour {
        writeln!(out, "{BOLD}{text}{PLAIN}")
    } else {
        writeln!(out, "{text}")
    }
}

/// Writes what threads wait for, if more is known of that than the kind, and it is the same of all.
pub(super) fn write_wait(
    taken: &Taken,
    group: &[&Captured],
    out: &mut impl Write,
) -> io::Result<()> {
    let text = |captured: &&Captured| {
        let edge = taken.edges.get(&captured.record.tid)?;
        waits::describe(taken, edge)
    };
    let Some(first) = group.first().and_then(text) else {
        return Ok(());
    };
    let is_same = |captured: &&Captured| text(captured).as_ref() == Some(&first);
    if group.iter().all(is_same) {
        writeln!(out, "    ({first})")
    } else {
        Ok(())
    }
}

/// Writes the frames of a thread, or why there are none.
pub(super) fn write_stack(
    how: &Shown,
    taken: &Taken,
    captured: &Captured,
    out: &mut impl Write,
) -> io::Result<()> {
    if let Some(stack) = taken.stack(captured) {
        out.write_all(text(how, stack).as_bytes())?;
    }
    match captured.kind.missing() {
        Some(missing) => writeln!(out, "    {missing}"),
        None => Ok(()),
    }
}

/// Returns the lines of a stack. A line that follows itself is written once, with the number.
fn text(how: &Shown, stack: &NamedStack) -> String {
    let all = how.all_frames;
    let frames = if all {
        stack.frames.iter().collect()
    } else {
        shown(stack)
    };
    let mut text = String::new();
    if frames.is_empty() && !stack.frames.is_empty() {
        text += &format!("    {IN_RUNTIME}\n");
    }
    let unplaced = stack.unplaced.iter().flat_map(|it| managed::lines(it));
    let native = frames.iter().flat_map(|frame| lines(frame, all));
    let mut lines = native.chain(unplaced).peekable();
    while let Some(line) = lines.next() {
        let mut times = 1;
        while lines.next_if_eq(&line).is_some() {
            times += 1;
        }
        text += &match times {
            1 => format!("    {line}\n"),
            times => format!("    {line}  {times} times\n"),
        };
    }
    text += match stack.stack.end {
        End::Outermost => "",
        End::Lost => "    (cut: the next frame was not found)\n",
        End::TooDeep => "    (cut: there are more frames)\n",
    };
    text
}

/// What threads of a group have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// The number of the stack's text.
    text: Option<usize>,
    kind: Kind,
    state: ThreadState,
    wait: WaitKind,
    is_light: bool,
}

/// Writes equal stacks once, with the number, the names and some ids of their threads. Stacks are
/// equal if their lines are: the way through the runtime doesn't count, unless it is shown.
pub(super) fn write(
    how: &Shown,
    taken: &Taken,
    now_ns: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut texts = Vec::new();
    for stack in &taken.stacks {
        let next = numbers.len();
        texts.push(*numbers.entry(text(how, stack)).or_insert(next));
    }
    let mut groups: HashMap<Key, Vec<&Captured>> = HashMap::new();
    for captured in taken.threads.values() {
        let record = &captured.record;
        let text = captured.stack.and_then(|number| texts.get(number as usize));
        let key = Key {
            text: text.copied(),
            kind: captured.kind,
            state: record.state,
            wait: record.wait_kind,
            is_light: record.flags.contains(ThreadFlags::LIGHT),
        };
        groups.entry(key).or_default().push(captured);
    }
    let mut groups: Vec<Vec<&Captured>> = groups.into_values().collect();
    for group in &mut groups {
        // Without a time, a thread is taken for one that has just begun.
        group.sort_by_key(|it| (since_ns(it, now_ns), it.record.tid));
    }
    groups.sort_by_key(|group| {
        group
            .first()
            .map(|it| (since_ns(it, now_ns), it.record.tid))
    });
    for (number, group) in groups.iter().enumerate() {
        if number != 0 {
            writeln!(out)?;
        }
        if let Some(first) = group.first() {
            headline(how, &summary(group, now_ns), out)?;
            write_wait(taken, group, out)?;
            write_stack(how, taken, first, out)?;
        }
    }
    Ok(())
}

fn since_ns(captured: &Captured, now_ns: u64) -> u64 {
    match captured.record.since_ns {
        0 => now_ns,
        since_ns => since_ns,
    }
}

/// `998 threads "worker-*": waiting futex 0x7f00dead for 0.998s to 1.204s, #501 #502 and more`.
fn summary(group: &[&Captured], now_ns: u64) -> String {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return String::new();
    };
    let mut text = format!("{}{}", count(group.len() as u64, "thread"), names(group));
    text += &format!(": {}", first.record.state.word());
    if first.record.wait_kind != WaitKind::NONE {
        let same = |it: &&Captured| {
            let place = |it: &Captured| (it.record.wait_arg, it.record.deadline_ns);
            place(it) == place(first)
        };
        text += &if group.iter().all(same) {
            format!(" {}", wait(&first.record, now_ns))
        } else {
            format!(" {}", first.record.wait_kind.word())
        };
    }
    if let Some(doing) = doing(first.kind) {
        text += &format!(", {doing}");
    }
    if first.record.since_ns != 0 {
        let [longest, shortest] =
            [first, last].map(|it| seconds(now_ns.saturating_sub(since_ns(it, now_ns))));
        text += &if longest == shortest {
            format!(", for {longest}")
        } else {
            format!(", for {shortest} to {longest}")
        };
    }
    for captured in group.iter().take(LISTED_MAX) {
        text += &format!(" #{}", captured.record.tid);
    }
    if group.len() > LISTED_MAX {
        text += " ...";
    }
    text
}

/// Returns the names, in which a star stands for any number: ` "worker-*", "main"`.
fn names(group: &[&Captured]) -> String {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for captured in group {
        let name = captured.record.name_bytes();
        let name = match group.len() {
            1 => quoted(name),
            _ => quoted(&without_numbers(name)),
        };
        *names.entry(name).or_default() += 1;
    }
    let mut names: Vec<(String, usize)> = names.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut text = String::new();
    for (number, (name, _)) in names.iter().take(LISTED_MAX).enumerate() {
        text += if number == 0 { " " } else { ", " };
        text += name;
    }
    if more != 0 {
        text += &format!(" and {}", count(more as u64, "other name"));
    }
    text
}

pub(crate) fn without_numbers(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for &byte in name {
        match byte.is_ascii_digit() {
            true if text.last() == Some(&b'*') => {}
            true => text.push(b'*'),
            false => text.push(byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use raddle_inspect::ThreadRecord;

    fn captured(tid: u32, name: &[u8; 16], since_ns: u64) -> Captured {
        Captured {
            record: ThreadRecord {
                tid,
                name: *name,
                since_ns,
                state: ThreadState::WAITING,
                wait_kind: WaitKind::FUTEX,
                wait_arg: 0x10,
                ..ThreadRecord::default()
            },
            kind: Kind::Parked,
            stack: None,
            wait_lock: 0,
        }
    }

    #[test]
    fn a_group_is_one_line() {
        let first = captured(8, b"worker-1\0\0\0\0\0\0\0\0", 1_000_000_000);
        let second = captured(9, b"worker-23\0\0\0\0\0\0\0", 3_000_000_000);
        assert_eq!(
            summary(&[&first, &second], 4_000_000_000),
            "2 threads \"worker-*\": waiting futex 0x10, for 1.000s to 3.000s #8 #9"
        );
        assert_eq!(
            summary(&[&first], 4_000_000_000),
            "1 thread \"worker-1\": waiting futex 0x10, for 3.000s #8"
        );
    }
}
