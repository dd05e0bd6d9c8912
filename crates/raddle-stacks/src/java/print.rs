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
/// The most locks that a thread owns.
const OWNED_MAX: usize = 256;
/// The most frames and notes of all threads, and bytes of a line.
const ALL_MAX: usize = 1 << 21;
const LINE_MAX: usize = 1 << 14;

/// The most lines of a thread's name.
const NAME_LINES_MAX: usize = 16;

/// Returns the threads of the text, by their ids.
pub(super) fn threads(text: &str) -> HashMap<u32, JavaThread> {
    let mut reader = Reader::default();
    for line in text.lines().filter(|line| line.len() <= LINE_MAX) {
        reader.take(line);
    }
    reader.keep();
    reader.threads
}

#[derive(Default)]
struct Reader {
    threads: HashMap<u32, JavaThread>,
    current: Option<Section>,
    /// How many lines below headers were taken.
    lines: usize,
    /// The lines of a header that has begun and not ended: a name may have line feeds.
    header: Vec<String>,
}

/// What the text says of one thread.
#[derive(Default)]
struct Section {
    thread: JavaThread,
    /// Frames of the carrier, if those of a mounted virtual thread follow.
    carrier: Vec<ManagedFrame>,
    /// The monitor that `Object.wait` has released, though outer frames have it as locked.
    released: Option<u64>,
    /// `Object.wait` has released a monitor that isn't named.
    has_unnamed_release: bool,
    /// The synchronizers follow that the thread owns.
    has_synchronizers: bool,
}

impl Reader {
    fn take(&mut self, line: &str) {
        if line.starts_with('"') {
            self.keep();
            self.header.clear();
        }
        if line.starts_with('"') || !self.header.is_empty() {
            self.header.push(line.to_owned());
            self.current = header(&self.header.join("\n")).map(|thread| Section {
                thread,
                ..Section::default()
            });
            if self.current.is_some() || self.header.len() == NAME_LINES_MAX {
                self.header.clear();
            }
        } else if let Some(section) = &mut self.current
            && self.lines < ALL_MAX
        {
            self.lines += 1;
            section.take(line.trim());
        }
    }

    /// Keeps the thread that was read last.
    fn keep(&mut self) {
        if let Some(section) = self.current.take()
            && self.threads.len() < THREADS_MAX
        {
            let thread = section.end();
            self.threads.insert(thread.tid, thread);
        }
    }
}

impl Section {
    fn take(&mut self, line: &str) {
        let thread = &mut self.thread;
        if let Some(frame) = line.strip_prefix("at ") {
            if thread.frames.len() < FRAMES_MAX {
                thread.frames.extend(frame_of(frame));
            }
        } else if let Some(state) = line.strip_prefix("java.lang.Thread.State: ") {
            thread.state = Some(state.to_owned());
        } else if line == "Locked ownable synchronizers:" {
            self.has_synchronizers = true;
        } else if line.starts_with("Mounted virtual thread #") {
            self.carrier = std::mem::take(&mut thread.frames);
        } else if let Some(note) = line.strip_prefix("- ") {
            if self.has_synchronizers {
                let room = thread.owns.len() < OWNED_MAX;
                thread.owns.extend(lock(note, false).filter(|_| room));
            } else {
                self.take_note(note);
            }
        }
    }

    /// A line below a frame.
    ///
    /// In `Object.wait` the thread has released the monitor. Its state says which of two it waits
    /// for: BLOCKED is a wait for the monitor, and WAITING and TIMED_WAITING are waits for a
    /// notification, which have no owner. The words don't say that. Version 8 writes *waiting on*
    /// in both cases. Versions 9 to 11 write *waiting to re-lock in wait()* at the frame that took
    /// the monitor, in both cases. Later ones write this at the frame of `Object.wait`, of BLOCKED
    /// only.
    fn take_note(&mut self, note: &str) {
        let thread = &mut self.thread;
        if let Some(frame) = thread.frames.last_mut()
            && frame.notes.len() < NOTES_MAX
        {
            frame.notes.push(note.to_owned());
        }
        let Some((what, _)) = note.split_once('<') else {
            return;
        };
        let found = lock(note, what.trim() != "parking to wait for");
        match (what.trim(), found) {
            ("waiting to lock" | "parking to wait for", found) => thread.waits_for = found,
            ("waiting on" | "waiting to re-lock in wait()", Some(monitor)) => {
                self.has_unnamed_release = false;
                self.released = Some(monitor.address);
                thread.owns.retain(|it| it.address != monitor.address);
                let is_blocked = |state: &String| state.starts_with("BLOCKED");
                thread.waits_for = thread
                    .state
                    .as_ref()
                    .is_some_and(is_blocked)
                    .then_some(monitor);
            }
            ("waiting on" | "waiting to re-lock in wait()", None) => {
                self.has_unnamed_release = self.released.is_none();
            }
            ("locked", Some(monitor))
                if self.released != Some(monitor.address)
                    && thread.owns.len() < OWNED_MAX
                    && !thread.owns.contains(&monitor) =>
            {
                thread.owns.push(monitor);
            }
            _ => {}
        }
    }

    fn end(self) -> JavaThread {
        let mut thread = self.thread;
        thread.frames.extend(self.carrier);
        if self.has_unnamed_release {
            // One of them isn't owned, and nothing says which.
            thread.owns.retain(|lock| !lock.is_monitor);
        }
        thread
    }
}

/// `"main" #1 prio=5 os_prio=0 tid=0x00007f70cc017eb0 nid=0x2251a544 waiting on condition`;
/// versions from 21 on write the id in decimal. `None` if it isn't whole.
fn header(text: &str) -> Option<JavaThread> {
    let (before, after) = text.rsplit_once(" nid=")?;
    let word = after.split_whitespace().next()?;
    let tid = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => word.parse().ok()?,
    };
    // Otherwise this is inside of a name.
    let end = before
        .rfind('"')
        .filter(|&end| end > 0 && !after.contains('"'))?;
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

    fn in_wait(state: &str, innermost: &str, outer: &str) -> JavaThread {
        let text = format!(
            "\"w\" #1 tid=0x1 nid=7 in Object.wait()\n   java.lang.Thread.State: {state}\n\
             \tat java.lang.Object.wait(Native Method)\n\t- {innermost}\n\tat W.w(W.java:7)\n\
             \t- {outer}\n\t- locked <0x31> (a A)\n"
        );
        threads(&text).remove(&7).unwrap()
    }

    /// What versions 8, 11, and 12 to 25 write of the same two threads.
    #[test]
    fn the_state_says_whether_a_monitor_is_taken_back() {
        let (on, again) = (
            "waiting on <0x30> (a A)",
            "waiting to re-lock in wait() <0x30> (a A)",
        );
        let locked = "locked <0x30> (a A)";
        for state in [
            "WAITING (on object monitor)",
            "TIMED_WAITING (on object monitor)",
        ] {
            for (innermost, outer) in [(on, locked), (on, again)] {
                let thread = in_wait(state, innermost, outer);
                assert_eq!(thread.waits_for, None, "{innermost}, {outer}");
                assert_eq!(thread.owns.len(), 1, "{innermost}, {outer}");
            }
        }
        for (innermost, outer) in [(on, locked), (on, again), (again, locked)] {
            let thread = in_wait("BLOCKED (on object monitor)", innermost, outer);
            let wanted = thread.waits_for.map(|lock| lock.address);
            assert_eq!(wanted, Some(0x30), "{innermost}, {outer}");
            assert_eq!(thread.owns[0].address, 0x31);
        }
    }

    #[test]
    fn a_wait_for_an_unnamed_monitor_leaves_no_monitor_owned() {
        let unnamed = "waiting on <no object reference available>";
        let state = "WAITING (on object monitor)";
        let thread = in_wait(state, unnamed, "locked <0x30> (a A)");
        assert_eq!((thread.waits_for, thread.owns), (None, vec![]));
    }

    #[test]
    fn names_with_line_feeds_and_quotes_are_whole() {
        let text = "\
\"a\n\tat Not.a(Frame.java:1)\n\"b\" nid=9 \"ö\" #3 prio=5 tid=0x1 nid=0x20 runnable [0x1]
\tat A.run(A.java:3)

Found one Java-level deadlock:
\"x\" nid=5 y\":
  waiting to lock monitor 0x7f (object 0x30, a A),
\tat A.run(A.java:3)
";
        let threads = threads(text);
        let facts: Vec<_> = threads
            .values()
            .map(|it| (it.tid, it.frames.len()))
            .collect();
        assert_eq!(facts, [(0x20, 1)]);
        assert_eq!(threads[&0x20].name, "b\" nid=9 \"ö");
    }

    #[test]
    fn a_mounted_virtual_thread_is_inside_of_its_carrier() {
        let text = "\
\"carrier\" #1 tid=0x1 nid=7 runnable
   Carrying virtual thread #30
\tat Continuation.run(C.java:1)
   Mounted virtual thread #30
\tat V.run(V.java:2)
";
        let names: Vec<_> = threads(text)[&7]
            .frames
            .iter()
            .map(|it| it.name.clone())
            .collect();
        assert_eq!(names, ["V.run", "Continuation.run"]);
    }

    #[test]
    fn rubbish_is_no_thread() {
        assert!(threads("\"\n\" nid=\n\"x\" nid=0xzz\n\tat (\n- <0x").is_empty());
    }
}
