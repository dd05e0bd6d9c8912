//! Shared futexes: other processes may wait and wake, so the waiting is the kernel's.
//!
//! A helper waits there for the green thread; wakes and requeues with a shared operation pass, and
//! find the helper. A private operation doesn't find it, as in Linux: the flag is part of a futex's
//! key. One kind of wait only looks shared: see [`is_join`].

use crate::frame::Frame;
use crate::user::User;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, events};
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

/// The offset in a thread's block of the word that is cleared at the thread's end; 0 while there is
/// one thread. The same for every thread, so any maker of a thread may write it.
static JOIN_WORD: AtomicUsize = AtomicUsize::new(0);

/// The number of waits in the kernel. Raised before the kernel compares the word, and read by a
/// waker that has changed the word, behind its fence ([`ends`]).
static WAITS: AtomicU32 = AtomicU32::new(0);

/// Wakes a thread that waits in the kernel for the cleared word of an ended thread.
pub(crate) fn ends(address: usize) {
    fence(Ordering::SeqCst);
    if WAITS.load(Ordering::Relaxed) != 0 {
        wake(address, 1);
    }
}

/// In the child of a fork, which has no waiting thread.
pub(crate) fn in_child() {
    if WAITS.load(Ordering::Relaxed) != 0 {
        WAITS.store(0, Ordering::Relaxed);
    }
}

/// Learns from a `clone` where libc keeps the word: behind `tls`, where the block begins.
pub fn learn_join_word(tls: u64, cleared: usize) {
    const BLOCK: usize = 4096;
    let offset = cleared.wrapping_sub(tls as usize);
    if offset < BLOCK {
        JOIN_WORD.store(offset, Ordering::Relaxed);
    }
}

/// Returns true if libc waits for a thread's end: on the word that is cleared then, and with a
/// shared operation, because the kernel's wake is shared. Here the word and the wake are the
/// runtime's.
///
/// Until glibc 2.42 the word holds the thread's id; its slot keeps id and address until the word is
/// zero. Later it holds a state, and the id in the block is gone before the thread is; but the
/// block, which lasts until the join is over, holds its own address (`%fs:0x10`).
pub(crate) fn is_join(frame: &Frame) -> bool {
    let address = frame.arg(0);
    if let Some(thread) = PROCESS.slot_of(frame.word(2))
        && thread.clear_tid.get() == address
    {
        return true;
    }
    is_in_block(address)
}

/// Returns true if `address` is that of the word in a thread's block, by all that the block says.
///
/// An emulator's threads have blocks of its guest's libc, with ids that no thread has. Such a wait
/// is a join, too, and the emulator wakes it by a call: see [`wake_join`].
pub(crate) fn is_in_block(address: usize) -> bool {
    const SELF: usize = 16;
    let block = address.wrapping_sub(JOIN_WORD.load(Ordering::Relaxed));
    block != address && User::at(block.wrapping_add(SELF)).read() == Ok(block)
}

/// A shared wake of a word for which [`is_in_block`] holds: the waiters that counted as joins, then
/// those in the kernel. Returns how many, or a negated errno.
pub(crate) fn wake_join(address: usize, count: usize, bits: u32) -> isize {
    let woken = super::wake(address, count, bits);
    if woken >= count {
        return woken as isize;
    }
    match super::wake_in_kernel(address, 0, count - woken, bits) {
        others if others < 0 => others,
        others => woken as isize + others,
    }
}

/// Waits in the kernel, which compares the word: no wake-up can be lost on the way there.
/// Returns 0, or a negated EAGAIN, EFAULT, ETIMEDOUT or EINTR.
pub(crate) fn wait(address: usize, expected: u32, bits: u32, deadline_ns: u64) -> isize {
    let limit = Timespec::from_ns(deadline_ns);
    let until = if deadline_ns == NEVER {
        0
    } else {
        (&raw const limit).expose_provenance()
    };
    let args = [
        address,
        nr::FUTEX_WAIT_BITSET as usize,
        expected as usize,
        until,
        0,
        bits as usize,
    ];
    if !PROCESS.is_started() {
        // SAFETY: the program's word; the limit lives in this frame.
        return unsafe { raddle_sys::syscall6(nr::__NR_futex, args) };
    }
    let thread = Carrier::current().thread();
    thread.waits_for(
        WaitKind::FUTEX,
        address,
        if until == 0 { 0 } else { deadline_ns },
    );
    events::waits_for_shared(thread, address);
    WAITS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as above; the frame stays while the helper works for it.
    let result = unsafe { PROCESS.helpers.call(nr::__NR_futex, args) };
    WAITS.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Wakes waiters of any process; returns how many, or a negated errno.
pub(crate) fn wake(address: usize, count: usize) -> isize {
    // SAFETY: the kernel looks at the address.
    unsafe { sys!(nr::__NR_futex, address, nr::FUTEX_WAKE, count) }
}

/// As [`wake`], by the running thread, which is told as the waker.
pub(crate) fn wake_by_thread(address: usize, count: usize) -> isize {
    events::wakes_shared(address, count, || wake(address, count))
}
