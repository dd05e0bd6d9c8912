//! Connections: `accept` and `connect`, which have no non-blocking form for one call.

use crate::fd::descriptors::{is_listening, is_tcp, look_up, take_error};
use crate::fd::helped;
use crate::fd::poll::ask_about;
use crate::fd::waiting::{EAGAIN, Next, Wait, Way, until_ready};
use crate::frame::{Frame, Outcome};
use raddle_engine::PROCESS;
use raddle_engine::pump::{Entry, Kind};
use raddle_sys::{err, errno, is_err, nr, sys};

const IN: i16 = 1;
const OUT: i16 = 4;

/// `accept(2)`, `accept4(2)`.
///
/// There is no non-blocking form for one call, so readiness is polled; the row's lock keeps another
/// green thread from taking the connection in between. Only a listening socket is waited for.
pub extern "C" fn accept(frame: &Frame) -> Outcome {
    let fd = frame.arg(0);
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if !is_socket(kind) || has_odd_flags(frame) {
        return Outcome::PASS;
    }
    let outcome = until_ready(fd, entry, Way::In, |_| {
        let _turn = entry.accepting.lock();
        if ask_about(fd, IN) == 0 && listens(entry, fd) {
            return EAGAIN;
        }
        // SAFETY: the program's own call.
        unsafe { frame.raw() }
    });
    if let Some(accepted @ 0..) = outcome.value() {
        PROCESS.pump.was_accepted(entry, accepted as u32);
    }
    helped::finish(frame, outcome)
}

/// Returns true if `accept4` has flags that the kernel refuses.
fn has_odd_flags(frame: &Frame) -> bool {
    const O_CLOEXEC: u32 = nr::O_CLOEXEC;
    const O_NONBLOCK: u32 = nr::O_NONBLOCK;
    frame.number() == nr::__NR_accept4 && frame.word(3) & !(O_CLOEXEC | O_NONBLOCK) != 0
}

fn listens(entry: &Entry, fd: usize) -> bool {
    if !entry.is_listening() && is_listening(fd) {
        entry.set_listening();
    }
    entry.is_listening()
}

fn is_socket(kind: Kind) -> bool {
    matches!(kind, Kind::Stream | Kind::Datagram | Kind::Device)
}

/// `connect(2)`: started without blocking, then waited for.
pub extern "C" fn connect(frame: &Frame) -> Outcome {
    const F_GETFL: usize = nr::F_GETFL as usize;
    const F_SETFL: usize = nr::F_SETFL as usize;
    const O_NONBLOCK: isize = nr::O_NONBLOCK as isize;
    let fd = frame.arg(0);
    let Some((entry, kind)) = look_up(fd) else {
        return Outcome::PASS;
    };
    if !is_socket(kind) {
        return Outcome::PASS;
    }
    // SAFETY: the program's own descriptor and call; its mode is restored at once.
    let (sequence, started) = unsafe {
        let flags = sys!(nr::__NR_fcntl, fd, F_GETFL);
        if is_err(flags) || flags & O_NONBLOCK != 0 {
            return Outcome::PASS;
        }
        let sequence = entry.sequence();
        sys!(nr::__NR_fcntl, fd, F_SETFL, flags | O_NONBLOCK);
        let started = frame.raw();
        sys!(nr::__NR_fcntl, fd, F_SETFL, flags);
        (sequence, started)
    };
    if started == EAGAIN {
        return helped::on_helper(frame); // a unix socket with a busy listener
    }
    // Under way by this call, or by an earlier one.
    if started != err(errno::EINPROGRESS) && started != err(errno::EALREADY) {
        return Outcome::of(started);
    }
    helped::finish(frame, finish_connect(frame, entry, started, sequence))
}

fn finish_connect(frame: &Frame, entry: &Entry, started: isize, mut sequence: u32) -> Outcome {
    let fd = frame.arg(0);
    let mut wait = Wait::new(Way::Out);
    loop {
        if ask_about(fd, OUT) != 0 {
            return conclude_connect(frame);
        }
        match wait.until_event(fd, entry, sequence) {
            Next::Done(EAGAIN) => return Outcome::of(started), // the time limit is over
            Next::Done(result) => return Outcome::of(result),
            Next::Kernel => return Outcome::KERNEL,
            Next::Again => sequence = entry.sequence(),
        }
    }
}

/// Ends a connect that has succeeded or failed. A TCP socket takes the next connect only after a
/// call has returned the result.
fn conclude_connect(frame: &Frame) -> Outcome {
    if is_tcp(frame.arg(0)) {
        // SAFETY: the program's own call.
        return Outcome::of(unsafe { frame.raw() });
    }
    Outcome::of(-take_error(frame.arg(0)))
}
