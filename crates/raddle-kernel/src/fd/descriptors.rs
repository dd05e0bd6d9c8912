//! Descriptors: their kinds, their ends, and the runtime's own ones, which the program can't use.

use crate::frame::{Frame, Outcome};
use crate::memory::loading;
use crate::mode::are_known;
use crate::mode::is_multiplexed;
use crate::signal::stops::is_in_background;
use crate::task::credentials;
use raddle_engine::PROCESS;
use raddle_engine::pump::{Entry, Kind};
use raddle_sys::{err, errno, is_err, nr, sys};

/// The descriptor's row and kind; `None` if the call should just pass.
#[inline(always)]
pub fn look_up<'a>(fd: usize) -> Option<(&'a Entry, Kind)> {
    if !is_multiplexed() {
        return None;
    }
    let entry = PROCESS.pump.entry(fd as u32)?;
    let kind = match entry.kind() {
        Kind::Unknown => classify(entry, fd as u32),
        kind => kind,
    };
    let is_file = matches!(
        kind,
        Kind::File | Kind::Disk | Kind::TaskFolder | Kind::ThreadName
    );
    (!is_file).then_some((entry, kind))
}

/// The descriptor's row if it is a [`Kind::Disk`].
#[inline(always)]
pub fn disk<'a>(fd: usize) -> Option<&'a Entry> {
    if !is_multiplexed() {
        return None;
    }
    let entry = PROCESS.pump.entry(fd as u32)?;
    (kind_of(entry, fd) == Kind::Disk).then_some(entry)
}

/// What a descriptor is; `Kind::Unknown` beyond the table.
pub fn kind(fd: usize) -> Kind {
    let entry = PROCESS.pump.entry(fd as u32);
    entry.map_or(Kind::Unknown, |entry| kind_of(entry, fd))
}

#[inline(always)]
fn kind_of(entry: &Entry, fd: usize) -> Kind {
    match entry.kind() {
        Kind::Unknown => classify(entry, fd as u32),
        kind => kind,
    }
}

/// Asks the kernel what a descriptor is. `Kind::File` for closed ones too: the call says EBADF.
///
/// Files that the kernel makes up (`/proc`, `/sys`) have neither blocks nor a device. Their content
/// may depend on the calling kernel thread, so no helper may make a call on them.
#[cold]
fn classify(entry: &Entry, fd: u32) -> Kind {
    // Positions in struct stat, in words of four bytes.
    const DEVICE: usize = 0;
    const MODE: usize = 6;
    const BLOCKS: usize = 16;
    if let Some((kind, drains)) = socket_kind(fd) {
        entry.set_kind(kind, drains);
        return kind;
    }
    let mut stat = [0u32; 36];
    // SAFETY: the kernel fills a live structure.
    if is_err(unsafe { sys!(nr::__NR_fstat, fd, stat.as_mut_ptr()) }) {
        return Kind::File;
    }
    let kind = match stat[MODE] & 0o170000 {
        0o010000 => Kind::Pipe,
        0o060000 => Kind::Disk,
        0o100000 if stat[BLOCKS] != 0 || stat[DEVICE] >> 8 & 0xfff != 0 => Kind::Disk,
        0o100000 | 0o040000 => Kind::File,
        0o020000 if is_terminal(fd) => Kind::Terminal,
        0 if PROCESS.pump.accepts(fd) => nameless_kind(fd),
        _ if PROCESS.pump.accepts(fd) => Kind::Device,
        _ => Kind::File,
    };
    entry.set_kind(kind, false);
    kind
}

/// Returns the kind of a file without an inode of its own. Only some wait when they aren't ready.
fn nameless_kind(fd: u32) -> Kind {
    const PREFIX: &[u8] = b"anon_inode:";
    let mut link = [0u8; 32];
    let mut name = [0u8; 32];
    decimal_after(b"/proc/self/fd/", fd, &mut link);
    let (link, at, len) = (link.as_ptr(), name.as_mut_ptr(), name.len());
    // SAFETY: the kernel reads a text that ends with a zero, and fills a live array.
    let got = unsafe { sys!(nr::__NR_readlink, link, at, len) };
    match name.get(PREFIX.len()..got.max(0) as usize) {
        Some(b"[eventfd]" | b"[timerfd]" | b"[signalfd]" | b"[userfaultfd]") => Kind::Counter,
        Some(b"inotify" | b"[fanotify]") => Kind::Pollable,
        _ => Kind::Device,
    }
}

/// Writes `prefix`, `number` and a zero; `text` has room for them and holds zeros.
fn decimal_after(prefix: &[u8], number: u32, text: &mut [u8; 32]) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    text[..prefix.len()].copy_from_slice(prefix);
    let mut left = number;
    for digit in text[prefix.len()..][..digits].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
}

fn is_terminal(fd: u32) -> bool {
    const TCGETS: usize = 0x5401;
    let mut settings = [0u32; 16];
    // SAFETY: the kernel fills a live structure, of 36 bytes.
    let done = unsafe { sys!(nr::__NR_ioctl, fd, TCGETS, settings.as_mut_ptr()) };
    !is_err(done) && PROCESS.pump.accepts(fd)
}

/// What a read of a terminal does when there is nothing to read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TerminalRead {
    /// Waits for a byte or a line.
    Waits,
    /// Waits by rules that poll doesn't tell: for several bytes, or for a time.
    WaitsBySettings,
    /// Returns at once, or stops the process, which is in the background.
    AtOnce,
}

/// Returns what a read of the terminal does now.
#[cold]
pub fn terminal_read(fd: usize) -> TerminalRead {
    const TCGETS: usize = 0x5401;
    const FLAGS: usize = 3; // in words of four bytes
    const CONTROLS: usize = 17; // in bytes
    const TIME: usize = CONTROLS + 5;
    const LEAST: usize = CONTROLS + 6;
    const CANONICAL: u32 = 2;
    let mut settings = [0u32; 16];
    // SAFETY: the kernel fills a live structure, of 36 bytes.
    let done = unsafe { sys!(nr::__NR_ioctl, fd, TCGETS, settings.as_mut_ptr()) };
    if is_err(done) || is_in_background(fd) {
        return TerminalRead::AtOnce;
    }
    let control = |at: usize| settings[at / 4].to_le_bytes()[at % 4];
    match (control(LEAST), control(TIME)) {
        _ if settings[FLAGS] & CANONICAL != 0 => TerminalRead::Waits,
        (1, 0) => TerminalRead::Waits,
        (0, 0) => TerminalRead::AtOnce,
        _ => TerminalRead::WaitsBySettings,
    }
}

/// Returns true if the descriptor is a timer.
pub fn is_timer(fd: usize) -> bool {
    let mut time = [0u64; 4];
    // SAFETY: the kernel fills a live structure.
    !is_err(unsafe { sys!(nr::__NR_timerfd_gettime, fd, time.as_mut_ptr()) })
}

/// Bytes that a socket has to read.
pub fn unread(fd: usize) -> usize {
    const FIONREAD: usize = 0x541b;
    number(fd, FIONREAD).map_or(0, |count| count as usize)
}

/// Returns true if a socket's next byte to read follows urgent data.
pub fn at_urgent_mark(fd: usize) -> bool {
    const SIOCATMARK: usize = 0x8905;
    number(fd, SIOCATMARK).is_some_and(|at| at != 0)
}

/// Returns the word that `ioctl(2)` stores; `None` on an error.
fn number(fd: usize, request: usize) -> Option<u32> {
    let mut number = 0u32;
    // SAFETY: the kernel fills a live word.
    let done = unsafe { sys!(nr::__NR_ioctl, fd, request, &raw mut number) };
    (!is_err(done)).then_some(number)
}

/// Returns true if a socket listens.
pub fn is_listening(fd: usize) -> bool {
    const SO_ACCEPTCONN: usize = 30;
    option(fd as u32, SOL_SOCKET, SO_ACCEPTCONN).is_some_and(|value| value != 0)
}

/// Returns true for a Unix socket.
pub fn is_unix(fd: usize) -> bool {
    const SO_DOMAIN: usize = 39;
    const AF_UNIX: u32 = 1;
    option(fd as u32, SOL_SOCKET, SO_DOMAIN) == Some(AF_UNIX)
}

/// Returns true for a TCP socket, with several paths or one.
pub fn is_tcp(fd: usize) -> bool {
    const IPPROTO_MPTCP: u32 = 262;
    let protocol = option(fd as u32, SOL_SOCKET, SO_PROTOCOL);
    protocol == Some(IPPROTO_TCP as u32) || protocol == Some(IPPROTO_MPTCP)
}

/// Takes the errno that a socket keeps: the socket doesn't keep it any longer.
pub fn take_error(fd: usize) -> isize {
    const SO_ERROR: usize = 4;
    option(fd as u32, SOL_SOCKET, SO_ERROR).unwrap_or(0) as isize
}

const SOL_SOCKET: usize = 1;
const SO_RCVLOWAT: usize = 18;
const SO_PROTOCOL: usize = 38;
const IPPROTO_TCP: usize = 6;
const TCP_ULP: usize = 31;

/// A socket's kind, and whether a short read empties it; `None` for anything else.
///
/// A blocking read of a socket with a low-water mark waits for so many bytes, which a read that
/// doesn't block ignores: `Kind::Device` leaves the read to the kernel.
fn socket_kind(fd: u32) -> Option<(Kind, bool)> {
    const SO_TYPE: usize = 3;
    const STREAM: u32 = 1;
    if option(fd, SOL_SOCKET, SO_TYPE)? != STREAM {
        return Some((Kind::Datagram, false));
    }
    if option(fd, SOL_SOCKET, SO_RCVLOWAT)? > 1 {
        return Some((Kind::Device, false));
    }
    let is_tcp = option(fd, SOL_SOCKET, SO_PROTOCOL)? == IPPROTO_TCP as u32;
    // The name of the upper layer, if there is one: its first bytes aren't zero.
    let drains = is_tcp && option(fd, IPPROTO_TCP, TCP_ULP).unwrap_or(0) == 0;
    Some((Kind::Stream, drains))
}

/// The first four bytes of a socket's option; `None` if the kernel says an error.
fn option(fd: u32, level: usize, name: usize) -> Option<u32> {
    let (mut value, mut len) = (0u32, 4u32);
    let (at, len_at) = (&raw mut value, &raw mut len);
    // SAFETY: the kernel fills live words.
    let result = unsafe { sys!(nr::__NR_getsockopt, fd, level, name, at, len_at) };
    (!is_err(result)).then_some(value)
}

/// Returns true if the descriptor is in non-blocking mode.
pub fn is_nonblocking(fd: usize) -> bool {
    const O_NONBLOCK: isize = nr::O_NONBLOCK as isize;
    let flags = flags(fd);
    // A filter may refuse the question.
    flags == err(errno::EBADF) || !is_err(flags) && flags & O_NONBLOCK != 0
}

/// `ioctl(2)`: passes, a change of the mode after it was noted.
pub extern "C" fn ioctl(frame: &Frame) -> Outcome {
    const FIONBIO: u32 = 0x5421;
    if frame.word(1) == FIONBIO {
        forget_mode(frame.arg(0));
    }
    Outcome::PASS
}

/// Notes that the descriptor may no longer be in non-blocking mode.
pub(crate) fn forget_mode(fd: usize) {
    if is_multiplexed()
        && let Some(entry) = PROCESS.pump.entry(fd as u32)
    {
        entry.set_nonblocking(false);
    }
}

/// Returns true if reads and writes of the file go past the page cache.
pub fn is_direct(fd: usize) -> bool {
    const O_DIRECT: isize = nr::O_DIRECT as isize;
    let flags = flags(fd);
    !is_err(flags) && flags & O_DIRECT != 0
}

fn flags(fd: usize) -> isize {
    const F_GETFL: usize = nr::F_GETFL as usize;
    // SAFETY: a plain query.
    unsafe { sys!(nr::__NR_fcntl, fd, F_GETFL) }
}

fn is_hidden(fd: u32) -> bool {
    PROCESS.pump.owns(fd as usize) || PROCESS.sysmon.owns(fd as usize)
}

/// The highest number of the program's descriptors; `None` if `/proc` doesn't tell.
pub fn highest() -> Option<u32> {
    const FOLDER_CLOEXEC: usize = 0o2200000;
    /// Of an entry: its length, and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    // SAFETY: a path that lives.
    let fd = unsafe { sys!(nr::__NR_open, c"/proc/self/fd".as_ptr(), FOLDER_CLOEXEC) };
    if is_err(fd) {
        return None;
    }
    let mut highest = 0;
    let mut entries = [0u8; 1024];
    loop {
        // SAFETY: the kernel fills a live array.
        let got = unsafe { sys!(nr::__NR_getdents64, fd, entries.as_mut_ptr(), entries.len()) };
        if got <= 0 {
            break;
        }
        let mut left = &entries[..got as usize];
        while left.len() > NAME {
            let length = usize::from(u16::from_le_bytes([left[LENGTH], left[LENGTH + 1]]));
            let digits = left[NAME..].iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0'));
            if number != fd as u32 && !is_hidden(number) {
                highest = highest.max(number);
            }
            left = left.get(length.max(1)..).unwrap_or_default();
        }
    }
    // SAFETY: the descriptor that was made above.
    unsafe { sys!(nr::__NR_close, fd) };
    Some(highest)
}

/// `close(2)`.
pub extern "C" fn close(frame: &Frame) -> Outcome {
    loading::closes(frame);
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    if is_hidden(frame.word(0)) {
        return Outcome::of(err(errno::EBADF));
    }
    if are_known() {
        PROCESS.pump.forget(frame.word(0));
    }
    Outcome::PASS
}

/// `dup2(2)`, `dup3(2)`: the target number names another file from now on.
pub extern "C" fn dup_to(frame: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    if is_hidden(frame.word(1)) {
        return Outcome::of(err(errno::EBADF));
    }
    if frame.word(0) != frame.word(1) && are_known() {
        PROCESS.pump.forget(frame.word(1));
    }
    Outcome::PASS
}

/// `close_range(2)`: around our own descriptors.
pub extern "C" fn close_range(frame: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last, flags) = (frame.word(0), frame.word(1), frame.word(2));
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Outcome::PASS; // the kernel says EINVAL
    }
    if flags & UNSHARE != 0
        && are_known()
        && let Err(errno) = credentials::unshare_files()
    {
        return Outcome::of(errno);
    }
    if are_known() {
        PROCESS.pump.forget_range(first, last);
    }
    let mut from = first;
    for own in PROCESS.own_descriptors() {
        if own < from || own > last {
            continue;
        }
        if own > from {
            // SAFETY: the program's own call, on a part of its range.
            let result = unsafe { sys!(nr::__NR_close_range, from, own - 1, flags & CLOEXEC) };
            if is_err(result) {
                return Outcome::of(result);
            }
        }
        from = own + 1;
    }
    if from > last {
        return Outcome::of(0);
    }
    // SAFETY: as above.
    Outcome::of(unsafe { sys!(nr::__NR_close_range, from, last, flags & CLOEXEC) })
}

/// `setsockopt(2)`: a time limit holds for later waits by any descriptor. An option that changes
/// how reads end makes the runtime classify the socket again.
pub extern "C" fn setsockopt(frame: &Frame) -> Outcome {
    match (frame.word(1) as usize, frame.word(2) as usize) {
        (SOL_SOCKET, 20 | 21 | 66 | 67) => {} // SO_RCVTIMEO and SO_SNDTIMEO, old and new
        (SOL_SOCKET, SO_RCVLOWAT) | (IPPROTO_TCP, TCP_ULP) if are_known() => {
            return set_reading(frame);
        }
        _ => return Outcome::PASS,
    }
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if !is_err(result) {
        let seconds = frame.user::<u64>(3).read().unwrap_or(u64::MAX);
        PROCESS.pump.limit_was_set((seconds as i64) < 0);
    }
    Outcome::of(result)
}

fn set_reading(frame: &Frame) -> Outcome {
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if let Some(entry) = PROCESS.pump.entry(frame.word(0)) {
        entry.set_kind(Kind::Unknown, false);
    }
    Outcome::of(result)
}
