//! The file that the process leaves when a signal ends it while its flight recorder is on: the
//! carriers' rings of events, and what a tool needs to read them ([`raddle_inspect::CrashHeader`]).
//!
//! It is written by the kernel thread that takes the signal, perhaps in a signal handler, on a
//! small stack, with memory that may be damaged. So it takes no lock, allocates nothing, and the
//! kernel copies each part from where it is: what is not mapped is left out (EFAULT).

use super::layout::layout;
use crate::state::carrier::Carrier;
use crate::state::parts::recorder::TEXTS;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::{accounting, events};
use core::sync::atomic::Ordering;
use raddle_inspect::{CRASH_MAGIC, CrashHeader, CrashName, CrashPart, Event, EventKind, Wire};
use raddle_sched::EventRing;
use raddle_sys::{is_err, mem, nr, sys};

/// Bytes of the file's path at most, with the zero behind it.
const PATH_BYTES: usize = 512;

/// Records events from the start of the engine on, and writes crashes to a file in `folder`, a
/// string that lives for ever and has a zero behind it. At start-up.
pub fn set_flight_recorder(folder: &'static [u8]) {
    let recorder = &PROCESS.recorder;
    let at = folder.as_ptr().cast_mut();
    recorder.folder.store(at, Ordering::Relaxed);
    recorder.is_flight_recorder.store(1, Ordering::Relaxed);
}

/// Returns true if events are recorded from the start of the engine on.
pub fn is_set() -> bool {
    let is_set = &PROCESS.recorder.is_flight_recorder;
    is_set.load(Ordering::Relaxed) != 0
}

/// The process is about to end by `signal`: writes the file, once, and says so in one sentence.
/// Nothing without a flight recorder.
///
/// # Blocking
/// The carrier, for as long as the kernel takes.
pub fn write(signal: u32) {
    let recorder = &PROCESS.recorder;
    let is_off = !is_set() || !events::is_on();
    if is_off || recorder.crashed.swap(1, Ordering::SeqCst) != 0 {
        return;
    }
    // The rings stay as they are from here on, but for an event that is being written.
    accounting::ON.fetch_and(!accounting::EVENTS, Ordering::SeqCst);
    events::note_moment(2);
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let mut path = Text::<PATH_BYTES>::new();
    if folder() != b"." {
        path.add(folder());
        path.add(b"/");
    }
    path.add(b"raddle-");
    path.number(pid);
    path.add(b".events");
    let written = write_file(&path, signal, pid);
    let mut line = Text::<{ PATH_BYTES + 256 }>::new();
    line.add(b"raddle: ");
    match written {
        Ok(()) => {
            line.add(b"the last events before the crash are in ");
            line.add(path.bytes());
            line.add(b": raddle trace --from ");
            line.add(path.bytes());
            line.add(b" -o FILE shows them\n");
        }
        Err(errno) => {
            line.add(b"the last events before the crash are lost: ");
            line.add(path.bytes());
            line.add(b" can't be written (errno ");
            line.number(errno);
            line.add(b")\n");
        }
    }
    raddle_sys::write_stderr(line.bytes());
}

/// The process lives on after all: see `fatal::end`.
pub fn lives_on() {
    let recorder = &PROCESS.recorder;
    if recorder.crashed.swap(0, Ordering::SeqCst) != 0 {
        accounting::ON.fetch_or(accounting::EVENTS, Ordering::SeqCst);
    }
}

fn folder() -> &'static [u8] {
    let at = PROCESS.recorder.folder.load(Ordering::Relaxed);
    if at.is_null() {
        return b".";
    }
    // SAFETY: `set_flight_recorder` was given a string with a zero behind it.
    unsafe { core::ffi::CStr::from_ptr(at.cast()) }.to_bytes()
}

/// Creates and writes the file.
///
/// # Errors
/// The errno. A file that isn't whole is removed.
fn write_file(path: &Text<PATH_BYTES>, signal: u32, pid: u32) -> Result<(), u32> {
    const FLAGS: u32 = nr::O_WRONLY | nr::O_CREAT | nr::O_EXCL | nr::O_CLOEXEC | nr::O_NOFOLLOW;
    const MODE: usize = 0o600;
    let at = path.c_str().ok_or(raddle_sys::errno::ENAMETOOLONG)?;
    // SAFETY: a path with a zero behind it.
    let fd = unsafe { sys!(nr::__NR_openat, nr::AT_FDCWD, at, FLAGS, MODE) };
    if is_err(fd) {
        return Err(-fd as u32);
    }
    let written = write_all(&Writer { fd }, signal, pid);
    // SAFETY: a descriptor of this function's own, and the path from above.
    unsafe {
        sys!(nr::__NR_close, fd);
        if written.is_err() {
            sys!(nr::__NR_unlinkat, nr::AT_FDCWD, at, 0usize);
        }
    }
    written
}

fn write_all(file: &Writer, signal: u32, pid: u32) -> Result<(), u32> {
    let carrier = Carrier::current();
    let tid = carrier.thread_or_none().map_or(0, |thread| thread.tid());
    let header = CrashHeader {
        magic: CRASH_MAGIC,
        pid,
        signal,
        tid,
        reserved: 0,
    };
    file.write(header.as_bytes())?;
    file.write(layout().as_bytes())?;
    let listed = PROCESS.listed.load(Ordering::Acquire) as usize;
    file.part(&PROCESS.listed)?;
    file.memory(PROCESS.list.as_ptr().addr(), listed * size_of::<usize>())?;
    file.part(&PROCESS.recorder)?;
    file.ring(&PROCESS.recorder.common)?;
    for carrier in PROCESS
        .carriers()
        .chain(PROCESS.threads.iter().filter_map(own))
    {
        file.part(carrier)?;
        file.ring(&carrier.events)?;
        file.texts(&carrier.events)?;
    }
    file.write(
        CrashPart {
            address: 0,
            bytes: 0,
        }
        .as_bytes(),
    )?;
    for thread in PROCESS.threads.iter() {
        let name = CrashName {
            bound: thread.bound.load(Ordering::Acquire).addr() as u64,
            tid: thread.tid(),
            reserved: 0,
            name: thread.name(),
        };
        file.write(name.as_bytes())?;
    }
    Ok(())
}

/// Returns the carrier that runs a thread and nothing else, which no list has.
fn own(thread: &Thread) -> Option<&Carrier> {
    // SAFETY: null or a carrier, which is never freed.
    unsafe { thread.bound.load(Ordering::Acquire).as_ref() }
}

/// The file.
struct Writer {
    fd: isize,
}

impl Writer {
    /// Writes a part of the memory, which may be unmapped.
    fn part<T>(&self, part: &T) -> Result<(), u32> {
        self.memory(core::ptr::from_ref(part).addr(), size_of::<T>())
    }

    /// Writes the slots of a ring.
    fn ring(&self, ring: &EventRing) -> Result<(), u32> {
        let (slots, bytes) = ring.used();
        self.memory(slots, bytes)
    }

    /// Writes the texts of the program's own events.
    fn texts(&self, ring: &EventRing) -> Result<(), u32> {
        let mut text = [0; Event::TEXT_MAX + 1];
        for event in ring.all().filter_map(Event::from_words) {
            let has_text = matches!(
                event.kind,
                EventKind::SPAN_BEGIN | EventKind::INSTANT | EventKind::COUNTER
            );
            let written = &PROCESS.recorder.texts[event.arg as usize / 8 % TEXTS];
            if !has_text || written.swap(event.arg, Ordering::Relaxed) == event.arg {
                continue;
            }
            let bytes = read(event.arg as usize, &mut text);
            if !bytes.is_empty() {
                let part = CrashPart {
                    address: event.arg,
                    bytes: bytes.len() as u64,
                };
                self.write(part.as_bytes())?;
                self.write(bytes)?;
            }
        }
        Ok(())
    }

    fn memory(&self, address: usize, bytes: usize) -> Result<(), u32> {
        if bytes == 0 {
            return Ok(()); // would end the list
        }
        let part = CrashPart {
            address: address as u64,
            bytes: bytes as u64,
        };
        self.write(part.as_bytes())?;
        self.write_from(address, bytes)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), u32> {
        self.write_from(bytes.as_ptr().addr(), bytes.len())
    }

    fn write_from(&self, mut from: usize, mut left: usize) -> Result<(), u32> {
        const EINTR: isize = raddle_sys::err(raddle_sys::errno::EINTR);
        while left != 0 {
            // SAFETY: the kernel reads, and refuses what is not mapped.
            match unsafe { sys!(nr::__NR_write, self.fd, from, left) } {
                EINTR => {}
                0 => return Err(raddle_sys::errno::ENOSPC),
                result if is_err(result) => return Err(-result as u32),
                written => {
                    from += written as usize;
                    left -= written as usize;
                }
            }
        }
        Ok(())
    }
}

/// Copies memory that may be unmapped, up to the end of its page or the next one.
fn read(address: usize, to: &mut [u8]) -> &[u8] {
    let own = [to.as_mut_ptr().addr(), to.len()];
    let page = mem::PAGE_SIZE - address % mem::PAGE_SIZE;
    let first = page.min(to.len());
    let theirs = [
        [address, first],
        [address.wrapping_add(first), to.len() - first],
    ];
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: the kernel fills a live buffer, and refuses what is not mapped.
    let got = unsafe {
        let (own, theirs) = (&raw const own, theirs.as_ptr());
        sys!(
            nr::__NR_process_vm_readv,
            pid,
            own,
            1usize,
            theirs,
            2usize,
            0usize
        )
    };
    if is_err(got) {
        &[]
    } else {
        &to[..got as usize]
    }
}

/// Text on the stack; what doesn't fit is cut.
struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> Text<ROOM> {
    fn new() -> Self {
        Self {
            bytes: [0; ROOM],
            len: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(slot) = self.bytes.get_mut(self.len) {
                *slot = byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8]);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the address of the text with a zero behind it; `None` if it was cut.
    fn c_str(&self) -> Option<*const u8> {
        (self.len < ROOM).then_some(self.bytes.as_ptr())
    }
}
