//! Dispositions: the program's actions, and those that the kernel is told.

use super::{LIBC_INTERNAL, MASK_BYTES, SIGNALS, bit};
use crate::signal::stops::{self, STOPS};
use crate::signal::{children, entry};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_engine::carrier::PREEMPT;
use raddle_engine::helpers::POKE;
use raddle_engine::inspect::crash;
use raddle_sched::SpinLock;
use raddle_sys::abi::SigAction;
use raddle_sys::{nr, sys};

/// `SIG_DFL`.
pub const DEFAULT: usize = 0;
/// `SIG_IGN`.
pub const IGNORE: usize = 1;
/// SIGCHLD.
pub const CHLD: u32 = 17;
pub const SA_NOCLDSTOP: u64 = nr::SA_NOCLDSTOP as u64;
pub const SA_NOCLDWAIT: u64 = nr::SA_NOCLDWAIT as u64;
pub const SA_SIGINFO: u64 = nr::SA_SIGINFO as u64;
pub const SA_EXPOSE_TAGBITS: u64 = nr::SA_EXPOSE_TAGBITS as u64;
pub const SA_ONSTACK: u64 = nr::SA_ONSTACK as u64;
pub const SA_RESTART: u64 = nr::SA_RESTART as u64;
pub const SA_NODEFER: u64 = nr::SA_NODEFER as u64;
pub const SA_RESETHAND: u64 = nr::SA_RESETHAND as u64;
pub const SA_RESTORER: u64 = nr::SA_RESTORER as u64;

const NONE: SigAction = SigAction {
    handler: DEFAULT,
    flags: 0,
    restorer: 0,
    mask: 0,
};

static ACTIONS: SpinLock<[SigAction; SIGNALS as usize + 1]> = SpinLock::new(
    [SigAction {
        handler: DEFAULT,
        flags: 0,
        restorer: 0,
        mask: 0,
    }; SIGNALS as usize + 1],
);

/// Signals with a default action that a thread has blocked on purpose: the kernel must not act on
/// them, so the runtime's handler is installed and decides.
static WATCHED: AtomicU64 = AtomicU64::new(0);

/// Signals with the default action of doing nothing that the runtime needs: SIGCHLD, once a thread
/// has waited for a child. Never cleared.
static HEARD: AtomicU64 = AtomicU64::new(0);

/// Signals that some thread has blocked on purpose. A blocked signal pends even if it is ignored,
/// and carriers block nothing: the runtime's handler gets these even if they are ignored.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

/// Signals with an action that the kernel itself looks at: depending on whether they are ignored,
/// it reaps children, and stops processes that read from or write to a terminal.
const LOOKED_AT: u64 = bit(CHLD) | stops::JOB_CONTROL;

/// 1 while all watched signals may be watched only because libc blocked everything for a moment.
static LIBC_BLOCKED: AtomicU32 = AtomicU32::new(0);

/// SIGBUS and SIGSEGV, which an access to the program's memory may raise. The runtime's handler is
/// always there; a new program still inherits those that the program ignores.
pub const FAULTS: u64 = bit(7) | bit(11);

/// Signals that the program ignores and that the runtime handles all the same: faults, its own two,
/// and what was blocked. Written with the actions.
static IGNORED: AtomicU64 = AtomicU64::new(0);

/// Makes the kernel ignore the signals that the program ignores: a new program inherits them. In
/// the child of a `vfork`, which has actions of its own, or before an `execve`; takes no lock.
pub fn expose_ignored() {
    const IGNORED_ACTION: SigAction = SigAction {
        handler: IGNORE,
        ..NONE
    };
    let mut left = IGNORED.load(Ordering::Relaxed);
    while left != 0 {
        tell(left.trailing_zeros() + 1, &IGNORED_ACTION);
        left &= left - 1;
    }
}

/// Undoes [`expose_ignored`] after a failed `execve`. Returns true if the kernel may have dropped a
/// signal of the runtime's own meanwhile.
pub fn hide_ignored() -> bool {
    let ignored = IGNORED.load(Ordering::Relaxed);
    tell_kernel_of(ignored);
    ignored & OWN != 0
}

/// Installs the runtime's action for the signal again, after a stop.
pub fn take_back(signal: u32) {
    tell_kernel(signal, &get(signal));
}

/// The program's action for `signal`.
pub fn get(signal: u32) -> SigAction {
    ACTIONS.lock()[signal as usize]
}

/// Returns where the program's actions are in memory, for tools that read them from outside.
pub fn place() -> usize {
    const _: () = assert!(size_of::<SigAction>() == 32);
    ACTIONS.as_ptr().addr()
}

/// Changes the program's action; returns the old one.
pub fn set(signal: u32, action: &SigAction) -> SigAction {
    let old = core::mem::replace(&mut ACTIONS.lock()[signal as usize], *action);
    tell_kernel(signal, action);
    if signal == CHLD {
        children::note();
    }
    old
}

/// Returns true if the kernel sends the runtime SIGCHLD at each end of a child, from now until the
/// program sets that signal's action. False if the program ignores SIGCHLD.
pub fn hears_children() -> bool {
    let action = get(CHLD);
    if action.handler == IGNORE || action.flags & SA_NOCLDWAIT != 0 {
        return false;
    }
    if action.handler == DEFAULT && HEARD.load(Ordering::Relaxed) & bit(CHLD) == 0 {
        HEARD.fetch_or(bit(CHLD), Ordering::SeqCst);
        tell_kernel(CHLD, &action);
    }
    true
}

/// Copies the kernel's dispositions; `mask` is the only thread's kernel mask, perhaps libc's.
pub fn adopt(mask: u64) {
    if mask & LIBC_INTERNAL == 0 {
        BLOCKED.fetch_or(mask, Ordering::Relaxed);
    }
    LIBC_BLOCKED.store(u32::from(mask & LIBC_INTERNAL != 0), Ordering::Relaxed);
    for signal in 1..=SIGNALS {
        let mut action = NONE;
        // SAFETY: the kernel fills a live structure.
        unsafe {
            sys!(
                nr::__NR_rt_sigaction,
                signal,
                0usize,
                &raw mut action,
                8usize
            )
        };
        ACTIONS.lock()[signal as usize] = action;
        if mask & bit(signal) != 0 {
            WATCHED.fetch_or(bit(signal), Ordering::Relaxed);
        }
        tell_kernel(signal, &action);
    }
}

/// Keeps the kernel from its default actions for signals that a thread blocks.
pub fn watch(blocked: u64) {
    if blocked & !BLOCKED.load(Ordering::Relaxed) != 0 {
        let fresh = blocked & !BLOCKED.fetch_or(blocked, Ordering::Relaxed);
        tell_kernel_of(fresh & WATCHED.load(Ordering::Relaxed) & !super::UNBLOCKABLE);
    }
    if blocked & !WATCHED.load(Ordering::Relaxed) != 0 {
        let fresh = blocked & !WATCHED.fetch_or(blocked, Ordering::Relaxed);
        tell_kernel_of(fresh & !super::UNBLOCKABLE);
    }
}

/// libc has blocked everything for a moment, and gives the thread its mask back. If signals were
/// taken over in that moment, the kernel acts from now on upon those that stop the process or do
/// nothing, unless a thread blocks them. It doesn't act upon those that end the process: the
/// runtime leaves locks first.
pub fn libc_opens(mask: u64) {
    watch(mask);
    if LIBC_BLOCKED.load(Ordering::Relaxed) != 0 && LIBC_BLOCKED.swap(0, Ordering::Relaxed) != 0 {
        let idle = (1..=SIGNALS).filter(|&signal| ignored_by_default(signal));
        let open = idle.fold(STOPS, |set, signal| set | bit(signal)) & !mask;
        WATCHED.fetch_and(!open, Ordering::Relaxed);
        tell_kernel_of(open);
        // Another thread may have begun to wait for a child since the kernel's action was chosen.
        tell_kernel_of(HEARD.load(Ordering::SeqCst));
    }
}

fn tell_kernel_of(set: u64) {
    for signal in (1..=SIGNALS).filter(|&signal| set & bit(signal) != 0) {
        tell_kernel(signal, &get(signal));
    }
}

/// Returns true if the kernel gives `signal` to the runtime's handler.
pub fn is_ours(signal: u32) -> bool {
    super::UNBLOCKABLE & bit(signal) == 0 && has_our_handler(signal, &get(signal))
}

fn has_our_handler(signal: u32, action: &SigAction) -> bool {
    const CONT: u64 = bit(18); // what discards stops
    let ours = match action.handler {
        DEFAULT => {
            let watched = WATCHED.load(Ordering::Relaxed) | HEARD.load(Ordering::SeqCst);
            watched | FAULTS | CONT | crashes()
        }
        IGNORE => BLOCKED.load(Ordering::Relaxed) & !LOOKED_AT | FAULTS,
        _ => u64::MAX,
    };
    (ours | OWN) & bit(signal) != 0
}

/// Further signals with a core dump that are handled so that the flight recorder's events get into
/// a file before: SIGQUIT, SIGILL, SIGABRT, SIGFPE.
fn crashes() -> u64 {
    if crash::is_set() {
        bit(3) | bit(4) | bit(6) | bit(8)
    } else {
        0
    }
}

/// The runtime's own signals.
const OWN: u64 = bit(POKE as u32) | bit(PREEMPT as u32);

fn tell_kernel(signal: u32, action: &SigAction) {
    if super::UNBLOCKABLE & bit(signal) != 0 {
        return;
    }
    let is_poke = signal as usize == POKE;
    let ours = has_our_handler(signal, action);
    if ours && action.handler == IGNORE {
        IGNORED.fetch_or(bit(signal), Ordering::Relaxed);
    } else {
        IGNORED.fetch_and(!bit(signal), Ordering::Relaxed);
    }
    stops::note_action(signal, action.handler == DEFAULT);
    // Only a handler of the program's interrupts calls.
    let has_none = matches!(action.handler, DEFAULT | IGNORE);
    let restart = if signal as usize == PREEMPT || has_none && !is_poke {
        SA_RESTART
    } else {
        action.flags & SA_RESTART
    };
    let kept = action.flags & (SA_NOCLDSTOP | SA_NOCLDWAIT);
    let told = if ours {
        SigAction {
            handler: entry::raddle_signal_handler as *const () as usize,
            flags: kept | SA_SIGINFO | SA_ONSTACK | SA_RESTORER | restart,
            restorer: entry::raddle_signal_restorer as *const () as usize,
            mask: u64::MAX,
        }
    } else {
        SigAction {
            handler: action.handler,
            flags: kept | SA_RESTORER,
            restorer: entry::raddle_signal_restorer as *const () as usize,
            mask: 0,
        }
    };
    tell(signal, &told);
}

/// Tells the kernel of an action.
fn tell(signal: u32, action: &SigAction) {
    let at = core::ptr::from_ref(action);
    // SAFETY: the kernel reads a live structure; the runtime's handler is async-signal-safe by
    // construction, and the program is responsible for its own.
    unsafe { sys!(nr::__NR_rt_sigaction, signal, at, 0usize, MASK_BYTES) };
}

/// Restores the kernel's default action for good: the process is about to die of `signal`.
pub fn surrender(signal: u32) {
    tell(signal, &NONE);
}

/// Returns true if a signal with this action does nothing, unless it is blocked.
pub const fn does_nothing(signal: u32, handler: usize) -> bool {
    handler == IGNORE || handler == DEFAULT && ignored_by_default(signal)
}

/// Returns true if the default action of `signal` is to do nothing.
pub const fn ignored_by_default(signal: u32) -> bool {
    const CONT: u32 = 18;
    const CHLD: u32 = 17;
    const URG: u32 = 23;
    const WINCH: u32 = 28;
    matches!(signal, CONT | CHLD | URG | WINCH)
}

/// Frees the lock in the child of a fork.
pub fn break_lock() {
    // SAFETY: the child has one thread.
    unsafe { ACTIONS.break_lock() };
}
