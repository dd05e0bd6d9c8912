//! Calls that the kernel can only block in: tried without blocking, then made by a helper.
//!
//! | call | tried by | a handler with SA_RESTART restarts it |
//! |---|---|---|
//! | `flock` | LOCK_NB | yes |
//! | `fcntl` F_SETLKW, F_OFD_SETLKW | F_SETLK, F_OFD_SETLK | yes |
//! | `mq_timedsend`, `mq_timedreceive` | a time limit that has passed | yes |
//! | `msgsnd`, `msgrcv`, `semop`, `semtimedop` | IPC_NOWAIT | no |
//! | `io_getevents`, `io_pgetevents` for one event | a time limit of nothing | no |
//! | `fsync` and its family | no: they nearly always wait, or never ([`sync`]) | not interrupted |
//!
//! A try costs what the call costs natively, a helper two switches of kernel threads.

use crate::fd::descriptors::forget_mode;
use crate::fd::descriptors::kind;
use crate::fd::files::waited;
use crate::fd::waiting::Way;
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::signal;
use core::sync::atomic::Ordering;
use raddle_arch::timestamp;
use raddle_engine::pump::{Kind, Limit};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS};
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno, nr, sys, syscall6};

const EAGAIN: isize = err(errno::EAGAIN);
const EINTR: isize = err(errno::EINTR);
const EPIPE: isize = err(errno::EPIPE);
const EFBIG: isize = err(errno::EFBIG);
/// `IPC_NOWAIT`.
const NOWAIT: usize = 0o4000;

/// Calls that the kernel may block in for long, without a better way: on a helper.
pub extern "C" fn on_helper(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    match wait(frame, Restart::AsAsked) {
        // This thread repeats the call for the signal, SIGPIPE or SIGXFSZ, as
        // `wait_with_first_file` does.
        outcome if outcome.is_value(EPIPE) || outcome.is_value(EFBIG) => Outcome::PASS,
        outcome => outcome,
    }
}

/// As [`on_helper`], with other arguments.
pub fn call_on_helper(frame: &Frame, args: [usize; 6]) -> Outcome {
    wait_with(frame, args, Restart::AsAsked)
}

/// What a handler does to a call that it interrupts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Restart {
    /// The call goes on if every handler that ran has SA_RESTART.
    AsAsked,
    /// The call says EINTR.
    Never,
}

fn wait(frame: &Frame, restart: Restart) -> Outcome {
    wait_with(frame, frame.args(), restart)
}

/// The end of a call on a descriptor that may be for a helper, or that has returned EBADF. If the
/// program has closed the number while the call waited, the call goes on with the file, as in
/// Linux.
#[inline(always)]
pub fn finish(frame: &Frame, outcome: Outcome) -> Outcome {
    if outcome.is_for_helper() {
        on_helper(frame)
    } else if outcome.is_value(err(errno::EBADF)) {
        wait_with_first_file(frame, outcome)
    } else {
        outcome
    }
}

#[cold]
fn wait_with_first_file(frame: &Frame, outcome: Outcome) -> Outcome {
    let Some(kept) = Carrier::current().thread().take_closed_file() else {
        return outcome;
    };
    let mut args = frame.args();
    args[0] = kept as usize;
    let mut outcome = wait_with(frame, args, Restart::AsAsked);
    // SAFETY: the program's own call, and a descriptor of ours.
    unsafe {
        if outcome.is_value(EPIPE) {
            // SIGPIPE has gone to the helper: the thread repeats the call to get its own.
            outcome = Outcome::of(syscall6(frame.number(), args));
        }
        sys!(nr::__NR_close, kept);
    }
    outcome
}

fn wait_with(frame: &Frame, args: [usize; 6], restart: Restart) -> Outcome {
    loop {
        let thread = Carrier::current().thread();
        thread.waits_for(WaitKind::OTHER, frame.number() as usize, 0);
        // SAFETY: the program's own call.
        let result = unsafe { PROCESS.helpers.call(frame.number(), args) };
        if result != EINTR {
            return Outcome::of(result);
        }
        let restarts = restart == Restart::AsAsked && !has_limit(frame.number(), args);
        if signal::deliver(restarts) {
            return Outcome::of(EINTR);
        }
    }
}

/// Returns true if a call waits for a socket with a time limit: no handler restarts such a call.
#[cold]
fn has_limit(number: u32, args: [usize; 6]) -> bool {
    let (reads, writes) = match number {
        nr::__NR_splice => (Some(args[0]), Some(args[2])),
        nr::__NR_sendfile
        | nr::__NR_write
        | nr::__NR_writev
        | nr::__NR_pwritev2
        | nr::__NR_sendto
        | nr::__NR_sendmsg
        | nr::__NR_sendmmsg
        | nr::__NR_connect => (None, Some(args[0])),
        _ => (Some(args[0]), None),
    };
    has_time_limit(reads, Way::In) || has_time_limit(writes, Way::Out)
}

fn has_time_limit(fd: Option<usize>, way: Way) -> bool {
    let entry = |fd| Some((fd, PROCESS.pump.entry(fd as u32)?));
    fd.and_then(entry).is_some_and(|(fd, entry)| {
        kind(fd) != Kind::Unknown && PROCESS.pump.ask_limit(entry, fd, way as usize) != Limit::None
    })
}

/// `fsync(2)`, `fdatasync(2)`, `sync_file_range(2)`, `syncfs(2)`: on a helper, which sees whether
/// they wait. They don't on a file system in memory, nor where writing through is switched off:
/// after enough in a row that didn't, the calls are made directly, until two in a row wait.
pub extern "C" fn sync(frame: &Frame) -> Outcome {
    const ENOUGH: u32 = 8;
    const MOST: u32 = 2 * ENOUGH;
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let Some(entry) = PROCESS.pump.entry(frame.arg(0) as u32) else {
        return run_on_helper(frame);
    };
    let known = entry.syncs.load(Ordering::Relaxed);
    let (outcome, ticks) = if known < ENOUGH {
        match by_helper(frame) {
            Some(answer) => answer,
            None => return Outcome::PASS,
        }
    } else {
        let began = timestamp();
        // SAFETY: the program's own call.
        let result = unsafe { frame.raw() };
        (Outcome::of(result), timestamp().wrapping_sub(began))
    };
    let next = if waited(ticks, 0) {
        known.saturating_sub(ENOUGH)
    } else {
        (known + 1).min(MOST)
    };
    if next != known {
        entry.syncs.store(next, Ordering::Relaxed);
    }
    outcome
}

/// Calls that wait for a disk, which no signal interrupts: on a helper.
pub extern "C" fn run_on_helper(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    by_helper(frame).map_or(Outcome::PASS, |(outcome, _)| outcome)
}

/// Makes a call that no signal interrupts. Returns the result and the time stamp ticks that the
/// call took; `None` if there is no helper, and can be none.
fn by_helper(frame: &Frame) -> Option<(Outcome, u64)> {
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::OTHER, frame.number() as usize, 0);
    let (nr, args) = (frame.number(), frame.args());
    // SAFETY: the program's own call.
    let (result, ticks) = unsafe { PROCESS.helpers.call_patiently(nr, args) };
    (result != EAGAIN).then(|| (Outcome::of(result), ticks))
}

/// Makes the call with the file that it began with, if the program closed the number meanwhile.
pub fn run_with_first_file(frame: &Frame) -> Option<Outcome> {
    let kept = Carrier::current().thread().take_closed_file()? as usize;
    let mut args = frame.args();
    args[0] = kept;
    // SAFETY: the program's own call, and a descriptor of ours.
    unsafe {
        let (mut result, _) = PROCESS.helpers.call_patiently(frame.number(), args);
        if result == EAGAIN {
            result = syscall6(frame.number(), args); // there is no helper, and can be none
        }
        sys!(nr::__NR_close, kept);
        Some(Outcome::of(result))
    }
}

/// `msync(2)`: waits with MS_SYNC only.
pub extern "C" fn msync(frame: &Frame) -> Outcome {
    const SYNC: usize = 4;
    if frame.arg(2) & SYNC == 0 {
        return Outcome::PASS;
    }
    run_on_helper(frame)
}

/// `flock(2)`.
pub extern "C" fn flock(frame: &Frame) -> Outcome {
    const NONBLOCKING: usize = 4;
    const UNLOCK: usize = 8;
    let [fd, operation, ..] = frame.args();
    if !is_multiplexed() || operation & (NONBLOCKING | UNLOCK) != 0 {
        return Outcome::PASS;
    }
    // SAFETY: no memory is involved.
    match unsafe { sys!(nr::__NR_flock, fd, operation | NONBLOCKING) } {
        EAGAIN => wait(frame, Restart::AsAsked),
        result => Outcome::of(result),
    }
}

/// `fcntl(2)`: waiting for a lock; everything else passes, a change of the mode after it was noted.
pub extern "C" fn fcntl(frame: &Frame) -> Outcome {
    const F_SETFL: usize = nr::F_SETFL as usize;
    const F_SETLKW: usize = nr::F_SETLKW as usize;
    const F_OFD_SETLKW: usize = nr::F_OFD_SETLKW as usize;
    let [fd, _, lock, ..] = frame.args();
    let command = frame.word(1) as usize;
    if command == F_SETFL {
        forget_mode(fd);
    }
    if !matches!(command, F_SETLKW | F_OFD_SETLKW) || !is_multiplexed() {
        return Outcome::PASS;
    }
    // SAFETY: the program's own structure; the command's predecessor is the same without the wait.
    match unsafe { sys!(nr::__NR_fcntl, fd, command - 1, lock) } {
        result if result == EAGAIN || result == err(errno::EACCES) => wait(frame, Restart::AsAsked),
        result => Outcome::of(result),
    }
}

/// `mq_timedsend(2)`, `mq_timedreceive(2)`.
pub extern "C" fn mq_timed(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let mut args = frame.args();
    if args[4] == 0 {
        let passed = Timespec::from_ns(0);
        args[4] = (&raw const passed).expose_provenance();
        // SAFETY: the program's own call with a live time limit.
        let result = unsafe { syscall6(frame.number(), args) };
        if result != err(errno::ETIMEDOUT) {
            return Outcome::of(result);
        }
    }
    wait(frame, Restart::AsAsked)
}

/// `msgsnd(2)`.
pub extern "C" fn msgsnd(frame: &Frame) -> Outcome {
    message(frame, 3, EAGAIN)
}

/// `msgrcv(2)`.
pub extern "C" fn msgrcv(frame: &Frame) -> Outcome {
    message(frame, 4, err(errno::ENOMSG))
}

fn message(frame: &Frame, flags: usize, fruitless: isize) -> Outcome {
    let mut args = frame.args();
    if !is_multiplexed() || args[flags] & NOWAIT != 0 {
        return Outcome::PASS;
    }
    args[flags] |= NOWAIT;
    // SAFETY: the program's own call, without the wait.
    match unsafe { syscall6(frame.number(), args) } {
        result if result == fruitless => wait(frame, Restart::Never),
        result => Outcome::of(result),
    }
}

/// `io_getevents(2)`, `io_pgetevents(2)`: the program's own AIO contexts.
pub extern "C" fn io_getevents(frame: &Frame) -> Outcome {
    let mut args = frame.args();
    let [_, least, _, _, _, mask] = args;
    let limit = frame.user::<Timespec>(4);
    let is_masked = frame.number() == nr::__NR_io_pgetevents && mask != 0;
    if !is_multiplexed() || least == 0 || is_masked {
        return Outcome::PASS;
    }
    let is_short = if limit.is_null() {
        false
    } else {
        match limit.read() {
            Ok(time) => time.to_ns() == Some(0),
            Err(errno) => return Outcome::of(errno),
        }
    };
    if least == 1 {
        let nothing = Timespec::from_ns(0);
        args[4] = (&raw const nothing).expose_provenance();
        // SAFETY: the program's own call with a live time limit.
        let got = unsafe { syscall6(frame.number(), args) };
        if got != 0 {
            return Outcome::of(got);
        }
    }
    if is_short {
        return Outcome::PASS;
    }
    wait(frame, Restart::Never)
}

/// `semop(2)`, `semtimedop(2)`: few operations without a time limit are tried.
pub extern "C" fn semop(frame: &Frame) -> Outcome {
    /// `struct sembuf`: number, operation, flags.
    type Operation = [u8; 6];
    const FLAGS: usize = 4; // of two bytes
    const MOST: usize = 8;
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let (set, count) = (frame.arg(0), frame.word(2) as usize);
    let timed = frame.number() == nr::__NR_semtimedop && frame.arg(3) != 0;
    if timed || count > MOST {
        return wait(frame, Restart::Never);
    }
    let mut operations = [Operation::default(); MOST];
    let theirs = frame.user::<Operation>(1);
    if theirs.read_all(&mut operations[..count]).is_err() {
        return Outcome::PASS; // the kernel finds the right errno
    }
    for operation in &mut operations {
        operation[FLAGS + 1] |= (NOWAIT >> 8) as u8;
    }
    // SAFETY: live structures of the kernel's layout.
    match unsafe { sys!(nr::__NR_semop, set, operations.as_ptr(), count) } {
        EAGAIN => wait(frame, Restart::Never),
        result => Outcome::of(result),
    }
}
