//! The system calls about signals.

use super::{LIBC_INTERNAL, MASK_BYTES, SI_TKILL, SIGNALS, UNBLOCKABLE, bit, deliver, deliver_at};
use crate::clocks::deadlines::relative_deadline;
use crate::frame::{Frame, Outcome};
use crate::kernel_threads;
use crate::mode::is_virtual;
use crate::signal::delivery::deliverable;
use crate::signal::routing::{self, Process, process_pending};
use crate::signal::stops::{self, JOB_CONTROL};
use crate::signal::{actions, fatal, groups, held, info};
use crate::user::{Plain, User};
use core::sync::atomic::Ordering;
use raddle_engine::signals::{Progress, RECORDS, RECORDS_MAX};
use raddle_engine::thread::{TID_BASE, WaitKind};
use raddle_engine::{Carrier, PROCESS, Thread, preemption, switch};
use raddle_sched::Wake;
use raddle_sched::routes::Routes;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::{SigAction, SigInfo};
use raddle_sys::{err, errno, nr, sys};

/// The code of a signal that `kill` sent.
const SI_USER: i32 = nr::SI_USER as i32;

/// Flags of an action that the kernel knows; it drops the others.
const KNOWN_FLAGS: u64 = actions::SA_NOCLDSTOP
    | actions::SA_NOCLDWAIT
    | actions::SA_SIGINFO
    | actions::SA_EXPOSE_TAGBITS
    | actions::SA_RESTORER
    | actions::SA_ONSTACK
    | actions::SA_RESTART
    | actions::SA_NODEFER
    | actions::SA_RESETHAND;

/// `rt_sigaction(2)`.
pub extern "C" fn rt_sigaction(frame: &Frame) -> Outcome {
    let signal = frame.word(0);
    if !is_virtual() || frame.arg(3) != MASK_BYTES {
        return Outcome::PASS;
    }
    let new = match frame.user::<SigAction>(1) {
        none if none.is_null() => None,
        at => match at.read() {
            Ok(action) => Some(action),
            Err(errno) => return Outcome::of(errno),
        },
    };
    let is_signal = (1..=SIGNALS).contains(&signal);
    if !is_signal || new.is_some() && UNBLOCKABLE & bit(signal) != 0 {
        return Outcome::of(err(errno::EINVAL));
    }
    deliver_first();
    let before = match new {
        None => actions::get(signal),
        Some(mut action) => {
            action.mask &= !UNBLOCKABLE;
            action.flags &= KNOWN_FLAGS;
            let before = actions::set(signal, &action);
            if actions::does_nothing(signal, action.handler) {
                routing::discard(signal, |_| true);
            }
            before
        }
    };
    tell(frame.user(2), &before)
}

/// Copies a result out, if the program wants it, and ends the call.
fn tell<T: Plain>(to: User<T>, value: &T) -> Outcome {
    let told = if to.is_null() {
        Ok(())
    } else {
        to.write(value)
    };
    Outcome::of(told.err().unwrap_or(0))
}

/// `rt_sigprocmask(2)`: the green thread's mask, without the kernel.
pub extern "C" fn rt_sigprocmask(frame: &Frame) -> Outcome {
    if !is_virtual() {
        return Outcome::PASS;
    }
    if frame.arg(3) != MASK_BYTES {
        return Outcome::of(err(errno::EINVAL));
    }
    deliver_first();
    let thread = Carrier::current().thread();
    let (set, to) = (frame.user::<u64>(1), frame.user(2));
    let old = thread.signals.mask.load(Ordering::Relaxed);
    if !set.is_null() {
        let set = match set.read() {
            Ok(set) => set,
            Err(errno) => return Outcome::of(errno),
        };
        let new = match frame.word(0) {
            0 => old | set,
            1 => old & !set,
            2 => set,
            _ => return Outcome::of(err(errno::EINVAL)),
        } & !UNBLOCKABLE;
        if set & LIBC_INTERNAL == 0 {
            if old & LIBC_INTERNAL != 0 {
                actions::libc_opens(new);
            } else if new & !old != 0 {
                actions::watch(new & !old);
            }
        }
        set_mask(thread, new);
    }
    tell(to, &old)
}

/// Handles the signals that came before a call that changes masks or actions. The kernel never
/// returns to a program with a signal that it could deliver; here one can come between a call's
/// last look and its end, and stay until the next call.
#[inline(always)]
pub fn deliver_first() {
    let carrier = Carrier::current();
    if carrier.attention.load(Ordering::Relaxed) != 0 || deliverable(carrier.thread()) != 0 {
        deliver_at(Progress::Begins);
        // Other requests for attention are handled at the end of the call.
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// Gives a thread, the running one, its mask.
pub(crate) fn set_mask(thread: &Thread, mask: u64) {
    Process.set_mask(thread, mask);
    let pending = thread.signals.pending.load(Ordering::SeqCst) | process_pending();
    if pending & !mask != 0 {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }
}

/// `rt_sigpending(2)`: the first bytes of the set.
pub extern "C" fn rt_sigpending(frame: &Frame) -> Outcome {
    let bytes = frame.arg(1);
    if !is_virtual() || bytes > MASK_BYTES {
        return Outcome::PASS;
    }
    let signals = &Carrier::current().thread().signals;
    let pending = signals.pending.load(Ordering::Acquire) | process_pending();
    let blocked = (pending | held::pending()) & signals.mask.load(Ordering::Relaxed);
    let told = frame.user(0).write_start(&blocked, bytes);
    Outcome::of(told.err().unwrap_or(0))
}

/// `kill(2)`. A signal to this process is routed here: the kernel would give it to any carrier, and
/// a signal that the caller accepts has to be delivered before the call returns.
pub extern "C" fn kill(frame: &Frame) -> Outcome {
    let signal = frame.word(1);
    if !is_for_us(frame.word(0), signal) {
        if is_virtual() && frame.word(0) == PROCESS.pid.load(Ordering::Relaxed) {
            stops::before_kill(signal);
        }
        return match groups::send(frame, frame.word(0) as i32, signal) {
            outcome if outcome.is_pass() => kernel_threads::of_process(frame),
            outcome => outcome,
        };
    }
    let named = PROCESS.find(frame.word(0));
    routing::to_process_by(&from_ourselves(signal, SI_USER), named);
    sent(signal);
    Outcome::of(0)
}

/// `rt_sigqueueinfo(2)`, likewise. The kernel gets the copy of what it has to send.
pub extern "C" fn rt_sigqueueinfo(frame: &Frame) -> Outcome {
    let (id, signal) = (frame.word(0), frame.word(1));
    if !is_virtual() || !is_ours(id) {
        return kernel_threads::of_process(frame);
    }
    let info = match info::read(frame.user(2), signal) {
        Ok(info) => info,
        Err(errno) => return Outcome::of(errno),
    };
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let is_restricted = info::is_restricted(&info);
    if is_restricted && id != Carrier::current().thread().tid() {
        return Outcome::of(err(errno::EPERM));
    }
    if is_for_us(id, signal) {
        if has_no_room(&info) {
            return Outcome::of(err(errno::EAGAIN));
        }
        routing::to_process_by(&info, PROCESS.find(id));
        sent(signal);
        return Outcome::of(0);
    }
    // SAFETY: the kernel reads a live structure. It would refuse a restricted one from any kernel
    // thread but the first.
    Outcome::of(unsafe {
        if is_restricted {
            sys!(nr::__NR_kill, pid, signal)
        } else {
            sys!(nr::__NR_rt_sigqueueinfo, pid, signal, &raw const info)
        }
    })
}

/// Returns true for the id of this process or of one of its threads.
fn is_ours(id: u32) -> bool {
    PROCESS.is_started()
        && (id == PROCESS.pid.load(Ordering::Relaxed)
            || id >= TID_BASE && PROCESS.find(id).is_some())
}

/// Returns true if `id` is this process and the signal is routed in user space. The kernel stops
/// and continues processes, and keeps signals that a descriptor reads and no thread accepts.
fn is_for_us(id: u32, signal: u32) -> bool {
    is_routed_here(signal) && is_ours(id)
}

/// Returns true if a signal that the process sends itself is routed in user space.
pub(crate) fn is_routed_here(signal: u32) -> bool {
    let routed = !(UNBLOCKABLE | JOB_CONTROL);
    is_virtual()
        && PROCESS.is_started()
        && (1..=SIGNALS).contains(&signal)
        && routed & bit(signal) != 0
        && (!held::is_read(signal) || routing::is_accepted(signal))
}

/// `tgkill(2)`.
pub extern "C" fn tgkill(frame: &Frame) -> Outcome {
    if frame.word(0) != PROCESS.pid.load(Ordering::Relaxed) {
        return Outcome::PASS;
    }
    send(frame.word(1), frame.word(2))
}

/// `tkill(2)`.
pub extern "C" fn tkill(frame: &Frame) -> Outcome {
    send(frame.word(0), frame.word(1))
}

/// `rt_tgsigqueueinfo(2)`.
pub extern "C" fn rt_tgsigqueueinfo(frame: &Frame) -> Outcome {
    let [group, tid, signal] = [0, 1, 2].map(|index| frame.word(index));
    if !is_virtual() {
        return Outcome::PASS;
    }
    let info = match info::read(frame.user(3), signal) {
        Ok(info) => info,
        Err(errno) => return Outcome::of(errno),
    };
    if (tid as i32) <= 0 || (group as i32) <= 0 {
        return Outcome::of(err(errno::EINVAL));
    }
    if info::is_restricted(&info) && tid != Carrier::current().thread().tid() {
        return Outcome::of(err(errno::EPERM));
    }
    if group != PROCESS.pid.load(Ordering::Relaxed) {
        return match PROCESS.find(tid) {
            Some(_) => Outcome::of(err(errno::ESRCH)), // it is no thread of that process
            None => Outcome::PASS,
        };
    }
    match PROCESS.find(tid) {
        Some(thread) => queue(thread, &info),
        None => Outcome::of(err(errno::ESRCH)),
    }
}

fn send(tid: u32, signal: u32) -> Outcome {
    let Some(thread) = PROCESS.find(tid) else {
        return if (tid as i32) >= TID_BASE as i32 {
            Outcome::of(err(errno::ESRCH))
        } else {
            Outcome::PASS
        };
    };
    if !is_virtual() {
        return Outcome::PASS;
    }
    queue(thread, &from_ourselves(signal, SI_TKILL))
}

/// Lets the thread that takes the signal run first, after the process has sent itself one.
pub(crate) fn sent(signal: u32) {
    fatal::after_sending(signal);
    preemption::let_signalled_run();
}

/// Returns the kernel's `siginfo` of a signal that the process sent itself.
pub(crate) fn from_ourselves(signal: u32, code: i32) -> SigInfo {
    // SAFETY: a plain query.
    let uid = unsafe { sys!(nr::__NR_getuid) } as u32;
    SigInfo {
        signo: signal as i32,
        code,
        pid: PROCESS.pid.load(Ordering::Relaxed) as i32,
        uid,
        ..SigInfo::EMPTY
    }
}

/// Returns true if a real-time signal with details can't be queued: as many as `RLIMIT_SIGPENDING`
/// allows are. A signal of `kill` goes without details then. Linux counts all processes of a user.
fn has_no_room(info: &SigInfo) -> bool {
    const FIRST_REAL_TIME: i32 = 32;
    const RLIMIT_SIGPENDING: usize = nr::RLIMIT_SIGPENDING as usize;
    if info.signo < FIRST_REAL_TIME || info.code == SI_USER {
        return false;
    }
    let limit = || {
        let mut limits = [u64::MAX; 2];
        // SAFETY: the kernel fills a live structure.
        unsafe { sys!(nr::__NR_getrlimit, RLIMIT_SIGPENDING, limits.as_mut_ptr()) };
        limits[0]
    };
    let limit = PROCESS.filters.unless_any(limit).unwrap_or(u64::MAX);
    let queued = RECORDS.lock().count();
    queued >= RECORDS_MAX || queued as u64 >= limit
}

pub(crate) fn queue(thread: &Thread, info: &SigInfo) -> Outcome {
    let signal = info.signo as u32;
    if signal > SIGNALS {
        return Outcome::of(err(errno::EINVAL));
    }
    if signal == 0 {
        return Outcome::of(0);
    }
    if UNBLOCKABLE & bit(signal) != 0 {
        return Outcome::of(to_kernel(signal));
    }
    if has_no_room(info) {
        return Outcome::of(err(errno::EAGAIN));
    }
    routing::to_thread(thread, &stops::sent(info));
    held::wait_for_first(bit(signal));
    sent(signal);
    Outcome::of(0)
}

/// Sends SIGKILL or SIGSTOP, which end or stop all threads of the process. The calling kernel
/// thread gets the signal, so it executes no further instruction.
fn to_kernel(signal: u32) -> isize {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
    // SAFETY: signals this very kernel thread.
    unsafe { sys!(nr::__NR_tgkill, pid, own, signal) }
}

/// `rt_sigsuspend(2)`.
pub extern "C" fn rt_sigsuspend(frame: &Frame) -> Outcome {
    if !is_virtual() || frame.arg(1) != MASK_BYTES {
        return Outcome::PASS; // the kernel says EINVAL
    }
    match frame.user::<u64>(0).read() {
        Ok(mask) => Outcome::of(suspend(mask & !UNBLOCKABLE)),
        Err(errno) => Outcome::of(errno),
    }
}

/// `pause(2)`.
pub extern "C" fn pause(_: &Frame) -> Outcome {
    if !is_virtual() {
        return Outcome::PASS;
    }
    Outcome::of(suspend(super::own_mask()))
}

fn suspend(mask: u64) -> isize {
    let thread = Carrier::current().thread();
    let signals = &thread.signals;
    actions::watch(mask & !LIBC_INTERNAL & !super::own_mask());
    let old = Process.set_mask(thread, mask);
    loop {
        signals.suspended_mask.set(Some(old));
        if deliver(false) {
            return err(errno::EINTR);
        }
        thread.waits_for(WaitKind::SIGNAL, 0, 0);
        if Process.prepare(thread, !mask) {
            switch::park();
        }
    }
}

/// `rt_sigtimedwait(2)`.
pub extern "C" fn rt_sigtimedwait(frame: &Frame) -> Outcome {
    if !is_virtual() || frame.arg(3) != MASK_BYTES {
        return Outcome::PASS; // the kernel says EINVAL
    }
    let set = frame.user::<u64>(0).read();
    let limits = set.and_then(|set| Ok((set & !UNBLOCKABLE, relative_deadline(frame.user(2))?)));
    let (set, deadline_ns) = match limits {
        Ok(limits) => limits,
        Err(errno) => return Outcome::of(errno),
    };
    let thread = Carrier::current().thread();
    actions::watch(set);
    Process.await_set(thread, set);
    let result = wait_for(set, deadline_ns, frame.user(1));
    Process.await_none(thread, set);
    Outcome::of(result)
}

fn wait_for(set: u64, deadline_ns: u64, info_to: User<SigInfo>) -> isize {
    let thread = Carrier::current().thread();
    loop {
        routing::route();
        if let Some(info) = routing::take(thread, set) {
            stops::no_more(bit(info.signo as u32));
            return match tell(info_to, &info).value() {
                Some(0) | None => info.signo as isize,
                Some(errno) => errno,
            };
        }
        thread.waits_for(
            WaitKind::SIGNAL,
            0,
            if deadline_ns == NEVER { 0 } else { deadline_ns },
        );
        if !Process.prepare(thread, set) {
            continue;
        }
        let outcome = switch::park_until(deadline_ns);
        if outcome == Wake::TimedOut {
            return err(errno::EAGAIN);
        }
        if thread.signals.deliverable() & !set != 0 {
            Process.await_none(thread, set); // a handler may never return
            if deliver(false) {
                return err(errno::EINTR);
            }
            Process.await_set(thread, set);
        }
    }
}
