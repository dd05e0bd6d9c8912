//! `futex_waitv(2)`: a wait on several words that ends with one of them.
//!
//! If all words are private, the thread links one wait node a word. All nodes lead to the same
//! claim word, so one waker wins, and its node records the win; the thread unlinks the others
//! afterwards. A waker that finds the task claimed passes over its node and wakes the next waiter,
//! so no wake-up is lost.
//!
//! If some word is shared, a helper waits in the kernel, for the private ones too: meanwhile
//! private wakes look there as well ([`crate::words`]). The count is raised before the kernel
//! compares the words, and read behind the waker's fence.

use crate::clocks::deadlines::absolute_deadline;
use crate::frame::{Frame, Outcome};
use crate::signal;
use crate::user::{self, User};
use crate::words::IN_KERNEL;
use crate::words::{ANY, is_word};
use core::sync::atomic::{Ordering, fence};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, switch};
use raddle_sched::timers::NEVER;
use raddle_sched::{WaitNode, Wake};
use raddle_sys::abi::Timespec;
use raddle_sys::{err, errno, nr};

/// `FUTEX_WAITV_MAX`.
const MOST: usize = 128;
/// Words for which the short form has nodes.
const FEW: usize = 8;
/// `struct futex_waitv`: value, address, flags and a reserved word.
type Entry = [u64; 3];
const PRIVATE: u64 = 128;
/// Flags of a private word of 32 bits.
const PRIVATE_U32: u64 = 2 | PRIVATE;

/// `futex_waitv(2)`.
pub extern "C" fn futex_waitv(frame: &Frame) -> Outcome {
    const CLOCK_REALTIME: u32 = raddle_sys::nr::CLOCK_REALTIME;
    const CLOCK_MONOTONIC: u32 = raddle_sys::nr::CLOCK_MONOTONIC;
    let (entries, count) = (frame.user::<Entry>(0), frame.word(1) as usize);
    let (limit, clock) = (frame.user::<Timespec>(3), frame.word(4));
    let known = limit.is_null() || matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC);
    let is_valid = !entries.is_null() && (1..=MOST).contains(&count) && frame.word(2) == 0;
    if !PROCESS.is_started() || !is_valid || !known {
        return Outcome::PASS; // the kernel finds the right errno
    }
    match absolute_deadline(limit, clock == CLOCK_REALTIME) {
        Ok(deadline_ns) if count <= FEW => wait_call::<FEW>(frame, entries, count, deadline_ns),
        Ok(deadline_ns) => wait_call::<MOST>(frame, entries, count, deadline_ns),
        Err(errno) => Outcome::of(errno),
    }
}

/// Copies the entries, and waits. The kernel finds its errno before it waits, in an order of its
/// own: a call that it would refuse passes.
#[inline(never)]
fn wait_call<const N: usize>(
    frame: &Frame,
    from: User<Entry>,
    count: usize,
    deadline_ns: u64,
) -> Outcome {
    let mut entries = [[0u64; 3]; N];
    let entries = &mut entries[..count];
    if from.read_all(entries).is_err() {
        return Outcome::PASS;
    }
    let is_private = |[_, _, flags]: &&Entry| *flags == PRIVATE_U32;
    let private = entries.iter().filter(is_private).count();
    let may_wait = |&[value, address, _]: &Entry| value >> 32 == 0 && is_word(address as usize);
    if private == count && !entries.iter().all(may_wait) {
        return Outcome::PASS;
    }
    loop {
        let result = if private == count {
            wait::<N>(entries, deadline_ns)
        } else {
            wait_in_kernel(frame, entries, private as u32)
        };
        if result != err(errno::EINTR) || signal::deliver(true) {
            return Outcome::of(result);
        }
    }
}

fn wait_in_kernel(frame: &Frame, entries: &[Entry], private: u32) -> isize {
    IN_KERNEL.fetch_add(private, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::OTHER, frame.number() as usize, 0);
    let mut args = frame.args();
    args[0] = entries.as_ptr().expose_provenance();
    // SAFETY: the program's own call; the entries stay while the helper works for them.
    let result = unsafe { PROCESS.helpers.call(frame.number(), args) };
    IN_KERNEL.fetch_sub(private, Ordering::SeqCst);
    result
}

/// Waits on private words. Returns the index of the one that was woken, or a negated EAGAIN,
/// EFAULT, ETIMEDOUT or EINTR.
#[inline(never)]
fn wait<const N: usize>(entries: &[Entry], deadline_ns: u64) -> isize {
    let nodes: [WaitNode; N] = core::array::from_fn(|_| WaitNode::new());
    let thread = Carrier::current().thread();
    let shown = if deadline_ns == NEVER { 0 } else { deadline_ns };
    thread.waits_for(WaitKind::OTHER, nr::__NR_futex_waitv as usize, shown);
    thread.task.prepare();
    let (mut failure, mut parks, mut given) = (None, true, 0);
    for (node, &[value, address, _]) in nodes.iter().zip(entries) {
        let still = || {
            failure = match user::load(address as usize) {
                Ok(now) if u64::from(now) == value => None,
                Ok(_) => Some(err(errno::EAGAIN)),
                Err(errno) => Some(errno),
            };
            failure.is_none()
        };
        given += 1;
        // SAFETY: the nodes stay in this frame; each is cancelled below.
        parks = unsafe {
            let key = address as usize;
            PROCESS
                .futexes
                .enqueue(node, thread.task_ref(), key, ANY, still)
        };
        if failure.is_some() || !thread.task.is_waiting() {
            break;
        }
    }
    let outcome = if parks {
        switch::park_until(deadline_ns)
    } else {
        Wake::Retry
    };
    for node in &nodes[..given] {
        // SAFETY: the nodes up to here were given to this table.
        unsafe { PROCESS.futexes.cancel(node) };
    }
    match (outcome, failure) {
        (Wake::Woken, _) => nodes
            .iter()
            .position(WaitNode::won)
            .map_or(err(errno::EINTR), |index| index as isize),
        (_, Some(errno)) => errno,
        (Wake::TimedOut, _) => err(errno::ETIMEDOUT),
        _ => err(errno::EINTR),
    }
}
