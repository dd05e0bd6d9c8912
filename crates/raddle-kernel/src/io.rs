//! Reading, writing and connecting: try without blocking, wait in the pump, try again.
//!
//! A call on a regular file is [`files`]'s; one on a descriptor in non-blocking mode that isn't
//! ready is the kernel's. Results, partial transfers and errors are those of the blocking call.

use crate::boundary::{Frame, Outcome};
use crate::descriptors::{is_in_background, is_nonblocking, look_up};
use crate::files;
use crate::helped;
use crate::messages::{MOST_PIECES, Message, Vector, send_message, write_vector};
use crate::poll::ask_about;
use crate::signal::{self, Delivered};
use crate::time::millisecond_deadline;
use crate::user::{MOST_BYTES, is_reachable};
use core::sync::atomic::Ordering;
use raddle_engine::chaos::{self, Point};
use raddle_engine::pump::{Entry, IN, Kind, OUT, RDHUP};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE, switch};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::IoVec;
use raddle_sys::{err, errno, is_err, nr, sys};

pub(crate) const DONTWAIT: usize = 0x40;
const PEEK: usize = 2;
pub(crate) const WAITALL: usize = 0x100;
const OOB: usize = 1;
pub(crate) const NOWAIT: usize = 8; // RWF_NOWAIT
pub(crate) const EAGAIN: isize = err(errno::EAGAIN);
const EINTR: isize = err(errno::EINTR);
const EBADF: isize = err(errno::EBADF);

/// Emulated calls in a row after which a thread lets others run.
const CALLS_BEFORE_YIELD: u32 = 64;

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
}

impl Way {
    const fn events(self) -> u32 {
        match self {
            Way::In => IN | RDHUP,
            Way::Out => OUT,
        }
    }

    pub(crate) const fn kind(self) -> WaitKind {
        match self {
            Way::In => WaitKind::Read,
            Way::Out => WaitKind::Write,
        }
    }
}

/// A program whose calls never block must not keep the carrier for ever.
#[inline(always)]
pub fn count_call() {
    let carrier = Carrier::current();
    let calls = carrier.calls.get() + 1;
    carrier.calls.set(calls);
    if calls >= CALLS_BEFORE_YIELD {
        take_turns(carrier);
    }
}

#[cold]
fn take_turns(carrier: &Carrier) {
    carrier.calls.set(0);
    if carrier.attention.load(Ordering::Relaxed) != 0 {
        signal::route(); // what the call raised is for who made it
    }
    if !carrier.bound.load(Ordering::Relaxed).is_null() {
        return; // its CPU is the kernel's to share
    }
    switch::look_around(carrier);
    switch::yield_now();
}

/// When a wait on `entry` times out by `SO_RCVTIMEO` or `SO_SNDTIMEO`.
pub(crate) fn timeout(entry: &Entry, way: Way) -> u64 {
    match entry.timeouts_ms[way as usize].load(Ordering::Relaxed) {
        0 => NEVER,
        ms => millisecond_deadline(ms.min(i32::MAX as u32) as i32),
    }
}

/// What to do after a fruitless try.
pub(crate) enum Next {
    Again,
    /// Give this result.
    Done(isize),
    /// Let the kernel block.
    Kernel,
}

/// Waits until `fd` may be ready; `sequence` was read before the try.
pub(crate) fn wait_ready(fd: usize, way: Way, sequence: u32, deadline_ns: u64) -> Next {
    let thread = Carrier::current().thread();
    thread.waits_for(
        way.kind(),
        fd,
        if deadline_ns == NEVER { 0 } else { deadline_ns },
    );
    match ENGINE
        .pump
        .wait_one(fd as u32, way.events(), sequence, deadline_ns)
    {
        Ok(Wake::Woken | Wake::Retry) if thread.has_kept() => Next::Done(EBADF),
        Ok(Wake::Woken | Wake::Retry) => Next::Again,
        Ok(Wake::TimedOut) => Next::Done(EAGAIN),
        Ok(Wake::Signalled) => match signal::deliver() {
            Delivered::Interrupting => Next::Done(EINTR),
            Delivered::Nothing | Delivered::Restarting => Next::Again,
        },
        Err(_) => Next::Kernel,
    }
}

/// Chaos: no try is made; the wait is told the present state. In a terminal's background the try
/// itself does something: it stops the process.
#[cold]
fn skips_try(fd: usize, entry: &Entry) -> bool {
    ENGINE.pump.rearm(fd as u32);
    !is_nonblocking(fd) && entry.kind() != Kind::Terminal
}

/// Repeats `attempt` until it gives anything but EAGAIN, waiting in between.
#[inline(always)]
pub(crate) fn until_ready(
    fd: usize,
    entry: &Entry,
    way: Way,
    mut attempt: impl FnMut(u32) -> isize,
) -> Outcome {
    let mut deadline_ns = 0;
    loop {
        let sequence = entry.sequence();
        let result = if chaos::strikes(Point::Try) && skips_try(fd, entry) {
            EAGAIN
        } else {
            attempt(sequence)
        };
        if result != EAGAIN {
            count_call();
            entry.progress();
            return Outcome::of(result);
        }
        if deadline_ns == 0 {
            if is_nonblocking(fd) {
                return Outcome::of(EAGAIN);
            }
            deadline_ns = timeout(entry, way);
        }
        match wait_ready(fd, way, sequence, deadline_ns) {
            Next::Again => {}
            Next::Done(result) => return Outcome::of(result),
            Next::Kernel => return Outcome::PASS,
        }
    }
}

/// A descriptor's row and kind.
type Found<'a> = (&'a Entry, Kind);

/// Calls that any file has, made as those of a socket. A number that was closed behind our back,
/// and is a pipe now, says so by ENOTSOCK.
///
/// Not inlined: the handlers are small, so that a call that just passes saves no registers.
#[inline(never)]
fn as_what_it_is(frame: &Frame, found: Found, call: impl Fn(&Frame, Found) -> Outcome) -> Outcome {
    let outcome = call(frame, found);
    if outcome.is_value(EBADF) {
        return helped::by_kept(frame, outcome);
    }
    if !outcome.is_value(err(errno::ENOTSOCK)) {
        return outcome;
    }
    ENGINE.pump.forget(frame.arg(0) as u32);
    match look_up(frame.arg(0)) {
        Some(found) => call(frame, found),
        None => Outcome::PASS,
    }
}

/// `read(2)`.
pub extern "C" fn read(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => as_what_it_is(frame, found, read_as),
        None => files::read(frame),
    }
}

/// How many bytes `read` or `write` moves at most; `None` if the kernel refuses the buffer, which
/// the calls that are made in their place might not.
#[inline(always)]
fn bytes_of(buffer: usize, len: usize) -> Option<usize> {
    match len > MOST_BYTES {
        true => is_reachable(buffer, len).then_some(MOST_BYTES),
        false => Some(len),
    }
}

fn read_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer) = (frame.arg(0), frame.arg(1));
    let Some(len) = bytes_of(buffer, frame.arg(2)) else {
        return Outcome::PASS;
    };
    match kind {
        Kind::Stream => receive_stream(fd, entry, buffer, len),
        // SAFETY: the program's own buffer.
        Kind::Datagram => until_ready(fd, entry, Way::In, |_| unsafe {
            sys!(nr::__NR_recvfrom, fd, buffer, len, DONTWAIT)
        }),
        Kind::Pipe => {
            let vector = IoVec { base: buffer, len };
            read_vector(fd, entry, (&raw const vector).expose_provenance(), 1, len)
        }
        _ => when_ready(fd, entry, Way::In),
    }
}

/// A stream that was drained parks without a try; a short read drains it. What doesn't park has to
/// try: the event of what has come since may not have been taken yet.
#[inline(always)]
fn receive_stream(fd: usize, entry: &Entry, buffer: usize, len: usize) -> Outcome {
    let receive = |sequence| {
        // SAFETY: the program's own buffer.
        let got = unsafe { sys!(nr::__NR_recvfrom, fd, buffer, len, DONTWAIT) };
        if got > 0 && (got as usize) < len {
            entry.set_drained(sequence);
        }
        got
    };
    let mut untried = false;
    let outcome = until_ready(fd, entry, Way::In, |sequence| {
        untried = entry.is_drained(sequence);
        if untried { EAGAIN } else { receive(sequence) }
    });
    let has_timed_out = || timeout(entry, Way::In) != NEVER && !is_nonblocking(fd);
    if !untried || !outcome.is_value(EAGAIN) || has_timed_out() {
        return outcome;
    }
    count_call();
    entry.progress();
    Outcome::of(receive(entry.sequence()))
}

/// `readv(2)`.
pub extern "C" fn readv(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => as_what_it_is(frame, found, readv_as),
        None => files::read(frame),
    }
}

/// The pieces of a `readv` or `writev`; `None` if there are none, or too many for the kernel, which
/// takes no more than 32 bits of the number.
fn pieces_of(frame: &Frame) -> Option<usize> {
    let count = frame.word(2) as usize;
    (1..=MOST_PIECES).contains(&count).then_some(count)
}

fn readv_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, vector) = (frame.arg(0), frame.arg(1));
    let Some(count) = pieces_of(frame) else {
        return Outcome::PASS;
    };
    match kind {
        Kind::Stream | Kind::Datagram => {
            let message = Message::of_pieces(vector, count);
            let at = (&raw const message).expose_provenance();
            // SAFETY: the program's own vector.
            until_ready(fd, entry, Way::In, |_| unsafe {
                sys!(nr::__NR_recvmsg, fd, at, DONTWAIT)
            })
        }
        Kind::Pipe => read_vector(fd, entry, vector, count, usize::MAX),
        _ => when_ready(fd, entry, Way::In),
    }
}

fn read_vector(fd: usize, entry: &Entry, vector: usize, count: usize, len: usize) -> Outcome {
    if len == 0 {
        return Outcome::PASS;
    }
    let mut refused = false;
    let outcome = until_ready(fd, entry, Way::In, |_| {
        // SAFETY: the program's own buffers; offset -1 means the current position.
        let got = unsafe {
            sys!(
                nr::__NR_preadv2,
                fd,
                vector,
                count,
                -1isize,
                -1isize,
                NOWAIT
            )
        };
        refused = got == err(errno::EOPNOTSUPP);
        got
    });
    if refused {
        when_ready(fd, entry, Way::In)
    } else {
        outcome
    }
}

/// Polls, then lets the kernel do the call: for what has no non-blocking form.
pub(crate) fn when_ready(fd: usize, entry: &Entry, way: Way) -> Outcome {
    let ready = until_ready(fd, entry, way, |_| {
        let events = if way == Way::In { 1 } else { 4 };
        match ask_about(fd, events) {
            0 if is_nonblocking(fd) => 1,
            // The kernel stops the process, or says EIO.
            0 if way == Way::In && entry.kind() == Kind::Terminal && is_in_background(fd) => 1,
            0 => EAGAIN,
            _ => 1,
        }
    });
    if ready.is_value(1) {
        Outcome::PASS
    } else {
        ready
    }
}

/// `write(2)`.
pub extern "C" fn write(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => as_what_it_is(frame, found, write_as),
        None => files::write(frame),
    }
}

fn write_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer) = (frame.arg(0), frame.arg(1));
    let Some(len) = bytes_of(buffer, frame.arg(2)) else {
        return Outcome::PASS;
    };
    match kind {
        // SAFETY: the program's own buffer.
        Kind::Stream => send_all(fd, entry, len, |done| unsafe {
            let flags = DONTWAIT | silent_after(done);
            sys!(
                nr::__NR_sendto,
                fd,
                buffer.wrapping_add(done),
                len - done,
                flags
            )
        }),
        // SAFETY: as above.
        Kind::Datagram => until_ready(fd, entry, Way::Out, |_| unsafe {
            sys!(nr::__NR_sendto, fd, buffer, len, DONTWAIT)
        }),
        Kind::Pipe if len != 0 => {
            let mut refused = false;
            let outcome = send_all(fd, entry, len, |done| {
                let vector = IoVec {
                    base: buffer.wrapping_add(done),
                    len: len - done,
                };
                let at = &raw const vector;
                // SAFETY: as above; offset -1 means the current position.
                let put =
                    unsafe { sys!(nr::__NR_pwritev2, fd, at, 1usize, -1isize, -1isize, NOWAIT) };
                refused = put == err(errno::EOPNOTSUPP);
                put
            });
            if refused {
                when_ready(fd, entry, Way::Out)
            } else {
                outcome
            }
        }
        Kind::Pipe => Outcome::PASS,
        _ => when_ready(fd, entry, Way::Out),
    }
}

/// After a part that a socket has taken, an error raises no SIGPIPE: the part is the result.
pub(crate) const fn silent_after(done: usize) -> usize {
    const NOSIGNAL: usize = 0x4000;
    if done > 0 { NOSIGNAL } else { 0 }
}

/// A blocking write goes on until everything is out, or an error or a signal comes after a part.
pub(crate) fn send_all(
    fd: usize,
    entry: &Entry,
    len: usize,
    mut put: impl FnMut(usize) -> isize,
) -> Outcome {
    let mut done = 0usize;
    let mut nonblocking = None;
    let outcome = until_ready(fd, entry, Way::Out, |_| {
        loop {
            let result = put(done);
            if is_err(result) {
                return if done > 0 && result != EAGAIN {
                    done as isize
                } else {
                    result
                };
            }
            done += result as usize;
            if done >= len || result == 0 {
                return done as isize;
            }
            if *nonblocking.get_or_insert_with(|| is_nonblocking(fd)) {
                return done as isize;
            }
        }
    });
    part_or(done, outcome)
}

/// Interrupted, timed out or closed after a part: the part counts.
fn part_or(done: usize, outcome: Outcome) -> Outcome {
    if done > 0 && !outcome.is_pass() {
        Outcome::of(done as isize)
    } else {
        outcome
    }
}

/// `writev(2)`.
pub extern "C" fn writev(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => as_what_it_is(frame, found, writev_as),
        None => files::write(frame),
    }
}

fn writev_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let fd = frame.arg(0);
    if !matches!(kind, Kind::Stream | Kind::Datagram | Kind::Pipe) {
        return when_ready(fd, entry, Way::Out);
    }
    let mut vector = Vector::new();
    let copied = pieces_of(frame).and_then(|count| vector.copy(frame.user(1), count));
    if copied.is_none() {
        return Outcome::PASS; // the kernel finds the right errno
    }
    match kind {
        Kind::Pipe => write_vector(fd, entry, &vector),
        _ => send_message(fd, entry, &Message::of_vector(&vector), &vector, 0),
    }
}

/// `recvfrom(2)`.
pub extern "C" fn recvfrom(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => helped::by_kept(frame, recvfrom_as(frame, found)),
        None => Outcome::PASS,
    }
}

#[inline(never)]
fn recvfrom_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer, flags) = (frame.arg(0), frame.arg(1), frame.arg(3));
    let len = frame.arg(2).min(MOST_BYTES);
    if flags & DONTWAIT != 0 {
        return Outcome::PASS;
    }
    if flags == 0 && kind == Kind::Stream && frame.arg(4) == 0 {
        return receive_stream(fd, entry, buffer, len);
    }
    let mut done = 0;
    let whole = flags & WAITALL != 0 && flags & PEEK == 0 && kind == Kind::Stream;
    if whole && frame.arg(4) != 0 {
        return helped::on_helper(frame); // the sender's address is written once, at the end
    }
    let outcome = until_ready(fd, entry, Way::In, |_| {
        loop {
            let flags = flags & !WAITALL | DONTWAIT;
            let (from, from_len) = (frame.arg(4), frame.arg(5));
            // SAFETY: the program's own buffers.
            let got = unsafe {
                sys!(
                    nr::__NR_recvfrom,
                    fd,
                    buffer.wrapping_add(done),
                    len - done,
                    flags,
                    from,
                    from_len
                )
            };
            if is_err(got) {
                return if done > 0 && got != EAGAIN {
                    done as isize
                } else {
                    got
                };
            }
            done += got as usize;
            if !whole || got == 0 || done >= len {
                return done as isize;
            }
        }
    });
    part_or(done, outcome)
}

/// `sendto(2)`.
pub extern "C" fn sendto(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => helped::by_kept(frame, sendto_as(frame, found)),
        None => Outcome::PASS,
    }
}

#[inline(never)]
fn sendto_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer, flags) = (frame.arg(0), frame.arg(1), frame.arg(3));
    let len = frame.arg(2).min(MOST_BYTES);
    if flags & DONTWAIT != 0 {
        return Outcome::PASS;
    }
    let (to, to_len) = (frame.arg(4), frame.arg(5));
    // SAFETY: the program's own buffers.
    let put = |done: usize| unsafe {
        sys!(
            nr::__NR_sendto,
            fd,
            buffer.wrapping_add(done),
            len - done,
            flags | DONTWAIT | silent_after(done),
            to,
            to_len
        )
    };
    if kind == Kind::Stream && flags & OOB == 0 {
        send_all(fd, entry, len, put)
    } else {
        until_ready(fd, entry, Way::Out, |_| put(0))
    }
}
