//! Connections: `accept` and `connect`, which have no non-blocking form for one call.

use crate::boundary::{Frame, Outcome};
use crate::descriptors::look_up;
use crate::helped;
use crate::io::{EAGAIN, Next, Way, timeout, until_ready, wait_ready};
use crate::poll::ask_about;
use raddle_engine::pump::Entry;
use raddle_sys::{err, errno, is_err, nr, sys};

const IN: i16 = 1;
const OUT: i16 = 4;

/// `accept(2)`, `accept4(2)`.
///
/// There is no non-blocking form for one call, so readiness is polled; the row's lock keeps another
/// thread of ours from taking the connection in between.
pub extern "C" fn accept(frame: &Frame) -> Outcome {
    let fd = frame.arg(0);
    let Some((entry, _)) = look_up(fd) else {
        return Outcome::PASS;
    };
    let outcome = until_ready(fd, entry, Way::In, |_| {
        let _turn = entry.accepting.lock();
        if ask_about(fd, IN) == 0 {
            return EAGAIN;
        }
        // SAFETY: the program's own call.
        unsafe { frame.raw() }
    });
    helped::by_kept(frame, outcome)
}

/// `connect(2)`: started without blocking, then waited for.
pub extern "C" fn connect(frame: &Frame) -> Outcome {
    const GETFL: usize = 3;
    const SETFL: usize = 4;
    const NONBLOCK: isize = 0o4000;
    let fd = frame.arg(0);
    let Some((entry, _)) = look_up(fd) else {
        return Outcome::PASS;
    };
    // SAFETY: the program's own descriptor and call; its mode is restored at once.
    let (sequence, started) = unsafe {
        let flags = sys!(nr::__NR_fcntl, fd, GETFL);
        if is_err(flags) || flags & NONBLOCK != 0 {
            return Outcome::PASS;
        }
        let sequence = entry.sequence();
        sys!(nr::__NR_fcntl, fd, SETFL, flags | NONBLOCK);
        let started = frame.raw();
        sys!(nr::__NR_fcntl, fd, SETFL, flags);
        (sequence, started)
    };
    if started == EAGAIN {
        return helped::on_helper(frame); // a unix socket whose listener is busy
    }
    if started != err(errno::EINPROGRESS) {
        return Outcome::of(started);
    }
    helped::by_kept(frame, finish_connect(fd, entry, sequence))
}

fn finish_connect(fd: usize, entry: &Entry, mut sequence: u32) -> Outcome {
    const SOL_SOCKET: usize = 1;
    const SO_ERROR: usize = 4;
    let deadline_ns = timeout(entry, Way::Out);
    loop {
        if ask_about(fd, OUT) != 0 {
            let (mut error, mut len) = (0i32, 4u32);
            // SAFETY: live structures.
            unsafe {
                sys!(
                    nr::__NR_getsockopt,
                    fd,
                    SOL_SOCKET,
                    SO_ERROR,
                    &raw mut error,
                    &raw mut len
                )
            };
            return Outcome::of(-error as isize);
        }
        match wait_ready(fd, Way::Out, sequence, deadline_ns) {
            Next::Done(EAGAIN) => return Outcome::of(err(errno::EINPROGRESS)),
            Next::Done(result) => return Outcome::of(result),
            Next::Again | Next::Kernel => sequence = entry.sequence(),
        }
    }
}
