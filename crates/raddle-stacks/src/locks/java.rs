//! The locks of a JVM: HotSpot prints, for each Java thread, which monitor it waits for, which it
//! has locked, and which synchronizers of `java.util.concurrent` it owns. The number of its native
//! thread is the green thread's id.
//!
//! A print is made at a safepoint, so all of it holds at one moment. It is asked for by the attach
//! mechanism, as by `jstack -l`:
//!
//! 1. If the JVM has no socket for that, a file with an agreed name and SIGQUIT make the JVM open
//!    one. SIGQUIT is sent only if the JVM handles it: after `-Xrs` it would end the process.
//! 2. The tool connects, and writes the version, the command and three arguments.
//! 3. The JVM writes a line with a status, 0 for success, and the text.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::asleep::has_handler;
use super::{Edge, Object, ObjectKind, Owner};
use crate::capture::Target;

/// How long a JVM may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes of a print that are read.
const PRINT_MAX: u64 = 64 << 20;

/// Returns the waits of Java threads for locks with an owner; none if the process is no JVM, or
/// doesn't answer.
pub(super) fn edges(target: &Target<'_>) -> Vec<Edge> {
    let is_jvm = |name: &str| name == "libjvm.so";
    if !target.modules.modules.iter().any(|it| is_jvm(it.name())) {
        return Vec::new();
    }
    print(target).map_or_else(Vec::new, |text| parse(&text))
}

fn print(target: &Target<'_>) -> Option<String> {
    const QUIT: u32 = 3;
    let pid = target.pid;
    let own = own_pid(pid)?;
    let folder = format!("/proc/{pid}/root/tmp");
    let socket = PathBuf::from(format!("{folder}/.java_pid{own}"));
    if !socket.exists() {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments);
        if arguments.contains("+DisableAttachMechanism") || !has_handler(target, QUIT) {
            return None;
        }
        open_socket(pid, &format!("{folder}/.attach_pid{own}"), &socket)?;
    }
    let mut stream = UnixStream::connect(&socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"1\0threaddump\0-l\0\0\0").ok()?;
    let mut bytes = Vec::new();
    stream.take(PRINT_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.strip_prefix("0\n").map(ToOwned::to_owned)
}

/// Makes the JVM open its socket.
fn open_socket(pid: u32, file: &str, socket: &Path) -> Option<()> {
    const PAUSE: Duration = Duration::from_millis(20);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .ok()?;
    // SAFETY: sends a signal, which the JVM handles.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGQUIT) };
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    let _ = fs::remove_file(file);
    socket.exists().then_some(())
}

/// The process's number in its own namespace.
fn own_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// What a print says of one thread.
#[derive(Default)]
struct JavaThread<'a> {
    tid: u32,
    is_timed: bool,
    /// The lock for which it waits: its address and its class.
    wanted: Option<(u64, &'a str)>,
    /// What it waits on, or takes back, in `Object.wait`: the frames further out say that it has
    /// locked that, although it has not.
    given_up: HashSet<u64>,
    locked: Vec<u64>,
}

/// Reads a print.
fn parse(text: &str) -> Vec<Edge> {
    let mut threads: Vec<JavaThread<'_>> = Vec::new();
    for line in text.lines() {
        if line.starts_with('"') {
            threads.push(JavaThread {
                tid: native_id(line).unwrap_or(0),
                ..JavaThread::default()
            });
        } else if let Some(thread) = threads.last_mut() {
            thread.note(line.trim_start());
        }
    }
    let mut owners: HashMap<u64, u32> = HashMap::new();
    for thread in threads.iter().filter(|thread| thread.tid != 0) {
        let has = thread.locked.iter();
        for &lock in has.filter(|lock| !thread.given_up.contains(lock)) {
            owners.insert(lock, thread.tid);
        }
    }
    let edge = |thread: &JavaThread<'_>| {
        let (address, class) = thread.wanted?;
        let owner = owners.get(&address).copied()?;
        Some(Edge {
            waiter: thread.tid,
            switches: 0,
            object: Object {
                kind: ObjectKind::Other(format!("Java lock {class}")),
                address,
                note: None,
                is_timed: thread.is_timed,
            },
            owner: Owner::Thread(owner),
        })
    };
    threads
        .iter()
        .filter(|thread| thread.tid != 0)
        .filter_map(edge)
        .collect()
}

/// Returns the number of the native thread: hexadecimal before JDK 21, decimal since.
fn native_id(line: &str) -> Option<u32> {
    let word = line.rsplit_once(" nid=")?.1.split(' ').next()?;
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

impl<'a> JavaThread<'a> {
    fn note(&mut self, line: &'a str) {
        if let Some(state) = line.strip_prefix("java.lang.Thread.State: ") {
            self.is_timed = state.starts_with("TIMED_");
            return;
        }
        let Some(line) = line.strip_prefix("- ") else {
            return;
        };
        let begins = |start: &str| line.starts_with(start);
        match lock(line) {
            Some(lock) if begins("waiting to lock <") || begins("parking to wait for ") => {
                self.wanted = Some(lock);
            }
            Some((address, _)) if begins("waiting on <") || begins("waiting to re-lock") => {
                self.given_up.insert(address);
            }
            // A synchronizer has no word before it.
            Some((address, _)) if begins("locked <") || begins("<") => self.locked.push(address),
            _ => {}
        }
    }
}

/// Returns `<0x000000062b1c0e38> (a java.lang.Object)` as the address and the class.
fn lock(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.split_once("<0x")?.1.split_once('>')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let class = rest.strip_prefix(" (a ")?.split_once(')')?.0;
    Some((address, class))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: &str = r#"
2026-11-25 23:00:00
Full thread dump OpenJDK 64-Bit Server VM:

"first" #10 prio=5 os_prio=0 cpu=1.0ms tid=0x00007f0001 nid=0x400001 waiting for monitor entry
   java.lang.Thread.State: BLOCKED (on object monitor)
	at Deadlocks.two(Deadlocks.java:20)
	- waiting to lock <0x000000062b1c0e48> (a java.lang.Object)
	- locked <0x000000062b1c0e38> (a java.lang.Object)

   Locked ownable synchronizers:
	- <0x000000062b1c0f00> (a java.util.concurrent.locks.ReentrantLock$NonfairSync)

"second" #11 prio=5 os_prio=0 tid=0x00007f0002 nid=4194306 waiting on condition
   java.lang.Thread.State: WAITING (parking)
	- parking to wait for  <0x000000062b1c0f00> (a java.util.concurrent.Lock$Sync)
	- locked <0x000000062b1c0e48> (a java.lang.Object)

   Locked ownable synchronizers:
	- None

"waits" #12 nid=0x400003 in Object.wait()
   java.lang.Thread.State: WAITING (on object monitor)
	- waiting on <0x000000062b1c0e99> (a Queue)
	- locked <0x000000062b1c0e99> (a Queue)

"wants" #13 nid=0x400004 waiting for monitor entry
	- waiting to lock <0x000000062b1c0e99> (a Queue)

"polite" #14 nid=0x400005 waiting on condition
   java.lang.Thread.State: TIMED_WAITING (parking)
	- parking to wait for  <0x000000062b1c0f00> (a X)

"VM Thread" os_prio=0 tid=0x00007f3 nid=0x400006 runnable
"#;

    #[test]
    fn a_print_gives_the_edges_of_its_threads() {
        let edges = parse(PRINT);
        let facts: Vec<_> = edges
            .iter()
            .map(|edge| (edge.waiter, edge.owner, edge.object.is_timed))
            .collect();
        let first = Owner::Thread(0x40_0001);
        assert_eq!(
            facts,
            [
                (0x40_0001, Owner::Thread(0x40_0002), false),
                (0x40_0002, first, false),
                (0x40_0005, first, true),
            ]
        );
        assert_eq!(edges[0].object.kind.word(), "Java lock java.lang.Object");
    }

    #[test]
    fn what_is_no_print_gives_none() {
        for text in [
            "",
            "\"",
            "\" nid=",
            "\" nid=0x\n- waiting to lock <0x",
            "- locked <0x1> (a",
        ] {
            assert!(parse(text).is_empty());
        }
    }
}
