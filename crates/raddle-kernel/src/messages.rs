//! Vectors and messages: what goes out in pieces once it doesn't fit at once.

use crate::boundary::{Frame, Outcome};
use crate::descriptors::{is_nonblocking, look_up};
use crate::helped;
use crate::io::{DONTWAIT, NOWAIT, WAITALL, Way, send_all, silent_after, until_ready, when_ready};
use raddle_engine::pump::{Entry, Kind};
use raddle_sys::abi::IoVec;
use raddle_sys::{err, errno, nr, sys};

const ERRQUEUE: usize = 0x2000;
const NOT_SUPPORTED: isize = err(errno::EOPNOTSUPP);

/// `struct msghdr`.
#[repr(C)]
pub(crate) struct Message {
    name: usize,
    name_len: u64,
    vector: usize,
    count: usize,
    control: usize,
    control_len: usize,
    flags: u64,
}

impl Message {
    pub(crate) const fn of_vector(vector: usize, count: usize) -> Self {
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
}

/// A vector goes into a pipe piece by piece once it doesn't fit at once.
pub(crate) fn write_vector(fd: usize, entry: &Entry, vector: usize, count: usize) -> Outcome {
    // SAFETY: the program's own vector; offset -1 means the current position.
    let put = |vector: usize, count: usize| unsafe {
        sys!(
            nr::__NR_pwritev2,
            fd,
            vector,
            count,
            -1isize,
            -1isize,
            NOWAIT
        )
    };
    let first = until_ready(fd, entry, Way::Out, |_| put(vector, count));
    match first.value() {
        Some(NOT_SUPPORTED) => when_ready(fd, entry, Way::Out),
        Some(sent) if sent >= 0 => {
            let rest = |base: usize, len: usize| {
                let piece = IoVec { base, len };
                put((&raw const piece).expose_provenance(), 1)
            };
            send_rest(fd, entry, vector, count, sent as usize, rest)
        }
        _ => first,
    }
}

/// A message goes out whole or, on a stream, part by part.
pub(crate) fn send_message(fd: usize, entry: &Entry, message: &Message, flags: usize) -> Outcome {
    let at = core::ptr::from_ref(message).expose_provenance();
    // SAFETY: the program's own message.
    let first = until_ready(fd, entry, Way::Out, |_| unsafe {
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
    send_rest(
        fd,
        entry,
        message.vector,
        message.count,
        sent as usize,
        rest,
    )
}

/// After `done` bytes of a vector went out at once: the rest, one piece at a time, unless the
/// descriptor is non-blocking.
fn send_rest(
    fd: usize,
    entry: &Entry,
    vector: usize,
    count: usize,
    mut done: usize,
    mut put: impl FnMut(usize, usize) -> isize,
) -> Outcome {
    if done >= vector_len(vector, count) || is_nonblocking(fd) {
        return Outcome::of(done as isize);
    }
    let mut position = 0;
    for index in 0..count {
        let piece = vector_at(vector, index);
        let skip = done.saturating_sub(position).min(piece.len);
        position += piece.len;
        let (base, len) = (piece.base + skip, piece.len - skip);
        if len == 0 {
            continue;
        }
        let sent = send_all(fd, entry, len, |sent| put(base + sent, len - sent));
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

fn vector_at(vector: usize, index: usize) -> IoVec {
    let at = core::ptr::with_exposed_provenance::<IoVec>(vector).wrapping_add(index);
    // SAFETY: the program's own vector, which the kernel has accepted.
    unsafe { at.read_unaligned() }
}

fn vector_len(vector: usize, count: usize) -> usize {
    (0..count.min(1024))
        .map(|index| vector_at(vector, index).len)
        .sum()
}

/// `recvmsg(2)`, `recvmmsg(2)`.
pub extern "C" fn recvmsg(frame: &Frame) -> Outcome {
    let many = frame.rax == u64::from(nr::__NR_recvmmsg);
    let position = if many { 3 } else { 2 };
    let (fd, flags) = (frame.arg(0), frame.arg(position));
    let Some((entry, _)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if flags & (DONTWAIT | ERRQUEUE) != 0 {
        return Outcome::PASS;
    }
    if flags & WAITALL != 0 || many && frame.arg(4) != 0 {
        return helped::on_helper(frame);
    }
    let mut args = frame.args();
    args[position] |= DONTWAIT;
    // SAFETY: the program's own call.
    let outcome = until_ready(fd, entry, Way::In, |_| unsafe {
        raddle_sys::syscall6(frame.rax as u32, args)
    });
    helped::by_kept(frame, outcome)
}

/// `sendmsg(2)`, `sendmmsg(2)`.
pub extern "C" fn sendmsg(frame: &Frame) -> Outcome {
    let many = frame.rax == u64::from(nr::__NR_sendmmsg);
    let position = if many { 3 } else { 2 };
    let (fd, flags) = (frame.arg(0), frame.arg(position));
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if flags & DONTWAIT != 0 || frame.arg(1) == 0 {
        return Outcome::PASS;
    }
    if !many && kind == Kind::Stream {
        let message = core::ptr::with_exposed_provenance::<Message>(frame.arg(1));
        // SAFETY: the program's own message.
        let outcome = send_message(fd, entry, unsafe { &*message }, flags);
        return helped::by_kept(frame, outcome);
    }
    let mut args = frame.args();
    args[position] |= DONTWAIT;
    // SAFETY: the program's own call.
    let outcome = until_ready(fd, entry, Way::Out, |_| unsafe {
        raddle_sys::syscall6(frame.rax as u32, args)
    });
    helped::by_kept(frame, outcome)
}
