//! Reading and writing files: most calls find their data in memory, some wait for a disk.
//!
//! Nothing tells beforehand which calls wait. So each descriptor has a *pace*, one for reads and
//! one for writes:
//!
//! 1. *Quick*: the call is made as it is, and timed. A call that took longer than its bytes explain
//!    has held up the carrier. The descriptor is then suspected; it is slow at once if its calls
//!    can be tried (`pread64`) or always wait (O_DIRECT).
//! 2. *Suspected*: as quick. The slow call may have met an interrupt, or another process that had
//!    the CPU. A second slow call soon after makes the descriptor slow; without one it is quick
//!    again.
//! 3. *Slow*: `pread64` is tried by RWF_NOWAIT, and once more when its pages should be in memory. A
//!    read that still fails, and every other call, goes to the ring (`pread64`, `pwrite64`) or to a
//!    helper. Such a call isn't divided, so that the kernel's rules of positions, appends and locks
//!    hold.
//! 4. *Direct*: slow and past the page cache (O_DIRECT). The thread itself submits reads with a
//!    position. A read that the kernel refuses to submit is made as on a slow descriptor.
//! 5. After enough calls in a row that didn't wait, the descriptor is quick again. One such call is
//!    enough if none has waited since the second slow one.
//!
//! Two readings of the time stamp counter cost half of what RWF_NOWAIT adds to a read from memory.
//! A call at the file's own position isn't tried: RWF_NOWAIT returns a part if only a part is in
//! memory. A second call for the rest would read from another position if another thread has read
//! in between.

use crate::fd::descriptors::{disk, is_direct};
use crate::fd::helped;
use crate::fd::io::RWF_NOWAIT;
use crate::fd::waiting::{EAGAIN, Way, count_call};
use crate::frame::{Frame, Outcome};
use crate::procfs;
use crate::user::{self, MOST_BYTES, User};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::timestamp;
use raddle_engine::direct::DirectRead;
use raddle_engine::pump::Entry;
use raddle_engine::ring::Work;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS};
use raddle_sys::abi::IoVec;
use raddle_sys::mem::PAGE_SIZE;
use raddle_sys::{err, errno, is_err, nr, sys};

/// The most bytes of a transfer by the ring. For larger ones the switches to a helper don't matter.
const RING_MOST: usize = 256 * 1024;

/// The pace of a quick descriptor. Another pace is the number of tries that must succeed before the
/// descriptor is quick, with the marks below.
const QUICK: u32 = 0;
const SLOW: u32 = 64;
/// The pace after four tries in a row that have waited: the next 16 calls have no try.
const BLIND: u32 = SLOW + 16;
/// Mark: slow, and past the page cache (O_DIRECT), where every try waits.
const DIRECT: u32 = 1 << 16;
/// Mark: suspected; the count is of the calls that will still be watched.
const SUSPECTED: u32 = 1 << 17;
/// Mark, counted up to three: so many of the last tries have waited.
const DOUBT: u32 = 1 << 18;
const DOUBTED: u32 = 3 * DOUBT;
/// The bits of the marks; the others are the count.
const MARKS: u32 = DIRECT | SUSPECTED | DOUBTED;
/// The number of calls that are watched after a slow one: more than the pages of one reading ahead
/// (128 KiB).
const WATCHED: u32 = 64;
/// The number of tries that a call of a helper's counts for, if it didn't wait: it costs more than
/// they do.
const HELPED: u32 = 16;

/// The time stamp ticks that a call may take without being slow: some 20 us.
const CALL_TICKS: u64 = 50_000;
/// The ticks that it may take more for each byte, copied through caches at a third of a memory's
/// speed.
const BYTE_TICKS: u64 = 3;

/// Returns true if a call that gave `result` waited.
#[inline(always)]
pub fn waited(ticks: u64, result: isize) -> bool {
    ticks > CALL_TICKS && ticks > CALL_TICKS + BYTE_TICKS * result.max(0) as u64
}

/// `read(2)`, `readv(2)`, `preadv(2)` and `preadv2(2)` of files.
#[inline(always)]
pub extern "C" fn read(frame: &Frame) -> Outcome {
    match disk(frame.arg(0)) {
        Some(entry) => paced(frame, entry, Way::In),
        None => Outcome::PASS,
    }
}

/// `write(2)` and its family on files.
#[inline(always)]
pub extern "C" fn write(frame: &Frame) -> Outcome {
    match disk(frame.arg(0)) {
        Some(entry) => paced(frame, entry, Way::Out),
        None if frame.number() == nr::__NR_write => procfs::write(frame),
        None => Outcome::PASS,
    }
}

/// `pread64(2)`.
pub extern "C" fn pread(frame: &Frame) -> Outcome {
    match disk(frame.arg(0)) {
        Some(entry) if entry.pace[Way::In as usize].load(Ordering::Relaxed) == QUICK => {
            quickly(frame, entry, Way::In)
        }
        // The kernel cuts larger reads short.
        Some(entry) if frame.arg(2) > MOST_BYTES => slowly(frame, entry, Way::In),
        Some(entry) => pread_slowly(frame, entry, false),
        None => Outcome::PASS,
    }
}

/// `preadv(2)`.
pub extern "C" fn preadv(frame: &Frame) -> Outcome {
    match disk(frame.arg(0)) {
        Some(entry) if entry.pace[Way::In as usize].load(Ordering::Relaxed) & DIRECT != 0 => {
            pread_slowly(frame, entry, true)
        }
        Some(entry) => paced(frame, entry, Way::In),
        None => Outcome::PASS,
    }
}

/// `sendfile(2)` from a file to a descriptor that isn't waited for.
pub fn send(frame: &Frame, from: usize) -> Outcome {
    match disk(from) {
        Some(entry) => paced(frame, entry, Way::In),
        None => Outcome::PASS,
    }
}

#[inline(always)]
fn paced(frame: &Frame, entry: &Entry, way: Way) -> Outcome {
    match entry.pace[way as usize].load(Ordering::Relaxed) {
        QUICK => quickly(frame, entry, way),
        pace if pace & SUSPECTED != 0 => watched(frame, entry, way),
        _ => slowly(frame, entry, way),
    }
}

/// Makes a call on a suspected descriptor.
#[inline(never)]
fn watched(frame: &Frame, entry: &Entry, way: Way) -> Outcome {
    quicken(&entry.pace[way as usize], 1);
    quickly(frame, entry, way)
}

#[inline(always)]
fn quickly(frame: &Frame, entry: &Entry, way: Way) -> Outcome {
    let began = timestamp();
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if waited(timestamp().wrapping_sub(began), result) {
        strike(frame, entry, way);
    }
    Outcome::of(result)
}

/// Changes the pace after a call that has taken too long.
#[cold]
fn strike(frame: &Frame, entry: &Entry, way: Way) {
    let pace = &entry.pace[way as usize];
    let known = pace.load(Ordering::Relaxed);
    let next = match frame.number() {
        nr::__NR_pread64 => SLOW,
        _ if known == QUICK => SUSPECTED | WATCHED,
        _ if known & SUSPECTED != 0 => HELPED,
        _ => SLOW,
    };
    pace.store(pace_of(frame, next), Ordering::Relaxed);
}

/// Returns the pace of a descriptor that has become slow: `slow`, or another one past the page
/// cache.
fn pace_of(frame: &Frame, slow: u32) -> u32 {
    if is_direct(frame.arg(0)) {
        DIRECT | SLOW
    } else {
        slow
    }
}

/// Makes a call on a slow descriptor: by a direct read or a try; if neither gives a result, by the
/// ring or a helper.
#[inline(never)]
fn pread_slowly(frame: &Frame, entry: &Entry, is_vector: bool) -> Outcome {
    let pace = &entry.pace[Way::In as usize];
    let known = pace.load(Ordering::Relaxed);
    if known & DIRECT != 0 {
        if let Some(outcome) = pread_directly(frame, pace, is_vector) {
            return outcome;
        }
        if !is_direct(frame.arg(0)) {
            pace.store(SLOW, Ordering::Relaxed); // not any more
        }
    }
    if known & !(SUSPECTED | DOUBTED) > SLOW || is_vector {
        return slowly(frame, entry, Way::In);
    }
    let began = timestamp();
    let got = try_pread(frame);
    if waited(timestamp().wrapping_sub(began), got) {
        doubt(frame, pace);
    } else if got != EAGAIN {
        quicken(pace, 1);
    } else if known & DOUBTED != 0 {
        pace.fetch_and(!DOUBTED, Ordering::Relaxed);
    }
    if got == EAGAIN
        && known & DIRECT == 0
        && let Some(outcome) = pread_once_there(frame, pace)
    {
        return outcome;
    }
    if got == EAGAIN || got == err(errno::EOPNOTSUPP) {
        return slowly(frame, entry, Way::In);
    }
    count_call();
    Outcome::of(got)
}

/// Notes a try that has taken too long. It has waited, or an interrupt or another process has held
/// it up. Delays of the second kind are rare, so four such tries in a row count as waits.
#[cold]
fn doubt(frame: &Frame, pace: &AtomicU32) {
    let next = match pace.load(Ordering::Relaxed) & DOUBTED {
        DOUBTED => BLIND,
        doubted => (doubted + DOUBT) | SLOW,
    };
    pace.store(pace_of(frame, next), Ordering::Relaxed);
}

/// Returns the result of a read past the cache; `None` if the kernel refuses it, or gives a part.
fn pread_directly(frame: &Frame, pace: &AtomicU32, is_vector: bool) -> Option<Outcome> {
    let [fd, address, len, offset, ..] = frame.args();
    let whole = if is_vector {
        vector_len(address, len)?
    } else {
        len
    };
    if (offset as isize) < 0 {
        return None; // an error, which the call itself tells
    }
    Carrier::current().thread().waits_for(Way::In.kind(), fd, 0);
    let read = DirectRead {
        fd: fd as u32,
        is_vector,
        address,
        len,
        offset: offset as u64,
    };
    // SAFETY: the program's own call.
    let (result, ticks) = unsafe { PROCESS.direct.read(read) }?;
    if result < 0 || (result as usize) < whole {
        return None;
    }
    note(pace, waited(ticks, result));
    Some(Outcome::of(result))
}

/// Returns how many bytes a vector asks for; `None` for a long vector, or one that can't be read.
fn vector_len(at: usize, count: usize) -> Option<usize> {
    const MOST: usize = 64;
    if count > MOST {
        return None;
    }
    let piece = |index: usize| User::<IoVec>::at(at).index(index).read();
    (0..count).try_fold(0usize, |sum, index| sum.checked_add(piece(index).ok()?.len))
}

/// Waits for the last page, and tries again, after a try that has started the disk's read. `None`
/// if the page can't be waited for, or the second try fails.
fn pread_once_there(frame: &Frame, pace: &AtomicU32) -> Option<Outcome> {
    const TRIES: usize = 2;
    let [fd, _, len, offset, ..] = frame.args();
    let last = offset.checked_add(len.checked_sub(1)?)?;
    if len > RING_MOST || (last as isize) < 0 {
        return None;
    }
    note(pace, true);
    let mut tries = 0;
    while tries < TRIES {
        let thread = Carrier::current().thread();
        thread.waits_for(WaitKind::PAGE, fd, 0);
        let answer = PROCESS.pages.wait(fd as u32, last as u64);
        if let Some(outcome) = helped::run_with_first_file(frame) {
            return Some(outcome);
        }
        tries += usize::from(answer?);
        let got = try_pread(frame);
        if got != EAGAIN {
            return Some(Outcome::of(got));
        }
    }
    None
}

/// Returns the whole result of `pread64`; EAGAIN if a part of it isn't in memory.
fn try_pread(frame: &Frame) -> isize {
    let [fd, base, len, offset, ..] = frame.args();
    if offset as isize == -1 {
        return EAGAIN; // an error, which would mean the current position here
    }
    let part = |done: usize| {
        let vector = IoVec {
            base: base.wrapping_add(done),
            len: len - done,
        };
        let (at, offset) = (&raw const vector, offset.wrapping_add(done));
        // SAFETY: the program's own buffer.
        unsafe { sys!(nr::__NR_preadv2, fd, at, 1usize, offset, 0usize, RWF_NOWAIT) }
    };
    let got = part(0);
    if is_err(got) || got as usize >= len {
        return got;
    }
    // A part: is it the end of the file?
    if part(got as usize) == 0 { got } else { EAGAIN }
}

/// Lowers the pace by `steps`, after a call that didn't wait.
fn quicken(pace: &AtomicU32, steps: u32) {
    let known = pace.load(Ordering::Relaxed);
    let how = known & (DIRECT | SUSPECTED);
    let left = match (known & !MARKS).min(SLOW).saturating_sub(steps) {
        0 => QUICK,
        left => how | left,
    };
    pace.store(left, Ordering::Relaxed);
}

/// Notes whether a call that didn't hold the carrier has waited.
fn note(pace: &AtomicU32, has_waited: bool) {
    if !has_waited {
        return quicken(pace, HELPED);
    }
    let known = pace.load(Ordering::Relaxed);
    let left = (known & !MARKS).saturating_sub(1).max(SLOW);
    pace.store(known & (DIRECT | DOUBTED) | left, Ordering::Relaxed);
}

#[inline(never)]
fn slowly(frame: &Frame, entry: &Entry, way: Way) -> Outcome {
    let is_extended = matches!(frame.number(), nr::__NR_preadv2 | nr::__NR_pwritev2);
    if is_extended && frame.arg(5) & RWF_NOWAIT != 0 {
        return Outcome::PASS;
    }
    let pace = &entry.pace[way as usize];
    let thread = Carrier::current().thread();
    thread.waits_for(way.kind(), frame.arg(0), 0);
    let (result, ticks) = match by_ring(frame) {
        Some(answer) => answer,
        // SAFETY: the program's own call.
        None => unsafe { PROCESS.helpers.call_patiently(frame.number(), frame.args()) },
    };
    note(pace, waited(ticks, result));
    // The kernel sends the signal for a write beyond RLIMIT_FSIZE, or without a reader, to the
    // calling kernel thread. EAGAIN means that there is no helper, or that the call doesn't wait.
    if result == err(errno::EFBIG) || result == err(errno::EPIPE) || result == EAGAIN {
        return quickly(frame, entry, way);
    }
    Outcome::of(result)
}

/// Returns the ring's result of a call that names a place in the file.
fn by_ring(frame: &Frame) -> Option<(isize, u64)> {
    let [fd, address, len, offset, ..] = frame.args();
    let is_write = match frame.number() {
        nr::__NR_pread64 => false,
        nr::__NR_pwrite64 => true,
        _ => return None,
    };
    if (offset as isize) < 0 || len > RING_MOST || !is_at_hand(address, len, !is_write) {
        return None;
    }
    let work = Work {
        is_write,
        fd: fd as u32,
        address,
        len: len as u32,
        offset: offset as u64,
    };
    // SAFETY: the program's own call.
    let (result, ticks) = unsafe { PROCESS.ring.transfer(work) }?;
    // A part may be the end of the file, or not: the call itself says.
    let is_part = !is_write && result >= 0 && (result as usize) < len;
    let is_refused = result == EAGAIN || result == err(errno::EOPNOTSUPP);
    (!is_part && !is_refused).then_some((result, ticks))
}

/// Brings the pages of a buffer into memory: other threads' transfers on the ring, and the thread
/// that may have to provide these pages, must not wait for them. Returns false for a bad address.
fn is_at_hand(address: usize, len: usize, to_write: bool) -> bool {
    let end = address.saturating_add(len);
    let mut at = address;
    while at < end {
        let word = at & !3;
        // A word that is 0 becomes 0; any other stays.
        let touched = if to_write {
            user::exchange(word, 0, 0)
        } else {
            user::load(word)
        };
        if touched.is_err() {
            return false;
        }
        at = (at | (PAGE_SIZE - 1)).saturating_add(1);
    }
    true
}
