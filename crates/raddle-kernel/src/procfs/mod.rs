//! `/proc` as threads see it: `/proc/self/task`, `/proc/PID/task/TID/...`, `/proc/thread-self`.
//!
//! The kernel makes every call with a path first, where a signal finds user code and a bad pointer
//! gets EFAULT; then [`look`] reads the path, which therefore is readable. Three cases are ours:
//!
//! - the folder of threads, which the kernel has opened: its descriptor is *marked*, and what is
//!   read from it is a list of green threads;
//! - a file that says something of one thread (`comm`, `stat`, `status`, `schedstat`): a file in
//!   memory with what is true now;
//! - anything else below a green thread's folder, which the kernel says isn't there: the main
//!   thread's, because it is the process's.
//!
//! Rejected: to change the path before the call. It would have to be read first, and the runtime
//! can't read a bad pointer and live.

mod files;
mod folder;

pub use folder::getdents64;

use crate::boundary::{Frame, Outcome};
use crate::user;
use core::fmt::Write;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::Ordering;
use raddle_engine::pump::Kind;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, ENGINE, Thread};
use raddle_sys::{err, errno, is_err, nr, sys, syscall6};

/// The longest path of ours, with its final zero.
const PATH_BYTES: usize = 128;
const ENOENT: isize = err(errno::ENOENT);

/// Calls with a path, and `fstat(2)`.
pub extern "C" fn by_path(_: &Frame) -> Outcome {
    if ENGINE.is_started() {
        Outcome::LOOK
    } else {
        Outcome::PASS
    }
}

/// What a call does with what it names.
#[derive(Clone, Copy)]
enum Verb {
    Open {
        flags: usize,
    },
    /// Fills a structure whose count of links is this many bytes from its start.
    Stat {
        links: usize,
        wide: bool,
    },
    ReadLink {
        to: usize,
        len: usize,
    },
    Other,
}

/// A call: its folder, the position of its path among the arguments, and what it does.
struct Call {
    folder: Option<usize>,
    path: Option<usize>,
    verb: Verb,
}

impl Call {
    fn of(frame: &Frame) -> Self {
        let at = frame.rax >= u64::from(nr::__NR_openat); // the first of its kind by number
        let (first, path) = (usize::from(at), Some(usize::from(at)));
        let folder = at.then(|| frame.arg(0));
        let after = |index: usize| frame.arg(first + 1 + index);
        let stat = |to: usize, links, wide| Verb::Stat {
            links: to + links,
            wide,
        };
        let verb = match frame.rax as u32 {
            nr::__NR_open | nr::__NR_openat => Verb::Open { flags: after(0) },
            nr::__NR_stat | nr::__NR_lstat | nr::__NR_newfstatat => stat(after(0), 16, true),
            nr::__NR_statx => stat(after(2), 16, false),
            nr::__NR_readlink | nr::__NR_readlinkat => Verb::ReadLink {
                to: after(0),
                len: after(1),
            },
            nr::__NR_fstat => {
                return Self {
                    folder: Some(frame.arg(0)),
                    path: None,
                    verb: stat(frame.arg(1), 16, true),
                };
            }
            _ => Verb::Other,
        };
        Self { folder, path, verb }
    }
}

/// What a path names.
enum Object<'a> {
    /// The folder of threads.
    Threads,
    /// `/proc/thread-self` itself.
    OwnLink,
    /// Something below a thread's folder, or that itself.
    Of { thread: &'a Thread, rest: &'a [u8] },
}

/// After a call with a path: what the program gets. `result` is the kernel's.
pub extern "C" fn look(frame: &Frame, result: isize) -> isize {
    if is_err(result) && result != ENOENT {
        return result;
    }
    let call = Call::of(frame);
    let address = call.path.map_or(0, |index| frame.arg(index));
    let mut buffer = [0u8; PATH_BYTES];
    let Some(path) = interesting(address, call.folder, &mut buffer) else {
        return result;
    };
    let object = match call.folder {
        Some(folder) if !path.starts_with(b"/") => relative(folder, path),
        _ => absolute(path),
    };
    match (object, call.verb) {
        (Some(Object::Threads), Verb::Open { .. }) if result >= 0 => {
            ENGINE.pump.mark(result as u32, Kind::TaskFolder, 0);
            result
        }
        (Some(Object::Threads), Verb::Stat { links, wide }) if result == 0 => {
            // SAFETY: the kernel has just filled the structure.
            unsafe { folder::set_links(links, wide) };
            result
        }
        (Some(Object::OwnLink), Verb::ReadLink { to, len }) if result > 0 => own_link(to, len),
        (Some(Object::Of { thread, rest }), verb) => {
            about(frame, &call, verb, thread, rest, result)
        }
        _ => result,
    }
}

/// Copies the path if it can be ours: below `/proc`, or relative to a marked folder.
fn interesting(
    address: usize,
    folder: Option<usize>,
    buffer: &mut [u8; PATH_BYTES],
) -> Option<&[u8]> {
    const PREFIX: &[u8] = b"/proc/";
    let from = with_exposed_provenance::<u8>(address);
    let byte = |index: usize| match address {
        0 => 0,
        // SAFETY: the kernel has just read the string, up to its final zero, and no byte before
        // this one was that zero.
        _ => unsafe { from.add(index).read() },
    };
    let is_absolute = byte(0) == b'/';
    if !is_absolute && folder.and_then(folder::marked).is_none() {
        return None;
    }
    for (index, to) in buffer.iter_mut().enumerate() {
        *to = byte(index);
        let strays = is_absolute && PREFIX.get(index).is_some_and(|wanted| wanted != to);
        if strays {
            return None;
        }
        if *to == 0 {
            return Some(&buffer[..index]);
        }
    }
    None
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
        .and_then(|id| ENGINE.find(id))
    {
        return Some(Object::Of { thread, rest });
    }
    let own = process == b"self" || id == Some(ENGINE.pid.load(Ordering::Relaxed));
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
    let thread = ENGINE.find(number(id)?)?;
    Some(Object::Of { thread, rest })
}

fn relative(folder: usize, path: &[u8]) -> Option<Object<'_>> {
    match folder::marked(folder)? {
        0 => in_task_folder(path),
        tid if !path.is_empty() => Some(Object::Of {
            thread: ENGINE.find(tid)?,
            rest: path,
        }),
        _ => None,
    }
}

/// A call about a thread's folder or something in it.
fn about(
    frame: &Frame,
    call: &Call,
    verb: Verb,
    thread: &Thread,
    rest: &[u8],
    result: isize,
) -> isize {
    if let Verb::Open { flags } = verb
        && let Some(content) = files::Content::named(rest)
    {
        if result >= 0 {
            // SAFETY: the descriptor that this very call has made.
            unsafe { sys!(nr::__NR_close, result) };
        }
        return files::open(thread, content, flags);
    }
    if result != ENOENT {
        return result;
    }
    let mut path = Line::new();
    let pid = ENGINE.pid.load(Ordering::Relaxed);
    let rest_text = core::str::from_utf8(rest).unwrap_or_default();
    if write!(path, "/proc/self/task/{pid}/{rest_text}\0").is_err() {
        return result;
    }
    let mut args = frame.args();
    args[call.path.unwrap_or(0)] = path.bytes.as_ptr().expose_provenance();
    // SAFETY: the program's own call, about the main thread's file of that name.
    let result = unsafe { syscall6(frame.rax as u32, args) };
    if rest.is_empty() && result >= 0 && matches!(verb, Verb::Open { .. }) {
        ENGINE
            .pump
            .mark(result as u32, Kind::TaskFolder, thread.tid());
    }
    result
}

/// `readlink("/proc/thread-self")`.
fn own_link(to: usize, len: usize) -> isize {
    let mut text = Line::new();
    let pid = ENGINE.pid.load(Ordering::Relaxed);
    let tid = Carrier::current().thread().tid();
    let _ = write!(text, "{pid}/task/{tid}");
    let len = len.min(text.len);
    let to = with_exposed_provenance_mut::<u8>(to);
    // SAFETY: the program's buffer of at least `len` bytes, into which the kernel has just written.
    unsafe { core::ptr::copy_nonoverlapping(text.bytes.as_ptr(), to, len) };
    len as isize
}

/// `write(2)` to a file: the name of a thread, or the kernel's business.
pub fn write(frame: &Frame) -> Outcome {
    let Some(entry) = ENGINE.pump.entry(frame.rdi as u32) else {
        return Outcome::PASS;
    };
    if entry.kind() != Kind::ThreadName {
        return Outcome::PASS;
    }
    let Some(thread) = ENGINE.find(entry.tid.load(Ordering::Relaxed)) else {
        return Outcome::of(err(errno::ESRCH));
    };
    let mut name = [0u8; 15];
    let len = frame.arg(2).min(name.len());
    for (index, to) in name[..len].iter_mut().enumerate() {
        match user::read::<u8>(frame.arg(1) + index) {
            Ok(byte) => *to = byte,
            Err(errno) => return Outcome::of(errno),
        }
    }
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    crate::ids::set_name(thread, &name[..end]);
    Outcome::of(frame.arg(2) as isize)
}

/// Names a kernel thread of ours that isn't the calling one.
pub fn name_kernel_thread(kernel_tid: u32, name: &[u8; 16]) {
    const WRITE: usize = 0o2000001; // and close-on-exec
    const AT_CWD: isize = -100;
    let mut path = Line::new();
    let _ = write!(path, "/proc/self/task/{kernel_tid}/comm\0");
    let len = name.iter().position(|&byte| byte == 0).unwrap_or(15);
    // SAFETY: a zero-terminated path and a live buffer. Nothing is written for an empty name.
    unsafe {
        let fd = sys!(nr::__NR_openat, AT_CWD, path.bytes.as_ptr(), WRITE);
        if !is_err(fd) {
            sys!(nr::__NR_write, fd, name.as_ptr(), len);
            sys!(nr::__NR_close, fd);
        }
    }
}

/// A short text without allocation.
struct Line {
    bytes: [u8; PATH_BYTES],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            bytes: [0; PATH_BYTES],
            len: 0,
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len());
        to.ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
