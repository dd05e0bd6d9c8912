//! Words that name their owner: how ownership passes from one thread to the next.
//!
//! [`crate::futex::pi`] has the protocol, and waits for ownership.

use super::robust::{FUTEX_OWNER_DIED, FUTEX_WAITERS, TID_MASK};
use super::shared;
use crate::user;
use core::sync::atomic::Ordering;
use raddle_engine::{Carrier, PROCESS, Thread};
use raddle_sched::TaskRef;
use raddle_sys::{err, errno};

/// The key of the threads that wait to own a word.
pub(crate) const fn owners(address: usize) -> usize {
    address | 2
}

/// The key of the threads that wait on a word to be requeued to a PI futex.
pub(crate) const fn requeued(address: usize) -> usize {
    address | 3
}

/// Marks the owner as one that threads wait for; returns false if there is no such thread.
pub(crate) fn announce(owner: u32) -> bool {
    let Some(thread) = PROCESS.find(owner) else {
        return false;
    };
    thread.inherits.store(1, Ordering::SeqCst);
    PROCESS.find(owner).is_some()
}

/// Replaces a word that `tid` owns; others change only its flags. Returns the old value.
pub(crate) fn replace(address: usize, tid: u32, new: u32) -> Result<u32, isize> {
    user::update(address, |word| {
        if word & TID_MASK == tid {
            Ok(new)
        } else {
            Err(err(errno::EPERM))
        }
    })
}

/// Returns the value of a word that `next` owns.
fn owned_by(next: Option<TaskRef>, more: bool) -> u32 {
    let tid = next.map_or(0, |task| Thread::of(task).tid());
    tid | if more { FUTEX_WAITERS } else { 0 }
}

/// Returns true if the word at any address names the running thread.
pub(crate) fn owns(address: usize) -> bool {
    let tid = Carrier::current().thread().tid();
    user::load(address).is_ok_and(|word| word & TID_MASK == tid)
}

pub(crate) fn hand_over(address: usize, store: impl FnOnce(u32) -> Result<(), isize>) -> isize {
    let mut stored = Ok(());
    let next = PROCESS.futexes.hand_over(owners(address), |next, more| {
        stored = store(owned_by(next, more));
    });
    if let Some(task) = next {
        PROCESS.unpark(task);
    }
    stored.map_or_else(|errno| errno, |()| 0)
}

/// The owner of a word in its robust list dies: marks it and hands it over.
pub(crate) fn owner_died(address: usize, tid: u32) -> Result<(), isize> {
    let word = user::load(address)?;
    if word & TID_MASK != tid {
        return Ok(());
    }
    let mut waiters = false;
    let done = hand_over(address, |new| {
        // Without a waiter here there may be one in the kernel.
        let kept = if new == 0 { word & FUTEX_WAITERS } else { new };
        let had = replace(address, tid, kept | FUTEX_OWNER_DIED)?;
        waiters = new == 0 && (had | kept) & FUTEX_WAITERS != 0;
        Ok(())
    });
    if waiters {
        shared::wake_by_thread(address, 1);
    }
    if done < 0 { Err(done) } else { Ok(()) }
}

/// Ends ownership by a thread that has ended: the words that it owns and others wait for pass to
/// them.
pub(crate) fn owner_ends(thread: &Thread) {
    if thread.inherits.load(Ordering::SeqCst) == 0 {
        return;
    }
    let tid = thread.tid();
    let owned = |key: usize| {
        key & 3 == owners(0) && user::load(key & !3).is_ok_and(|word| word & TID_MASK == tid)
    };
    while let Some(key) = PROCESS.futexes.find_key(owned) {
        if owner_died(key & !3, tid).is_err() {
            return;
        }
    }
}
