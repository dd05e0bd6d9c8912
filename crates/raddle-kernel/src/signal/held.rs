//! Signals that the kernel holds pending, so that `signalfd(2)` finds them.
//!
//! A descriptor of `signalfd` stays the kernel's own, with its reads, epoll and forks. It shows the
//! signals that are pending in the kernel. Blocked signals otherwise pend in user space. So a
//! signal that some descriptor reads and no thread accepts becomes *held*: the carriers block the
//! signal, and it is sent to the process once more.
//!
//! 1. A router finds no thread that accepts the signal. It adds the signal to [`HELD`], blocks it
//!    on its carrier and queues it again. Another carrier may receive it now, and does the same; it
//!    does so once, because it blocks the signal, too, from then on.
//! 2. A thread opens its mask for a held signal, or waits for it by `sigwait`. After the change of
//!    its mask it takes the signal from [`HELD`]; the carriers unblock the signal, and the kernel
//!    delivers it.
//!
//! No signal is lost between the two: see [`raddle_sched::held`].
//!
//! A thread-directed signal of this kind becomes the process's: any thread may read it. A signal on
//! its way between carriers (1) is pending nowhere; a thread that unblocks it in that instant runs
//! its handler a moment later. A carrier that must leave the signal to another kernel thread waits
//! until that thread has queued it.
//!
//! Rejected: descriptors of our own. One that was made before the first thread can't be replaced
//! in the epoll instances that hold it.

use super::{MASK_BYTES, SI_TKILL, UNBLOCKABLE, bit, poke, set_kernel_mask};
use crate::frame::{Frame, Outcome};
use crate::mode::is_virtual;
use crate::signal::actions::FAULTS;
use crate::signal::children;
use crate::signal::routing::{self, Process};
use crate::words;
use core::sync::atomic::Ordering;
use raddle_engine::carrier::PREEMPT;
use raddle_engine::clock;
use raddle_engine::helpers::POKE;
use raddle_engine::signals::SignalList;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS};
use raddle_sched::LeftSignals;
use raddle_sched::held::HeldSignals;
use raddle_sched::routes::Routes;
use raddle_sys::abi::SigInfo;
use raddle_sys::{err, errno, is_err, nr, sys, syscall6};

/// Signals of the runtime's own, which carriers never block.
const OWN: u64 = bit(POKE as u32) | bit(PREEMPT as u32);

/// Signals that carriers block, because the kernel holds them.
pub static HELD: HeldSignals = HeldSignals::new();

/// Signals that the first kernel thread is to queue.
static FOR_FIRST: LeftSignals<SignalList> = LeftSignals::new(SignalList::new());

/// Returns the kernel's mask of carriers that aren't closed.
#[inline(always)]
pub fn mask() -> u64 {
    HELD.mask()
}

/// Returns the kernel's mask of a carrier. A closed carrier takes nothing but faults and the
/// runtime's own signals.
#[inline(always)]
pub fn mask_of(carrier: &Carrier) -> u64 {
    const FAULTS: u64 = bit(4) | bit(5) | bit(7) | bit(8) | bit(11) | bit(31);
    match carrier.closed.load(Ordering::Relaxed) {
        0 => mask(),
        _ => mask() | !(OWN | FAULTS),
    }
}

/// `signalfd(2)`, `signalfd4(2)`.
pub extern "C" fn signalfd(frame: &Frame) -> Outcome {
    if frame.arg(2) != MASK_BYTES {
        return Outcome::PASS;
    }
    let Ok(mask) = frame.user::<u64>(1).read() else {
        return Outcome::PASS; // the kernel finds the right errno
    };
    let mut args = frame.args();
    args[1] = (&raw const mask).expose_provenance();
    // SAFETY: the program's own call, with a mask that lives.
    let result = unsafe { syscall6(frame.number(), args) };
    if !is_err(result) {
        // A bad address would end a carrier that blocks these.
        let mask = mask & !(UNBLOCKABLE | OWN | FAULTS);
        HELD.add_read(mask);
        children::note(); // the kernel may keep SIGCHLD from now on
        if is_virtual() {
            hold_early(mask);
        }
    }
    Outcome::of(result)
}

/// Holds the signals of a new descriptor that no thread accepts, before any of them comes. A signal
/// that came first would find a carrier that doesn't block it yet, and would lose its place in the
/// order.
fn hold_early(read: u64) {
    let nobodys = (1..=super::SIGNALS)
        .filter(|&signal| read & bit(signal) != 0 && !routing::is_accepted(signal))
        .fold(0, |set, signal| set | bit(signal));
    if nobodys == 0 {
        return;
    }
    HELD.add(nobodys);
    tell_carriers();
    routing::reconsider(nobodys);
    wait_for_first(nobodys);
    for signal in (1..=super::SIGNALS).filter(|&signal| nobodys & bit(signal) != 0) {
        if routing::is_accepted(signal) {
            release(bit(signal));
        }
    }
}

/// Holds the signals that the only thread blocks and a descriptor reads, at the take-over.
pub fn adopt(blocked: u64) {
    HELD.adopt(blocked);
}

/// Returns true if a descriptor reads the signal.
pub fn is_read(signal: u32) -> bool {
    HELD.is_read(signal)
}

/// Queues a signal to the process with the details that it came with. Linux lets a signal of the
/// kernel's or of `kill` be queued in two ways only: to the calling thread's own id, which from
/// Linux 6.15 on queues it to the process; or by the first kernel thread, to which other kernel
/// threads leave it.
pub fn give_back(info: &SigInfo) -> bool {
    let restricted = info.code >= 0 || info.code == SI_TKILL;
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    if !restricted || Carrier::current().kernel_tid.load(Ordering::Relaxed) == pid {
        return queue(info);
    }
    match queue_to_oneself(info) {
        result if !is_err(result) => return true,
        FULL => return false,
        _ => {}
    }
    let is_left = FOR_FIRST.leave(info.signo as u32, info);
    if is_left {
        poke(pid);
    }
    is_left
}

/// The kernel's answer if its queue of signals is full.
const FULL: isize = err(errno::EAGAIN);

/// Queues a signal to the process by the calling kernel thread's own id. Under a filter of system
/// calls, which may not know this call, the result is that of an older kernel.
fn queue_to_oneself(info: &SigInfo) -> isize {
    const PIDFD_SELF_THREAD: isize = nr::PIDFD_SELF_THREAD as isize;
    const TO_PROCESS: usize = 2;
    let at = core::ptr::from_ref(info);
    let queue = || {
        // SAFETY: the kernel reads a live structure.
        unsafe {
            let nr = nr::__NR_pidfd_send_signal;
            sys!(nr, PIDFD_SELF_THREAD, info.signo, at, TO_PROCESS)
        }
    };
    PROCESS
        .filters
        .unless_any(queue)
        .unwrap_or(err(errno::ENOSYS))
}

/// Waits until the first kernel thread has queued the signals of `set`: their sender, or the maker
/// of a descriptor for them, may read them next, without waiting. A first kernel thread that waits
/// in the kernel queues them later.
///
/// # Blocking
/// The running thread, two seconds at most.
#[inline(always)]
pub fn wait_for_first(set: u64) {
    if FOR_FIRST.marks() & set != 0 {
        wait_while_waiting(set);
    }
}

#[cold]
fn wait_while_waiting(set: u64) {
    const PATIENCE_NS: u64 = 2_000_000_000;
    const ANY: u32 = u32::MAX;
    let until_ns = clock::now_ns() + PATIENCE_NS;
    let address = FOR_FIRST.address().expose_provenance();
    while let Some(seen) = FOR_FIRST.awaits(set) {
        let result = words::wait(address, seen, ANY, until_ns, WaitKind::SIGNAL);
        if result == err(errno::EINTR) || result == err(errno::ETIMEDOUT) {
            return;
        }
    }
}

fn queue(info: &SigInfo) -> bool {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    let at = core::ptr::from_ref(info);
    // SAFETY: the kernel reads a live structure.
    !is_err(unsafe { sys!(nr::__NR_rt_sigqueueinfo, pid, info.signo, at) })
}

/// Returns true if the first kernel thread has signals to queue.
#[inline(always)]
pub fn has_waiting() -> bool {
    FOR_FIRST.has_any()
}

/// Queues the signals that other carriers left to the first kernel thread, if this is it.
#[inline(always)]
pub fn look() {
    if has_waiting() {
        queue_waiting();
    }
}

#[cold]
fn queue_waiting() {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    if Carrier::current().kernel_tid.load(Ordering::Relaxed) != pid {
        return;
    }
    FOR_FIRST.queue_all(|info| {
        if !queue(&info) {
            routing::hold_here(&info);
        }
    });
    words::wake(
        FOR_FIRST.address().expose_provenance(),
        usize::MAX,
        u32::MAX,
    );
}

/// Unblocks the signals of `set` on all carriers, because a thread accepts them from now on or for
/// a moment.
#[inline(always)]
pub fn release(set: u64) {
    Process.fetch_from_kernel(set);
}

/// Makes every carrier set its mask anew: this one now, others soon. What is pending arrives before
/// this returns.
#[cold]
pub fn tell_carriers() {
    let own = Carrier::current();
    for carrier in PROCESS.all_carriers() {
        let kernel_tid = carrier.kernel_tid.load(Ordering::Relaxed);
        if kernel_tid != 0 && !core::ptr::eq(carrier, own) {
            poke(kernel_tid);
        }
    }
    set_kernel_mask(mask_of(own));
}

/// Returns the signals that carriers block and the kernel keeps.
pub fn pending() -> u64 {
    let mut pending = 0u64;
    // SAFETY: the kernel fills a live word.
    unsafe { sys!(nr::__NR_rt_sigpending, &raw mut pending, 8usize) };
    pending & mask() | FOR_FIRST.marks()
}

/// Forgets the signals that were left to the first kernel thread, in the child of a fork, where
/// nothing is pending.
pub fn in_child() {
    // SAFETY: the child has one thread.
    unsafe { FOR_FIRST.reset() };
}
