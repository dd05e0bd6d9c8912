//! `pidfd_send_signal(2)` to this process, which is answered like `kill` and `tgkill`.
//!
//! From Linux 6.13 on the kernel tells which process a descriptor names (`PIDFD_GET_INFO`), and
//! before that `/proc` does. If neither does, or for a directory of `/proc`, the kernel sends the
//! signal, which reaches the process like one from outside.

use super::SI_TKILL;
use crate::frame::{Frame, Outcome};
use crate::signal::calls::{self, from_ourselves, is_routed_here};
use crate::signal::{groups, info, processes, routing};
use crate::user::User;
use core::sync::atomic::Ordering;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sys::abi::SigInfo;
use raddle_sys::{err, errno, is_err, nr, sys};

/// Instead of a descriptor: the calling thread, and its process (Linux 6.15).
const PIDFD_SELF_THREAD: i32 = nr::PIDFD_SELF_THREAD;
const SELF_PROCESS: i32 = -10_001;

/// The known flags.
const TO_THREAD: usize = 1;
const TO_PROCESS: usize = 2;
const TO_GROUP: usize = 4;

/// What gets the signal.
#[derive(Clone, Copy)]
enum Receiver<'a> {
    Thread(&'a Thread),
    Process,
}

/// `pidfd_send_signal(2)`.
pub extern "C" fn pidfd_send_signal(frame: &Frame) -> Outcome {
    let (fd, signal) = (frame.word(0) as i32, frame.word(1));
    let flags = frame.arg(3);
    if !is_routed_here(signal) || !names_us(fd) {
        return Outcome::PASS;
    }
    let is_main = Carrier::current().thread().tid() == PROCESS.pid.load(Ordering::Relaxed);
    // The kernel takes the carrier for the calling thread.
    let is_own_threads_group = flags == TO_GROUP && fd == PIDFD_SELF_THREAD;
    let named = if is_own_threads_group {
        SELF_PROCESS
    } else {
        fd
    };
    let call = |signal: u32, info: usize| {
        // SAFETY: the program's own call, or a part of it.
        unsafe { sys!(nr::__NR_pidfd_send_signal, named, signal, info, flags) }
    };
    // No signal is sent: the kernel checks the flags first, and the descriptor.
    let checked = call(0, 0);
    if is_err(checked) {
        return Outcome::of(checked);
    }
    if is_own_threads_group && !is_main {
        return Outcome::of(err(errno::ESRCH)); // no group has the thread's id
    }
    if flags == TO_GROUP {
        return Outcome::of(groups::send_to_own(signal, || call(signal, frame.arg(2))));
    }
    let receiver = receiver(fd, flags);
    match read_info(
        frame.arg(2),
        signal,
        receiver,
        is_main || fd == PIDFD_SELF_THREAD,
    ) {
        Ok(info) => {
            match receiver {
                Receiver::Thread(thread) => return calls::queue(thread, &info),
                Receiver::Process => routing::to_process(&info),
            }
            calls::sent(signal);
            Outcome::of(0)
        }
        Err(errno) => Outcome::of(errno),
    }
}

/// Returns true if `fd` names this process, or a thread of it that the kernel knows.
fn names_us(fd: i32) -> bool {
    /// `PIDFD_GET_INFO`, and the first words of its structure.
    const GET_INFO: usize = 0xC040_FF0B;
    const WORDS: usize = 8;
    const IDS: usize = 2;
    if fd == PIDFD_SELF_THREAD || fd == SELF_PROCESS {
        return true;
    }
    let mut info = [0u64; WORDS];
    // SAFETY: the kernel fills the structure.
    let result = unsafe { sys!(nr::__NR_ioctl, fd, GET_INFO, info.as_mut_ptr()) };
    if is_err(result) {
        let ask_procfs = || processes::is_own(fd as u32);
        return PROCESS.filters.unless_any(ask_procfs).unwrap_or(false);
    }
    (info[IDS] >> 32) as u32 == PROCESS.pid.load(Ordering::Relaxed)
}

/// Returns the receiver that a descriptor of this process names. A descriptor for a single thread
/// names the main one: the kernel knows no other.
fn receiver<'a>(fd: i32, flags: usize) -> Receiver<'a> {
    /// `PIDFD_THREAD`.
    const OF_THREAD: isize = 0o200;
    const F_GETFL: usize = nr::F_GETFL as usize;
    // SAFETY: a plain query.
    let is_of_thread = || unsafe { sys!(nr::__NR_fcntl, fd, F_GETFL) } & OF_THREAD != 0;
    let to_thread = match flags {
        TO_THREAD => true,
        TO_PROCESS => false,
        _ => fd == PIDFD_SELF_THREAD || fd != SELF_PROCESS && is_of_thread(),
    };
    let named = match fd {
        PIDFD_SELF_THREAD => Some(Carrier::current().thread()),
        _ => PROCESS.find(PROCESS.pid.load(Ordering::Relaxed)),
    };
    match named {
        Some(thread) if to_thread => Receiver::Thread(thread),
        _ => Receiver::Process,
    }
}

/// Returns the signal's `siginfo`. Only a thread that the descriptor names (`is_named`) may claim
/// that the kernel sent it.
fn read_info(
    at: usize,
    signal: u32,
    receiver: Receiver<'_>,
    is_named: bool,
) -> Result<SigInfo, isize> {
    const SI_USER: i32 = nr::SI_USER as i32;
    if at == 0 {
        let code = match receiver {
            Receiver::Thread(_) => SI_TKILL,
            Receiver::Process => SI_USER,
        };
        return Ok(from_ourselves(signal, code));
    }
    let said: SigInfo = User::at(at).read_start(size_of::<i32>(), SigInfo::EMPTY)?;
    let info = info::read(User::at(at), said.signo as u32)?;
    if info.signo as u32 != signal {
        return Err(err(errno::EINVAL));
    }
    if !is_named && (info.code >= 0 || info.code == SI_TKILL) {
        Err(err(errno::EPERM))
    } else {
        Ok(info)
    }
}
