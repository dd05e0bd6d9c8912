//! Stops and continuations.
//!
//! In Linux SIGCONT discards every stop signal that pends, blocked or not, and a stop signal every
//! SIGCONT (`signal(7)`). Here both pend in queues of the runtime's, and some have come to a
//! carrier that hasn't looked yet. So each SIGCONT begins a new *turn*, when its handler begins to
//! run or its sender to send it. A stop signal is marked with the turn that it came in. No thread
//! takes a stop signal of an earlier turn; the router of the SIGCONT drops those that pend.
//!
//! Most programs never block a stop signal, and the kernel acts upon it, which is the best choice
//! ([`actions::watch`]); the runtime acts if some thread has blocked one.
//!
//! A terminal asks for a stop at each restart of a call, so one stop signal of a kind with its
//! default action is *on its way* at a time. A signal that the kernel has given to a carrier may be
//! handled after the SIGCONT, and is then taken for a later one: a terminal's are dropped if the
//! process isn't in the background any more ([`is_stale`]).

use super::bit;
use crate::signal::{actions, routing};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_engine::{Carrier, PROCESS};
use raddle_sys::abi::SigInfo;
use raddle_sys::{change_signal_mask, is_err, nr, sys};

const CONT: u32 = 18;
/// SIGTSTP, SIGTTIN, SIGTTOU.
pub const STOPS: u64 = bit(20) | bit(21) | bit(22);
/// Signals that discard one another.
pub const JOB_CONTROL: u64 = bit(CONT) | STOPS;

/// Stop signals with their default action. Written with the actions, read in the signal handler.
static STOPPING: AtomicU64 = AtomicU64::new(0);

/// The turn, in units of [`TURN`], and which stop signals are on their way ([`flags`]).
static STATE: AtomicU32 = AtomicU32::new(TURN);
const TURN: u32 = 8;

/// Stop signals as bits of the state.
const fn flags(stops: u64) -> u32 {
    (stops >> 19) as u32 & (TURN - 1)
}

/// The mark of a stop signal that comes in this state; never 0, which is the absence of a mark.
const fn mark(state: u32) -> i32 {
    (state / TURN) as i32
}

/// The program has set the action of `signal`.
pub fn note_action(signal: u32, is_default: bool) {
    no_more(bit(signal));
    if is_default {
        STOPPING.fetch_or(bit(signal) & STOPS, Ordering::Relaxed);
    } else {
        STOPPING.fetch_and(!bit(signal), Ordering::Relaxed);
    }
}

/// Returns one of [`JOB_CONTROL`] that has come to this carrier as it is to be recorded, if it is.
///
/// # Signal safety
/// For the carrier's handler.
pub fn arrives(info: &SigInfo) -> Option<SigInfo> {
    let signal = info.signo as u32;
    if signal == CONT {
        continues();
        return Some(*info);
    }
    let flag = flags(bit(signal) & STOPPING.load(Ordering::Relaxed));
    let before = STATE.fetch_or(flag, Ordering::SeqCst);
    (before & flag == 0).then(|| marked(info, before))
}

/// Returns a signal that the process sends itself as it is to be queued.
pub fn sent(info: &SigInfo) -> SigInfo {
    match info.signo as u32 {
        CONT => continues(),
        signal if bit(signal) & STOPS != 0 => return marked(info, STATE.load(Ordering::SeqCst)),
        _ => {}
    }
    *info
}

/// The process is about to send itself a signal by the kernel.
pub fn before_kill(signal: u32) {
    if signal == CONT {
        continues();
        discard(STOPS, is_over);
    }
}

fn marked(info: &SigInfo, state: u32) -> SigInfo {
    SigInfo {
        pad: mark(state),
        ..*info
    }
}

/// Begins a new turn, in which no stop is on its way.
fn continues() {
    let next = |state: u32| Some((state & !(TURN - 1)).wrapping_add(TURN).max(TURN));
    let _ = STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
}

/// These stop signals have been taken.
pub fn no_more(signals: u64) {
    STATE.fetch_and(!flags(signals & STOPS), Ordering::SeqCst);
}

/// Returns true for a stop signal that a SIGCONT has discarded.
pub fn is_over(info: &SigInfo) -> bool {
    let is_stop = bit(info.signo as u32) & STOPS != 0;
    is_stop && info.pad != 0 && info.pad != mark(STATE.load(Ordering::SeqCst))
}

/// Lets a signal that is about to be given to a thread discard others. Returns false if it is
/// discarded itself.
pub fn takes_effect(info: &SigInfo) -> bool {
    let signal = info.signo as u32;
    if bit(signal) & JOB_CONTROL == 0 {
        return true;
    }
    if is_over(info) {
        return false;
    }
    match signal {
        CONT => discard(STOPS, is_over),
        _ => discard(bit(CONT), |_| true),
    }
    true
}

fn discard(set: u64, fits: fn(&SigInfo) -> bool) {
    for signal in (CONT..=super::SIGNALS).filter(|&signal| set & bit(signal) != 0) {
        routing::discard(signal, fits);
    }
}

/// Returns true for a stop signal of a terminal if the process isn't in its background any more:
/// the call was restarted again and again until the process stopped, and one of its signals may
/// have been on its way to a handler all the while. No call depends on it.
pub fn is_stale(info: &SigInfo) -> bool {
    const TTIN: i32 = 21;
    const TTOU: i32 = 22;
    const BY_KERNEL: i32 = 0x80;
    const NOCTTY_CLOEXEC: usize = 0o2000400;
    if !matches!(info.signo, TTIN | TTOU) || info.code != BY_KERNEL {
        return false;
    }
    // SAFETY: a path that lives, and a descriptor that only this function knows.
    let is_stale = unsafe {
        let fd = sys!(nr::__NR_open, c"/dev/tty".as_ptr(), NOCTTY_CLOEXEC);
        if is_err(fd) {
            return false;
        }
        let is_stale = !is_in_background(fd as usize);
        sys!(nr::__NR_close, fd);
        is_stale
    };
    if is_stale {
        no_more(bit(info.signo as u32));
    }
    is_stale
}

/// Stops the process by `signal`, as the kernel does by default; returns once it is continued.
///
/// The signal pends before the kernel may act on it: if another kernel thread causes the stop in
/// this moment, SIGCONT discards this signal, and the process doesn't stop twice.
pub fn stop(signal: u32) {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
    // SAFETY: signals this very kernel thread.
    let mask = unsafe {
        let mask = change_signal_mask(nr::SIG_BLOCK, bit(signal));
        sys!(nr::__NR_tgkill, pid, own, signal);
        mask
    };
    actions::surrender(signal);
    // SAFETY: the mask from before.
    unsafe { change_signal_mask(nr::SIG_SETMASK, mask) }; // stops here
    no_more(STOPS);
    actions::take_back(signal);
}

/// Returns true if the calling process is in the background of its controlling terminal. The master
/// of a terminal controls no process.
pub fn is_in_background(fd: usize) -> bool {
    const TIOCGPGRP: usize = 0x540f;
    const TIOCGPTN: usize = 0x80045430;
    let (mut foreground, mut number) = (0u32, 0u32);
    // SAFETY: the kernel fills live words.
    let (asked, own, is_slave) = unsafe {
        (
            sys!(nr::__NR_ioctl, fd, TIOCGPGRP, &raw mut foreground),
            sys!(nr::__NR_getpgid, 0usize),
            is_err(sys!(nr::__NR_ioctl, fd, TIOCGPTN, &raw mut number)),
        )
    };
    !is_err(asked) && own != foreground as isize && is_slave
}
