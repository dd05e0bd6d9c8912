//! Waiting for children: `wait4(2)` and `waitid(2)`.
//!
//! A thread that waits for the end of a child parks until the next SIGCHLD, and then asks the
//! kernel. That costs no kernel thread. It needs two conditions: the program doesn't ignore
//! SIGCHLD, so that the kernel sends the signal for each end of a child; and no descriptor of
//! `signalfd(2)` reads SIGCHLD, so that the runtime receives it. Otherwise, and for every other
//! kind of wait, a helper blocks in the kernel.
//!
//! The only thread of a process waits in the kernel, since no other thread wants its carrier.
//!
//! Several ends of children may raise one signal, and the signal doesn't say which thread waits for
//! its child. So each signal wakes all threads that wait here, at most [`MOST`].
//!
//! The kernel prefers the thread that made the child as the signal's receiver. So a table maps
//! children to the green threads that made them ([`note_maker`]), and the router prefers these
//! ([`maker`]). A row is overwritten when the id of another child falls on it; the router then
//! prefers the main thread.
//!
//! No signal is missed. A waiting thread is counted in [`WAITING`], reads [`EVENTS`], asks the
//! kernel, and parks while [`EVENTS`] is the same. The router raises [`EVENTS`], then reads
//! [`WAITING`].
//!
//! The kernel sends the signal before the child can be taken. So in Linux a handler of the waiting
//! thread runs before its call returns, and the call returns the child rather than EINTR. Three
//! steps give the same order here. The router gives the signal to its thread before it raises
//! [`EVENTS`]. A call that has taken a child routes a signal that no carrier has handled yet
//! ([`fetch_signal`]). A call that a signal interrupts asks the kernel once more
//! ([`ask_after_signal`]).

use super::bit;
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::signal::actions::{self, CHLD};
use crate::signal::routing::fetch_signal;
use crate::signal::{self, held};
use crate::user::User;
use crate::words;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sched::timers::NEVER;
use raddle_sys::abi::SigInfo;
use raddle_sys::{err, errno, is_err, nr, syscall6};

const WNOHANG: usize = raddle_sys::nr::WNOHANG as usize;
/// What [`ask_waitid`] returns for a child.
const TAKEN: isize = 1;

/// The most threads that wait for the signal: more would wake each other too often.
const MOST: u32 = 64;

/// Threads that wait for the next signal. SeqCst, like [`EVENTS`]: see the module.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// Raised by each SIGCHLD, and by each change of the program's action for it.
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// The number of rows of [`MAKERS`].
const ROWS: usize = 512;

/// The makers of children: a child's id in the upper half, its maker's in the lower. The row of a
/// child is its id modulo [`ROWS`]. Written by the maker after the call, read by the router of a
/// signal.
static MAKERS: [AtomicU64; ROWS] = [const { AtomicU64::new(0) }; ROWS];

fn row(child: u32) -> &'static AtomicU64 {
    &MAKERS[child as usize % ROWS]
}

/// Notes that the running thread has made the process `child`. The main thread needs no row.
pub fn note_maker(child: u32) {
    if !is_multiplexed() {
        return;
    }
    let tid = Carrier::current().thread().tid();
    let row = row(child);
    if tid != PROCESS.pid.load(Ordering::Relaxed) {
        row.store(u64::from(child) << 32 | u64::from(tid), Ordering::Relaxed);
    } else if row.load(Ordering::Relaxed) >> 32 == u64::from(child) {
        row.store(0, Ordering::Relaxed); // an earlier child had the same id
    }
}

/// Returns the maker of the child that `info` tells of, if the maker lives and isn't the main
/// thread. The signal is SIGCHLD, or the one that the child was made with.
pub fn maker<'a>(info: &SigInfo) -> Option<&'a Thread> {
    const CLD_EXITED: i32 = raddle_sys::nr::CLD_EXITED as i32;
    const CLD_CONTINUED: i32 = raddle_sys::nr::CLD_CONTINUED as i32;
    if !(CLD_EXITED..=CLD_CONTINUED).contains(&info.code) {
        return None;
    }
    let child = info.pid as u32;
    let noted = row(child).load(Ordering::Relaxed);
    if noted >> 32 == u64::from(child) {
        PROCESS.find(noted as u32)
    } else {
        None
    }
}

/// `wait4(2)` and `waitid(2)`.
///
/// `waitid` isn't tried first: a child that can be taken at once is rare.
pub extern "C" fn wait(frame: &Frame) -> Outcome {
    let is_waitid = frame.number() == nr::__NR_waitid;
    let options = frame.arg(if is_waitid { 3 } else { 2 });
    if !is_multiplexed() || PROCESS.is_single() {
        return Outcome::PASS;
    }
    let result = if options & WNOHANG != 0 {
        // SAFETY: the program's own call, which doesn't wait.
        unsafe { frame.raw() }
    } else if is_waitid {
        wait_by_helper(frame)
    } else {
        match (ask(frame), options) {
            (0, 0) => wait_for_signal(frame).unwrap_or_else(|| wait_by_helper(frame)),
            (0, _) => wait_by_helper(frame),
            (result, _) => result,
        }
    };
    if !is_err(result) {
        fetch_signal(CHLD);
    }
    Outcome::of(result)
}

/// Returns what Linux returns rather than EINTR: the child that can be taken now; 0 if none can.
fn ask_after_signal(frame: &Frame) -> isize {
    let result = if frame.number() == nr::__NR_waitid {
        ask_waitid(frame)
    } else {
        ask(frame)
    };
    if result != 0 {
        // The signal that has interrupted the wait is delivered at the end of the call.
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
    result
}

/// Makes the program's `waitid` without the wait. Returns 1 if a child was taken, 0 if none could
/// be: the kernel returns 0 for both.
fn ask_waitid(frame: &Frame) -> isize {
    let mut info = SigInfo::EMPTY;
    let mut args = frame.args();
    args[2] = (&raw mut info).addr();
    args[3] |= WNOHANG;
    // SAFETY: the program's own call, with a structure of the runtime's.
    let result = unsafe { syscall6(frame.number(), args) };
    if result != 0 || info.signo == 0 {
        return result;
    }
    // The kernel leaves a gap behind the first three words.
    let [at, words] = [frame.arg(2), 3 * size_of::<u32>()];
    let first = [info.signo as u32, info.errno as u32, info.code as u32];
    let second = [info.pid as u32, info.uid, info.value as u32];
    let gap = words + size_of::<u32>();
    let written = match at {
        0 => Ok(()),
        _ => User::at(at)
            .write(&first)
            .and_then(|()| User::at(at + gap).write(&second)),
    };
    match written {
        Ok(()) => TAKEN,
        Err(errno) => errno,
    }
}

/// Makes the program's `wait4` without the wait.
fn ask(frame: &Frame) -> isize {
    let mut args = frame.args();
    args[2] |= WNOHANG;
    // SAFETY: the program's own call.
    unsafe { syscall6(frame.number(), args) }
}

/// Waits by signals. Returns the call's result; `None` if a helper has to wait.
fn wait_for_signal(frame: &Frame) -> Option<isize> {
    loop {
        let result = wait_once(frame)?;
        if result == err(errno::EINTR) {
            match ask_after_signal(frame) {
                0 => {}
                result => return Some(result),
            }
            // Handlers run here, and may never return.
            if signal::deliver(true) {
                return Some(result);
            }
        } else if result != 0 {
            return Some(result);
        }
    }
}

/// Waits until the next signal. Returns 0 then, EINTR for another reason, or the kernel's answer if
/// it needs no wait; `None` if a helper has to wait.
fn wait_once(frame: &Frame) -> Option<isize> {
    let before = WAITING.fetch_add(1, Ordering::SeqCst);
    let seen = EVENTS.load(Ordering::SeqCst);
    let result = if before >= MOST || !is_announced() {
        None
    } else {
        match ask(frame) {
            0 => Some(wait_for_event(seen, frame.arg(0))),
            result => Some(result),
        }
    };
    WAITING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Waits while [`EVENTS`] has the value `seen`. Returns 0 or EINTR.
fn wait_for_event(seen: u32, whom: usize) -> isize {
    let address = (&raw const EVENTS).addr();
    let told = [whom, 0];
    match words::wait_as(address, seen, u32::MAX, NEVER, WaitKind::CHILD, told) {
        result if result == err(errno::EINTR) => result,
        _ => 0,
    }
}

/// Returns true if the kernel sends a signal for each end of a child that is waited for without
/// options, and the signal comes to [`note`].
fn is_announced() -> bool {
    let is_read = held::is_read(CHLD) || held::mask() & bit(CHLD) != 0;
    !is_read && actions::hears_children()
}

/// Notes that a SIGCHLD has come, or that the program's treatment of SIGCHLD has changed.
pub fn note() {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    if WAITING.load(Ordering::SeqCst) != 0 {
        words::wake((&raw const EVENTS).addr(), usize::MAX, u32::MAX);
    }
}

/// Forgets waiting threads, in the child of a fork, which has none.
pub fn in_child() {
    if WAITING.load(Ordering::Relaxed) != 0 {
        WAITING.store(0, Ordering::Relaxed);
    }
}

fn wait_by_helper(frame: &Frame) -> isize {
    loop {
        let thread = Carrier::current().thread();
        let whom = frame.arg(usize::from(frame.number() == nr::__NR_waitid));
        thread.waits_for(WaitKind::CHILD, whom, 0);
        // SAFETY: the program's own call.
        let result = unsafe { PROCESS.helpers.call(frame.number(), frame.args()) };
        if result != err(errno::EINTR) {
            return result;
        }
        match ask_after_signal(frame) {
            0 => {}
            TAKEN if frame.number() == nr::__NR_waitid => return 0,
            result => return result,
        }
        if signal::deliver(true) {
            return result;
        }
    }
}
