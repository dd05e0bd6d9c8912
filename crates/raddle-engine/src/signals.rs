//! What the engine keeps of a thread's signals; the user-mode kernel gives it meaning.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_sched::SpinLock;
use raddle_sys::abi::{SigInfo, StackT};

/// Signal records that can be queued in the process, as `RLIMIT_SIGPENDING` bounds them.
const RECORDS: usize = 2048;

/// Masks, pending signals and the alternate stack of one green thread.
pub struct ThreadSignals {
    /// Blocked signals (bit n-1 for signal n). Written by the thread itself.
    pub mask: AtomicU64,
    /// Pending, thread-directed. Set by senders, cleared by the thread.
    pub pending: AtomicU64,
    /// The mask that a `sigsuspend`-like call replaced, to be restored after the handler.
    pub suspended_mask: Cell<Option<u64>>,
    /// Signals that a `sigwait`-like call waits for.
    pub awaited: AtomicU64,
    /// True if the last delivery ran a handler.
    pub handled: Cell<bool>,
    /// True if the last delivery ran a handler without SA_RESTART.
    pub interrupting: Cell<bool>,
    /// Behind which system call of libc that takes its number at run time the thread is, or 0. Such
    /// calls can be cancelled. Written by the boundary's entry.
    pub call_site: Cell<usize>,
    /// `sigaltstack(2)`.
    pub alternate: Cell<StackT>,
    /// Details of the pending signals.
    pub queue: SignalQueue,
}

impl ThreadSignals {
    /// For a new thread: the creator sets the mask.
    pub fn reset(&self) {
        self.pending.store(0, Ordering::Relaxed);
        self.suspended_mask.set(None);
        self.call_site.set(0);
        self.awaited.store(0, Ordering::Relaxed);
        self.alternate.set(StackT::DISABLED);
        self.queue.clear();
    }

    /// Pending signals that aren't blocked.
    #[inline(always)]
    pub fn deliverable(&self) -> u64 {
        let pending = self.pending.load(Ordering::Acquire);
        if pending == 0 {
            0
        } else {
            pending & !self.mask.load(Ordering::Relaxed)
        }
    }
}

/// A FIFO of signal records; the records come from one pool of the process.
pub struct SignalQueue {
    /// Index + 1 of the first record; 0 if empty.
    head: SpinLock<u16>,
}

struct Record {
    next: u16,
    info: SigInfo,
}

struct Pool {
    free: u16,
    used: u16,
    records: [Record; RECORDS],
}

static POOL: SpinLock<Pool> = SpinLock::new(Pool {
    free: 0,
    used: 0,
    records: [const {
        Record {
            next: 0,
            info: SigInfo::EMPTY,
        }
    }; RECORDS],
});

impl SignalQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            head: SpinLock::new(0),
        }
    }

    /// Appends `info`. False if the pool is empty: the signal is pending without details then, as
    /// Linux does for standard signals.
    pub fn push(&self, info: &SigInfo) -> bool {
        let mut head = self.head.lock();
        let mut pool = POOL.lock();
        let Some(index) = pool.take() else {
            return false;
        };
        pool.records[index as usize - 1] = Record {
            next: 0,
            info: *info,
        };
        if *head == 0 {
            *head = index;
            return true;
        }
        let mut at = *head;
        while pool.records[at as usize - 1].next != 0 {
            at = pool.records[at as usize - 1].next;
        }
        pool.records[at as usize - 1].next = index;
        true
    }

    /// Adds an expiry of a timer to the record of that timer's last one, if it is queued. In a
    /// timer's record the id stands where others have the sender, the overrun where its user is.
    pub fn merge_overrun(&self, info: &SigInfo) -> bool {
        let head = self.head.lock();
        let mut pool = POOL.lock();
        let mut at = *head;
        while at != 0 {
            let record = &mut pool.records[at as usize - 1];
            let last = &mut record.info;
            if (last.signo, last.code, last.pid) == (info.signo, info.code, info.pid) {
                last.uid = last.uid.saturating_add(info.uid).saturating_add(1);
                return true;
            }
            at = record.next;
        }
        false
    }

    /// Takes the oldest record of `signal`; also says whether more of the same are queued.
    pub fn take(&self, signal: u32) -> (Option<SigInfo>, bool) {
        let mut head = self.head.lock();
        let mut pool = POOL.lock();
        let (mut before, mut at) = (0u16, *head);
        while at != 0 && pool.records[at as usize - 1].info.signo != signal as i32 {
            before = at;
            at = pool.records[at as usize - 1].next;
        }
        if at == 0 {
            return (None, false);
        }
        let next = pool.records[at as usize - 1].next;
        if before == 0 {
            *head = next;
        } else {
            pool.records[before as usize - 1].next = next;
        }
        let info = pool.records[at as usize - 1].info;
        pool.give(at);
        let mut rest = next;
        while rest != 0 && pool.records[rest as usize - 1].info.signo != signal as i32 {
            rest = pool.records[rest as usize - 1].next;
        }
        (Some(info), rest != 0)
    }

    /// True if a record of `signal` is queued.
    pub fn holds(&self, signal: u32) -> bool {
        let head = self.head.lock();
        let pool = POOL.lock();
        let mut at = *head;
        while at != 0 {
            if pool.records[at as usize - 1].info.signo == signal as i32 {
                return true;
            }
            at = pool.records[at as usize - 1].next;
        }
        false
    }

    /// Drops everything.
    pub fn clear(&self) {
        let mut head = self.head.lock();
        if *head == 0 {
            return;
        }
        let mut pool = POOL.lock();
        let mut at = core::mem::take(&mut *head);
        while at != 0 {
            let next = pool.records[at as usize - 1].next;
            pool.give(at);
            at = next;
        }
    }

    /// Frees the locks.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn break_locks(&self) {
        // SAFETY: the caller's promise. A record being linked when the parent forked is lost to the
        // pool, nothing worse.
        unsafe {
            self.head.break_lock();
            POOL.break_lock();
        }
    }
}

impl Default for SignalQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    fn take(&mut self) -> Option<u16> {
        if self.free != 0 {
            let index = self.free;
            self.free = self.records[index as usize - 1].next;
            return Some(index);
        }
        if (self.used as usize) < RECORDS {
            self.used += 1;
            return Some(self.used);
        }
        None
    }

    fn give(&mut self, index: u16) {
        self.records[index as usize - 1].next = self.free;
        self.free = index;
    }
}
