//! Who gets a signal.

use super::actions::{self, DEFAULT, IGNORE};
use super::kept;
use super::timers::{self, SI_TIMER, Target};
use super::{SI_TKILL, bit, poke};
use crate::descriptors::is_in_background;
use crate::futex::robust;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_engine::helpers::POKE;
use raddle_engine::signals::SignalQueue;
use raddle_engine::thread::Life;
use raddle_engine::{Carrier, ENGINE, Thread};
use raddle_sched::Wake;
use raddle_sys::abi::SigInfo;
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
        match main_was_meant(carrier, &info) {
            Some(main) => to_thread(main, &info),
            None => to_process(&info),
        }
    }
}

/// As [`route`], after the running thread's own call raised `signal` in the kernel: that one is for
/// the thread, although it looks like one for the process.
pub fn route_own(signal: u32) {
    let carrier = Carrier::current();
    while let Some(info) = carrier.arrivals.pop() {
        if info.signo as u32 == signal {
            to_thread(carrier.thread(), &info);
        } else {
            to_process(&info);
        }
    }
}

/// The main thread, if the kernel says that the signal was sent to it: before the take-over and
/// pending since, or from another process. One that a descriptor reads belongs to the process.
fn main_was_meant<'a>(carrier: &Carrier, info: &SigInfo) -> Option<&'a Thread> {
    let pid = ENGINE.pid.load(Ordering::Relaxed);
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
    match accepting(signal) {
        Some(thread) => to_thread(thread, info),
        None if action.handler == DEFAULT && actions::ignored_by_default(signal) => {
            hold(info); // kept for a sigwait, as Linux keeps a blocked one
        }
        None => hold(info),
    }
}

fn hold(info: &SigInfo) {
    if !kept::keep(info) {
        hold_here(info);
    }
}

/// As [`hold`], in user space.
pub fn hold_here(info: &SigInfo) {
    let signal = info.signo as u32;
    push(&QUEUE, info, PENDING.load(Ordering::Relaxed));
    PENDING.fetch_or(bit(signal), Ordering::SeqCst);
    // Who opened its mask since the last look found nothing pending.
    if let Some(thread) = accepting(signal) {
        notify(thread);
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

/// Queues a signal's details: always for the real-time signals, else if it isn't pending yet. An
/// expiry of a timer whose last one still waits is counted there.
fn push(queue: &SignalQueue, info: &SigInfo, pending: u64) {
    let signal = info.signo as u32;
    let already = pending & bit(signal) != 0;
    let merged = already && info.code == SI_TIMER && queue.merge_overrun(info);
    if !merged && (signal >= FIRST_QUEUED || !already) {
        queue.push(info);
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
    let signal = info.signo as u32;
    let action = actions::get(signal);
    let awaited = thread.signals.awaited.load(Ordering::SeqCst) & bit(signal) != 0;
    let blocked = thread.signals.mask.load(Ordering::Relaxed) & bit(signal) != 0;
    let dropped = action.handler == IGNORE
        || action.handler == DEFAULT && actions::ignored_by_default(signal);
    if dropped && !awaited && !blocked {
        return;
    }
    if blocked && !awaited && kept::is_read(signal) && accepting(signal).is_none() {
        return hold(info);
    }
    let pending = thread.signals.pending.load(Ordering::Relaxed);
    push(&thread.signals.queue, info, pending);
    thread
        .signals
        .pending
        .fetch_or(bit(signal), Ordering::SeqCst);
    let awaited = thread.signals.awaited.load(Ordering::SeqCst) & bit(signal) != 0;
    let blocked = thread.signals.mask.load(Ordering::SeqCst) & bit(signal) != 0;
    if awaited || !blocked {
        notify(thread);
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
    if thread.task.claim(Wake::Signalled) {
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
    let own = &thread.signals;
    take_from(&own.pending, &own.queue, wanted).or_else(|| take_from(&PENDING, &QUEUE, wanted))
}

fn take_from(pending: &AtomicU64, queue: &SignalQueue, wanted: u64) -> Option<SigInfo> {
    loop {
        let hits = pending.load(Ordering::Acquire) & wanted;
        if hits == 0 {
            return None;
        }
        let signal = first(hits);
        let before = pending.fetch_and(!bit(signal), Ordering::AcqRel);
        if before & bit(signal) == 0 {
            continue; // another thread was faster
        }
        let (info, more) = queue.take(signal);
        if more {
            pending.fetch_or(bit(signal), Ordering::AcqRel);
        }
        let info = info.unwrap_or(SigInfo {
            signo: signal as i32,
            ..SigInfo::EMPTY
        });
        timers::taken(&info);
        return Some(info);
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
