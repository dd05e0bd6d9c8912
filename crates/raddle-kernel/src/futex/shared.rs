//! Shared futexes: other processes may wait and wake, so the waiting is the kernel's.
//!
//! A helper waits there for the green thread; wakes and requeues with a shared operation pass, and
//! find the helper. A private operation doesn't find it, as in Linux: the flag is part of what a
//! futex is known by. One kind of wait only looks shared: see [`is_join`].

use super::Request;
use crate::boundary::Frame;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE};
use raddle_sched::timers::NEVER;
use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

use super::{WAIT_BITSET, WAKE};

/// glibc waits for a thread's end on its id word with a shared operation, because the kernel's wake
/// is shared; the word and the wake are ours.
///
/// The slot keeps id and address until the word is zero, so a joiner that still sees the id in the
/// word is recognised until then.
pub fn is_join(frame: &Frame) -> bool {
    ENGINE
        .slot_of(frame.rdx as u32)
        .is_some_and(|thread| thread.clear_tid.get().addr() == frame.arg(0))
}

/// FUTEX_WAIT and FUTEX_WAIT_BITSET of a shared word.
pub fn wait_call(frame: &Frame) -> isize {
    match Request::of(frame) {
        Ok(request) => request.wait(|r| wait(r.address, r.expected, r.bits, r.deadline_ns)),
        Err(errno) => errno,
    }
}

/// Waits in the kernel; the kernel compares the word, so nothing can be lost on the way there.
/// Returns 0, or a negated EAGAIN, EFAULT, ETIMEDOUT or EINTR.
pub fn wait(address: usize, expected: u32, bits: u32, deadline_ns: u64) -> isize {
    let limit = Timespec::from_ns(deadline_ns);
    let until = if deadline_ns == NEVER {
        0
    } else {
        (&raw const limit).expose_provenance()
    };
    let args = [
        address,
        WAIT_BITSET,
        expected as usize,
        until,
        0,
        bits as usize,
    ];
    if !ENGINE.is_started() {
        // SAFETY: the program's word; the limit lives in this frame.
        return unsafe { raddle_sys::syscall6(nr::__NR_futex, args) };
    }
    let thread = Carrier::current().thread();
    thread.waits_for(
        WaitKind::Futex,
        address,
        if until == 0 { 0 } else { deadline_ns },
    );
    // SAFETY: as above; the frame stays while the helper works for it.
    unsafe { ENGINE.helpers.call(nr::__NR_futex, args) }
}

/// Wakes waiters of any process; returns how many, or a negated errno.
pub fn wake(address: usize, count: usize) -> isize {
    // SAFETY: the kernel looks at the address.
    unsafe { sys!(nr::__NR_futex, address, WAKE, count) }
}
