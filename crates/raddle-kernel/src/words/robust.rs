//! Robust lists: the locks that a thread held at its death are marked, and one waiter of each
//! woken.
//!
//! The list is the program's (`set_robust_list(2)`, the kernel's `robust-futexes` documents): a
//! head with the first entry, the distance from an entry to its futex word, and one operation that
//! may be half done; bit 0 of an entry's address says that the word is a PI futex. A word that
//! holds the dying thread's id gets FUTEX_OWNER_DIED in its place.
//!
//! 1. A green thread that exits walks its own list, before its id is gone.
//! 2. The end of a process ends all of them at once. The locks of threads that still run on other
//!    carriers must not be given away before those threads have stopped, and the exit doesn't wait
//!    for that. So if some list isn't empty, the process leaves a *guardian* behind: a process that
//!    shares the memory, waits for the death of this one, walks the lists of all green threads and
//!    ends. The guardian is made by `exit_group`, by a signal's default action that the runtime
//!    takes, and by a fault without a handler.
//! 3. The main thread's list stays registered with the kernel as well: the kernel's check (the word
//!    holds the dying kernel thread's id) succeeds for it.
//!
//! A death without the runtime's knowledge (SIGKILL, a signal left to the kernel) marks the main
//! thread's locks alone.

use super::owners;
use crate::frame::{Frame, Outcome};
use crate::user::{self, User};
use crate::words::shared;
use core::sync::atomic::Ordering;
use raddle_engine::thread::TID_BASE;
use raddle_engine::{Carrier, PROCESS, Thread, ending, kthread};
use raddle_sys::{change_signal_mask, err, errno, is_err, nr, sys, syscall6};

/// `sizeof(struct robust_list_head)`.
const HEAD_SIZE: usize = 24;
/// Entries that are looked at: a list may be a circle.
const ROBUST_LIST_LIMIT: usize = nr::ROBUST_LIST_LIMIT as usize;
pub(crate) const FUTEX_WAITERS: u32 = nr::FUTEX_WAITERS;
pub(crate) const FUTEX_OWNER_DIED: u32 = nr::FUTEX_OWNER_DIED;
pub(crate) const TID_MASK: u32 = FUTEX_OWNER_DIED - 1;
const GUARDIAN_STACK: usize = 64 * 1024;

/// `set_robust_list(2)`.
#[unsafe(link_section = ".text.raddle_boundary")] // beside the entries: see `crate::task::process`
pub extern "C" fn set_robust_list(frame: &Frame) -> Outcome {
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    if frame.arg(1) != HEAD_SIZE {
        return Outcome::of(err(errno::EINVAL));
    }
    let carrier = Carrier::current();
    let thread = carrier.thread();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    if thread.tid() == pid && carrier.kernel_tid.load(Ordering::Relaxed) == pid {
        thread.robust_list.set(0);
        return Outcome::PASS; // the main thread on its own kernel thread
    }
    thread.robust_list.set(frame.arg(0));
    Outcome::of(0)
}

/// `get_robust_list(2)`.
pub extern "C" fn get_robust_list(frame: &Frame) -> Outcome {
    let asked = frame.arg(0) as u32;
    let found = if asked == 0 && PROCESS.is_started() {
        Some(Carrier::current().thread())
    } else {
        PROCESS.find(asked)
    };
    let Some(thread) = found else {
        return if asked >= TID_BASE {
            Outcome::of(err(errno::ESRCH))
        } else {
            Outcome::PASS
        };
    };
    let head = list_of(thread);
    let told = frame.user(2).put(HEAD_SIZE);
    let told = told.and_then(|()| frame.user(1).put(head));
    Outcome::of(told.err().unwrap_or(0))
}

/// The head of a thread's list, or 0. The kernel knows the main thread's.
fn list_of(thread: &Thread) -> usize {
    let own = thread.robust_list.get();
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    if own != 0 || thread.tid() != pid {
        return own;
    }
    let (mut head, mut size) = (0usize, 0usize);
    // SAFETY: the kernel fills two words.
    unsafe { sys!(nr::__NR_get_robust_list, pid, &raw mut head, &raw mut size) };
    head
}

/// The end of the calling thread, while its id still names it.
pub fn thread_ends(thread: &Thread) {
    let head = list_of(thread);
    if head == 0 {
        return;
    }
    walk(head, |word, pi, pending| {
        owner_died(word, thread.tid(), pi, pending)
    });
    if thread.tid() == PROCESS.pid.load(Ordering::Relaxed) {
        // The kernel would walk it again at the end of the process: let it be empty.
        let _ = User::at(head).write(&head);
    }
}

/// Calls `each` with (word, is PI, is the pending operation) for what a list names; stops at the
/// first error, as the kernel does.
fn walk(head: usize, each: impl Fn(usize, bool, bool) -> Result<(), isize>) {
    let entry_at = |address: usize| User::<usize>::at(address).read();
    let Ok([first, offset, pending]) = User::<[usize; 3]>::at(head).read() else {
        return;
    };
    let word = |entry: usize| (entry & !1).wrapping_add(offset);
    let mut entry = first;
    for _ in 0..ROBUST_LIST_LIMIT {
        if entry & !1 == head {
            break;
        }
        let next = entry_at(entry & !1);
        if entry & !1 != pending & !1 && each(word(entry), entry & 1 != 0, false).is_err() {
            return;
        }
        match next {
            Ok(next) => entry = next,
            Err(_) => return,
        }
    }
    if pending & !1 != 0 {
        let _ = each(word(pending), pending & 1 != 0, true);
    }
}

/// Marks one word that a dead thread owned, and wakes a waiter.
fn owner_died(address: usize, tid: u32, pi: bool, pending: bool) -> Result<(), isize> {
    if pi && address & 3 == 0 {
        return owners::owner_died(address, tid);
    }
    let had = mark(address, tid, pending)?;
    if had & FUTEX_WAITERS != 0 || had == 0 && pending {
        // glibc waits for robust mutexes with shared operations, others as they like.
        if super::wake(address, 1, super::ANY) == 0 {
            shared::wake_by_thread(address, 1);
        }
    }
    Ok(())
}

/// Sets FUTEX_OWNER_DIED in a word that `tid` owns. Returns the old value, or 0 without its id.
///
/// A half-done unlock has cleared the word and not woken a waiter yet: `pending` reports a word
/// without any owner as 0, and one with another owner as that owner's id.
fn mark(address: usize, tid: u32, pending: bool) -> Result<u32, isize> {
    if address & 3 != 0 {
        return Err(err(errno::EINVAL));
    }
    let mut word = user::load(address)?;
    while word & TID_MASK == tid {
        let seen = user::exchange(address, word, word & FUTEX_WAITERS | FUTEX_OWNER_DIED)?;
        if seen == word {
            return Ok(word);
        }
        word = seen;
    }
    Ok(if pending { word & TID_MASK } else { 0 })
}

/// `exit_group(2)`, made here: on its way back to the entry the thread might have to give way to
/// one that computes. Only sysmon lets the thread go on then, and sysmon has ended its work.
pub extern "C" fn exit_group(frame: &Frame) -> Outcome {
    process_ends();
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    ending::prepare();
    // SAFETY: the program asked for it; no memory is involved.
    Outcome::of(unsafe { frame.raw() })
}

/// The process is about to end: leaves the guardian behind if a green thread holds robust locks.
/// Takes no lock; may run in the signal handler.
#[unsafe(link_section = ".text.raddle_boundary")] // beside the entries: see `crate::task::process`
pub fn process_ends() {
    if !PROCESS.is_started() || !PROCESS.threads.iter().any(holds_something) {
        return;
    }
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    // SAFETY: a descriptor that names this process, for the guardian.
    let own = unsafe { sys!(nr::__NR_pidfd_open, pid, 0usize) };
    if !is_err(own) {
        let _ = kthread::spawn_process(guardian, own as usize, GUARDIAN_STACK);
    }
}

/// Returns true if the thread's list, which isn't the kernel's, names a lock.
pub fn holds_something(thread: &Thread) -> bool {
    let head = thread.robust_list.get();
    head != 0
        && User::<[usize; 3]>::at(head)
            .read()
            .is_ok_and(|[first, _, pending]| first != head || pending != 0)
}

/// The guardian: another process in the same memory.
extern "C" fn guardian(victim: usize, _: *mut u8) -> ! {
    const POLLIN: u64 = nr::POLLIN as u64;
    const FAULTS: u64 = 1 << (7 - 1) | 1 << (11 - 1);
    let mut poll = victim as u64 | POLLIN << 32;
    // SAFETY: this thread is no carrier; it closes its own copies of the descriptors, so that no
    // peer waits for their end, and sleeps until the last thread of the victim has left this
    // memory.
    unsafe {
        raddle_arch::set_gs_base(0);
        change_signal_mask(nr::SIG_SETMASK, !FAULTS);
        if victim > 0 {
            sys!(nr::__NR_close_range, 0usize, victim - 1, 0usize);
        }
        sys!(nr::__NR_close_range, victim + 1, u32::MAX, 0usize);
        while is_err(sys!(nr::__NR_poll, &raw mut poll, 1usize, usize::MAX)) {}
    }
    for thread in PROCESS.threads.iter() {
        walk(thread.robust_list.get(), |word, pi, pending| {
            let had = mark(word, thread.tid(), pending && !pi)?;
            if had & FUTEX_WAITERS != 0 || had == 0 && pending {
                shared::wake(word, 1);
            }
            Ok(())
        });
    }
    loop {
        // SAFETY: ends the guardian.
        unsafe { syscall6(nr::__NR_exit_group, [0; 6]) };
    }
}
