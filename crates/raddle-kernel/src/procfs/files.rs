//! The files of a thread: the main kernel thread's, with the green thread's own values put in.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use raddle_engine::accounting::cpu_ns;
use raddle_engine::pump::Kind;
use raddle_engine::{PROCESS, Thread, cpus};
use raddle_sys::{err, errno, is_err, mem, nr, sys};

use crate::line::Line;

/// A file with facts about one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Comm,
    Stat,
    Status,
    SchedStat,
}

impl Content {
    /// By the file's name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"comm" => Some(Self::Comm),
            b"stat" => Some(Self::Stat),
            b"status" => Some(Self::Status),
            b"schedstat" => Some(Self::SchedStat),
            _ => None,
        }
    }
}

/// Two pages: the kernel's text, and the runtime's.
struct Pages(*mut u8);

impl Pages {
    const SIZE: usize = 2 * mem::PAGE_SIZE;

    fn halves(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: the mapping is this value's own.
        unsafe { core::slice::from_raw_parts_mut(self.0, Self::SIZE) }.split_at_mut(mem::PAGE_SIZE)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no slice of it is left.
        unsafe { mem::unmap(self.0, Self::SIZE) };
    }
}

/// Opens a file in memory with the present facts about the thread.
pub(super) fn open(thread: &Thread, content: Content, flags: usize) -> isize {
    const ACCESS: usize = 3;
    let Ok(memory) = mem::map(Pages::SIZE) else {
        return err(errno::ENOMEM);
    };
    let mut pages = Pages(memory);
    let (source, target) = pages.halves();
    let mut text = Text {
        bytes: target,
        len: 0,
    };
    if fill(thread, content, source, &mut text).is_err() {
        return err(errno::ESRCH);
    }
    // SAFETY: makes a descriptor, which is closed on exec; then fills the file.
    let fd = unsafe {
        let fd = sys!(nr::__NR_memfd_create, c"thread".as_ptr(), 1usize);
        if is_err(fd) {
            return fd;
        }
        sys!(nr::__NR_pwrite64, fd, text.bytes.as_ptr(), text.len, 0usize);
        fd
    };
    if let Err(errno) = reopen(fd, flags) {
        // SAFETY: the descriptor that was just made.
        unsafe { sys!(nr::__NR_close, fd) };
        return errno;
    }
    let writes = flags & ACCESS != 0;
    let kind = if writes && content == Content::Comm {
        Kind::ThreadName
    } else {
        Kind::File
    };
    PROCESS.pump.mark(fd as u32, kind, thread.tid());
    fd
}

/// Makes the descriptor `fd` one that was opened with `flags`: its access and its flags by `fcntl`
/// are those that the program asked for.
fn reopen(fd: isize, flags: usize) -> Result<(), isize> {
    /// O_CREAT, O_EXCL, O_TRUNC: about a file that isn't there, or has a length.
    const OF_OTHERS: usize = 0o1300;
    const O_CLOEXEC: usize = nr::O_CLOEXEC as usize;
    const AT_CWD: isize = -100;
    let mut path = Line::new();
    if write!(path, "/proc/self/fd/{fd}\0").is_err() {
        return Ok(());
    }
    let flags = flags & !OF_OTHERS;
    // SAFETY: a path that ends with a zero, and descriptors that only this call knows.
    unsafe {
        let other = sys!(
            nr::__NR_openat,
            AT_CWD,
            path.bytes.as_ptr(),
            flags | O_CLOEXEC
        );
        if is_err(other) {
            return Err(other);
        }
        let result = sys!(nr::__NR_dup3, other, fd, flags & O_CLOEXEC);
        sys!(nr::__NR_close, other);
        if is_err(result) { Err(result) } else { Ok(()) }
    }
}

fn fill(thread: &Thread, content: Content, source: &mut [u8], to: &mut Text) -> fmt::Result {
    let mut name = [0; 16];
    let name = text_of(thread, &mut name);
    match content {
        Content::Comm => writeln!(to, "{name}"),
        Content::SchedStat => {
            let switches = thread.switches.load(Ordering::Relaxed);
            writeln!(to, "{} 0 {switches}", cpu_ns(thread))
        }
        Content::Stat => stat(thread, name, of_main(source, "stat")?, to),
        Content::Status => status(thread, name, of_main(source, "status")?, to),
    }
}

/// The name as text; bytes that aren't ASCII become question marks.
fn text_of<'a>(thread: &Thread, buffer: &'a mut [u8; 16]) -> &'a str {
    *buffer = thread.name();
    let len = buffer.iter().position(|&b| b == 0).unwrap_or(15);
    for byte in buffer.iter_mut().filter(|byte| !byte.is_ascii()) {
        *byte = b'?';
    }
    core::str::from_utf8(&buffer[..len]).unwrap_or_default()
}

/// The main kernel thread's file of that name.
fn of_main<'a>(buffer: &'a mut [u8], name: &str) -> Result<&'a str, fmt::Error> {
    let mut path = Line::new();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    write!(path, "/proc/self/task/{pid}/{name}\0")?;
    let bytes = cpus::read_file(&path.bytes, buffer).ok_or(fmt::Error)?;
    core::str::from_utf8(bytes).map_err(|_| fmt::Error)
}

fn state(thread: &Thread) -> (char, &'static str) {
    if thread.task.on_cpu.load(Ordering::Relaxed) == 0 && thread.task.is_waiting() {
        ('S', "sleeping")
    } else {
        ('R', "running")
    }
}

/// `stat`: the numbers of `proc_pid_stat(5)` that are the thread's.
fn stat(thread: &Thread, name: &str, main: &str, to: &mut Text) -> fmt::Result {
    const TICK_NS: u64 = 10_000_000;
    let attributes = thread.attributes.get();
    let signals = &thread.signals;
    let priority = match attributes.priority {
        0 => i64::from(attributes.nice) + 20,
        real_time => -1 - i64::from(real_time),
    };
    let (_, fields) = main.rsplit_once(") ").ok_or(fmt::Error)?;
    write!(to, "{} ({name}) {}", thread.tid(), state(thread).0)?;
    for (field, theirs) in (4..).zip(fields.trim_end().split(' ').skip(1)) {
        match field {
            14 => write!(to, " {}", cpu_ns(thread) / TICK_NS)?,
            15 => write!(to, " 0")?,
            18 => write!(to, " {priority}")?,
            19 => write!(to, " {}", attributes.nice)?,
            31 => write!(to, " {}", signals.pending.load(Ordering::Relaxed))?,
            32 => write!(to, " {}", signals.mask.load(Ordering::Relaxed))?,
            40 => write!(to, " {}", attributes.priority)?,
            41 => write!(to, " {}", attributes.policy)?,
            _ => write!(to, " {theirs}")?,
        }
    }
    writeln!(to)
}

/// `status`: the lines of `proc_pid_status(5)` that are the thread's.
fn status(thread: &Thread, name: &str, main: &str, to: &mut Text) -> fmt::Result {
    let parks = thread.park.load(Ordering::Relaxed);
    let switches = thread.switches.load(Ordering::Relaxed);
    let signals = &thread.signals;
    for line in main.lines() {
        let (key, value) = line.split_once(':').ok_or(fmt::Error)?;
        match key {
            "Name" => writeln!(to, "{key}:\t{name}")?,
            "State" => {
                let (letter, word) = state(thread);
                writeln!(to, "{key}:\t{letter} ({word})")?;
            }
            "Pid" => writeln!(to, "{key}:\t{}", thread.tid())?,
            "Threads" => writeln!(to, "{key}:\t{}", PROCESS.threads.live())?,
            "SigPnd" => writeln!(
                to,
                "{key}:\t{:016x}",
                signals.pending.load(Ordering::Relaxed)
            )?,
            "SigBlk" => writeln!(to, "{key}:\t{:016x}", signals.mask.load(Ordering::Relaxed))?,
            "voluntary_ctxt_switches" => writeln!(to, "{key}:\t{parks}")?,
            "nonvoluntary_ctxt_switches" => {
                writeln!(to, "{key}:\t{}", switches.saturating_sub(parks))?;
            }
            _ => writeln!(to, "{key}:{value}")?,
        }
    }
    Ok(())
}

/// Text in a lent buffer.
struct Text<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len());
        to.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
