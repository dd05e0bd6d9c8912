//! Futexes in user space: private ones, and what glibc makes shared although it isn't.
//!
//! Keys are addresses. The word is checked under its bucket's lock after the waiter count was
//! raised, so that a waker that changed the word before it looked finds the waiter (see
//! `raddle_sched::wait_table`). Truly shared futexes go to the kernel: waits on a helper, wakes
//! directly, and a wake of a shared futex looks at both.

use crate::boundary::{Frame, Outcome};
use crate::time::{absolute_deadline, relative_deadline};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::thread::{TID_BASE, WaitKind};
use raddle_engine::{Carrier, ENGINE, switch};
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, Wake};
use raddle_sys::{err, errno, syscall6};

const WAIT: usize = 0;
const WAKE: usize = 1;
const REQUEUE: usize = 3;
const CMP_REQUEUE: usize = 4;
const WAKE_OP: usize = 5;
const WAIT_BITSET: usize = 9;
const WAKE_BITSET: usize = 10;
const PRIVATE: usize = 128;
const CLOCK_REALTIME: usize = 256;
const ANY: u32 = u32::MAX;

/// A futex word by address.
///
/// # Safety
/// The address must be readable.
unsafe fn word<'a>(address: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's promise.
    unsafe { &*core::ptr::with_exposed_provenance::<AtomicU32>(address) }
}

/// `futex(2)`.
pub extern "C" fn futex(frame: &Frame) -> Outcome {
    if !ENGINE.is_started() {
        return Outcome::PASS;
    }
    let operation = frame.arg(1) & 0x7f;
    let join = frame.arg(1) & PRIVATE == 0 && is_join(frame, operation);
    let ours = frame.arg(1) & PRIVATE != 0 || join;
    if frame.arg(0) & 3 != 0 || frame.arg(0) == 0 {
        return Outcome::PASS; // the kernel finds the right errno
    }
    match operation {
        WAIT | WAIT_BITSET if ours => {
            let kind = if join {
                WaitKind::Join
            } else {
                WaitKind::Futex
            };
            Outcome::of(wait_call(frame, operation, kind))
        }
        WAIT | WAIT_BITSET => shared_wait(frame),
        WAKE | WAKE_BITSET if ours => {
            let bits = if operation == WAKE {
                ANY
            } else {
                frame.r9 as u32
            };
            if bits == 0 {
                return Outcome::of(err(errno::EINVAL));
            }
            let woken = wake(frame.arg(0), frame.rdx as u32 as usize, bits);
            if woken != 0 {
                switch::perhaps_yield();
            }
            Outcome::of(woken as isize)
        }
        WAKE | WAKE_BITSET => shared_wake(frame, operation),
        REQUEUE | CMP_REQUEUE if ours => Outcome::of(requeue(frame, operation)),
        WAKE_OP if ours => Outcome::of(wake_op(frame)),
        _ => Outcome::PASS,
    }
}

/// glibc waits for a thread's end on its id word with a shared operation, because the kernel's wake
/// is shared; the word and the wake are ours.
fn is_join(frame: &Frame, operation: usize) -> bool {
    if operation != WAIT && operation != WAIT_BITSET {
        return false;
    }
    match ENGINE.find(frame.rdx as u32) {
        Some(thread) => thread.clear_tid.get().addr() == frame.arg(0),
        // Gone already, or about to clear the word: its wake is ours.
        None => (TID_BASE..1 << 30).contains(&(frame.rdx as u32)),
    }
}

fn wait_call(frame: &Frame, operation: usize, kind: WaitKind) -> isize {
    let bits = if operation == WAIT {
        ANY
    } else {
        frame.r9 as u32
    };
    if bits == 0 {
        return err(errno::EINVAL);
    }
    let deadline_ns = if operation == WAIT {
        relative_deadline(frame.arg(3))
    } else {
        absolute_deadline(frame.arg(3), frame.arg(1) & CLOCK_REALTIME != 0)
    };
    match deadline_ns {
        Ok(deadline_ns) => wait(frame.arg(0), frame.rdx as u32, bits, deadline_ns, kind),
        Err(errno) => errno,
    }
}

/// Waits on a word while it holds `expected`. Returns 0, or a negated EAGAIN, ETIMEDOUT or EINTR.
#[inline(always)]
pub fn wait(address: usize, expected: u32, bits: u32, deadline_ns: u64, kind: WaitKind) -> isize {
    // SAFETY: the program's futex word.
    let word = unsafe { word(address) };
    if word.load(Ordering::SeqCst) != expected {
        return err(errno::EAGAIN);
    }
    let thread = Carrier::current().thread();
    thread.waits_for(
        kind,
        address,
        if deadline_ns == NEVER { 0 } else { deadline_ns },
    );
    thread.task.prepare();
    let still = || word.load(Ordering::SeqCst) == expected;
    // SAFETY: the thread's own node, cancelled below if anything but the table wakes it.
    if !unsafe {
        ENGINE
            .futexes
            .enqueue(&thread.node, thread.task_ref(), address, bits, still)
    } {
        return err(errno::EAGAIN);
    }
    let outcome = if kind == WaitKind::Semaphore {
        switch::park_cancellable(thread, deadline_ns)
    } else {
        switch::park_until(deadline_ns)
    };
    if outcome == Wake::Woken {
        return 0;
    }
    // SAFETY: the node was given to this table.
    unsafe { ENGINE.futexes.cancel(&thread.node) };
    if outcome == Wake::TimedOut {
        err(errno::ETIMEDOUT)
    } else {
        err(errno::EINTR)
    }
}

/// Wakes up to `count` waiters on a word; returns how many.
#[inline(always)]
pub fn wake(address: usize, count: usize, bits: u32) -> usize {
    let woken = TaskList::new();
    let n = ENGINE.futexes.wake(address, count, bits, &woken);
    if n == 1 {
        if let Some(task) = woken.pop() {
            ENGINE.unpark(task);
        }
    } else {
        ENGINE.unpark_all(woken);
    }
    n
}

fn requeue(frame: &Frame, operation: usize) -> isize {
    // SAFETY: the program's futex word.
    let word = unsafe { word(frame.arg(0)) };
    let expected = frame.r9 as u32;
    let check = || operation == REQUEUE || word.load(Ordering::SeqCst) == expected;
    let woken = TaskList::new();
    let (max_wake, max_move) = (frame.rdx as u32 as usize, frame.r10 as u32 as usize);
    let done = ENGINE.futexes.requeue(
        frame.arg(0),
        frame.arg(4),
        max_wake,
        max_move,
        check,
        &woken,
    );
    ENGINE.unpark_all(woken);
    match done {
        Some(done) => (done.woken + done.moved) as isize,
        None => err(errno::EAGAIN),
    }
}

/// `FUTEX_WAKE_OP`: an atomic operation on the second word decides whether its waiters wake too.
fn wake_op(frame: &Frame) -> isize {
    // SAFETY: the program's second futex word.
    let second = unsafe { word(frame.arg(4)) };
    let code = frame.r9 as u32;
    let signed = |bits: u32| ((bits << 20) as i32) >> 20;
    let mut operand = signed(code >> 12 & 0xfff) as u32;
    if code >> 28 & 8 != 0 {
        operand = 1u32.wrapping_shl(operand & 31);
    }
    let apply = |old: u32| match code >> 28 & 7 {
        0 => Some(operand),
        1 => Some(old.wrapping_add(operand)),
        2 => Some(old | operand),
        3 => Some(old & !operand),
        4 => Some(old ^ operand),
        _ => None,
    };
    let Ok(old) = second.fetch_update(Ordering::SeqCst, Ordering::SeqCst, apply) else {
        return err(errno::ENOSYS);
    };
    let (old, against) = (old as i32, signed(code & 0xfff));
    let hit = match code >> 24 & 0xf {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return err(errno::ENOSYS),
    };
    let mut woken = wake(frame.arg(0), frame.rdx as u32 as usize, ANY);
    if hit {
        woken += wake(frame.arg(4), frame.r10 as u32 as usize, ANY);
    }
    woken as isize
}

/// A wait on a futex that other processes may wake: a helper blocks in the kernel for it.
fn shared_wait(frame: &Frame) -> Outcome {
    // SAFETY: the program's futex word.
    if unsafe { word(frame.arg(0)) }.load(Ordering::SeqCst) != frame.rdx as u32 {
        return Outcome::of(err(errno::EAGAIN));
    }
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::Futex, frame.arg(0), 0);
    // SAFETY: the program's own call.
    Outcome::of(unsafe { ENGINE.helpers.call(frame.rax as u32, frame.args()) })
}

/// A wake with a shared operation: of our waiters (a join looks shared), then of the kernel's.
fn shared_wake(frame: &Frame, operation: usize) -> Outcome {
    let bits = if operation == WAKE {
        ANY
    } else {
        frame.r9 as u32
    };
    let wanted = frame.rdx as u32 as usize;
    let ours = if bits == 0 {
        0
    } else {
        wake(frame.arg(0), wanted, bits)
    };
    if ours >= wanted.max(1) {
        return Outcome::of(ours as isize);
    }
    let mut args = frame.args();
    args[2] = wanted - ours;
    // SAFETY: the program's own call.
    let theirs = unsafe { syscall6(frame.rax as u32, args) };
    Outcome::of(if theirs < 0 && ours > 0 {
        ours as isize
    } else {
        theirs + ours as isize
    })
}

/// The end of a thread: `CLONE_CHILD_CLEARTID`. Runs on the carrier's own stack.
///
/// # Safety
/// `address` is null, or the word that the thread's maker gave for this.
pub unsafe fn clear_tid(address: *mut AtomicU32) {
    if address.is_null() {
        return;
    }
    // SAFETY: glibc keeps the thread block until it sees the zero, which is the last thing we do to
    // it.
    unsafe { (*address).store(0, Ordering::SeqCst) };
    wake(address.addr(), 1, ANY);
}
