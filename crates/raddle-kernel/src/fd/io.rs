//! Reading, writing and connecting: try without blocking, wait in the pump, try again.
//!
//! [`files`] serves a call on a regular file. The kernel serves a call on a descriptor in
//! non-blocking mode that isn't ready, and a call that it answers at once whatever there is to
//! read: of no bytes, or with an impossible length or vector. Results, partial transfers and errors
//! are those of the blocking call.

use crate::fd::descriptors::{at_urgent_mark, is_nonblocking, is_timer, look_up, unread};
use crate::fd::messages::{Message, send_message, write_vector};
use crate::fd::poll::state_of;
use crate::fd::waiting::{
    EAGAIN, EINTR, Wait, Way, begin_read, count_call, count_write, is_read_by_kernel, part_or,
    perhaps_on_helper, repeat, until_ready, when_ready,
};
use crate::fd::{files, helped};
use crate::frame::{Frame, Outcome};
use crate::user::vectors::{self, MOST_PIECES, Vector};
use crate::user::{MOST_BYTES, User, is_reachable};
use raddle_engine::PROCESS;
use raddle_engine::pump::{Entry, IN, Kind, Limit, OUT, PRI};
use raddle_sys::abi::IoVec;
use raddle_sys::{err, errno, is_err, nr, sys};

pub(crate) const DONTWAIT: usize = 0x40;
const PEEK: usize = 2;
pub(crate) const WAITALL: usize = 0x100;
pub(crate) const OOB: usize = 1;
pub(crate) const ERRQUEUE: usize = 0x2000;
pub(crate) const RWF_NOWAIT: usize = nr::RWF_NOWAIT as usize;
const ENOTSOCK: isize = err(errno::ENOTSOCK);

/// A descriptor's row and kind.
type Found<'a> = (&'a Entry, Kind);

/// Calls that any file has, made as those of a socket. ENOTSOCK means that the number was closed
/// without the runtime's knowledge, and is no socket now.
///
/// Not inlined: the handlers are small, so that a call that just passes saves no registers.
#[inline(never)]
fn serve_by_kind(frame: &Frame, found: Found, call: impl Fn(&Frame, Found) -> Outcome) -> Outcome {
    let outcome = call(frame, found);
    match outcome.value() {
        Some(0..) => outcome,
        Some(ENOTSOCK) => {
            PROCESS.pump.forget(frame.arg(0) as u32);
            match look_up(frame.arg(0)) {
                Some(found) => helped::finish(frame, call(frame, found)),
                None => Outcome::PASS,
            }
        }
        _ => helped::finish(frame, outcome),
    }
}

/// Returns true if the kernel refuses or answers a transfer of `len` bytes before it waits.
#[inline(always)]
fn is_odd(buffer: usize, len: usize) -> bool {
    len as isize <= 0 || !is_reachable(buffer, len)
}

/// `read(2)`.
pub extern "C" fn read(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => serve_by_kind(frame, found, read_as),
        None => files::read(frame),
    }
}

/// Returns how many bytes `read` or `write` moves at most; `None` if the kernel refuses the buffer:
/// the calls that are made in their place might not.
#[inline(always)]
fn bytes_of(buffer: usize, len: usize) -> Option<usize> {
    if len > MOST_BYTES {
        is_reachable(buffer, len).then_some(MOST_BYTES)
    } else {
        Some(len)
    }
}

fn read_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer) = (frame.arg(0), frame.arg(1));
    if is_read_by_kernel(entry, kind) {
        return Outcome::PASS;
    }
    let Some(len @ 1..) = bytes_of(buffer, frame.arg(2)) else {
        return Outcome::PASS;
    };
    if kind == Kind::Stream {
        return receive_stream(fd, entry, buffer, len);
    }
    match kind {
        // SAFETY: the program's own buffer.
        Kind::Datagram => until_ready(fd, entry, Way::In, |_| unsafe {
            sys!(nr::__NR_recvfrom, fd, buffer, len, DONTWAIT)
        }),
        Kind::Pipe | Kind::Counter => {
            let vector = IoVec { base: buffer, len };
            read_vector(fd, entry, (&raw const vector).expose_provenance(), 1, len)
        }
        Kind::Device => perhaps_on_helper(fd, Way::In),
        _ if is_odd(buffer, len) => Outcome::PASS,
        _ => when_ready(fd, entry, Way::In),
    }
}

/// Returns true if a read of `len` bytes that doesn't wait has left a TCP socket empty.
const fn has_drained(got: isize, len: usize) -> bool {
    got == EAGAIN || got > 0 && (got as usize) < len
}

/// A stream that was drained parks without a try; a short read drains it. A call that doesn't park
/// has to try: an event for later data may not have been taken yet.
#[inline(always)]
fn receive_stream(fd: usize, entry: &Entry, buffer: usize, len: usize) -> Outcome {
    begin_read();
    let receive = |sequence| {
        // SAFETY: the program's own buffer.
        let got = unsafe { sys!(nr::__NR_recvfrom, fd, buffer, len, DONTWAIT) };
        if has_drained(got, len) {
            entry.set_drained(sequence);
        }
        got
    };
    let mut untried = false;
    let mut wait = Wait::new(Way::In);
    let outcome = repeat(fd, entry, &mut wait, |sequence, _| {
        untried = entry.is_drained(sequence) && !is_odd(buffer, len);
        if untried { EAGAIN } else { receive(sequence) }
    });
    if !untried || wait.has_begun() || !outcome.is_value(EAGAIN) {
        return outcome;
    }
    count_call();
    entry.progress();
    Outcome::of(receive(entry.sequence()))
}

/// `readv(2)`.
pub extern "C" fn readv(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => serve_by_kind(frame, found, readv_as),
        None => files::read(frame),
    }
}

/// Returns the pieces of a `readv` or `writev`; `None` if there are none, or too many for the
/// kernel, which reads 32 bits of the number.
fn pieces_of(frame: &Frame) -> Option<usize> {
    let count = frame.word(2) as usize;
    (1..=MOST_PIECES).contains(&count).then_some(count)
}

fn readv_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, vector) = (frame.arg(0), frame.arg(1));
    if is_read_by_kernel(entry, kind) {
        return Outcome::PASS;
    }
    let Some(count) = pieces_of(frame) else {
        return Outcome::PASS;
    };
    match kind {
        Kind::Stream | Kind::Datagram => {
            if !vectors::begins_well(User::at(vector), count) {
                return Outcome::PASS;
            }
            let message = Message::of_pieces(vector, count);
            let at = (&raw const message).expose_provenance();
            // SAFETY: the program's own vector.
            until_ready(fd, entry, Way::In, |_| unsafe {
                sys!(nr::__NR_recvmsg, fd, at, DONTWAIT)
            })
        }
        Kind::Device => perhaps_on_helper(fd, Way::In),
        _ => match vectors::whole_len(User::at(vector), count) {
            Some(len) if matches!(kind, Kind::Pipe | Kind::Counter) => {
                read_vector(fd, entry, vector, count, len)
            }
            Some(_) => when_ready(fd, entry, Way::In),
            None => Outcome::PASS,
        },
    }
}

/// Reads a descriptor with a non-blocking `read`. Kernels before 6.10 have none for some counters.
fn read_vector(fd: usize, entry: &Entry, vector: usize, count: usize, len: usize) -> Outcome {
    const RECORD: usize = 128; // the longest that any of them reads at once
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
                RWF_NOWAIT
            )
        };
        refused = got == err(errno::EOPNOTSUPP);
        got
    });
    if !refused {
        return outcome;
    }
    let is_short = || len < RECORD && (len < size_of::<u64>() || !is_timer(fd));
    if entry.kind() == Kind::Counter && is_short() {
        return perhaps_on_helper(fd, Way::In);
    }
    when_ready(fd, entry, Way::In)
}

/// `write(2)`.
pub extern "C" fn write(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => serve_by_kind(frame, found, write_as),
        None => files::write(frame),
    }
}

fn write_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer) = (frame.arg(0), frame.arg(1));
    let Some(len) = bytes_of(buffer, frame.arg(2)) else {
        return Outcome::PASS;
    };
    let mut wait = Wait::new(Way::Out);
    if kind == Kind::Stream {
        // SAFETY: the program's own buffer.
        return send_all(fd, entry, &mut wait, len, |done| unsafe {
            let flags = DONTWAIT | silent_after(done);
            sys!(
                nr::__NR_sendto,
                fd,
                buffer.wrapping_add(done),
                len - done,
                flags
            )
        });
    }
    match kind {
        // SAFETY: as above.
        Kind::Datagram => until_ready(fd, entry, Way::Out, |_| unsafe {
            sys!(nr::__NR_sendto, fd, buffer, len, DONTWAIT)
        }),
        Kind::Pipe | Kind::Terminal if is_odd(buffer, len) => Outcome::PASS,
        Kind::Pipe => {
            let mut refused = false;
            let outcome = send_all(fd, entry, &mut wait, len, |done| {
                let vector = IoVec {
                    base: buffer.wrapping_add(done),
                    len: len - done,
                };
                let at = &raw const vector;
                // SAFETY: as above; offset -1 means the current position.
                let put = unsafe {
                    sys!(
                        nr::__NR_pwritev2,
                        fd,
                        at,
                        1usize,
                        -1isize,
                        -1isize,
                        RWF_NOWAIT
                    )
                };
                refused = put == err(errno::EOPNOTSUPP);
                put
            });
            if refused {
                when_ready(fd, entry, Way::Out)
            } else {
                outcome
            }
        }
        Kind::Terminal => match when_ready(fd, entry, Way::Out) {
            Outcome::PASS => write_on(frame),
            outcome => outcome,
        },
        _ => perhaps_on_helper(fd, Way::Out),
    }
}

/// `write` to a terminal, which takes a part when a signal comes. If that was one of the runtime's
/// signals, a helper writes the rest.
fn write_on(frame: &Frame) -> Outcome {
    let mut args = frame.args();
    // SAFETY: the program's own call.
    let put = unsafe { frame.raw() };
    let is_cut_short = put == EINTR || put >= 0 && (put as usize) < args[2];
    if !is_cut_short || is_nonblocking(args[0]) {
        return Outcome::of(put);
    }
    let done = put.max(0) as usize;
    (args[1], args[2]) = (args[1] + done, args[2] - done);
    match helped::call_on_helper(frame, args).value() {
        Some(rest @ 0..) => Outcome::of((done as isize) + rest),
        Some(error) => part_or(done, Outcome::of(error)),
        None => Outcome::of(done as isize),
    }
}

/// The events of a socket with an error. The error is for the next call: a call that has moved a
/// part leaves the error in the socket.
const BROKEN: i16 = 8 | 0x10; // POLLERR and POLLHUP

/// Whether a socket that has taken a part has room for more.
enum Room {
    Some,
    None,
    /// It has an error, which is the next call's.
    Broken,
}

#[cold]
fn room(fd: usize, entry: &Entry, wait: &Wait) -> Room {
    if entry.kind() != Kind::Stream || !wait.has_moved() && !entry.has_ended() {
        return Room::Some; // a try finds out
    }
    match state_of(fd, OUT as i16) {
        0 => Room::None,
        state if state & BROKEN != 0 => Room::Broken,
        _ => Room::Some,
    }
}

/// After a part that a socket has taken, an error raises no SIGPIPE: the part is the result.
pub(crate) const fn silent_after(done: usize) -> usize {
    const NOSIGNAL: usize = 0x4000;
    if done > 0 { NOSIGNAL } else { 0 }
}

/// A blocking write goes on until everything is out, or an error or a signal comes after a part.
/// `len` is what one call transfers at most.
pub(crate) fn send_all(
    fd: usize,
    entry: &Entry,
    wait: &mut Wait,
    len: usize,
    mut put: impl FnMut(usize) -> isize,
) -> Outcome {
    let mut done = 0usize;
    let mut nonblocking = None;
    let outcome = repeat(fd, entry, wait, |_, wait| {
        loop {
            if wait.has_part() {
                match room(fd, entry, wait) {
                    Room::Some => {}
                    Room::None => return EAGAIN,
                    Room::Broken => return done as isize,
                }
            }
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
            wait.moved_part();
        }
    });
    part_or(done, outcome)
}

/// `writev(2)`.
pub extern "C" fn writev(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => serve_by_kind(frame, found, writev_as),
        None => files::write(frame),
    }
}

fn writev_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let fd = frame.arg(0);
    let mut vector = Vector::new();
    let copied = pieces_of(frame).and_then(|count| vector.copy(frame.user(1), count));
    if copied.is_none() {
        return Outcome::PASS; // the kernel finds the right errno
    }
    match kind {
        Kind::Stream | Kind::Datagram if vector.begins_well() => {
            send_message(fd, entry, &Message::of_vector(&vector), &vector, 0)
        }
        Kind::Pipe | Kind::Terminal if vector.whole_len().is_some() => match kind {
            Kind::Pipe => write_vector(fd, entry, &vector),
            _ => when_ready(fd, entry, Way::Out),
        },
        Kind::Stream | Kind::Datagram | Kind::Pipe | Kind::Terminal => Outcome::PASS,
        _ => perhaps_on_helper(fd, Way::Out),
    }
}

/// `preadv2(2)`: at the current position it is a `readv`.
pub extern "C" fn preadv2(frame: &Frame) -> Outcome {
    if is_here(frame) {
        readv(frame)
    } else {
        files::read(frame)
    }
}

/// `pwritev2(2)`: at the current position it is a `writev`.
pub extern "C" fn pwritev2(frame: &Frame) -> Outcome {
    if is_here(frame) {
        writev(frame)
    } else {
        files::write(frame)
    }
}

fn is_here(frame: &Frame) -> bool {
    let [.., position, _, flags] = frame.args();
    position as isize == -1 && flags as u32 == 0
}

/// `recvfrom(2)`.
pub extern "C" fn recvfrom(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => helped::finish(frame, recvfrom_as(frame, found)),
        None => Outcome::PASS,
    }
}

#[inline(never)]
fn recvfrom_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer, len, flags) = (frame.arg(0), frame.arg(1), frame.arg(2), frame.arg(3));
    if never_waits(kind, flags) {
        begin_read();
        count_call();
        if kind != Kind::Stream || flags != DONTWAIT || len == 0 {
            return Outcome::PASS;
        }
        let sequence = entry.sequence();
        // SAFETY: the program's own call.
        let got = unsafe { frame.raw() };
        if has_drained(got, len) {
            entry.set_drained(sequence);
        }
        return Outcome::of(got);
    }
    if is_read_by_kernel(entry, kind) {
        return Outcome::PASS;
    }
    if kind == Kind::Device || kind == Kind::Stream && len == 0 {
        return perhaps_on_helper(fd, Way::In);
    }
    if flags == 0 && kind == Kind::Stream && frame.arg(4) == 0 {
        return receive_stream(fd, entry, buffer, len);
    }
    let (from, from_len) = (frame.arg(4), frame.arg(5));
    let flags = flags | DONTWAIT;
    if flags & ERRQUEUE != 0 {
        // SAFETY: the program's own buffers.
        return or_kernel(unsafe {
            sys!(nr::__NR_recvfrom, fd, buffer, len, flags, from, from_len)
        });
    }
    if flags & WAITALL != 0 && kind == Kind::Stream {
        if flags & PEEK != 0 || !entry.is_plain_tcp() {
            return until_whole(fd, entry, len);
        }
        return receive_whole(fd, entry, len.min(MOST_BYTES), |done, len| {
            let buffer = buffer.wrapping_add(done);
            // SAFETY: as above.
            unsafe { sys!(nr::__NR_recvfrom, fd, buffer, len, flags, from, from_len) }
        });
    }
    // SAFETY: as above.
    until_ready(fd, entry, Way::In, |_| unsafe {
        sys!(nr::__NR_recvfrom, fd, buffer, len, flags, from, from_len)
    })
}

/// Returns true if a receiving call with these flags answers at once.
pub(crate) fn never_waits(kind: Kind, flags: usize) -> bool {
    flags & DONTWAIT != 0 || flags & OOB != 0 && kind == Kind::Stream
}

/// Ends a try on a queue of errors. Most protocols never wait there; others ignore the flag, and
/// wait for data.
pub(crate) fn or_kernel(result: isize) -> Outcome {
    match result {
        EAGAIN => Outcome::KERNEL,
        _ => Outcome::of(result),
    }
}

/// `MSG_WAITALL` of TCP: goes on until everything is there, or an error, urgent data, the end or a
/// signal comes after a part.
fn receive_whole(
    fd: usize,
    entry: &Entry,
    len: usize,
    get: impl Fn(usize, usize) -> isize,
) -> Outcome {
    let mut done = 0;
    let mut wait = Wait::new(Way::In);
    let outcome = repeat(fd, entry, &mut wait, |_, wait| {
        loop {
            if wait.has_part() && (wait.has_moved() || entry.has_ended()) {
                match state_of(fd, (IN | PRI) as i16) {
                    0 => return EAGAIN,
                    state if state & PRI as i16 != 0 && at_urgent_mark(fd) => return done as isize,
                    state if state & BROKEN != 0 && unread(fd) == 0 => return done as isize,
                    _ => {}
                }
            }
            let got = get(done, len - done);
            if is_err(got) {
                return if done > 0 && got != EAGAIN {
                    done as isize
                } else {
                    got
                };
            }
            done += got as usize;
            if got == 0 || done >= len {
                return done as isize;
            }
            wait.moved_part();
        }
    });
    part_or(done, outcome)
}

/// `MSG_WAITALL` where only the kernel knows what ends the call besides the number of bytes: the
/// call is made directly if it doesn't wait, and by a helper once data is there.
fn until_whole(fd: usize, entry: &Entry, len: usize) -> Outcome {
    let pump = &PROCESS.pump;
    let is_limited = !pump.is_unlimited(entry, Way::In as usize)
        && pump.ask_limit(entry, fd, Way::In as usize) != Limit::None;
    if is_nonblocking(fd) || unread(fd) >= len {
        return Outcome::PASS;
    }
    if is_limited {
        return Outcome::KERNEL;
    }
    once_readable(fd, entry, 0)
}

/// Waits until a receiving call with these flags has something to receive; the kernel then makes
/// the call. An error is the call's own: most sockets refuse MSG_OOB at once.
pub(crate) fn once_readable(fd: usize, entry: &Entry, flags: usize) -> Outcome {
    let look = PEEK | DONTWAIT | flags & OOB;
    // SAFETY: no memory is involved.
    let ready = until_ready(fd, entry, Way::In, |_| unsafe {
        sys!(nr::__NR_recvfrom, fd, 0usize, 0usize, look, 0usize, 0usize)
    });
    match ready.value() {
        Some(0..) => Outcome::KERNEL,
        _ => ready,
    }
}

/// `sendto(2)`.
pub extern "C" fn sendto(frame: &Frame) -> Outcome {
    match look_up(frame.arg(0)) {
        Some(found) => helped::finish(frame, sendto_as(frame, found)),
        None => Outcome::PASS,
    }
}

#[inline(never)]
fn sendto_as(frame: &Frame, (entry, kind): Found) -> Outcome {
    let (fd, buffer, flags) = (frame.arg(0), frame.arg(1), frame.arg(3));
    let len = frame.arg(2).min(MOST_BYTES);
    if flags & DONTWAIT != 0 {
        count_write();
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
    if kind == Kind::Device {
        perhaps_on_helper(fd, Way::Out)
    } else if kind == Kind::Stream {
        send_all(fd, entry, &mut Wait::new(Way::Out), len, put)
    } else {
        until_ready(fd, entry, Way::Out, |_| put(0))
    }
}
