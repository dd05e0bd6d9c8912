//! PI futexes: words that name their owner, and ownership that is handed over.
//!
//! The word is the owner's thread id, or 0, with FUTEX_WAITERS if the owner must unlock by a call,
//! and FUTEX_OWNER_DIED. The ids are those of green threads, so the runtime serves the protocol.
//!
//! A *private* word's waiters are in the futex table, first come first served:
//!
//! - lock, under the row's lock: a word without owner is taken; else FUTEX_WAITERS is set and the
//!   waiter linked. So the owner's compare-and-swap in user space fails from then on.
//! - unlock, under the same lock: the oldest waiter is claimed and its id stored, with
//!   FUTEX_WAITERS if others wait; it wakes as the owner. No other thread can overtake it.
//! - FUTEX_WAITERS is set whenever threads wait, also while the word has no owner: a lock in user
//!   space fails then, and the thread that locks by a call keeps the flag.
//!
//! A *shared* word's waiters may be in any process, each under a runtime of its own: they wait in
//! the kernel for the word to change, and race for the unlocked word. A thread that has waited
//! takes the word with FUTEX_WAITERS, because others may wait behind it.
//!
//! Green threads have no priorities, so there is nothing to inherit. A green thread doesn't inherit
//! the priority of a bound thread that waits for it.

use super::{
    FUTEX_CLOCK_REALTIME, FUTEX_CMP_REQUEUE, FUTEX_LOCK_PI2, FUTEX_TRYLOCK_PI, FUTEX_UNLOCK_PI,
    FUTEX_WAIT_REQUEUE_PI,
};
use crate::clocks::deadlines::absolute_deadline;
use crate::frame::{Frame, Outcome};
use crate::words::owners::{announce, hand_over, owners, replace, requeued};
use crate::words::robust::{FUTEX_OWNER_DIED, FUTEX_WAITERS, TID_MASK};
use crate::words::{ANY, is_word, shared};
use crate::{signal, user};
use core::cell::Cell;
use core::sync::atomic::{Ordering, fence};
use raddle_engine::signals::Progress;
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, Thread, switch, timed};
use raddle_sched::timers::NEVER;
use raddle_sched::{TaskList, Wake};
use raddle_sys::{err, errno, nr, syscall6};

/// What one attempt to lock found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Acquired,
    /// FUTEX_WAITERS is set; the word is given.
    Wait(u32),
    Failed(isize),
}

/// FUTEX_LOCK_PI, FUTEX_LOCK_PI2, FUTEX_TRYLOCK_PI and FUTEX_UNLOCK_PI.
pub(super) fn lock_call(frame: &Frame, operation: usize, private: bool) -> Outcome {
    if private && !PROCESS.is_started() {
        return Outcome::PASS; // one thread, with the kernel's id
    }
    let (address, tid) = (frame.arg(0), Carrier::current().thread().tid());
    let done = match operation {
        FUTEX_UNLOCK_PI if private => unlock(address, tid),
        FUTEX_UNLOCK_PI => unlock_shared(address, tid),
        FUTEX_TRYLOCK_PI => try_lock(address, tid, private),
        _ => {
            let realtime =
                operation != FUTEX_LOCK_PI2 || super::flags(frame) & FUTEX_CLOCK_REALTIME != 0;
            match absolute_deadline(frame.user(3), realtime) {
                Ok(deadline_ns) if private => lock(address, deadline_ns, true),
                Ok(deadline_ns) => lock_shared(address, tid, 0, deadline_ns),
                Err(errno) => errno,
            }
        }
    };
    Outcome::of(done)
}

/// Takes the word if it has no owner, else sets FUTEX_WAITERS. `gone` says whether an owner that
/// isn't in the table of threads is an error: in a shared word it may be another process's.
///
/// An owner may unlock the word in user space and end, after the word was read here. As in Linux,
/// only a word that still names such an owner is an error; libc never goes on after that.
fn attempt(address: usize, tid: u32, extra: u32, gone: bool) -> Result<Attempt, isize> {
    let seen = Cell::new(0);
    let once = || {
        user::update(address, |word| {
            seen.set(word);
            match word & TID_MASK {
                0 => Ok(tid | word & (FUTEX_WAITERS | FUTEX_OWNER_DIED) | extra),
                owner if owner == tid => Err(err(errno::EDEADLK)),
                owner if gone && !announce(owner) => Err(err(errno::ESRCH)),
                _ => Ok(word | FUTEX_WAITERS),
            }
        })
    };
    let mut tried = once();
    while tried == Err(err(errno::ESRCH)) && user::load(address) != Ok(seen.get()) {
        tried = once();
    }
    let before = tried?;
    Ok(if before & TID_MASK == 0 {
        Attempt::Acquired
    } else {
        Attempt::Wait(before | FUTEX_WAITERS)
    })
}

/// Locks a private word. A signal's handlers run; then the call goes on if `restarts`, else it
/// fails with EINTR.
fn lock(address: usize, deadline_ns: u64, restarts: bool) -> isize {
    loop {
        let thread = Carrier::current().thread();
        thread.waits_for(
            WaitKind::MUTEX,
            address,
            if deadline_ns == NEVER { 0 } else { deadline_ns },
        );
        thread.task.prepare();
        let found = Cell::new(Attempt::Failed(0));
        let still = || {
            found.set(attempt(address, thread.tid(), 0, true).unwrap_or_else(Attempt::Failed));
            matches!(found.get(), Attempt::Wait(_))
        };
        let parks = enqueue(thread, owners(address), still);
        if let (true, Attempt::Wait(word)) = (parks, found.get())
            && !PROCESS.first().ahead.is_empty()
        {
            timed::lend(Carrier::current(), word & TID_MASK);
        }
        let outcome = park_if(parks, thread, deadline_ns);
        match (found.get(), outcome) {
            (Attempt::Acquired, _) | (Attempt::Wait(_), Wake::Woken) => return 0,
            (Attempt::Failed(errno), _) => return errno,
            (_, Wake::TimedOut) => return err(errno::ETIMEDOUT),
            _ if restarts => {
                signal::deliver_at(Progress::Begins);
            }
            _ if signal::deliver(false) => return err(errno::EINTR),
            _ => {}
        }
    }
}

/// Enqueues the running thread under `key` if `still` returns true under the row's lock; says
/// whether it did. [`park_if`] has to follow.
fn enqueue(thread: &Thread, key: usize, still: impl FnOnce() -> bool) -> bool {
    let (node, task) = (&thread.node, thread.task_ref());
    // SAFETY: the thread's own node; `park_if` cancels it if anything but the table wakes it.
    unsafe { PROCESS.futexes.enqueue(node, task, key, ANY, still) }
}

/// Parks the running thread if it is enqueued; afterwards its node is in no queue.
fn park_if(is_enqueued: bool, thread: &Thread, deadline_ns: u64) -> Wake {
    if !is_enqueued {
        return Wake::Retry;
    }
    let outcome = switch::park_until(deadline_ns);
    if outcome != Wake::Woken {
        // SAFETY: the node was given to this table.
        unsafe { PROCESS.futexes.cancel(&thread.node) };
    }
    outcome
}

/// Takes the word if it has no owner. Else sets FUTEX_WAITERS, as a waiter does: the owner then
/// unlocks by a call.
fn try_lock(address: usize, tid: u32, private: bool) -> isize {
    match attempt(address, tid, 0, private) {
        Ok(Attempt::Acquired) => 0,
        Ok(Attempt::Wait(_)) => err(errno::EAGAIN),
        Ok(Attempt::Failed(errno)) | Err(errno) => errno,
    }
}

/// Takes a shared word, with the flags of `extra` set.
fn lock_shared(address: usize, tid: u32, mut extra: u32, deadline_ns: u64) -> isize {
    loop {
        let word = match attempt(address, tid, extra, false) {
            Ok(Attempt::Acquired) => return 0,
            Ok(Attempt::Wait(word)) => word,
            Ok(Attempt::Failed(errno)) | Err(errno) => return errno,
        };
        let result = shared::wait(address, word, ANY, deadline_ns);
        extra = FUTEX_WAITERS;
        if result == err(errno::EINTR) {
            signal::deliver_at(Progress::Begins);
        } else if result == err(errno::ETIMEDOUT) || result == err(errno::EFAULT) {
            return result;
        }
    }
}

fn unlock(address: usize, tid: u32) -> isize {
    match user::load(address) {
        Ok(word) if word & TID_MASK == tid => {}
        Ok(_) => return err(errno::EPERM),
        Err(errno) => return errno,
    }
    hand_over(address, |new| replace(address, tid, new).map(drop))
}

fn unlock_shared(address: usize, tid: u32) -> isize {
    match replace(address, tid, 0) {
        Ok(word) => {
            if word & FUTEX_WAITERS != 0 {
                shared::wake_by_thread(address, 1);
            }
            0
        }
        Err(errno) => errno,
    }
}

/// FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI.
pub(super) fn requeue_call(frame: &Frame, operation: usize, private: bool) -> Outcome {
    let done = if operation == FUTEX_WAIT_REQUEUE_PI {
        let realtime = super::flags(frame) & FUTEX_CLOCK_REALTIME != 0;
        absolute_deadline(frame.user(3), realtime).and_then(|deadline_ns| {
            check_words(frame)?;
            Ok(if private {
                wait_requeue(frame, deadline_ns)
            } else {
                wait_requeue_shared(frame, deadline_ns)
            })
        })
    } else {
        check_words(frame).and_then(|()| {
            if private {
                requeue(frame)
            } else {
                requeue_shared(frame)
            }
        })
    };
    Outcome::of(done.unwrap_or_else(|errno| errno))
}

/// Checks that the second word of a requeue differs from the first, and may be a word.
fn check_words(frame: &Frame) -> Result<(), isize> {
    let (first, second) = (frame.arg(0), frame.arg(4));
    if first == second || second & 3 != 0 {
        return Err(err(errno::EINVAL));
    }
    if is_word(second) {
        Ok(())
    } else {
        Err(err(errno::EFAULT))
    }
}

/// As [`wait_requeue`], in the kernel: an ordinary wait on the first word, which [`requeue_shared`]
/// may turn into one on the second. The woken thread takes the second word with FUTEX_WAITERS, so
/// that its unlock wakes the next.
fn wait_requeue_shared(frame: &Frame, deadline_ns: u64) -> isize {
    let tid = Carrier::current().thread().tid();
    match shared::wait(frame.arg(0), frame.word(2), ANY, deadline_ns) {
        0 => lock_shared(frame.arg(4), tid, FUTEX_WAITERS, deadline_ns),
        result if result == err(errno::EINTR) => {
            // The wait may have been requeued, and can't be begun anew.
            signal::deliver_at(Progress::Ended(err(errno::EAGAIN)));
            err(errno::EAGAIN)
        }
        errno => errno,
    }
}

/// As [`requeue`], of waiters in the kernel: one wakes and takes the second word, or sets
/// FUTEX_WAITERS for its owner to see; the others go to that word's queue, from which an unlock
/// wakes them one by one.
fn requeue_shared(frame: &Frame) -> Result<isize, isize> {
    if frame.word(2) != 1 {
        return Err(err(errno::EINVAL));
    }
    let mut args = frame.args();
    args[1] = FUTEX_CMP_REQUEUE;
    // SAFETY: the program's own words; the kernel compares and moves.
    Ok(unsafe { syscall6(nr::__NR_futex, args) })
}

/// Waits on the first word, then for the second; returns 0 as the owner of the second.
fn wait_requeue(frame: &Frame, deadline_ns: u64) -> isize {
    let (address, target) = (frame.arg(0), frame.arg(4));
    let expected = frame.word(2);
    loop {
        let thread = Carrier::current().thread();
        let shown = if deadline_ns == NEVER { 0 } else { deadline_ns };
        thread.waits_for(WaitKind::CONDVAR, address, shown);
        thread.wait_lock.store(target, Ordering::Relaxed);
        thread.task.prepare();
        let found = Cell::new(Ok(expected));
        let still = || {
            found.set(user::load(address));
            found.get() == Ok(expected)
        };
        let parks = enqueue(thread, requeued(address), still);
        let outcome = park_if(parks, thread, deadline_ns);
        match (found.get(), outcome) {
            (Err(errno), _) => return errno,
            (Ok(value), _) if value != expected => return err(errno::EAGAIN),
            _ => {}
        }
        let was_requeued = thread.node.key() == owners(target);
        match outcome {
            Wake::Woken if was_requeued => return 0,
            // Requeued to a word without owner, which is still to be taken.
            Wake::Woken => return after_requeue(lock(target, deadline_ns, false)),
            Wake::TimedOut => return err(errno::ETIMEDOUT),
            _ if !was_requeued => {
                signal::deliver_at(Progress::Begins);
            }
            _ if signal::deliver_at(Progress::Ended(err(errno::EAGAIN))).ends_call(false) => {
                return err(errno::EAGAIN);
            }
            _ => return after_requeue(lock(target, deadline_ns, false)),
        }
    }
}

/// A wait that was requeued can't be begun anew: a signal ends it with EAGAIN.
fn after_requeue(result: isize) -> isize {
    if result == err(errno::EINTR) {
        err(errno::EAGAIN)
    } else {
        result
    }
}

/// Moves waiters of the first word to the second. If the second has no owner, the oldest waiter
/// wakes to take it. FUTEX_WAITERS is set for the others either way.
fn requeue(frame: &Frame) -> Result<isize, isize> {
    let (from, to) = (frame.arg(0), frame.arg(4));
    let (wake, max_move) = (frame.word(2) as i32, frame.word(3) as i32);
    if wake != 1 || max_move < 0 {
        return Err(err(errno::EINVAL));
    }
    let value = user::load(from)?;
    if value != frame.word(5) {
        return Err(err(errno::EAGAIN));
    }
    let word = user::load(to)?;
    fence(Ordering::SeqCst); // a waiter sees the caller's change, or is found here
    if PROCESS.futexes.row_waiters(requeued(from)) == 0 {
        return Ok(0); // the second word stays as it is
    }
    let woken = TaskList::new();
    let free = word & TID_MASK == 0;
    let failure = Cell::new(err(errno::EAGAIN));
    let check = || {
        let marked = user::exchange(to, word, word | FUTEX_WAITERS);
        if let Err(errno) = marked {
            failure.set(errno);
        }
        user::load(from) == Ok(value) && marked == Ok(word) && (free || announce(word & TID_MASK))
    };
    // Nothing wakes for a word with an owner: all waiters that may be woken or moved are moved.
    let (max_wake, max_move) = if free {
        (1, max_move as usize)
    } else {
        (0, max_move as usize + 1)
    };
    let (from, to) = (requeued(from), owners(to));
    let done = PROCESS
        .futexes
        .requeue(from, to, max_wake, max_move, check, &woken);
    PROCESS.unpark_all(woken);
    match done {
        Some(done) => Ok((done.woken + done.moved) as isize),
        None => Err(failure.get()),
    }
}
