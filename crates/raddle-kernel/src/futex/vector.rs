//! `futex_waitv(2)`: a wait on several words that ends with one of them.
//!
//! If all words are private, the thread links one wait node a word. All nodes lead to the same
//! claim word, so one waker wins, and its node says so; the others are taken out afterwards. A
//! waker that finds the task claimed passes over its node and wakes somebody else, so nothing is
//! lost.
//!
//! If some word is shared, a helper waits in the kernel, for the private ones too: private wakes
//! look there as well while that lasts ([`kernel_waits`]). The count is raised before the kernel
//! compares the words, and read behind the waker's fence.

use super::ANY;
use crate::boundary::{Frame, Outcome};
use crate::signal::{self, Delivered};
use crate::time::absolute_deadline;
use crate::user;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE, switch};
use raddle_sched::timers::NEVER;
use raddle_sched::{WaitNode, Wake};
use raddle_sys::{err, errno};

/// `FUTEX_WAITV_MAX`.
const MOST: usize = 128;
/// Words for which the short form has nodes.
const FEW: usize = 8;
/// Bytes of `struct futex_waitv`: value, address, flags and a reserved word.
const ENTRY: usize = 24;
const PRIVATE: u64 = 128;
/// Flags of a private word of 32 bits.
const PRIVATE_U32: u64 = 2 | PRIVATE;

/// Private words that are waited for in the kernel.
static IN_KERNEL: AtomicU32 = AtomicU32::new(0);

/// True if private waiters may be in the kernel. After the caller changed its word.
#[inline(always)]
pub(super) fn kernel_waits() -> bool {
    IN_KERNEL.load(Ordering::SeqCst) != 0
}

/// In the child of a fork: nobody waits.
pub fn in_child() {
    IN_KERNEL.store(0, Ordering::Relaxed);
}

/// `futex_waitv(2)`.
pub extern "C" fn futex_waitv(frame: &Frame) -> Outcome {
    const REALTIME: u32 = 0;
    const MONOTONIC: u32 = 1;
    let (entries, count) = (frame.arg(0), frame.arg(1) as u32 as usize);
    let clock = frame.r8 as u32;
    let known = frame.arg(3) == 0 || matches!(clock, REALTIME | MONOTONIC);
    if !ENGINE.is_started()
        || entries == 0
        || count == 0
        || count > MOST
        || frame.rdx as u32 != 0
        || !known
    {
        return Outcome::PASS; // the kernel finds the right errno
    }
    let deadline_ns = match absolute_deadline(frame.arg(3), clock == REALTIME) {
        Ok(deadline_ns) => deadline_ns,
        Err(errno) => return Outcome::of(errno),
    };
    let (mut private, mut others) = (0, 0);
    for index in 0..count {
        match user::read::<[u64; 3]>(entries.wrapping_add(index * ENTRY)) {
            Err(errno) => return Outcome::of(errno),
            Ok([value, address, PRIVATE_U32]) => {
                if value >> 32 != 0 || address & 3 != 0 {
                    return Outcome::of(err(errno::EINVAL));
                }
                private += 1;
            }
            Ok(_) => others += 1,
        }
    }
    Outcome::of(loop {
        let result = match (others, count) {
            (0, ..=FEW) => wait::<FEW>(entries, count, deadline_ns),
            (0, _) => wait::<MOST>(entries, count, deadline_ns),
            _ => wait_in_kernel(frame, private),
        };
        if result != err(errno::EINTR) || signal::deliver() == Delivered::Interrupting {
            break result;
        }
    })
}

fn wait_in_kernel(frame: &Frame, private: u32) -> isize {
    IN_KERNEL.fetch_add(private, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let thread = Carrier::current().thread();
    thread.waits_for(WaitKind::Futex, frame.arg(0), 0);
    // SAFETY: the program's own call.
    let result = unsafe { ENGINE.helpers.call(frame.rax as u32, frame.args()) };
    IN_KERNEL.fetch_sub(private, Ordering::SeqCst);
    result
}

/// Waits on private words. Returns the index of the one that was woken, or a negated EAGAIN,
/// EFAULT, ETIMEDOUT or EINTR.
#[inline(never)]
fn wait<const N: usize>(entries: usize, count: usize, deadline_ns: u64) -> isize {
    let nodes: [WaitNode; N] = core::array::from_fn(|_| WaitNode::new());
    let thread = Carrier::current().thread();
    let shown = if deadline_ns == NEVER { 0 } else { deadline_ns };
    thread.waits_for(WaitKind::Futex, entries, shown);
    thread.task.prepare();
    let (mut failure, mut parks, mut given) = (None, true, 0);
    for (index, node) in nodes[..count].iter().enumerate() {
        let entry = user::read::<[u64; 3]>(entries.wrapping_add(index * ENTRY));
        let [value, address] = entry.map_or([0; 2], |[value, address, _]| [value, address & !3]);
        let still = || {
            failure = match entry.and_then(|_| user::load(address as usize)) {
                Ok(now) if u64::from(now) == value => None,
                Ok(_) => Some(err(errno::EAGAIN)),
                Err(errno) => Some(errno),
            };
            failure.is_none()
        };
        given = index + 1;
        // SAFETY: the nodes stay in this frame; each is cancelled below.
        parks = unsafe {
            let key = address as usize;
            ENGINE
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
        unsafe { ENGINE.futexes.cancel(node) };
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
