//! The sweep: the registration behind a wait that lasts is checked, once.
//!
//! A wait relies on the descriptor being registered. That fails if the program has closed a
//! descriptor unseen, by a system call of its own text or through io_uring, and its number has come
//! back as another file: the row says *registered*, and no event will ever come. The runtime isn't
//! told, and asking the kernel before each wait would cost every wait a system call. So the poller
//! looks at all rows with waiters:
//!
//! 1. The first sweep that finds waiters notes the row's sequence number.
//! 2. If the next one finds the same number, it registers the descriptor again. The kernel then
//!    reports the present state as an event, which wakes the waiters that it concerns. If the
//!    descriptor turns out to be unknown, it is another file than before: its kind is forgotten,
//!    and all waiters try again. A time limit that another process has set is found here, too
//!    ([`limits`](super::limits)).
//! 3. The row is then left alone until a call on it succeeds, or its wait ends.
//!
//! A row that the program closed by a call that the runtime sees says *not registered*; a thread
//! that still waits there waits on, as in Linux.
//!
//! A sweep is due only while a wait may be unchecked, so a process that is idle sees two or three
//! of them and then none. A thread that began to wait after the flag was cleared sets it again:
//! both happen under or around the row's lock, so either the sweep sees the node, or the waiter the
//! cleared flag.

use super::{CHANGE, Pump};
use crate::scheduling::idle;
use crate::state::clock;
use crate::state::parts::pump::Sweep;
use core::sync::atomic::Ordering;
use raddle_sched::TaskList;
use raddle_sched::timers::NEVER;
use raddle_sys::{err, errno};

/// From one sweep to the next.
const INTERVAL_NS: u64 = 50_000_000;

impl Sweep {
    pub(super) fn reset(&self) {
        let Self { due, at_ns: _ } = self;
        due.store(0, Ordering::Relaxed);
    }
}

impl Pump {
    /// A wait begins; its node is linked.
    #[inline(always)]
    pub(super) fn expect_sweep(&self) {
        if self.sweep.due.load(Ordering::Relaxed) == 0 {
            self.make_sweep_due();
        }
    }

    #[cold]
    fn make_sweep_due(&self) {
        let at_ns = clock::now_ns() + INTERVAL_NS;
        self.sweep.at_ns.store(at_ns, Ordering::Relaxed);
        if self.sweep.due.swap(1, Ordering::SeqCst) == 0 {
            idle::deadline_moved(at_ns);
        }
    }

    /// When the poller must look here again; `NEVER` if nothing is due.
    pub(crate) fn sweep_deadline_ns(&self) -> u64 {
        match self.sweep.due.load(Ordering::SeqCst) {
            0 => NEVER,
            _ => self.sweep.at_ns.load(Ordering::Relaxed),
        }
    }

    /// Sweeps if it is time; gives the threads that must try again.
    #[inline(always)]
    pub(crate) fn sweep_at(&self, now_ns: u64) -> TaskList {
        let woken = TaskList::new();
        if now_ns >= self.sweep_deadline_ns() && self.sweep.due.swap(0, Ordering::SeqCst) != 0 {
            self.sweep_rows(&woken);
        }
        woken
    }

    #[cold]
    fn sweep_rows(&self, woken: &TaskList) {
        let mut again = false;
        for fd in 0..self.high.load(Ordering::Relaxed) {
            let Some(entry) = self.known(fd as u32) else {
                continue;
            };
            let epoch = entry.epoch.load(Ordering::Relaxed);
            if epoch == 0 || entry.swept.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let mut list = entry.list.lock();
            if list.is_empty() {
                continue;
            }
            let mark = entry.sequence.load(Ordering::Relaxed).wrapping_add(1);
            if entry.noted.swap(mark, Ordering::Relaxed) != mark {
                again = true;
                continue;
            }
            entry.swept.store(1, Ordering::Relaxed);
            if self.control(CHANGE, fd as u32) == err(errno::ENOENT) {
                entry.renew();
                list.wake(usize::MAX, woken, |_, _| true);
            } else if self.finds_limit(entry, fd) {
                entry.raise(0);
                list.wake(usize::MAX, woken, |_, _| true);
            }
        }
        if again {
            self.make_sweep_due();
        }
    }
}
