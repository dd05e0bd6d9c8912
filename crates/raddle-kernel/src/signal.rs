//! Signals in user space: masks, pending sets and dispositions of green threads.
//!
//! Until the program has a second thread the kernel does everything. [`virtualize`] then takes
//! over, once: dispositions are copied into [`actions`], handlers are replaced by the runtime's own
//! ([`entry`]), the kernel's masks of all carriers become empty but for [`held`] signals, and from
//! then on
//!
//! - a signal that the kernel delivers to a carrier is recorded and *routed*: to the green thread
//!   that it hit, if that accepts it, else to another, else it stays pending for the process;
//! - a signal sent to a green thread is queued there; the thread is interrupted if it waits, poked
//!   on its carrier if it runs;
//! - delivery happens on the green thread's own stack (or its alternate one), with a true
//!   `ucontext` ([`delivery`]).
//!
//! Signal 33, which glibc reserves for telling threads to change credentials, is the runtime's
//! poke: it makes a carrier look at the pending set of the thread it runs.

pub mod actions;
pub mod alternate;
pub mod calls;
pub mod children;
mod contexts;
pub mod delivery;
pub mod entry;
pub mod fatal;
pub mod groups;
pub mod held;
mod info;
pub mod pidfd;
pub mod preemption;
mod processes;
pub mod routing;
mod samples;
pub mod stops;
pub mod timers;
mod tsc;

use crate::frame::WIDE;
use crate::mode::{is_virtual, set_virtual};
use core::sync::atomic::Ordering;
use raddle_engine::chaos::{self, Point};
use raddle_engine::helpers::POKE;
use raddle_engine::{Carrier, PROCESS, own_signals};
use raddle_sys::abi::StackT;
use raddle_sys::{change_signal_mask, mem, nr, sys};

pub use delivery::{Delivered, before_call, deliver, deliver_at, deliver_outside, on_attention};
pub use entry::code_places;
pub use routing::route;

/// Highest signal number.
pub const SIGNALS: u32 = 64;
/// Bytes of a set of signals, which many calls have to name.
pub const MASK_BYTES: usize = 8;
/// Bytes of a carrier's alternate signal stack: AMX frames take some 12 KiB.
const CARRIER_STACK: usize = 64 * 1024;

/// The set bit of a signal.
pub const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The code of a signal that was sent to one thread (`si_code`).
const SI_TKILL: i32 = nr::SI_TKILL;

/// SIGKILL and SIGSTOP, which no thread can block or handle.
pub const UNBLOCKABLE: u64 = bit(9) | bit(19);

/// Signals 32 and 33: only libc's own "block everything" names them.
const LIBC_INTERNAL: u64 = bit(32) | bit(33);

/// Takes signals over from the kernel. Idempotent; called by the only thread there is.
pub fn virtualize() {
    if is_virtual() {
        return;
    }
    let carrier = Carrier::current();
    let thread = carrier.thread();
    WIDE.find();
    // SAFETY: opens no signal.
    let mask = unsafe { change_signal_mask(nr::SIG_BLOCK, 0) };
    thread.signals.mask.store(mask, Ordering::Relaxed);
    alternate::adopt(&thread.signals);
    actions::adopt(mask);
    held::adopt(mask);
    set_virtual();
    install_stack(carrier);
    set_kernel_mask(held::mask_of(carrier));
    // Signals that the kernel held have come. They are routed before another thread can ask for
    // them.
    routing::route();
}

/// A carrier's start: its alternate signal stack and its empty mask.
pub fn carrier_starts(carrier: &Carrier) {
    if is_virtual() {
        install_stack(carrier);
        set_kernel_mask(held::mask_of(carrier));
    }
}

fn install_stack(carrier: &Carrier) {
    let (mut base, size) = carrier.signal_stack.get();
    if size == 0 {
        let Ok(memory) = mem::map(CARRIER_STACK) else {
            return;
        };
        base = memory.expose_provenance();
        carrier.signal_stack.set((base, CARRIER_STACK));
    }
    restore_stack(base);
}

fn restore_stack(base: usize) {
    let stack = StackT {
        sp: base,
        flags: 0,
        pad: 0,
        size: CARRIER_STACK,
    };
    // SAFETY: the memory is the carrier's for ever.
    unsafe { sys!(nr::__NR_sigaltstack, &raw const stack, 0usize) };
}

fn set_kernel_mask(mask: u64) {
    // SAFETY: the runtime's handlers are fit for every carrier.
    unsafe { change_signal_mask(nr::SIG_SETMASK, mask) };
}

/// Returns the running thread's mask.
fn own_mask() -> u64 {
    let signals = &Carrier::current().thread().signals;
    signals.mask.load(Ordering::Relaxed)
}

/// Gives the kernel the running thread's mask: a child that shares memory, or a new program,
/// inherits it.
pub fn expose_mask() {
    if is_virtual() {
        set_kernel_mask(own_mask());
    }
}

/// Blocks every signal on this carrier, the runtime's own included.
pub fn block_all() {
    if is_virtual() {
        set_kernel_mask(u64::MAX);
    }
}

/// Undoes [`expose_mask`] and [`block_all`]; what was pending arrives before this returns.
pub fn hide_mask() {
    if is_virtual() {
        set_kernel_mask(held::mask_of(Carrier::current()));
    }
}

/// In the child of a fork: nothing is pending, and the kernel keeps the carrier's stack.
pub fn in_child() {
    let carrier = Carrier::current();
    routing::reset();
    timers::in_child();
    held::in_child();
    let signals = &carrier.thread().signals;
    signals.drop_pending();
    while carrier.arrivals.pop().is_some() {}
    carrier.closed.store(0, Ordering::Relaxed);
    carrier.attention.store(0, Ordering::Relaxed);
    actions::break_lock();
}

/// Sends this kernel thread a poke, which the kernel delivers when the mask lets it.
fn poke_self(carrier: &Carrier) {
    let own = carrier.kernel_tid.load(Ordering::Relaxed);
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: signals this very kernel thread, which handles the signal.
    unsafe { sys!(nr::__NR_tgkill, pid, own, POKE) };
}

/// Makes `kernel_tid` look at the pending signals of the thread it runs.
pub fn poke(kernel_tid: u32) {
    chaos::stop(Point::Poke);
    own_signals::send(kernel_tid, POKE);
}
