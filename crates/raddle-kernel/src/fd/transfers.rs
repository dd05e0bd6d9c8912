//! Calls that carry data between descriptors: `sendfile`, `splice` and their family.
//!
//! They wait for a disk, for room or for data, and the kernel doesn't tell for which: a helper
//! makes those that may wait for another process or thread. Servers that send files don't wait for
//! room or data. Then only a disk is left, and the file that is read has a pace as for its reads
//! ([`files`]); without a disk, the calling thread makes the call.

use crate::fd::descriptors::{is_nonblocking, kind};
use crate::fd::files;
use crate::fd::helped::on_helper;
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use raddle_engine::pump::Kind;

/// `SPLICE_F_NONBLOCK`: a pipe isn't waited for.
const SPLICE_F_NONBLOCK: usize = raddle_sys::nr::SPLICE_F_NONBLOCK as usize;

/// `sendfile(2)`.
pub extern "C" fn sendfile(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let [to, from, ..] = frame.args();
    let waits_for_room = matches!(kind(to), Kind::Disk | Kind::File) || !is_nonblocking(to);
    match kind(from) {
        Kind::Disk if !waits_for_room => files::send(frame, from),
        Kind::File if !waits_for_room => Outcome::PASS,
        _ => on_helper(frame),
    }
}

/// `splice(2)`.
pub extern "C" fn splice(frame: &Frame) -> Outcome {
    let [from, _, to, _, _, flags] = frame.args();
    // Pipes go by the flag, sockets by their mode.
    let never_waits = |fd| match kind(fd) {
        Kind::Pipe => true,
        Kind::Stream => is_nonblocking(fd),
        _ => false,
    };
    if !is_multiplexed() || flags & SPLICE_F_NONBLOCK != 0 && never_waits(from) && never_waits(to) {
        return Outcome::PASS;
    }
    on_helper(frame)
}

/// `tee(2)`, `vmsplice(2)`: of pipes.
pub extern "C" fn of_pipes(frame: &Frame) -> Outcome {
    match frame.arg(3) & SPLICE_F_NONBLOCK {
        0 => on_helper(frame),
        _ => Outcome::PASS,
    }
}

/// `copy_file_range(2)`: much of it at once is for a helper.
pub extern "C" fn copy_file_range(frame: &Frame) -> Outcome {
    const MUCH: usize = 128 * 1024;
    if frame.arg(4) > MUCH {
        on_helper(frame)
    } else {
        Outcome::PASS
    }
}
