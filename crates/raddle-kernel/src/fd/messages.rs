//! Vectors and messages: they go out in pieces once they don't fit at once.

use crate::fd::descriptors::{is_nonblocking, look_up};
use crate::fd::helped;
use crate::fd::io::{
    DONTWAIT, ERRQUEUE, RWF_NOWAIT, WAITALL, never_waits, once_readable, or_kernel, send_all,
    silent_after,
};
use crate::fd::waiting::{
    EAGAIN, Wait, Way, begin_read, count_call, count_write, is_read_by_kernel, part_or,
    perhaps_on_helper, repeat, until_ready, when_ready,
};
use crate::frame::{Frame, Outcome};
use crate::user::vectors::{self, MOST_PIECES, Vector};
use crate::user::{MOST_BYTES, Plain, User};
use raddle_engine::pump::{Entry, Kind};
use raddle_sys::abi::IoVec;
use raddle_sys::{err, errno, is_err, nr, sys};

const NOT_SUPPORTED: isize = err(errno::EOPNOTSUPP);

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Message {
    name: usize,
    name_len: u64,
    vector: usize,
    count: usize,
    control: usize,
    control_len: usize,
    flags: u64,
}

// SAFETY: integers; the kernel's layout of 64-bit fields has no padding that matters.
unsafe impl Plain for Message {}

impl Message {
    /// A message of these pieces alone; the kernel limits their number.
    pub(crate) const fn of_pieces(vector: usize, count: usize) -> Self {
        Self {
            name: 0,
            name_len: 0,
            vector,
            count,
            control: 0,
            control_len: 0,
            flags: 0,
        }
    }

    pub(crate) fn of_vector(vector: &Vector) -> Self {
        Self::of_pieces(vector.address(), vector.pieces().len())
    }
}

/// A vector goes into a pipe piece by piece once it doesn't fit at once.
pub(crate) fn write_vector(fd: usize, entry: &Entry, vector: &Vector) -> Outcome {
    // SAFETY: a vector that lives; offset -1 means the current position.
    let put = |vector: usize, count: usize| unsafe {
        sys!(
            nr::__NR_pwritev2,
            fd,
            vector,
            count,
            -1isize,
            -1isize,
            RWF_NOWAIT
        )
    };
    let mut wait = Wait::new(Way::Out);
    let count = vector.pieces().len();
    let first = repeat(fd, entry, &mut wait, |_, _| put(vector.address(), count));
    match first.value() {
        Some(NOT_SUPPORTED) => when_ready(fd, entry, Way::Out),
        Some(sent) if sent >= 0 => {
            let rest = |base: usize, len: usize| {
                let piece = IoVec { base, len };
                put((&raw const piece).expose_provenance(), 1)
            };
            send_rest(fd, entry, wait, vector, sent as usize, rest)
        }
        _ => first,
    }
}

/// Sends a message, which leads to this vector: whole or, on a stream, part by part.
pub(crate) fn send_message(
    fd: usize,
    entry: &Entry,
    message: &Message,
    vector: &Vector,
    flags: usize,
) -> Outcome {
    let at = core::ptr::from_ref(message).expose_provenance();
    let mut wait = Wait::new(Way::Out);
    // SAFETY: the program's own message.
    let first = repeat(fd, entry, &mut wait, |_, _| unsafe {
        sys!(nr::__NR_sendmsg, fd, at, flags | DONTWAIT)
    });
    let Some(sent) = first.value().filter(|&sent| sent >= 0) else {
        return first;
    };
    if entry.kind() != Kind::Stream {
        return first;
    }
    let flags = flags | DONTWAIT | silent_after(sent as usize);
    // SAFETY: the program's own buffers.
    let rest = |base: usize, len: usize| unsafe { sys!(nr::__NR_sendto, fd, base, len, flags) };
    send_rest(fd, entry, wait, vector, sent as usize, rest)
}

/// After `done` bytes of a vector went out at once: sends the rest, one piece at a time, unless the
/// descriptor is non-blocking.
fn send_rest(
    fd: usize,
    entry: &Entry,
    mut wait: Wait,
    vector: &Vector,
    mut done: usize,
    mut put: impl FnMut(usize, usize) -> isize,
) -> Outcome {
    let add = |sum: usize, piece: &IoVec| sum.saturating_add(piece.len);
    let all = vector.pieces().iter().fold(0, add).min(MOST_BYTES);
    if done >= all || is_nonblocking(fd) {
        return Outcome::of(done as isize);
    }
    wait.moved_part();
    let mut position = 0;
    for piece in vector.pieces() {
        let skip = done.saturating_sub(position).min(piece.len);
        let whole = piece.len.min(all - position);
        position += whole;
        let (base, len) = (piece.base.wrapping_add(skip), whole.saturating_sub(skip));
        if len == 0 {
            continue;
        }
        let sent = send_all(fd, entry, &mut wait, len, |sent| {
            put(base.wrapping_add(sent), len - sent)
        });
        match sent.value() {
            Some(sent) if sent >= 0 => done += sent as usize,
            _ => break,
        }
        if done < position {
            break;
        }
    }
    Outcome::of(done as isize)
}

/// `recvmsg(2)`.
pub extern "C" fn recvmsg(frame: &Frame) -> Outcome {
    let [fd, message, flags, ..] = frame.args();
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if never_waits(kind, flags) {
        begin_read();
        count_call();
        return Outcome::PASS;
    }
    if is_read_by_kernel(entry, kind) {
        return Outcome::PASS;
    }
    begin_read();
    if flags & WAITALL != 0 && kind == Kind::Stream {
        return helped::on_helper(frame);
    }
    if kind == Kind::Device {
        return helped::finish(frame, perhaps_on_helper(fd, Way::In));
    }
    if flags & ERRQUEUE != 0 {
        // SAFETY: the program's own call.
        let got = unsafe { sys!(nr::__NR_recvmsg, fd, message, flags | DONTWAIT) };
        return helped::finish(frame, or_kernel(got));
    }
    let mut is_for_kernel = false;
    let outcome = until_ready(fd, entry, Way::In, |_| {
        // SAFETY: the program's own call.
        let got = unsafe { sys!(nr::__NR_recvmsg, fd, message, flags | DONTWAIT) };
        is_for_kernel = got == EAGAIN && kind == Kind::Stream && has_no_room(message);
        if is_for_kernel { 0 } else { got }
    });
    if is_for_kernel && !is_nonblocking(fd) {
        return helped::on_helper(frame);
    }
    if is_for_kernel {
        Outcome::PASS
    } else {
        helped::finish(frame, outcome)
    }
}

/// Returns true if a message's vector has no bytes or a bad address, or the kernel refuses its
/// name: then only the kernel knows how long to wait.
#[cold]
fn has_no_room(message: usize) -> bool {
    let message = User::<Message>::at(message).read();
    message.map_or(true, |message| {
        let is_name = message.name == 0 || message.name_len as i32 >= 0;
        !is_name || vectors::whole_len(User::at(message.vector), message.count).is_none()
    })
}

/// `recvmmsg(2)`: waits for each message.
///
/// An error that comes after some messages stays in the socket for the next call; only the kernel
/// can put it there. So a helper makes a call for several messages whole, once there is a first
/// one. A helper makes a call with a time limit of its own from the start, because the kernel looks
/// at the clock after each message. A call that has to wait for one message only is tried.
pub extern "C" fn recvmmsg(frame: &Frame) -> Outcome {
    const WAITFORONE: usize = 0x10000;
    let [fd, messages, count, flags, limit, ..] = frame.args();
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if never_waits(kind, flags) || count as u32 == 0 {
        return Outcome::PASS;
    }
    let is_one = count as u32 == 1 || flags & WAITFORONE != 0;
    let is_for_kernel =
        limit != 0 || flags & ERRQUEUE != 0 || kind == Kind::Stream || has_no_room(messages);
    let outcome = if kind == Kind::Device {
        perhaps_on_helper(fd, Way::In)
    } else if is_for_kernel && is_nonblocking(fd) {
        Outcome::PASS
    } else if is_for_kernel {
        Outcome::KERNEL
    } else if is_one {
        // SAFETY: the program's own call.
        until_ready(fd, entry, Way::In, |_| unsafe {
            let flags = flags | DONTWAIT;
            sys!(nr::__NR_recvmmsg, fd, messages, count, flags, 0usize)
        })
    } else {
        once_readable(fd, entry, flags)
    };
    helped::finish(frame, outcome)
}

/// `sendmsg(2)`.
pub extern "C" fn sendmsg(frame: &Frame) -> Outcome {
    let [fd, message, flags, ..] = frame.args();
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if flags & DONTWAIT != 0 || message == 0 {
        count_write();
        return Outcome::PASS;
    }
    if kind == Kind::Device {
        return helped::finish(frame, perhaps_on_helper(fd, Way::Out));
    }
    if kind == Kind::Stream {
        let outcome = match send_one(fd, entry, User::at(message), flags) {
            Some((outcome, _)) => outcome,
            None => Outcome::PASS,
        };
        return helped::finish(frame, outcome);
    }
    // SAFETY: the program's own call.
    let outcome = until_ready(fd, entry, Way::Out, |_| unsafe {
        sys!(nr::__NR_sendmsg, fd, message, flags | DONTWAIT)
    });
    helped::finish(frame, outcome)
}

/// `sendmmsg(2)`: waits until all messages are out, or one fails.
pub extern "C" fn sendmmsg(frame: &Frame) -> Outcome {
    const MOST: usize = 1024;
    let [fd, _, count, flags, ..] = frame.args();
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    let count = (count as u32 as usize).min(MOST);
    if flags & DONTWAIT != 0 || count == 0 {
        count_write();
        return Outcome::PASS;
    }
    let (done, outcome) = match kind {
        Kind::Device => (0, perhaps_on_helper(fd, Way::Out)),
        Kind::Stream => send_parts(frame, entry, count),
        _ => send_whole(frame, entry, count),
    };
    if done > 0 && outcome.is_for_helper() {
        let mut args = frame.args();
        (args[1], args[2]) = (args[1].wrapping_add(done * ENTRY), count - done);
        let rest = helped::call_on_helper(frame, args).value();
        return Outcome::of((done + rest.map_or(0, |sent| sent.max(0) as usize)) as isize);
    }
    helped::finish(frame, part_or(done, outcome))
}

/// Size of `struct mmsghdr`, and the offset of the length that the kernel fills.
const ENTRY: usize = 64;
const LENGTH: usize = 56;

/// Sends messages to a socket that takes each whole. Returns how many it has taken, and the end's
/// outcome.
fn send_whole(frame: &Frame, entry: &Entry, count: usize) -> (usize, Outcome) {
    let [fd, messages, _, flags, ..] = frame.args();
    let mut done = 0;
    let mut wait = Wait::new(Way::Out);
    let outcome = repeat(fd, entry, &mut wait, |_, wait| {
        loop {
            let (messages, left) = (messages.wrapping_add(done * ENTRY), count - done);
            // SAFETY: the program's own call, on the messages that are left.
            let sent = unsafe { sys!(nr::__NR_sendmmsg, fd, messages, left, flags | DONTWAIT) };
            if is_err(sent) {
                return sent;
            }
            done += sent as usize;
            if done >= count || sent == 0 {
                return done as isize;
            }
            wait.moved_part();
        }
    });
    (done, outcome)
}

/// Sends messages to a stream, which may take a part of one: that one is then the last.
fn send_parts(frame: &Frame, entry: &Entry, count: usize) -> (usize, Outcome) {
    let [fd, messages, _, flags, ..] = frame.args();
    for done in 0..count {
        let at = User::<u8>::at(messages).byte_add(done * ENTRY);
        let Some((outcome, len)) = send_one(fd, entry, at.cast(), flags) else {
            let outcome = match done {
                0 => Outcome::PASS,
                _ => Outcome::of(done as isize),
            };
            return (done, outcome);
        };
        let Some(sent @ 0..) = outcome.value() else {
            return (done, outcome);
        };
        if let Err(errno) = at.byte_add(LENGTH).cast().write(&(sent as u32)) {
            return (done, Outcome::of(errno));
        }
        if len > sent as usize {
            return (done + 1, Outcome::of(sent));
        }
    }
    (count, Outcome::of(count as isize))
}

/// Sends a message of the program's to a stream, and returns how many bytes it has. `None` if a
/// part of the message isn't there: the kernel finds the right errno.
fn send_one(
    fd: usize,
    entry: &Entry,
    message: User<Message>,
    flags: usize,
) -> Option<(Outcome, usize)> {
    let mut message = message.read().ok()?;
    if message.count > MOST_PIECES {
        return None;
    }
    let mut vector = Vector::new();
    vector.copy(User::at(message.vector), message.count)?;
    message.vector = vector.address();
    let outcome = send_message(fd, entry, &message, &vector, flags);
    Some((outcome, vector.whole_len().unwrap_or(0)))
}
