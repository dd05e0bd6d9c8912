//! Who gets a signal.
//!
//! A signal for the process goes to one thread that accepts it, and waits there for delivery; so
//! the thread that Linux would choose runs the handler, and no other. If that thread ends or blocks
//! the signal first, it is *passed on*: to another thread that accepts it, else it pends for the
//! process. The thread does so after its mask or its life says so; who sends looks at both after
//! the signal is there, so one of them sees the other.

use super::actions::{self, DEFAULT, IGNORE};
use super::kept;
use super::timers::{self, SI_TIMER, Target};
use super::{SI_TKILL, bit, poke};
use crate::descriptors::is_in_background;
use crate::futex::robust;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_engine::helpers::POKE;
use raddle_engine::signals::{Form, SignalQueue};
use raddle_engine::thread::Life;
use raddle_engine::{Carrier, ENGINE, Thread};
use raddle_sched::Wake;
use raddle_sys::abi::{SigInfo, Timespec};
use raddle_sys::{is_err, nr, sys};

/// Pending for the process: nobody accepted it yet. Set by routers, cleared by who takes one.
static PENDING: AtomicU64 = AtomicU64::new(0);
static QUEUE: SignalQueue = SignalQueue::new();

/// Signals pending for the process.
#[inline(always)]
pub fn process_pending() -> u64 {
    PENDING.load(Ordering::Acquire)
}

/// First real-time signal: from here on every instance is queued.
pub const FIRST_QUEUED: u32 = 32;

/// Forgets what is pending for the process.
pub fn reset() {
    // SAFETY: called in the child of a fork, which has one thread.
    unsafe { QUEUE.break_locks() };
    PENDING.store(0, Ordering::Relaxed);
    QUEUE.clear();
}

/// Routes everything that arrived on this carrier. Not on a lock's critical path; takes locks.
pub fn route() {
    kept::look();
    let carrier = Carrier::current();
    while let Some(info) = carrier.arrivals.pop() {
        match meant(carrier, &info) {
            Some(thread) => to_thread(thread, &info),
            None => to_process(&info),
        }
    }
}

/// The thread that the kernel sent a signal to: the main thread, if it was sent before the
/// take-over and pending since, or by another process; or the running one, whose call raised it. A
/// signal that a descriptor reads belongs to the process.
fn meant<'a>(carrier: &Carrier, info: &SigInfo) -> Option<&'a Thread> {
    /// SIGPIPE and SIGXFSZ: the kernel sends them to who writes, in the process's own name. The
    /// process's own `kill` doesn't come this way.
    const RAISED: u64 = bit(13) | bit(25);
    const SI_USER: i32 = 0;
    let pid = ENGINE.pid.load(Ordering::Relaxed);
    let by_us = info.code == SI_USER && info.pid as u32 == pid;
    if by_us && RAISED & bit(info.signo as u32) != 0 {
        return carrier.thread_or_none();
    }
    let directed = info.code == SI_TKILL
        && carrier.kernel_tid.load(Ordering::Relaxed) == pid
        && !kept::is_read(info.signo as u32);
    if directed { ENGINE.find(pid) } else { None }
}

/// A process-directed signal: to a thread that accepts it, else pending.
pub fn to_process(info: &SigInfo) {
    let signal = info.signo as u32;
    if signal as usize == POKE || signal == 0 || signal > super::SIGNALS {
        return;
    }
    match timers::target(info) {
        Target::Process => {}
        Target::Thread(thread) => return to_thread(thread, info),
        Target::Nobody => return,
    }
    let action = actions::get(signal);
    if action.handler == IGNORE {
        return;
    }
    // What nobody takes is kept for a sigwait, even if it is ignored by default, as in Linux.
    // One that ends refuses it, and isn't found again.
    while let Some(thread) = accepting(signal) {
        if give(thread, info, true) {
            return;
        }
    }
    hold(info);
}

fn hold(info: &SigInfo) {
    if !kept::keep(info) {
        hold_here(info);
    }
}

/// As [`hold`], in user space.
pub fn hold_here(info: &SigInfo) {
    let signal = info.signo as u32;
    let already = PENDING.load(Ordering::Relaxed) & bit(signal) != 0;
    QUEUE.push(info, form(info), already);
    PENDING.fetch_or(bit(signal), Ordering::SeqCst);
    // Who opened its mask since the last look found nothing pending.
    give_pending(signal);
}

/// Gives what pends for the process to who accepts it, if anybody does: who waits for a carrier
/// looks at what is his own when he runs, and not at that.
fn give_pending(signal: u32) {
    while process_pending() & bit(signal) != 0
        && is_accepted(signal)
        && let Some(info) = take_common(bit(signal))
    {
        to_process(&info);
    }
}

/// True if some thread accepts or awaits the signal.
pub fn is_accepted(signal: u32) -> bool {
    accepting(signal).is_some()
}

/// Gives pending signals of `set` to the kernel, which keeps them: descriptors read them from now
/// on.
pub fn reconsider(set: u64) {
    let thread = Carrier::current().thread();
    for signal in (1..=super::SIGNALS).filter(|&signal| set & bit(signal) != 0) {
        while let Some(info) = take(thread, bit(signal)) {
            if !kept::keep(&info) {
                hold(&info);
                break; // the kernel's queue is full
            }
        }
    }
}

/// How a signal's details are kept: always for the real-time signals.
fn form(info: &SigInfo) -> Form {
    match info.code {
        SI_TIMER => Form::Expiry,
        _ if info.signo as u32 >= FIRST_QUEUED => Form::Each,
        _ => Form::Once,
    }
}

/// A thread that waits for `signal`, else the main thread, the running one, or any that doesn't
/// block it.
fn accepting<'a>(signal: u32) -> Option<&'a Thread> {
    let open = |thread: &Thread| {
        thread.life() == Life::Live
            && thread.signals.mask.load(Ordering::Relaxed) & bit(signal) == 0
    };
    let waits = |thread: &&Thread| {
        thread.signals.awaited.load(Ordering::Acquire) & bit(signal) != 0
            && thread.life() == Life::Live
    };
    if let Some(waiter) = ENGINE.threads.iter().find(waits) {
        return Some(waiter);
    }
    let main = ENGINE.find(ENGINE.pid.load(Ordering::Relaxed));
    let running = Carrier::current().thread_or_none();
    main.filter(|thread| open(thread))
        .or_else(|| running.filter(|thread| open(thread)))
        .or_else(|| ENGINE.threads.iter().find(|thread| open(thread)))
}

/// A thread-directed signal: queued, and the thread told.
pub fn to_thread(thread: &Thread, info: &SigInfo) {
    give(thread, info, false);
}

/// Leaves a signal with a thread; `is_shared` says that it came for the process. False if the
/// thread ends.
fn give(thread: &Thread, info: &SigInfo, is_shared: bool) -> bool {
    let signal = info.signo as u32;
    let signals = &thread.signals;
    let action = actions::get(signal);
    let awaited = thread.signals.awaited.load(Ordering::SeqCst) & bit(signal) != 0;
    let blocked = thread.signals.mask.load(Ordering::Relaxed) & bit(signal) != 0;
    let dropped = action.handler == IGNORE
        || action.handler == DEFAULT && actions::ignored_by_default(signal);
    if dropped && !awaited && !blocked {
        return true;
    }
    if blocked && !awaited && kept::is_read(signal) && accepting(signal).is_none() {
        hold(info);
        return true;
    }
    let own = signals.pending.load(Ordering::Relaxed) & !signals.shared.load(Ordering::Relaxed);
    let form = match is_shared && own & bit(signal) != 0 {
        true => Form::Each, // one of its own that looks the same is another
        false => form(info),
    };
    let is_live = || thread.life() == Life::Live;
    if !signals.post(info, form, is_shared, is_live) {
        return false;
    }
    if accepts(thread, signal) {
        notify(thread);
    } else if is_shared {
        pass_on(thread, bit(signal));
    }
    true
}

/// True if the thread takes `signal` if it comes now.
fn accepts(thread: &Thread, signal: u32) -> bool {
    let signals = &thread.signals;
    let awaited = signals.awaited.load(Ordering::SeqCst);
    let open = !signals.mask.load(Ordering::SeqCst);
    (awaited | open) & bit(signal) != 0 && thread.life() == Life::Live
}

/// `thread` takes none of `set` any more: what it had of them for the process is another's.
#[inline(always)]
pub fn pass_on(thread: &Thread, set: u64) {
    let left = (thread.signals.shared.load(Ordering::SeqCst) | process_pending()) & set;
    if left != 0 {
        pass_on_some(thread, left);
    }
}

#[cold]
fn pass_on_some(thread: &Thread, left: u64) {
    for signal in (1..=super::SIGNALS).filter(|&signal| left & bit(signal) != 0) {
        while !accepts(thread, signal)
            && let Some(info) = thread.signals.take_shared(signal)
        {
            to_process(&info);
        }
        if accepts(thread, signal) {
            notify(thread); // it has opened its mask again
        }
        give_pending(signal); // it may have been who was about to take it
    }
}

/// Makes a thread look at its pending signals.
fn notify(thread: &Thread) {
    let carrier = Carrier::current();
    if carrier
        .thread_or_none()
        .is_some_and(|own| core::ptr::eq(own, thread))
    {
        carrier.attention.store(1, Ordering::Relaxed);
        return;
    }
    if thread.claim(Wake::Signalled) {
        ENGINE.unpark(thread.task_ref());
        return;
    }
    if thread.task.on_cpu.load(Ordering::SeqCst) != 0 {
        let on = thread.carrier.load(Ordering::Relaxed);
        // SAFETY: null or a carrier, which lives for ever.
        if let Some(on) = unsafe { on.as_ref() } {
            poke(on.kernel_tid.load(Ordering::Relaxed));
        }
    }
    // Else it is runnable: it looks when it runs.
}

/// Takes one pending signal of `wanted` for `thread`: its own first, then the process's.
pub fn take(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    let info = take_own(thread, wanted).or_else(|| take_common(wanted))?;
    timers::taken(&info);
    Some(info)
}

fn take_own(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    loop {
        let hits = thread.signals.pending.load(Ordering::Acquire) & wanted;
        if hits == 0 {
            return None;
        }
        let taken = thread.signals.take(first(hits));
        if taken.is_some() {
            return taken;
        }
    }
}

fn take_common(wanted: u64) -> Option<SigInfo> {
    loop {
        let hits = process_pending() & wanted;
        if hits == 0 {
            return None;
        }
        let signal = first(hits);
        let before = PENDING.fetch_and(!bit(signal), Ordering::AcqRel);
        if before & bit(signal) == 0 {
            continue; // another thread was faster
        }
        let (info, more) = QUEUE.take(signal);
        if more {
            PENDING.fetch_or(bit(signal), Ordering::AcqRel);
        }
        let info = info.unwrap_or(SigInfo {
            signo: signal as i32,
            ..SigInfo::EMPTY
        });
        return Some(info);
    }
}

/// Gives the kernel what the running thread blocks and hasn't taken, for the program that replaces
/// this one. The kernel has the thread's mask. Expiries of timers end with the program.
pub fn lend_pending() {
    if !super::is_virtual() {
        return;
    }
    route();
    let thread = Carrier::current().thread();
    let blocked = thread.signals.mask.load(Ordering::Relaxed);
    for signal in 1..=super::SIGNALS {
        let wanted = blocked & bit(signal);
        while let Some(info) = take_own(thread, wanted).or_else(|| take_common(wanted)) {
            if info.code == SI_TIMER {
                thread.signals.post(&info, Form::Each, true, || true);
                break;
            }
            let pid = ENGINE.pid.load(Ordering::Relaxed);
            let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
            let at = &raw const info;
            // SAFETY: the kernel reads a live structure, and blocks the signal here.
            unsafe { sys!(nr::__NR_rt_tgsigqueueinfo, pid, own, signal, at) };
        }
    }
}

/// Undoes [`lend_pending`].
pub fn take_pending_back() {
    if !super::is_virtual() {
        return;
    }
    let thread = Carrier::current().thread();
    let lent = thread.signals.mask.load(Ordering::Relaxed) & !kept::mask();
    let (mut info, now) = (SigInfo::EMPTY, Timespec::default());
    loop {
        // SAFETY: the kernel fills and reads live structures, and doesn't wait.
        let signal = unsafe {
            let (set, to, limit) = (&raw const lent, &raw mut info, &raw const now);
            sys!(nr::__NR_rt_sigtimedwait, set, to, limit, size_of::<u64>())
        };
        match info.code {
            _ if is_err(signal) => return,
            SI_TKILL => to_thread(thread, &info),
            _ => to_process(&info),
        }
    }
}

/// Faults first, then the lowest number, as the kernel dequeues.
fn first(set: u64) -> u32 {
    const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);
    let set = if set & FAULTS != 0 { set & FAULTS } else { set };
    set.trailing_zeros() + 1
}

/// True for a stop that a terminal asked for while the process was in its background, if it isn't
/// any more: the call was restarted again and again until the process stopped, and one of its
/// signals may have been on its way to a handler all the while. No call depends on it.
pub fn is_stale(info: &SigInfo) -> bool {
    const TTIN: i32 = 21;
    const TTOU: i32 = 22;
    const BY_KERNEL: i32 = 0x80;
    const NOCTTY_CLOEXEC: usize = 0o2000400;
    if !matches!(info.signo, TTIN | TTOU) || info.code != BY_KERNEL {
        return false;
    }
    // SAFETY: a path that lives, and a descriptor that nobody else knows.
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
        actions::stops_no_more(bit(info.signo as u32));
    }
    is_stale
}

/// Does what the kernel does by default: the process dies of the signal, or stops.
pub fn default_action(signal: u32) {
    if actions::ignored_by_default(signal) {
        return;
    }
    let pid = ENGINE.pid.load(Ordering::Relaxed);
    let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
    // SAFETY: signals this very kernel thread.
    let raise = || unsafe { sys!(nr::__NR_tgkill, pid, own, signal) };
    if bit(signal) & actions::STOPS == 0 {
        robust::process_ends();
        actions::surrender(signal);
        raise();
        return;
    }
    // It pends before the kernel may act on it: so if another kernel thread causes the stop in
    // this moment, SIGCONT discards ours, and the process doesn't stop twice.
    const BLOCK: usize = 0;
    const SETMASK: usize = 2;
    let (only, mut mask) = (bit(signal), 0u64);
    let change = |how: usize, to: *const u64, old: *mut u64| {
        // SAFETY: the kernel reads and fills live words.
        unsafe { sys!(nr::__NR_rt_sigprocmask, how, to, old, 8usize) }
    };
    change(BLOCK, &raw const only, &raw mut mask);
    raise();
    actions::surrender(signal);
    change(SETMASK, &raw const mask, core::ptr::null_mut()); // stops here
    actions::take_back(signal);
}
