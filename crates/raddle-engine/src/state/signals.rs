//! Pending signals and masks, of threads and of the process. The user-mode kernel decides what they
//! mean.

mod list;

pub use list::SignalList;

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use raddle_arch::CallFrame;
use raddle_sched::SpinLock;
use raddle_sys::abi::{SigInfo, StackT};

/// `si_code` of a timer's signal.
pub const SI_TIMER: i32 = raddle_sys::nr::SI_TIMER;

/// The most signal records that can be queued in the process, as `RLIMIT_SIGPENDING` is for a
/// kernel.
const RECORDS: usize = 2048;

/// Masks, pending signals and the alternate stack of one green thread.
#[repr(C)]
pub struct ThreadSignals {
    /// Pending signals (bit n-1 for signal n). Changed under the queue's lock, by senders and by
    /// the thread. The first field, because each switch reads it.
    pub pending: AtomicU64,
    /// Blocked signals. Written by the thread itself.
    pub mask: AtomicU64,
    /// Those of the pending signals that came for the process. If the thread ends, or blocks such a
    /// signal, before it takes it, the signal goes to another thread. Changed as `pending`.
    pub shared: AtomicU64,
    /// The mask that a `sigsuspend`-like call replaced, to be restored after the handler.
    pub suspended_mask: Cell<Option<u64>>,
    /// Signals that a `sigwait`-like call waits for.
    pub awaited: AtomicU64,
    /// True if the last delivery ran a handler.
    pub handled: Cell<bool>,
    /// True if the last delivery ran a handler without SA_RESTART.
    pub interrupting: Cell<bool>,
    /// The address behind the system call that the thread is in, if libc takes the call's number at
    /// run time; else 0. Such calls can be cancelled. Written by the boundary's entry.
    pub call_site: Cell<usize>,
    /// The frame of the call that the thread is in; of no meaning outside of calls.
    /// Written by the boundary's entry before it calls a handler.
    pub call_frame: Cell<*const CallFrame>,
    /// What that call does when signal handlers have run.
    pub progress: Cell<Progress>,
    /// The alternate stack, as `sigaltstack(2)` set it.
    pub alternate: Cell<StackT>,
    /// Details of the pending signals.
    pub queue: SignalQueue,
}

/// How far a call has come when its thread runs signal handlers. Memory of zeros is [`Begins`].
///
/// [`Begins`]: Progress::Begins
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Progress {
    /// It begins when they have run, or goes on whatever they are.
    Begins,
    /// It waits; handlers end it with EINTR, unless all of them have SA_RESTART and it restarts.
    Waits { restarts: bool },
    /// It has ended with this result.
    Ended(isize),
}

impl ThreadSignals {
    /// Offset of [`ThreadSignals::pending`].
    pub const PENDING: usize = core::mem::offset_of!(Self, pending);

    /// Prepares the signals of a new thread. The creator sets the mask. Nothing is pending, because
    /// the last thread in the slot has dropped its pending signals after it was marked as exiting.
    pub fn reset(&self) {
        self.suspended_mask.set(None);
        self.call_site.set(0);
        self.call_frame.set(core::ptr::null());
        self.awaited.store(0, Ordering::Relaxed);
        self.alternate.set(StackT::DISABLED);
    }

    /// Forgets what is pending.
    pub fn drop_pending(&self) {
        let mut head = self.queue.head.lock();
        self.pending.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Relaxed);
        drop_records(&mut head);
    }

    /// Makes a signal pending. `form` says whether its details are queued, `is_shared` whether it
    /// came for the process. Returns false, and does nothing, unless `is_live`, which is called
    /// under the lock: a thread that ends first marks itself as exiting, and then drops or passes
    /// on what is pending.
    pub fn post(
        &self,
        info: &SigInfo,
        form: Form,
        is_shared: bool,
        is_live: impl FnOnce() -> bool,
    ) -> bool {
        let bit = bit_of(info.signo as u32);
        let mut head = self.queue.head.lock();
        if !is_live() {
            return false;
        }
        let already = self.pending.load(Ordering::Relaxed) & bit != 0;
        POOL.lock().add(&mut head, info, form, already, is_shared);
        if is_shared {
            self.shared.fetch_or(bit, Ordering::SeqCst);
        }
        self.pending.fetch_or(bit, Ordering::SeqCst);
        true
    }

    /// Takes `signal`, the oldest of its kind, if it is pending.
    pub fn take(&self, signal: u32) -> Option<SigInfo> {
        self.take_from(&self.pending, signal, |_| true)
    }

    /// Takes the oldest `signal` that came for the process, if one is pending.
    pub fn take_shared(&self, signal: u32) -> Option<SigInfo> {
        self.take_from(&self.shared, signal, |record| record.shared)
    }

    fn take_from(
        &self,
        set: &AtomicU64,
        signal: u32,
        fits: impl Fn(&Record) -> bool,
    ) -> Option<SigInfo> {
        let mut head = self.queue.head.lock();
        if set.load(Ordering::Relaxed) & bit_of(signal) == 0 {
            return None;
        }
        let mut pool = POOL.lock();
        let info = pool.remove(&mut head, signal, fits);
        self.settle(&pool, *head, signal);
        Some(info.unwrap_or_else(|| without_details(signal)))
    }

    /// Drops the pending instances of `signal` that fit.
    pub fn discard(&self, signal: u32, fits: impl Fn(&SigInfo) -> bool) {
        if self.pending.load(Ordering::SeqCst) & bit_of(signal) == 0 {
            return;
        }
        let mut head = self.queue.head.lock();
        let mut pool = POOL.lock();
        pool.discard(&mut head, signal, fits);
        self.settle(&pool, *head, signal);
    }

    /// Clears the pending bits of `signal` unless more are queued. Under both locks.
    fn settle(&self, pool: &Pool, head: u16, signal: u32) {
        let bit = bit_of(signal);
        let (any, shared) = pool.holds(head, signal);
        if !shared {
            self.shared.fetch_and(!bit, Ordering::SeqCst);
        }
        if !any {
            self.pending.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Returns the pending signals that aren't blocked.
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

/// The signals that pend for the process, because no thread accepts them yet.
///
/// Signals of one number keep their order on the way from here to the accepting thread and back: a
/// thread's signals are older than those that pend here. A signal moves while both queues are
/// locked, this one first.
pub struct CommonSignals {
    /// Changed under the queue's lock.
    pending: AtomicU64,
    queue: SignalQueue,
}

impl CommonSignals {
    /// Returns the state with nothing pending.
    pub const fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            queue: SignalQueue::new(),
        }
    }

    /// Returns the signals that pend.
    #[inline(always)]
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Makes a signal pending, behind others of its number.
    pub fn post(&self, info: &SigInfo, form: Form) {
        let bit = bit_of(info.signo as u32);
        let mut head = self.queue.head.lock();
        let already = self.pending.load(Ordering::Relaxed) & bit != 0;
        POOL.lock().add(&mut head, info, form, already, true);
        self.pending.fetch_or(bit, Ordering::SeqCst);
    }

    /// Gives a signal to a thread by `post`, unless others of its number pend here.
    pub fn pass(&self, signal: u32, post: impl FnOnce() -> bool) -> Passed {
        let _head = self.queue.head.lock();
        match self.pending.load(Ordering::Relaxed) & bit_of(signal) {
            0 if post() => Passed::Given,
            0 => Passed::Refused,
            _ => Passed::Late,
        }
    }

    /// Takes `signal` for a thread, the oldest instance, if one is pending and the thread has none
    /// of its own, which would be older.
    pub fn take(&self, thread: &ThreadSignals, signal: u32) -> Option<SigInfo> {
        let bit = bit_of(signal);
        let mut head = self.queue.head.lock();
        let own = thread.pending.load(Ordering::SeqCst);
        if self.pending.load(Ordering::Relaxed) & !own & bit == 0 {
            return None;
        }
        let mut pool = POOL.lock();
        let info = pool.remove(&mut head, signal, |_| true);
        self.settle(&pool, *head, signal);
        Some(info.unwrap_or_else(|| without_details(signal)))
    }

    /// Gives the oldest instance of `signal` away by `post`, which returns whether it was taken;
    /// else the instance stays. Returns false if it wasn't taken, or there is none.
    pub fn give(&self, signal: u32, post: impl FnOnce(&SigInfo) -> bool) -> bool {
        let mut head = self.queue.head.lock();
        if self.pending.load(Ordering::Relaxed) & bit_of(signal) == 0 {
            return false;
        }
        let first = POOL.lock().find(*head, signal);
        if !post(&first.unwrap_or_else(|| without_details(signal))) {
            return false;
        }
        let mut pool = POOL.lock();
        pool.remove(&mut head, signal, |_| true);
        self.settle(&pool, *head, signal);
        true
    }

    /// Takes the instances of `signal` that came for the process back from `thread`, and puts them
    /// before those that pend here. Does nothing unless `is_refused`, which is called under the
    /// locks.
    pub fn take_back(
        &self,
        thread: &ThreadSignals,
        signal: u32,
        is_refused: impl FnOnce() -> bool,
    ) {
        let bit = bit_of(signal);
        let mut head = self.queue.head.lock();
        let mut from = thread.queue.head.lock();
        if thread.shared.load(Ordering::SeqCst) & bit == 0 || !is_refused() {
            return;
        }
        let mut pool = POOL.lock();
        let already = self.pending.load(Ordering::Relaxed) & bit != 0;
        pool.shift(&mut from, &mut head, signal, already);
        thread.settle(&pool, *from, signal);
        self.pending.fetch_or(bit, Ordering::SeqCst);
    }

    /// Drops the pending instances of `signal` that fit.
    pub fn discard(&self, signal: u32, fits: impl Fn(&SigInfo) -> bool) {
        if self.pending() & bit_of(signal) == 0 {
            return;
        }
        let mut head = self.queue.head.lock();
        let mut pool = POOL.lock();
        pool.discard(&mut head, signal, fits);
        self.settle(&pool, *head, signal);
    }

    /// Clears the pending bit of `signal` unless more are queued. Under both locks.
    fn settle(&self, pool: &Pool, head: u16, signal: u32) {
        if !pool.holds(head, signal).0 {
            self.pending.fetch_and(!bit_of(signal), Ordering::SeqCst);
        }
    }

    /// Forgets everything.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn reset(&self) {
        let Self { pending, queue } = self;
        // SAFETY: the caller's promise.
        unsafe { queue.forget() };
        if pending.load(Ordering::Relaxed) != 0 {
            pending.store(0, Ordering::Relaxed);
        }
    }
}

/// The outcome of [`CommonSignals::pass`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Passed {
    /// A thread has taken the signal.
    Given,
    /// The thread didn't take it.
    Refused,
    /// Others of its number pend, and come first.
    Late,
}

impl Default for CommonSignals {
    fn default() -> Self {
        Self::new()
    }
}

/// How a signal's details are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The details of the first, while it is pending.
    Once,
    /// The details of each.
    Each,
    /// The details of each, except that further expiries of one timer are counted in the record of
    /// the first. In a timer's record the timer's id stands in the place of the sender's id, and
    /// the overrun in the place of the sender's user.
    Expiry,
}

impl Form {
    /// Returns the form of the signal `info`: each instance of a real-time signal keeps its
    /// details.
    pub const fn of(info: &SigInfo) -> Self {
        const FIRST_REAL_TIME: i32 = 32;
        match info.code {
            SI_TIMER => Self::Expiry,
            _ if info.signo >= FIRST_REAL_TIME => Self::Each,
            _ => Self::Once,
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
    shared: bool,
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
            shared: false,
            info: SigInfo::EMPTY,
        }
    }; RECORDS],
});

const fn bit_of(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Returns the details of a signal if there was no room for its own.
const fn without_details(signal: u32) -> SigInfo {
    SigInfo {
        signo: signal as i32,
        ..SigInfo::EMPTY
    }
}

impl SignalQueue {
    /// Returns an empty queue.
    pub const fn new() -> Self {
        Self {
            head: SpinLock::new(0),
        }
    }

    /// Drops everything, and frees the locks.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn forget(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.break_locks();
            // A child writes to as few of its parent's pages as it can.
            if self.head.peek() != 0 {
                drop_records(&mut self.head.lock());
            }
        }
    }

    /// Frees the locks.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub unsafe fn break_locks(&self) {
        let Self { head } = self;
        // SAFETY: the caller's promise. A record being linked when the parent forked is lost to the
        // pool, nothing worse.
        unsafe {
            head.break_lock();
            POOL.break_lock();
        }
    }
}

impl Default for SignalQueue {
    fn default() -> Self {
        Self::new()
    }
}

/// Drops all records of a queue, which is locked.
fn drop_records(head: &mut u16) {
    if *head == 0 {
        return;
    }
    let mut pool = POOL.lock();
    let mut at = core::mem::take(head);
    while at != 0 {
        let next = pool.record(at).next;
        pool.give(at);
        at = next;
    }
}

impl Pool {
    fn record(&mut self, index: u16) -> &mut Record {
        &mut self.records[index as usize - 1]
    }

    /// Appends to the queue at `head`, unless `form` says that nothing is to be appended.
    fn add(
        &mut self,
        head: &mut u16,
        info: &SigInfo,
        form: Form,
        already: bool,
        shared: bool,
    ) -> bool {
        match form {
            Form::Once if already => return true,
            Form::Expiry if self.add_overrun(*head, info) => return true,
            _ => {}
        }
        let Some(index) = self.take() else {
            return false;
        };
        *self.record(index) = Record {
            next: 0,
            shared,
            info: *info,
        };
        match self.last(*head) {
            0 => *head = index,
            last => self.record(last).next = index,
        }
        true
    }

    /// Adds an expiry of a timer to the record of that timer's last one, if it is queued.
    fn add_overrun(&mut self, head: u16, info: &SigInfo) -> bool {
        let mut at = head;
        while at != 0 {
            let record = self.record(at);
            let last = &mut record.info;
            if (last.signo, last.code, last.pid) == (info.signo, info.code, info.pid) {
                last.uid = last.uid.saturating_add(info.uid).saturating_add(1);
                return true;
            }
            at = record.next;
        }
        false
    }

    /// Drops the records of `signal` that fit.
    fn discard(&mut self, head: &mut u16, signal: u32, fits: impl Fn(&SigInfo) -> bool) {
        while self
            .remove(head, signal, |record| fits(&record.info))
            .is_some()
        {}
    }

    /// Moves the records of `signal` that came for the process from one queue to the front of
    /// another, where `already` says that it pends.
    fn shift(&mut self, from: &mut u16, to: &mut u16, signal: u32, already: bool) {
        let rest = core::mem::take(to);
        while let Some(info) = self.remove(from, signal, |record| record.shared) {
            let form = Form::of(&info);
            if form != Form::Expiry || !self.add_overrun(rest, &info) {
                self.add(to, &info, form, already || *to != 0, true);
            }
        }
        match self.last(*to) {
            0 => *to = rest,
            last => self.record(last).next = rest,
        }
    }

    /// Returns the last record of a queue; 0 for an empty one.
    fn last(&mut self, head: u16) -> u16 {
        let mut at = head;
        while at != 0 && self.record(at).next != 0 {
            at = self.record(at).next;
        }
        at
    }

    /// Returns the oldest record of `signal`.
    fn find(&self, head: u16, signal: u32) -> Option<SigInfo> {
        let mut at = head;
        while at != 0 {
            let record = &self.records[at as usize - 1];
            if record.info.signo == signal as i32 {
                return Some(record.info);
            }
            at = record.next;
        }
        None
    }

    /// Takes the oldest record of `signal` that fits.
    fn remove(
        &mut self,
        head: &mut u16,
        signal: u32,
        fits: impl Fn(&Record) -> bool,
    ) -> Option<SigInfo> {
        let (mut before, mut at) = (0u16, *head);
        while at != 0 {
            let record = self.record(at);
            let (next, info) = (record.next, record.info);
            if info.signo == signal as i32 && fits(record) {
                match before {
                    0 => *head = next,
                    _ => self.record(before).next = next,
                }
                self.give(at);
                return Some(info);
            }
            before = at;
            at = next;
        }
        None
    }

    /// Returns whether the queue has records of `signal`, and whether some of them came for the
    /// process.
    fn holds(&self, head: u16, signal: u32) -> (bool, bool) {
        let (mut any, mut shared) = (false, false);
        let mut at = head;
        while at != 0 {
            let record = &self.records[at as usize - 1];
            if record.info.signo == signal as i32 {
                any = true;
                shared |= record.shared;
            }
            at = record.next;
        }
        (any, shared)
    }

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
