//! Waits on words of the program's memory: what futexes, joins, semaphores and the runtime's own
//! waits are made of. A wait ends with EINTR when a signal comes; delivery is the caller's.
//!
//! Keys are addresses. The word is checked under its bucket's lock after the waiter count was
//! raised, so that a waker that changed the word before it looked finds the waiter (see
//! `raddle_sched::wait_table`). Futex words are multiples of four, so the low bits of a key give
//! the kind of the waiter: 0 an ordinary one, 1 the symbol layer's condition variables, 2 and 3
//! those of [`owners`]. Truly shared words are the kernel's ([`shared`]).

pub mod owners;
pub mod robust;
pub mod shared;

use crate::user::{self, USUAL_END, User};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::process::Futexes;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, switch, timed};
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, Wake};
use raddle_sys::{err, errno, nr, sys};

/// The set of all bits, for waits and wakes without one.
pub const ANY: u32 = u32::MAX;

/// Private words that are waited for in the kernel.
pub(crate) static IN_KERNEL: AtomicU32 = AtomicU32::new(0);

/// Returns true if private waiters may be in the kernel. Called after the caller changed its word.
#[inline(always)]
fn kernel_waits() -> bool {
    IN_KERNEL.load(Ordering::SeqCst) != 0
}

/// Returns true for the address of a word that may be the program's.
#[inline(always)]
pub(crate) fn is_word(address: usize) -> bool {
    address & 3 == 0 && (address < USUAL_END || user::kernel_accepts(address))
}

/// Waits on a word while it holds `expected`. Returns 0, or a negated EAGAIN, EFAULT, ETIMEDOUT or
/// EINTR.
#[inline(always)]
pub fn wait(address: usize, expected: u32, bits: u32, deadline_ns: u64, kind: WaitKind) -> isize {
    let until_ns = if deadline_ns == NEVER { 0 } else { deadline_ns };
    wait_as(
        address,
        expected,
        bits,
        deadline_ns,
        kind,
        [address, until_ns as usize],
    )
}

/// As [`wait`]; `told` is what dumps show for `kind`.
#[inline(always)]
pub fn wait_as(
    address: usize,
    expected: u32,
    bits: u32,
    deadline_ns: u64,
    kind: WaitKind,
    told: [usize; 2],
) -> isize {
    match user::load(address) {
        Ok(value) if value == expected => {}
        Ok(_) => return err(errno::EAGAIN),
        Err(errno) => return errno,
    }
    let thread = Carrier::current().thread();
    thread.waits_for(kind, told[0], told[1] as u64);
    if deadline_ns == NEVER {
        Futexes::prepare(&thread.node, thread.task_ref(), address);
    } else {
        thread.task.prepare();
    }
    let still = || user::load(address) == Ok(expected);
    // SAFETY: the thread's own node, cancelled below if anything but the table wakes it.
    if !unsafe {
        PROCESS
            .futexes
            .enqueue(&thread.node, thread.task_ref(), address, bits, still)
    } {
        return err(errno::EAGAIN);
    }
    if expected == LOCKED_WITH_WAITERS && !PROCESS.first().ahead.is_empty() {
        lend_to_owner(address);
    }
    let outcome = if kind == WaitKind::SEMAPHORE {
        switch::park_cancellable(thread, deadline_ns)
    } else {
        switch::park_until(deadline_ns)
    };
    if outcome == Wake::Woken {
        return 0;
    }
    // SAFETY: the node was given to this table.
    unsafe { PROCESS.futexes.cancel(&thread.node) };
    if outcome == Wake::TimedOut {
        err(errno::ETIMEDOUT)
    } else {
        err(errno::EINTR)
    }
}

/// The value of a glibc lock's word while threads wait for the lock.
const LOCKED_WITH_WAITERS: u32 = 2;

/// The caller is about to wait for what may be a `pthread_mutex_t`. Its owner's id lies two words
/// behind the lock; the owner gets the carrier if it waits for one. A word that is no owner's names
/// no thread, as a rule; if it does, that costs the named thread nothing.
#[cold]
fn lend_to_owner(address: usize) {
    const OWNER: usize = 8;
    if let Ok(tid) = user::load(address + OWNER) {
        timed::lend(Carrier::current(), tid);
    }
}

/// Wakes up to `count` waiters on a word; returns how many.
#[inline(always)]
pub fn wake(address: usize, count: usize, bits: u32) -> usize {
    let woken = TaskList::new();
    let mut n = PROCESS.futexes.wake(address, count, bits, &woken);
    if n == 1 {
        if let Some(task) = woken.pop() {
            PROCESS.unpark(task);
        }
    } else {
        PROCESS.unpark_all(woken);
    }
    if kernel_waits() && n < count {
        n += wake_in_kernel(address, nr::FUTEX_PRIVATE_FLAG, count - n, bits).max(0) as usize;
    }
    n
}

/// Wakes up to `count` waiters that are in the kernel, shared or private by `flag`. Returns how
/// many, or a negated errno.
#[cold]
fn wake_in_kernel(address: usize, flag: u32, count: usize, bits: u32) -> isize {
    let operation = nr::FUTEX_WAKE_BITSET | flag;
    let count = count.min(i32::MAX as usize);
    // SAFETY: the kernel looks at the address.
    unsafe {
        sys!(
            nr::__NR_futex,
            address,
            operation,
            count,
            0usize,
            0usize,
            bits
        )
    }
}

/// The end of a thread: `CLONE_CHILD_CLEARTID`, if it was asked for. As in Linux, a bad address has
/// no effect. Runs on the carrier's own stack.
pub fn clear_tid(address: usize) {
    if address == 0 {
        return;
    }
    // glibc frees the thread block once it sees the zero: nothing touches the block after this.
    let _ = User::at(address).write(&0u32);
    wake(address, 1, ANY);
    shared::ends(address);
}

/// In the child of a fork, which has no waiting thread.
pub fn in_child() {
    if IN_KERNEL.load(Ordering::Relaxed) != 0 {
        IN_KERNEL.store(0, Ordering::Relaxed);
    }
    shared::in_child();
}
