//! The text of a thread dump of HotSpot, as versions 8 to 25 write it.

use std::collections::HashMap;

use super::{JavaLock, JavaThread};
use crate::managed::{Language, ManagedFrame};

/// What stands in place of a file for a native method.
pub(super) const NATIVE: &str = "Native Method";
/// The most threads, frames of a thread, and notes of a frame.
const THREADS_MAX: usize = 1 << 20;
const FRAMES_MAX: usize = 2048;
const NOTES_MAX: usize = 64;

/// Returns the threads of the text, by their ids.
pub(super) fn threads(text: &str) -> HashMap<u32, JavaThread> {
    let mut threads = HashMap::new();
    let mut current: Option<JavaThread> = None;
    let mut are_owned = false;
    for line in text.lines() {
        if line.starts_with('"') {
            keep(&mut threads, current.take());
            current = header(line);
            are_owned = false;
            continue;
        }
        let Some(thread) = &mut current else { continue };
        let line = line.trim();
        if let Some(frame) = line.strip_prefix("at ") {
            if thread.frames.len() < FRAMES_MAX {
                thread.frames.extend(frame_of(frame));
            }
        } else if let Some(state) = line.strip_prefix("java.lang.Thread.State: ") {
            thread.state = Some(state.to_owned());
        } else if line == "Locked ownable synchronizers:" {
            are_owned = true;
        } else if let Some(note) = line.strip_prefix("- ") {
            if are_owned {
                thread.owns.extend(lock(note, false));
            } else {
                take_note(thread, note);
            }
        }
    }
    keep(&mut threads, current);
    threads
}

fn keep(threads: &mut HashMap<u32, JavaThread>, thread: Option<JavaThread>) {
    if let Some(thread) = thread.filter(|_| threads.len() < THREADS_MAX) {
        threads.insert(thread.tid, thread);
    }
}

/// `"main" #1 prio=5 os_prio=0 tid=0x00007f70cc017eb0 nid=0x2251a544 waiting on condition`; newer
/// versions write the id in decimal.
fn header(line: &str) -> Option<JavaThread> {
    let (before, after) = line.rsplit_once(" nid=")?;
    let word = after.split_whitespace().next()?;
    let tid = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => word.parse().ok()?,
    };
    let end = before.rfind('"').filter(|&end| end > 0)?;
    Some(JavaThread {
        tid,
        name: before[1..end].to_owned(),
        ..JavaThread::default()
    })
}

/// `java.lang.Object.wait(java.base@17.0.15/Object.java:338)`
fn frame_of(text: &str) -> Option<ManagedFrame> {
    let (name, place) = text.strip_suffix(')')?.rsplit_once('(')?;
    let place = place.rsplit('/').next().unwrap_or(place);
    let (file, line) = match place.rsplit_once(':') {
        Some((file, line)) => (file, line.parse().ok()),
        None => (place, None),
    };
    Some(ManagedFrame {
        language: Language::Java,
        name: name.to_owned(),
        file: (file != "Unknown Source").then(|| file.to_owned()),
        line,
        notes: Vec::new(),
    })
}

/// A line below a frame.
fn take_note(thread: &mut JavaThread, note: &str) {
    if let Some(frame) = thread.frames.last_mut()
        && frame.notes.len() < NOTES_MAX
    {
        frame.notes.push(note.to_owned());
    }
    let Some((what, _)) = note.split_once('<') else {
        return;
    };
    match what.trim() {
        "waiting to lock" => thread.waits_for = lock(note, true),
        // A wait gives the monitor back, though the frame that has taken it follows; behind the
        // wait, it is taken again.
        "waiting on" => thread.waits_for = None,
        "waiting to re-lock in wait()" => thread.waits_for = lock(note, true),
        "parking to wait for" => thread.waits_for = lock(note, false),
        "locked" => {
            let is_given_back = || {
                let mut notes = thread.frames.iter().flat_map(|frame| &frame.notes);
                notes.any(|other| other.starts_with("waiting ") && same(other, note))
            };
            if !is_given_back() {
                let new = lock(note, true).filter(|lock| !thread.owns.contains(lock));
                thread.owns.extend(new);
            }
        }
        _ => {}
    }
}

fn same(left: &str, right: &str) -> bool {
    let address = |note| lock(note, true).map(|lock| lock.address);
    address(left).is_some() && address(left) == address(right)
}

/// `locked <0x000000069dc00a58> (a java.lang.Object)`
fn lock(note: &str, is_monitor: bool) -> Option<JavaLock> {
    let (_, rest) = note.split_once("<0x")?;
    let (address, rest) = rest.split_once('>')?;
    let class = rest.split_once("(a ")?.1.strip_suffix(')')?;
    Some(JavaLock {
        address: u64::from_str_radix(address, 16).ok()?,
        class: class.to_owned(),
        is_monitor,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
2026-11-25 23:58:36
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode, sharing):

\"a \"quoted\" nid=7\" #12 prio=5 os_prio=0 tid=0x7f70 nid=0x1f waiting on condition  [0x5ab1]
   java.lang.Thread.State: WAITING (parking)
\tat jdk.internal.misc.Unsafe.park(java.base@17.0.15/Native Method)
\t- parking to wait for  <0x000000069dc00a58> (a java.util.concurrent.locks.ReentrantLock$Sync)
\tat Planted$$Lambda$14/0x0008.run(Unknown Source)
\tat app//Planted.work(Planted.java:42)
\t- locked <0x0000000000000010> (a java.lang.Object)

   Locked ownable synchronizers:
\t- <0x0000000000000020> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)

\"waiter\" #13 prio=5 tid=0x7f71 nid=32 in Object.wait()  [0x5ab2]
   java.lang.Thread.State: WAITING (on object monitor)
\tat java.lang.Object.wait(Native Method)
\t- waiting on <0x0000000000000030> (a java.lang.Object)
\tat Planted.wait(Planted.java:7)
\t- locked <0x0000000000000030> (a java.lang.Object)
\t- locked <0x0000000000000031> (a java.lang.Class for Planted)

   Locked ownable synchronizers:
\t- None

\"entering\" #14 tid=0x7f72 nid=33 waiting for monitor entry [0x5ab3]
   java.lang.Thread.State: BLOCKED (on object monitor)
\tat Planted.enter(Planted.java:9)
\t- waiting to lock <0x0000000000000010> (a java.lang.Object)

\"VM Thread\" os_prio=0 tid=0x00007f70cc0f3bd0 nid=0x22 runnable

JNI global refs: 6, weak refs: 0
";

    #[test]
    fn threads_have_frames_and_locks() {
        let threads = threads(TEXT);
        assert_eq!(threads.len(), 4);
        let first = &threads[&0x1f];
        assert_eq!(first.name, "a \"quoted\" nid=7");
        assert_eq!(first.state.as_deref(), Some("WAITING (parking)"));
        let [park, lambda, work] = first.frames.as_slice() else {
            panic!("{first:?}");
        };
        assert_eq!(park.name, "jdk.internal.misc.Unsafe.park");
        assert_eq!((park.file.as_deref(), park.line), (Some(NATIVE), None));
        assert_eq!(lambda.file, None);
        assert_eq!(
            (work.name.as_str(), work.line),
            ("app//Planted.work", Some(42))
        );
        assert_eq!(
            work.notes,
            ["locked <0x0000000000000010> (a java.lang.Object)"]
        );
        assert_eq!(first.waits_for.as_ref().unwrap().address, 0x6_9dc0_0a58);
        let owns: Vec<_> = first
            .owns
            .iter()
            .map(|it| (it.address, it.is_monitor))
            .collect();
        assert_eq!(owns, [(0x10, true), (0x20, false)]);
        assert_eq!(threads[&33].waits_for.as_ref().unwrap().address, 0x10);
        assert!(threads[&0x22].frames.is_empty());
    }

    #[test]
    fn a_monitor_that_is_waited_on_is_not_owned() {
        let threads = threads(TEXT);
        let owns: Vec<_> = threads[&32].owns.iter().map(|it| it.address).collect();
        assert_eq!(owns, [0x31]);
        assert_eq!(threads[&32].waits_for, None);
    }

    #[test]
    fn rubbish_is_no_thread() {
        assert!(threads("\"\n\" nid=\n\"x\" nid=0xzz\n\tat (\n- <0x").is_empty());
    }
}
