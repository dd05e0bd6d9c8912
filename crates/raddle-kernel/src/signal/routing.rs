//! Routing: what signals mean on their way to a thread. The way itself is
//! [`raddle_sched::routes`]'s.

use super::{MASK_BYTES, SI_TKILL, bit, poke, set_kernel_mask};
use crate::signal::actions::{self, CHLD};
use crate::signal::timers::{self, Target};
use crate::signal::{children, fatal, groups, held, stops};
use core::sync::atomic::Ordering;
use raddle_engine::carrier::SIGNALLED;
use raddle_engine::signals::{Addressee, CommonSignals, Form};
use raddle_engine::signals::{RECORDS, Records, SI_TIMER, Siginfo};
use raddle_engine::{Carrier, PROCESS, Thread, events, preemption};
use raddle_sched::held::HeldSignals;
use raddle_sched::routes::{Receiver, Routes};
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
    // SAFETY: called in the child of a fork, which has one thread. A record being linked when the
    // parent forked is lost to the pool, nothing worse.
    let may_pend = unsafe {
        RECORDS.break_lock();
        COMMON.break_lock()
    };
    // A child writes to as few of its parent's pages as it can.
    if may_pend {
        COMMON.drop_pending(&RECORDS);
    }
}

/// The process's threads and actions.
pub struct Process;

impl Routes for Process {
    type Thread = Thread;
    type Details = Siginfo;

    #[inline(always)]
    fn records(&self) -> &Records {
        &RECORDS
    }

    #[inline(always)]
    fn common(&self) -> &CommonSignals {
        &COMMON
    }

    fn threads(&self) -> impl Iterator<Item = &'static Thread> {
        PROCESS.threads.iter()
    }

    fn main(&self) -> Option<&'static Thread> {
        PROCESS.find(PROCESS.pid.load(Ordering::Relaxed))
    }

    fn running(&self) -> Option<&'static Thread> {
        Carrier::current().thread_or_none()
    }

    fn does_nothing(&self, signal: u32) -> bool {
        actions::does_nothing(signal, actions::get(signal).handler)
    }

    fn ends_process(&self, thread: &Thread, signal: u32) -> bool {
        let ends = fatal::ends_at_once(thread, signal);
        if ends {
            fatal::end(signal);
        }
        ends
    }

    #[inline(always)]
    fn held(&self) -> &HeldSignals {
        &held::HELD
    }

    fn block_held(&self) {
        set_kernel_mask(held::mask_of(Carrier::current()));
    }

    fn queue_in_kernel(&self, info: &SigInfo) -> bool {
        held::give_back(info)
    }

    fn tell_carriers(&self) {
        held::tell_carriers();
    }

    fn is_over(&self, info: &SigInfo) -> bool {
        stops::is_over(info)
    }

    fn look_here(&self) {
        Carrier::current().attention.store(1, Ordering::Relaxed);
    }

    fn unpark(&self, thread: &Thread) {
        PROCESS.unpark(thread.task_ref());
        Carrier::current().roused.set(true);
    }

    fn interrupt(&self, thread: &Thread) -> bool {
        let on = thread.carrier.load(Ordering::Relaxed);
        // SAFETY: null or a carrier, which lives for ever.
        let Some(on) = (unsafe { on.as_ref() }) else {
            return false;
        };
        // A call that doesn't enter the kernel may end before the poke comes.
        on.attention.fetch_or(SIGNALLED, Ordering::SeqCst);
        poke(on.kernel_tid.load(Ordering::Relaxed));
        true
    }

    fn wake_sysmon(&self) {
        PROCESS.sysmon.wake_up();
    }
}

/// Drops the pending instances of `signal` that fit, for the process and for threads.
pub fn discard(signal: u32, fits: fn(&SigInfo) -> bool) {
    Process.discard(signal, fits);
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
            events::in_name_of_kernel(|| route_one(&info));
        }
        if timers::has_missed() {
            timers::take_missed(|info| events::in_name_of_kernel(|| route_one(info)));
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
fn route_one(info: &SigInfo) {
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
        events::in_name_of_kernel(|| route_one(&info));
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
/// one: the running one for a timer's signal (from Linux 6.4 on), and for what the kernel sends for
/// CPU time that was used; the child's maker for a child's.
fn asked_first<'a>(carrier: &Carrier, info: &SigInfo) -> Option<&'a Thread> {
    /// SIGXCPU, SIGVTALRM, SIGPROF.
    const CPU_TIME: u64 = bit(24) | bit(26) | bit(27);
    const SI_KERNEL: i32 = nr::SI_KERNEL as i32;
    match info.code {
        SI_TIMER => carrier.thread_or_none(),
        SI_KERNEL if CPU_TIME & bit(info.signo as u32) != 0 => carrier
            .thread_or_none()
            .or_else(|| one_that_runs(info.signo as u32)),
        _ => children::maker(info),
    }
}

/// Returns a thread that doesn't wait and doesn't block `signal`. The carrier that used CPU time
/// was between two threads.
#[cold]
fn one_that_runs<'a>(signal: u32) -> Option<&'a Thread> {
    let runs =
        |thread: &&Thread| !thread.task.is_waiting() && !thread.blocks(signal) && thread.is_live();
    PROCESS.threads.iter().find(runs)
}

/// Routes a process-directed signal to a thread that accepts it; else the signal stays pending.
pub fn to_process(info: &SigInfo) {
    to_process_by(info, None);
}

/// As [`to_process`], sent to `named`, or to the main thread for `None`. Linux first asks this
/// thread whether it accepts the signal, and, for an ignored signal, whether it blocks it.
pub fn to_process_by(info: &SigInfo, named: Option<&'static Thread>) {
    let signal = info.signo as u32;
    if signal == 0 || signal > super::SIGNALS {
        return;
    }
    match timers::target(info) {
        Target::Process => {}
        Target::Thread(thread) => return to_thread(thread, info),
        Target::Nobody => return,
    }
    if stops::takes_effect(info) && !is_ignored(signal, named) {
        Process.to_process(info, named);
    }
}

/// Returns true if `signal` is dropped: its action does nothing, and the named thread doesn't block
/// it. A thread's `sigwait` for the signal makes no difference: in Linux it blocks only what was
/// blocked before.
fn is_ignored(signal: u32, named: Option<&Thread>) -> bool {
    let blocks = || {
        named
            .or_else(|| Process.main())
            .is_some_and(|thread| thread.blocks(signal))
    };
    Process.does_nothing(signal) && !blocks()
}

/// Keeps a signal that no thread accepts and the kernel doesn't keep.
pub fn hold_here(info: &SigInfo) {
    Process.hold_here(info);
}

/// Returns true if some thread accepts or awaits the signal.
pub fn is_accepted(signal: u32) -> bool {
    Process.accepting(signal, None).is_some()
}

/// Gives pending signals of `set` to the kernel, which keeps them: descriptors read them from now
/// on.
pub fn reconsider(set: u64) {
    let thread = Carrier::current().thread();
    for signal in (1..=super::SIGNALS).filter(|&signal| set & bit(signal) != 0) {
        while let Some(info) = take(thread, bit(signal)) {
            if !Process.return_to_kernel(&info) {
                Process.hold(&info);
                break; // the kernel's queue is full
            }
        }
    }
}

/// Queues a thread-directed signal, and tells the thread.
pub fn to_thread(thread: &Thread, info: &SigInfo) {
    if stops::takes_effect(info) && !is_ignored(info.signo as u32, Some(thread)) {
        Process.to_thread(thread, info);
    }
}

/// Passes on the process's signals of `set` that `thread` has, and doesn't take any more.
#[inline(always)]
pub fn pass_on(thread: &Thread, set: u64) {
    Process.pass_on(thread, set);
}

/// Takes one pending signal of `wanted` for `thread`: its own first, then the process's.
pub fn take(thread: &Thread, wanted: u64) -> Option<SigInfo> {
    let info = Process.take(thread, wanted)?;
    timers::taken(&info);
    Some(info)
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
        while let Some(info) = Process.take(thread, wanted) {
            if info.code == SI_TIMER {
                let (form, to) = (Form::Each, Addressee::Process);
                thread.signals.post(&RECORDS, &info, form, to, || true);
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
