//! Vectors and messages: what goes out in pieces once it doesn't fit at once.

use crate::boundary::{Frame, Outcome};
use crate::descriptors::{is_nonblocking, look_up};
use crate::helped;
use crate::io::{DONTWAIT, NOWAIT, WAITALL, Way, send_all, silent_after, until_ready, when_ready};
use crate::user::{MOST_BYTES, Plain, User};
use core::mem::MaybeUninit;
use raddle_engine::pump::{Entry, Kind};
use raddle_sys::abi::IoVec;
use raddle_sys::{err, errno, mem, nr, sys};

const ERRQUEUE: usize = 0x2000;
const NOT_SUPPORTED: isize = err(errno::EOPNOTSUPP);

/// Pieces that the kernel takes at once (`UIO_MAXIOV`).
pub(crate) const MOST_PIECES: usize = 1024;

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

// SAFETY: integers, without padding.
unsafe impl Plain for Message {}

impl Message {
    /// A message of these pieces alone, whose number the kernel has a limit for.
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

/// A vector as it was when the call began: the kernel and the rest of a transfer go by the copy.
pub(crate) struct Vector {
    few: [MaybeUninit<IoVec>; FEW],
    /// Mapped, if there are more.
    many: *mut IoVec,
    count: usize,
}

/// Pieces that fit on the stack.
const FEW: usize = 64;

impl Vector {
    /// No pieces yet. They are copied to where it stays: it is too large to be moved.
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            few: [const { MaybeUninit::uninit() }; FEW],
            many: core::ptr::null_mut(),
            count: 0,
        }
    }

    /// Copies so many pieces, once. `None` if one of them isn't there, or there is no memory.
    #[inline(always)]
    pub(crate) fn copy(&mut self, from: User<IoVec>, count: usize) -> Option<()> {
        if count > FEW {
            self.many = mem::map(count * size_of::<IoVec>()).ok()?.cast();
        }
        self.count = count;
        let to = match self.many.is_null() {
            true => self.few.as_mut_ptr().cast(),
            false => self.many,
        };
        // SAFETY: room for so many pieces, and any bytes are one.
        let to = unsafe { core::slice::from_raw_parts_mut(to, count) };
        from.read_all(to).ok()
    }

    fn pieces(&self) -> &[IoVec] {
        let at = match self.many.is_null() {
            true => self.few.as_ptr().cast(),
            false => self.many.cast_const(),
        };
        // SAFETY: so many were copied there; callers go on only if all were.
        unsafe { core::slice::from_raw_parts(at, self.count) }
    }

    fn address(&self) -> usize {
        self.pieces().as_ptr().expose_provenance()
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        if !self.many.is_null() {
            // SAFETY: mapped by `copy`, and the kernel has read it.
            unsafe { mem::unmap(self.many.cast(), self.count * size_of::<IoVec>()) };
        }
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
            NOWAIT
        )
    };
    let count = vector.pieces().len();
    let first = until_ready(fd, entry, Way::Out, |_| put(vector.address(), count));
    match first.value() {
        Some(NOT_SUPPORTED) => when_ready(fd, entry, Way::Out),
        Some(sent) if sent >= 0 => {
            let rest = |base: usize, len: usize| {
                let piece = IoVec { base, len };
                put((&raw const piece).expose_provenance(), 1)
            };
            send_rest(fd, entry, vector, sent as usize, rest)
        }
        _ => first,
    }
}

/// A message, which leads to this vector, goes out whole or, on a stream, part by part.
pub(crate) fn send_message(
    fd: usize,
    entry: &Entry,
    message: &Message,
    vector: &Vector,
    flags: usize,
) -> Outcome {
    let at = core::ptr::from_ref(message).expose_provenance();
    // SAFETY: a message that lives.
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
    send_rest(fd, entry, vector, sent as usize, rest)
}

/// After `done` bytes of a vector went out at once: the rest, one piece at a time, unless the
/// descriptor is non-blocking.
fn send_rest(
    fd: usize,
    entry: &Entry,
    vector: &Vector,
    mut done: usize,
    mut put: impl FnMut(usize, usize) -> isize,
) -> Outcome {
    let add = |sum: usize, piece: &IoVec| sum.saturating_add(piece.len);
    let all = vector.pieces().iter().fold(0, add).min(MOST_BYTES);
    if done >= all || is_nonblocking(fd) {
        return Outcome::of(done as isize);
    }
    let mut position = 0;
    for piece in vector.pieces() {
        let skip = done.saturating_sub(position).min(piece.len);
        let whole = piece.len.min(all - position);
        position += whole;
        let (base, len) = (piece.base.wrapping_add(skip), whole.saturating_sub(skip));
        if len == 0 {
            continue;
        }
        let sent = send_all(fd, entry, len, |sent| {
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
        let outcome = send_one(frame, entry, flags).unwrap_or(Outcome::PASS);
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

/// `None` if a part of the message isn't there: the kernel finds the right errno.
fn send_one(frame: &Frame, entry: &Entry, flags: usize) -> Option<Outcome> {
    let mut message = frame.user::<Message>(1).read().ok()?;
    if message.count > MOST_PIECES {
        return None;
    }
    let mut vector = Vector::new();
    vector.copy(User::at(message.vector), message.count)?;
    message.vector = vector.address();
    Some(send_message(frame.arg(0), entry, &message, &vector, flags))
}
