//! `/proc` as threads see it: `/proc/self/task`, `/proc/PID/task/TID/...`, `/proc/thread-self`.
//!
//! A call with any other path passes to the kernel as it is. A path that may be one of these is
//! copied once, and the kernel gets the copy: the kernel opens the path that was checked. Three
//! cases are the runtime's:
//!
//! - the folder of threads, which the kernel has opened: its descriptor is *marked*, and reads from
//!   it give a list of green threads;
//! - a file about one thread (`comm`, `stat`, `status`, `schedstat`): a file in memory with the
//!   present facts;
//! - anything else below a green thread's folder, which the kernel doesn't know: the main thread's,
//!   because it is the process's.

mod files;
mod folder;

pub use folder::getdents64;

use crate::frame::{Frame, Outcome};
use crate::line::Line;
use crate::mode::are_known;
use crate::user::{MOST_BYTES, User, is_reachable};
use core::fmt::Write;
use core::sync::atomic::Ordering;
use raddle_engine::pump::Kind;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sys::{err, errno, is_err, nr, sys, syscall6};

/// The longest path of ours, with its final zero.
const PATH_BYTES: usize = 128;
const ENOENT: isize = err(errno::ENOENT);

/// Calls with a path.
pub extern "C" fn by_path(frame: &Frame) -> Outcome {
    if !are_known() {
        return Outcome::PASS;
    }
    let is_at = frame.number() >= nr::__NR_openat; // the first of its kind by number
    let folder = is_at.then(|| frame.word(0));
    if may_be_ours(folder, frame.user(usize::from(is_at))) {
        perhaps_ours(frame, folder)
    } else {
        Outcome::PASS
    }
}

/// Returns true if a path begins like one of these, as far as its first word goes; or is relative
/// to a marked folder.
#[inline(always)]
fn may_be_ours(folder: Option<u32>, path: User<u8>) -> bool {
    const PREFIX: u64 = u64::from_le_bytes(*b"/proc/\0\0");
    const PREFIX_LEN: usize = 6;
    const WORD: usize = size_of::<u64>();
    let skipped = path.address() % WORD;
    let word = match User::<u64>::at(path.address() - skipped).read() {
        Ok(word) => word >> (skipped * 8),
        Err(_) => 0, // as an empty one
    };
    if word as u8 == b'/' {
        let seen = (WORD - skipped).min(PREFIX_LEN) * 8;
        return (word ^ PREFIX) << (u64::BITS as usize - seen) == 0;
    }
    folder.is_some_and(|folder| folder::marked(folder).is_some())
}

/// What a call does with the object of its path.
#[derive(Clone, Copy)]
enum Verb {
    Open {
        flags: usize,
    },
    /// Fills a structure of so many bytes, the argument at this position.
    Stat {
        position: usize,
        size: usize,
    },
    ReadLink {
        to: User<u8>,
        len: i32,
    },
    Other,
}

const STAT_BYTES: usize = size_of::<nr::stat>();
const STATX_BYTES: usize = size_of::<nr::statx>();
const _: () = assert!(STAT_BYTES == 144 && STATX_BYTES == 256);

impl Verb {
    /// Returns the verb of a call with its path in the argument at `path`.
    fn of(frame: &Frame, path: usize) -> Self {
        match frame.number() {
            nr::__NR_open | nr::__NR_openat => Self::Open {
                flags: frame.arg(path + 1),
            },
            nr::__NR_stat | nr::__NR_lstat | nr::__NR_newfstatat => Self::Stat {
                position: path + 1,
                size: STAT_BYTES,
            },
            nr::__NR_statx => Self::Stat {
                position: path + 3,
                size: STATX_BYTES,
            },
            nr::__NR_readlink | nr::__NR_readlinkat => Self::ReadLink {
                to: frame.user(path + 1),
                len: frame.word(path + 2) as i32,
            },
            _ => Self::Other,
        }
    }
}

/// What a path names.
enum Object<'a> {
    /// The folder of threads.
    Threads,
    /// `/proc/thread-self` itself.
    OwnLink,
    /// A thread's folder or something below it.
    Of { thread: &'a Thread, rest: &'a [u8] },
}

/// A call with a path that begins like one of these.
#[cold]
fn perhaps_ours(frame: &Frame, folder: Option<u32>) -> Outcome {
    let position = usize::from(folder.is_some());
    let at = frame.user::<u8>(position);
    let mut buffer = [0u8; PATH_BYTES];
    let room = &mut buffer[..PATH_BYTES - 1]; // and the final zero
    let len = match at.read_text(room) {
        Ok(Some(len)) => len,
        Err(_) if at.is_null() => 0, // with AT_EMPTY_PATH
        _ => return Outcome::PASS,
    };
    let mut args = frame.args();
    if !at.is_null() {
        args[position] = buffer.as_ptr().expose_provenance();
    }
    let path = &buffer[..len];
    let object = match folder {
        Some(folder) if !path.starts_with(b"/") => relative(folder, path),
        _ => absolute(path),
    };
    let call = |args| {
        // SAFETY: the program's own call, with a path that lives.
        unsafe { syscall6(frame.number(), args) }
    };
    match (object, Verb::of(frame, position)) {
        (Some(Object::Threads), Verb::Open { .. }) => {
            let result = call(args);
            if !is_err(result) {
                PROCESS.pump.mark(result as u32, Kind::TaskFolder, 0);
            }
            Outcome::of(result)
        }
        (Some(Object::Threads), Verb::Stat { position, size }) => {
            Outcome::of(stat_folder(frame, args, position, size))
        }
        (Some(Object::OwnLink), Verb::ReadLink { to, len }) if len > 0 => {
            Outcome::of(own_link(to, len as usize))
        }
        (Some(Object::Of { thread, rest }), verb) => about(frame, args, verb, thread, rest),
        _ => Outcome::PASS,
    }
}

/// `fstat(2)`.
pub extern "C" fn fstat(frame: &Frame) -> Outcome {
    match folder::marked(frame.word(0)) {
        Some(0) if are_known() => Outcome::of(stat_folder(frame, frame.args(), 1, STAT_BYTES)),
        _ => Outcome::PASS,
    }
}

/// Makes a call about the folder of threads, which fills the structure that the argument at
/// `position` leads to.
#[cold]
fn stat_folder(frame: &Frame, mut args: [usize; 6], position: usize, size: usize) -> isize {
    const LINKS: usize = 16;
    let mut status = [0u8; STATX_BYTES];
    args[position] = status.as_mut_ptr().expose_provenance();
    // SAFETY: the program's own call, into memory that lives.
    let result = unsafe { syscall6(frame.number(), args) };
    if is_err(result) {
        return result;
    }
    let links = folder::links().to_le_bytes();
    let width = if size == STAT_BYTES { 8 } else { 4 };
    status[LINKS..LINKS + width].copy_from_slice(&links[..width]);
    match frame.user(position).write_all(&status[..size]) {
        Ok(()) => result,
        Err(errno) => errno,
    }
}

/// The first name of a path, and what follows it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let start = path.iter().position(|&b| b != b'/').unwrap_or(path.len());
    let path = &path[start..];
    let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
    let rest = &path[end..];
    let next = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
    (&path[..end], &rest[next..])
}

fn number(name: &[u8]) -> Option<u32> {
    let digits = !name.is_empty() && name.len() <= 10 && name.iter().all(u8::is_ascii_digit);
    let value = || name.iter().fold(0u64, |n, d| n * 10 + u64::from(d - b'0'));
    digits.then(value).and_then(|n| u32::try_from(n).ok())
}

fn absolute(path: &[u8]) -> Option<Object<'_>> {
    let (_, path) = split(path); // "proc"
    let (process, rest) = split(path);
    if process == b"thread-self" {
        let thread = Carrier::current().thread();
        return Some(if rest.is_empty() {
            Object::OwnLink
        } else {
            Object::Of { thread, rest }
        });
    }
    let id = number(process);
    if let Some(thread) = id
        .filter(|&id| id >= TID_BASE)
        .and_then(|id| PROCESS.find(id))
    {
        return Some(Object::Of { thread, rest });
    }
    let own = process == b"self" || id == Some(PROCESS.pid.load(Ordering::Relaxed));
    match split(rest) {
        (b"task", rest) if own => in_task_folder(rest),
        _ => None,
    }
}

fn in_task_folder(path: &[u8]) -> Option<Object<'_>> {
    if path.is_empty() {
        return Some(Object::Threads);
    }
    let (id, rest) = split(path);
    let thread = PROCESS.find(number(id)?)?;
    Some(Object::Of { thread, rest })
}

fn relative(folder: u32, path: &[u8]) -> Option<Object<'_>> {
    match folder::marked(folder)? {
        0 => in_task_folder(path),
        tid if !path.is_empty() => Some(Object::Of {
            thread: PROCESS.find(tid)?,
            rest: path,
        }),
        _ => None,
    }
}

/// A call about a thread's folder or something in it; `args` has the path's copy.
fn about(frame: &Frame, args: [usize; 6], verb: Verb, thread: &Thread, rest: &[u8]) -> Outcome {
    const PATH_ONLY: usize = 0o10000000;
    let content = match verb {
        Verb::Open { flags } if flags & PATH_ONLY == 0 => files::Content::named(rest),
        _ => None,
    };
    let is_main = thread.tid() == PROCESS.pid.load(Ordering::Relaxed);
    if content.is_none() && is_main {
        return Outcome::PASS; // the kernel knows it, and may wait
    }
    if content == Some(files::Content::Comm) && is_main {
        return Outcome::of(call_about_main(frame, args, rest)); // the process's name
    }
    // SAFETY: the program's own call, with a path that lives.
    let mut result = unsafe { syscall6(frame.number(), args) };
    let is_unknown = result == ENOENT;
    if is_unknown {
        result = call_about_main(frame, args, rest);
    }
    if is_err(result) {
        return Outcome::of(result);
    }
    match (verb, content) {
        (Verb::Open { flags }, Some(content)) => {
            // SAFETY: the descriptor that this very call has made.
            unsafe { sys!(nr::__NR_close, result) };
            return Outcome::of(files::open(thread, content, flags));
        }
        (Verb::Open { .. }, None) if is_unknown && rest.is_empty() => {
            let pump = &PROCESS.pump;
            pump.mark(result as u32, Kind::TaskFolder, thread.tid());
        }
        _ => {}
    }
    Outcome::of(result)
}

/// The same call about the main thread's file of that name.
fn call_about_main(frame: &Frame, mut args: [usize; 6], rest: &[u8]) -> isize {
    let mut path = Line::new();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let rest = core::str::from_utf8(rest).unwrap_or_default();
    if write!(path, "/proc/self/task/{pid}/{rest}\0").is_err() {
        return ENOENT;
    }
    let position = usize::from(frame.number() >= nr::__NR_openat);
    args[position] = path.bytes.as_ptr().expose_provenance();
    // SAFETY: the program's own call, with a path that lives.
    unsafe { syscall6(frame.number(), args) }
}

/// `readlink("/proc/thread-self")`, if there is such a link.
fn own_link(to: User<u8>, len: usize) -> isize {
    let mut kernels = [0u8; PATH_BYTES];
    // SAFETY: a path and a buffer that live.
    let result = unsafe {
        let (path, size) = (c"/proc/thread-self".as_ptr(), kernels.len());
        sys!(nr::__NR_readlink, path, kernels.as_mut_ptr(), size)
    };
    if is_err(result) {
        return result;
    }
    let mut text = Line::new();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let tid = Carrier::current().thread().tid();
    let _ = write!(text, "{pid}/task/{tid}");
    let len = len.min(text.len);
    match to.write_all(&text.bytes[..len]) {
        Ok(()) => len as isize,
        Err(errno) => errno,
    }
}

/// `write(2)` to a file: sets the name of a thread, or passes.
pub fn write(frame: &Frame) -> Outcome {
    let Some(entry) = PROCESS.pump.entry(frame.word(0)) else {
        return Outcome::PASS;
    };
    let is_name = entry.kind() == Kind::ThreadName && are_known();
    if !is_name || !is_reachable(frame.arg(1), frame.arg(2)) {
        return Outcome::PASS;
    }
    let Some(thread) = PROCESS.find(entry.tid.load(Ordering::Relaxed)) else {
        return Outcome::of(err(errno::ESRCH));
    };
    let mut name = [0u8; 15];
    let len = frame.arg(2).min(name.len());
    if let Err(errno) = frame.user(1).read_all(&mut name[..len]) {
        return Outcome::of(errno);
    }
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    crate::task::ids::set_name(thread, &name[..end]);
    Outcome::of(frame.arg(2).min(MOST_BYTES) as isize)
}
