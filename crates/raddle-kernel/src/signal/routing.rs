//! Routing: the choice of the thread that gets a signal.
//!
//! A signal for the process goes to one thread that accepts it, the one that Linux would choose,
//! and waits there for delivery. If that thread ends or blocks the signal first, it *passes the
//! signal on*: to another thread that accepts it, or back to the process, for which the signal then
//! pends. The thread passes signals on after it has changed its mask or its state of life. The
//! sender reads both after it has left the signal. So one of the two sees the other's change.

use super::{MASK_BYTES, SI_TKILL, bit, poke, set_kernel_mask};
use crate::signal::actions::{self, CHLD};
use crate::signal::timers::{self, Target};
use crate::signal::{children, fatal, groups, held, stops};
use core::sync::atomic::Ordering;
use raddle_engine::carrier::SIGNALLED;
use raddle_engine::signals::{CommonSignals, Form, Passed, SI_TIMER};
use raddle_engine::thread::Life;
use raddle_engine::{Carrier, PROCESS, Thread, preemption};
use raddle_sched::Wake;
use raddle_sys::abi::{SigInfo, Timespec};
use raddle_sys::{is_err, nr, sys};

/// Signals pending for the process: no thread has accepted them yet.
static COMMON: CommonSignals = CommonSignals::new();

/// Returns the signals that pend for the process.
#[inline(always)]
pub fn process_pending() -> u64 {
    COMMON.pending()
}

/// Forgets the signals that pend for the process.
pub fn reset() {
    // SAFETY: called in the child of a fork, which has one thread.
    unsafe { COMMON.reset() };
}

/// Drops the pending instances of `signal` that fit, for the process and for threads.
pub fn discard(signal: u32, fits: fn(&SigInfo) -> bool) {
    COMMON.discard(signal, fits);
    for thread in PROCESS.threads.iter() {
        thread.signals.discard(signal, fits);
    }
}

/// Routes all signals that have arrived on this carrier. Takes locks, so the caller must hold none.
///
/// The thread that a signal wakes here runs before the one that it interrupted goes on.
pub fn route() {
    held::look();
    let carrier = Carrier::current();
    carrier.roused.set(false);
    loop {
        while let Some(info) = carrier.arrivals.pop() {
            route_one(&info);
        }
        if carrier.closed.load(Ordering::Relaxed) == 0 {
            break;
        }
        carrier.closed.store(0, Ordering::Relaxed);
        if carrier.child_shares.load(Ordering::Relaxed) == 0 {
            set_kernel_mask(held::mask_of(carrier)); // what the kernel has held comes here
        } // else the mask is the thread's
    }
    if carrier.roused.replace(false) {
        preemption::make_room(carrier);
    }
}

/// Routes one signal that came from the kernel.
pub fn route_one(info: &SigInfo) {
    let carrier = Carrier::current();
    match meant(carrier, info) {
        Some(thread) => to_thread(thread, info),
        None => to_process_by(info, asked_first(carrier, info)),
    }
    groups::note_routed(info.signo as u32);
    if info.signo as u32 == CHLD {
        children::note(); // a thread that wakes finds the signal
    }
}

/// Routes a `signal` that is pending for the process in the kernel, and that no carrier has handled
/// yet: the kernel thread that the kernel has chosen may get no CPU for long. A signal that a
/// carrier is about to handle isn't found.
pub fn fetch_signal(signal: u32) {
    if held::mask() & bit(signal) != 0 || !actions::is_ours(signal) {
        return; // the kernel keeps it, or doesn't send it
    }
    let (set, now, mut info) = (bit(signal), Timespec::default(), SigInfo::EMPTY);
    let take = || {
        // SAFETY: the kernel reads and fills live structures, and doesn't wait.
        unsafe {
            let (set, to, limit) = (&raw const set, &raw mut info, &raw const now);
            sys!(nr::__NR_rt_sigtimedwait, set, to, limit, MASK_BYTES)
        }
    };
    let found = PROCESS.filters.unless_any(take);
    if found.is_some_and(|found| !is_err(found)) {
        route_one(&info);
    }
}

/// Returns the thread that the kernel sent a signal to: the main thread, if the signal was pending
/// before the take-over or came from another process; or the running thread, if its call raised the
/// signal. A signal that a descriptor reads belongs to the process.
fn meant<'a>(carrier: &Carrier, info: &SigInfo) -> Option<&'a Thread> {
    /// SIGPIPE and SIGXFSZ, which the kernel sends to the writer in the process's own name. Signals
    /// of the process's own `kill` don't come here.
    const RAISED: u64 = bit(13) | bit(25);
    const SI_USER: i32 = nr::SI_USER as i32;
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let by_us = info.code == SI_USER && info.pid as u32 == pid;
    if by_us && RAISED & bit(info.signo as u32) != 0 {
        return carrier.thread_or_none();
    }
    let directed = info.code == SI_TKILL
        && carrier.kernel_tid.load(Ordering::Relaxed) == pid
        && !held::is_read(info.signo as u32);
    if directed { PROCESS.find(pid) } else { None }
}

/// Returns the thread that Linux asks first for a process-directed signal, if it isn't the main
/// one: the running one for a timer's signal (from Linux 6.4 on), the child's maker for a child's.
fn asked_first<'a>(carrier: &Carrier, info: &SigInfo) -> Option<&'a Thread> {
    match info.code {
        SI_TIMER => carrier.thread_or_none(),
        _ => children::maker(info),
    }
}

/// Routes a process-directed signal to a thread that accepts it; else the signal stays pending.
pub fn to_process(info: &SigInfo) {
    to_process_by(info, None);
}

/// As [`to_process`], sent to `named`, or to the main thread for `None`. Linux first asks this
/// thread whether it accepts the signal, and, for an ignored signal, whether it blocks it.
pub fn to_process_by(info: &SigInfo, named: Option<&Thread>) {
    let signal = info.signo as u32;
    if signal == 0 || signal > super::SIGNALS {
        return;
    }
    match timers::target(info) {
        Target::Process => {}
        Target::Thread(thread) => return to_thread(thread, info),
        Target::Nobody => return,
    }
    if !stops::takes_effect(info) || is_ignored(signal, named) {
        return;
    }
    // A thread that ends refuses the signal, and isn't found again.
    while let Some(thread) = accepting_first(signal, named) {
        if drops(thread, signal) {
            return;
        }
        if fatal::ends_at_once(thread, signal) {
            return fatal::end(signal);
        }
        match COMMON.pass(signal, || post(thread, info, true)) {
            Passed::Given => return tell(thread, signal, true),
            Passed::Refused => {}
            Passed::Late => return hold_here(info),
        }
    }
    hold(info);
}

/// Returns true if `signal` is dropped: its action does nothing, and the named thread doesn't block
/// it. A thread's `sigwait` for the signal makes no difference: in Linux it blocks only what was
/// blocked before.
fn is_ignored(signal: u32, named: Option<&Thread>) -> bool {
    let blocks = || {
        named
            .or_else(main)
            .is_some_and(|thread| blocks(thread, signal))
    };
    actions::does_nothing(signal, actions::get(signal).handler) && !blocks()
}

fn main<'a>() -> Option<&'a Thread> {
    PROCESS.find(PROCESS.pid.load(Ordering::Relaxed))
}

fn hold(info: &SigInfo) {
    if !held::hold(info) {
        hold_here(info);
    }
}

/// As [`hold`], in user space.
pub fn hold_here(info: &SigInfo) {
    COMMON.post(info, Form::of(info));
    // A thread that has opened its mask since the last look has found nothing pending.
    give_pending(info.signo as u32);
}

/// Gives the first instance that pends for the process to a thread that accepts it, if there is
/// one. A thread that waits for a carrier looks only at its own signals when it runs; after that it
/// looks at the process's, or passes its own on.
fn give_pending(signal: u32) {
    while process_pending() & bit(signal) != 0
        && let Some(thread) = accepting(signal)
    {
        let mut is_dropped = false;
        let is_given = COMMON.give(signal, |info| {
            is_dropped = drops(thread, signal);
            is_dropped || post(thread, info, true)
        });
        if is_given && !is_dropped {
            return tell(thread, signal, true);
        }
    }
}

/// Returns true if some thread accepts or awaits the signal.
pub fn is_accepted(signal: u32) -> bool {
    accepting(signal).is_some()
}

/// Gives pending signals of `set` to the kernel, which keeps them: descriptors read them from now
/// on.
pub fn reconsider(set: u64) {
    let thread = Carrier::current().thread();
    for signal in (1..=super::SIGNALS).filter(|&signal| set & bit(signal) != 0) {
        while let Some(info) = take(thread, bit(signal)) {
            if !held::hold(&info) {
                hold(&info);
                break; // the kernel's queue is full
            }
        }
    }
}

/// Returns the main thread if it takes `signal`, as in Linux; else a thread that waits for the
/// signal, the running one, or any that doesn't block it.
fn accepting<'a>(signal: u32) -> Option<&'a Thread> {
    accepting_first(signal, None)
}

/// As [`accepting`], with `named` before the main thread.
fn accepting_first(signal: u32, named: Option<&Thread>) -> Option<&Thread> {
    let open = |thread: &Thread| {
        thread.life() == Life::Live
            && thread.signals.mask.load(Ordering::Relaxed) & bit(signal) == 0
    };
    let waits = |thread: &&Thread| {
        thread.signals.awaited.load(Ordering::Acquire) & bit(signal) != 0
            && thread.life() == Life::Live
    };
    let running = Carrier::current().thread_or_none();
    let takes = |thread: &&Thread| open(thread) || waits(thread);
    named
        .filter(takes)
        .or_else(|| main().filter(takes))
        .or_else(|| PROCESS.threads.iter().find(waits))
        .or_else(|| running.filter(|thread| open(thread)))
        .or_else(|| PROCESS.threads.iter().find(|thread| open(thread)))
}

/// Queues a thread-directed signal, and tells the thread.
pub fn to_thread(thread: &Thread, info: &SigInfo) {
    let signal = info.signo as u32;
    if !stops::takes_effect(info) || is_ignored(signal, Some(thread)) {
        return;
    }
    if fatal::ends_at_once(thread, signal) {
        return fatal::end(signal);
    }
    let is_blocked = blocks(thread, signal) && !awaits(thread, signal);
    if is_blocked && held::is_read(signal) && !is_accepted(signal) {
        hold(info);
    } else if post(thread, info, false) {
        tell(thread, signal, false);
    }
}

fn awaits(thread: &Thread, signal: u32) -> bool {
    thread.signals.awaited.load(Ordering::SeqCst) & bit(signal) != 0
}

fn blocks(thread: &Thread, signal: u32) -> bool {
    thread.signals.mask.load(Ordering::SeqCst) & bit(signal) != 0
}

/// Returns true if the program ignores `signal`, and the thread neither awaits nor blocks it.
fn drops(thread: &Thread, signal: u32) -> bool {
    let is_ignored = actions::does_nothing(signal, actions::get(signal).handler);
    is_ignored && !awaits(thread, signal) && !blocks(thread, signal)
}

/// Queues a signal for a thread, without a notice ([`tell`]). Returns false if the thread ends.
fn post(thread: &Thread, info: &SigInfo, is_shared: bool) -> bool {
    let signals = &thread.signals;
    let own = signals.pending.load(Ordering::Relaxed) & !signals.shared.load(Ordering::Relaxed);
    let form = if is_shared && own & bit(info.signo as u32) != 0 {
        Form::Each // apart from the thread's own signal of this number
    } else {
        Form::of(info)
    };
    signals.post(info, form, is_shared, || thread.life() == Life::Live)
}

/// Tells a thread that a signal was queued for it.
fn tell(thread: &Thread, signal: u32, is_shared: bool) {
    if accepts(thread, signal) {
        notify(thread);
    } else if is_shared {
        pass_on(thread, bit(signal));
    }
}

/// Returns true if the thread would take `signal` now.
fn accepts(thread: &Thread, signal: u32) -> bool {
    (awaits(thread, signal) || !blocks(thread, signal)) && thread.life() == Life::Live
}

/// Passes on the process's signals of `set` that `thread` has, and doesn't take any more.
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
        if held::is_read(signal) {
            while !accepts(thread, signal)
                && let Some(info) = thread.signals.take_shared(signal)
            {
                to_process(&info);
            }
        } else {
            COMMON.take_back(&thread.signals, signal, || !accepts(thread, signal));
        }
        if accepts(thread, signal) {
            notify(thread); // it has opened its mask again
        }
        give_pending(signal); // the thread may have been about to take it
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
        PROCESS.unpark(thread.task_ref());
        carrier.roused.set(true);
        return;
    }
    if thread.task.on_cpu.load(Ordering::SeqCst) != 0 {
        let on = thread.carrier.load(Ordering::Relaxed);
        // SAFETY: null or a carrier, which lives for ever.
        if let Some(on) = unsafe { on.as_ref() } {
            // A call that doesn't enter the kernel may end before the poke comes.
            on.attention.fetch_or(SIGNALLED, Ordering::SeqCst);
            poke(on.kernel_tid.load(Ordering::Relaxed));
            return;
        }
    }
    // Here the thread is runnable. It looks for signals when it runs; if it has done so just
    // before, sysmon sees that.
    PROCESS.sysmon.wake_up();
}

/// Takes one pending signal of `wanted` for `thread`: its own first, then the process's.
pub fn take(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    let info = take_any(thread, wanted)?;
    timers::taken(&info);
    Some(info)
}

fn take_any(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    let own = || thread.signals.pending.load(Ordering::Acquire);
    loop {
        let taken = match own() & wanted {
            0 => match process_pending() & wanted {
                0 => return None,
                hits => COMMON.take(&thread.signals, first(hits)),
            },
            hits => thread.signals.take(first(hits)),
        };
        // Without a result, another thread was faster, or the signal was discarded.
        if taken.is_some_and(|info| !stops::is_over(&info)) {
            return taken;
        }
    }
}

/// Gives the kernel the pending signals that the running thread blocks, for the program that
/// replaces this one. The kernel has the thread's mask by then. Expiries of timers aren't given,
/// since timers end with the program.
pub fn lend_pending() {
    if !crate::mode::is_virtual() {
        return;
    }
    route();
    let thread = Carrier::current().thread();
    let blocked = thread.signals.mask.load(Ordering::Relaxed);
    for signal in 1..=super::SIGNALS {
        let wanted = blocked & bit(signal);
        while let Some(info) = take_any(thread, wanted) {
            if info.code == SI_TIMER {
                thread.signals.post(&info, Form::Each, true, || true);
                break;
            }
            let pid = PROCESS.pid.load(Ordering::Relaxed);
            let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
            let at = &raw const info;
            // SAFETY: the kernel reads a live structure, and blocks the signal here.
            unsafe { sys!(nr::__NR_rt_tgsigqueueinfo, pid, own, signal, at) };
        }
    }
}

/// Undoes [`lend_pending`].
pub fn take_pending_back() {
    if !crate::mode::is_virtual() {
        return;
    }
    let thread = Carrier::current().thread();
    let lent = thread.signals.mask.load(Ordering::Relaxed) & !held::mask();
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

/// Returns the signal of `set` that the kernel would dequeue first: a fault, then the lowest
/// number.
fn first(set: u64) -> u32 {
    const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);
    let set = if set & FAULTS != 0 { set & FAULTS } else { set };
    set.trailing_zeros() + 1
}

/// Does the kernel's default action: the process dies of the signal, or stops.
pub fn default_action(signal: u32) {
    if actions::ignored_by_default(signal) {
        return;
    }
    match bit(signal) & stops::STOPS {
        0 => fatal::end(signal),
        _ => stops::stop(signal),
    }
}
