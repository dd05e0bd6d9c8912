//! Signals that end the process by default, and when no thread executes anything any more.
//!
//! In Linux a signal that ends the process without a core dump ends it as it is sent, if some
//! thread takes it: the sender doesn't return from `kill`, and no other thread executes anything
//! more (`complete_signal` in `kernel/signal.c`). A signal that dumps core is given to a thread
//! first, which the dump shows; other threads go on until that thread has it. Here:
//!
//! 1. A signal without a core dump ends the process where it is routed ([`ends_at_once`]): on the
//!    sender's carrier, or on the one that the kernel gave it to.
//! 2. A signal with a core dump is given to its thread like any other, and the thread ends the
//!    process when it takes the signal. A sender in this process waits for that
//!    ([`after_sending`]), a second at most: on one carrier the sender would go on for a quantum
//!    otherwise, and could even end the process another way before.
//!
//! Both raise the signal once more, by its default action, for the calling kernel thread
//! ([`end`]). If the process lives on, a debugger has taken the signal, or another thread has set
//! an action meanwhile, which then counts as set before the signal.

use super::{SI_TKILL, bit, deliver_outside, hide_mask};
use crate::clocks::deadlines::sleep_until;
use crate::signal::actions::{self, DEFAULT};
use crate::signal::calls::{from_ourselves, set_mask};
use crate::signal::{routing, stops};
use crate::words::robust;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::inspect::crash;
use raddle_engine::thread::Life;
use raddle_engine::{Carrier, PROCESS, Thread, clock};
use raddle_sys::{change_signal_mask, nr, sys};

const ABRT: u32 = 6;
/// SIGSTOP, which no thread takes: the kernel stops the process.
const STOP: u32 = 19;
/// SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS.
const DUMPS_CORE: u64 =
    bit(3) | bit(4) | bit(5) | bit(ABRT) | bit(7) | bit(8) | bit(11) | bit(24) | bit(25) | bit(31);

/// Raised while a kernel thread ends the process.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Returns true if the default action of `signal` ends the process.
const fn is_deadly(signal: u32) -> bool {
    bit(signal) & stops::STOPS == 0 && signal != STOP && !actions::ignored_by_default(signal)
}

/// Returns true if the program leaves `signal` to its default action, which ends the process.
fn ends_process(signal: u32) -> bool {
    is_deadly(signal) && actions::get(signal).handler == DEFAULT
}

/// Returns true if `signal`, which `thread` is to get, ends the process before any thread gets it.
pub fn ends_at_once(thread: &Thread, signal: u32) -> bool {
    let is_open = thread.signals.mask.load(Ordering::SeqCst) & bit(signal) == 0;
    is_open && bit(signal) & DUMPS_CORE == 0 && ends_process(signal)
}

/// Ends the process by the default action of `signal`. Returns if it lives on: see the module.
pub fn end(signal: u32) {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let own = Carrier::current().kernel_tid.load(Ordering::Relaxed);
    ENDING.fetch_add(1, Ordering::SeqCst);
    robust::process_ends();
    if bit(signal) & DUMPS_CORE != 0 {
        crash::write(signal);
    }
    actions::surrender(signal);
    // SAFETY: signals this very kernel thread, which may block the signal while it looks at others.
    unsafe {
        change_signal_mask(nr::SIG_UNBLOCK, bit(signal));
        sys!(nr::__NR_tgkill, pid, own, signal);
    }
    hide_mask();
    actions::take_back(signal);
    crash::lives_on();
    ENDING.fetch_sub(1, Ordering::SeqCst);
}

/// The process has sent itself `signal` in the call that is about to end. If the signal ends the
/// process, but not before a thread takes it, this waits for that.
///
/// # Blocking
/// The running thread, a second at most. A signal of its own ends the wait.
#[inline(always)]
pub fn after_sending(signal: u32) {
    if bit(signal) & DUMPS_CORE != 0 && PROCESS.is_started() {
        wait_for_end(signal);
    }
}

#[cold]
fn wait_for_end(signal: u32) {
    const PATIENCE_NS: u64 = 1_000_000_000;
    const PAUSE_NS: u64 = 50_000;
    let until_ns = clock::now_ns() + PATIENCE_NS;
    let mut quiet_looks = 0;
    // Two looks: after the first the thread may be about to mark the process as ending.
    while quiet_looks < 2 && clock::now_ns() < until_ns {
        if is_under_way(signal) {
            quiet_looks = 0;
        } else if quiet_looks == 0 && !ends_process(signal) {
            return;
        } else {
            quiet_looks += 1;
        }
        if sleep_until(clock::now_ns() + PAUSE_NS) {
            return;
        }
    }
}

/// Returns true if a thread is to take `signal` and the process then ends.
fn is_under_way(signal: u32) -> bool {
    let takes = |thread: &Thread| {
        let due = thread.signals.pending.load(Ordering::SeqCst)
            & !thread.signals.mask.load(Ordering::SeqCst);
        due & bit(signal) != 0 && thread.life() == Life::Live
    };
    ENDING.load(Ordering::SeqCst) != 0 || ends_process(signal) && PROCESS.threads.iter().any(takes)
}

/// What libc's `abort` does: SIGABRT, with the program's action once, then with the default one.
pub fn abort() -> ! {
    let own = || Carrier::current().thread();
    for _ in 0..2 {
        set_mask(
            own(),
            own().signals.mask.load(Ordering::Relaxed) & !bit(ABRT),
        );
        routing::to_thread(own(), &from_ourselves(ABRT, SI_TKILL));
        deliver_outside();
        let mut action = actions::get(ABRT);
        action.handler = DEFAULT;
        actions::set(ABRT, &action);
    }
    raddle_sys::fatal(b"")
}
