//! The queues of pending signals: one of each thread, and one of the process.
//!
//! A signal that came for the process pends in the process's queue, or *waits at a thread* that
//! accepts it, until this thread or another one takes it.
//!
//! 1. A sender queues a signal under the lock of a queue: it appends the record, then sets the bits
//!    of the signal's number. A thread that ends marks its end, then takes the lock, and then
//!    empties its queue; the sender looks for the mark under the lock.
//! 2. A taker removes the oldest record under the lock, and clears the bits if no other is queued.
//!    The bits are read without the lock.
//! 3. A signal of the process moves to a thread, or back, under the lock of the process's queue and
//!    then that of the thread. The pool's lock is the innermost.
//!
//! **No signal is lost, and none is taken twice**: a queue's bits say what is queued as soon as its
//! lock is free, and a record is in one queue. A signal for a thread and one for the process don't
//! merge, as they don't in Linux: each addressee has bits of its own.
//!
//! **Real-time signals of the process are taken in their order**: those of one number wait at one
//! thread only, their *holder*, and are older than those in the process's queue. A thread gets none
//! while another holds some ([`Passed::Late`]), and a taker takes the holder's first. What the
//! holder doesn't accept any more goes to the front of the process's queue.
//!
//! Rejected: a new real-time signal for any thread that accepts it, while an older one waits at a
//! thread that has closed its mask and not passed it on yet. The accepting thread takes the newer
//! one first, and then the older one.

use super::records::{Addressee, Details, Form, List, Pool};
use crate::sync::spin::SpinLock;
use crate::sync::{AtomicU64, Ordering};

/// The pool of the process, behind its lock.
pub type Records<D> = SpinLock<Pool<D>>;

/// The first number of which each signal is queued, in order.
const FIRST_REAL_TIME: u32 = 32;
/// How many numbers of real-time signals there are.
const REAL_TIME: usize = 65 - FIRST_REAL_TIME as usize;

/// The set bit of a signal.
pub(super) const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Masks and pending signals of one thread.
#[repr(C)]
pub struct PendingSignals {
    /// Pending signals (bit n-1 for signal n). Changed under the queue's lock, by senders and by
    /// the thread. The first field, because each switch reads it.
    pub pending: AtomicU64,
    /// Blocked signals. Written by the thread itself, with SeqCst, before it looks at `pending` and
    /// `shared`; read by senders after they have queued a signal.
    pub mask: AtomicU64,
    /// Those of the pending signals that came for the process. Changed as `pending`.
    pub shared: AtomicU64,
    /// Signals that a `sigwait`-like call waits for. Written as `mask`.
    pub awaited: AtomicU64,
    /// Details of the pending signals.
    queue: SpinLock<Queue>,
}

#[derive(Clone, Copy)]
struct Queue {
    list: List,
    /// Those of the pending signals that came for the thread.
    own: u64,
}

impl Queue {
    const EMPTY: Self = Self {
        list: List::EMPTY,
        own: 0,
    };
}

impl PendingSignals {
    /// Offset of [`PendingSignals::pending`].
    pub const PENDING: usize = core::mem::offset_of!(Self, pending);

    /// Returns the state with nothing pending, blocked or awaited.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            queue: SpinLock::new(Queue::EMPTY),
        }
    }

    /// Returns the state with nothing pending, blocked or awaited.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            mask: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            queue: SpinLock::new(Queue::EMPTY),
        }
    }

    /// Waits until senders that have found the thread alive have queued their signals. The caller
    /// is the thread, which has marked its end.
    pub fn close(&self) {
        drop(self.queue.lock());
    }

    /// Forgets what is pending.
    pub fn drop_pending<D: Details>(&self, records: &Records<D>) {
        let mut queue = self.queue.lock();
        self.pending.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Relaxed);
        queue.own = 0;
        if !queue.list.is_empty() {
            records.lock().drop_all(&mut queue.list);
        }
    }

    /// Makes a signal pending for an addressee. `form` says whether its details are queued. Returns
    /// false, and does nothing, unless `is_live`, which is called under the lock: a thread that
    /// ends first marks itself as exiting, then takes the lock once ([`PendingSignals::close`]),
    /// and then passes on and drops what is pending.
    pub fn post<D: Details>(
        &self,
        records: &Records<D>,
        info: &D::Info,
        form: Form,
        to: Addressee,
        is_live: impl FnOnce() -> bool,
    ) -> bool {
        let bit = bit(D::signal(info));
        let mut queue = self.queue.lock();
        if !is_live() {
            return false;
        }
        let before = match to {
            Addressee::Thread => queue.own,
            Addressee::Process => self.shared.load(Ordering::Relaxed),
        };
        let already = before & bit != 0;
        records.lock().add(&mut queue.list, info, form, to, already);
        match to {
            Addressee::Thread => queue.own |= bit,
            Addressee::Process => _ = self.shared.fetch_or(bit, Ordering::SeqCst),
        }
        self.pending.fetch_or(bit, Ordering::SeqCst);
        true
    }

    /// Takes `signal`, the oldest of its kind, if it is pending.
    pub fn take<D: Details>(&self, records: &Records<D>, signal: u32) -> Option<D::Info> {
        self.take_from(records, &self.pending, signal, |_| true)
    }

    /// Takes the oldest `signal` that came for the process, if one is pending.
    pub fn take_shared<D: Details>(&self, records: &Records<D>, signal: u32) -> Option<D::Info> {
        self.take_from(records, &self.shared, signal, |to| to == Addressee::Process)
    }

    fn take_from<D: Details>(
        &self,
        records: &Records<D>,
        set: &AtomicU64,
        signal: u32,
        fits: impl Fn(Addressee) -> bool,
    ) -> Option<D::Info> {
        let mut queue = self.queue.lock();
        if set.load(Ordering::Relaxed) & bit(signal) == 0 {
            return None;
        }
        let mut pool = records.lock();
        let taken = pool.remove(&mut queue.list, signal, |_, to| fits(to));
        let (info, to) = taken.unwrap_or_else(|| {
            let is_own = fits(Addressee::Thread) && queue.own & bit(signal) != 0;
            let to = [Addressee::Process, Addressee::Thread][usize::from(is_own)];
            (D::without_record(signal), to)
        });
        self.settle(&pool, &mut queue, signal, to);
        Some(info)
    }

    /// Drops the pending instances of `signal` that fit.
    pub fn discard<D: Details>(
        &self,
        records: &Records<D>,
        signal: u32,
        fits: impl Fn(&D::Info) -> bool,
    ) {
        if self.pending.load(Ordering::SeqCst) & bit(signal) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        let mut pool = records.lock();
        pool.discard(&mut queue.list, signal, fits);
        self.settle(&pool, &mut queue, signal, Addressee::Thread);
        self.settle(&pool, &mut queue, signal, Addressee::Process);
    }

    /// Clears the pending bits of `signal` for this addressee unless more are queued. Under both
    /// locks.
    fn settle<D: Details>(&self, pool: &Pool<D>, queue: &mut Queue, signal: u32, to: Addressee) {
        let bit = bit(signal);
        if !pool.has(queue.list, signal, to) {
            match to {
                Addressee::Thread => queue.own &= !bit,
                Addressee::Process => _ = self.shared.fetch_and(!bit, Ordering::SeqCst),
            }
        }
        if (queue.own | self.shared.load(Ordering::Relaxed)) & bit == 0 {
            self.pending.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Returns true if an instance of `signal` that came for the process waits here.
    fn holds(&self, signal: u32) -> bool {
        self.shared.load(Ordering::SeqCst) & bit(signal) != 0
    }

    /// Returns the pending signals that aren't blocked. SeqCst: partner of the senders'
    /// read-modify-write, behind the announcement of a wait.
    #[inline(always)]
    pub fn deliverable(&self) -> u64 {
        let pending = self.pending.load(Ordering::SeqCst);
        if pending == 0 {
            0
        } else {
            pending & !self.mask.load(Ordering::Relaxed)
        }
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists. What is pending must be dropped.
    pub unsafe fn break_lock(&self) {
        let Self {
            queue,
            pending: _, // dropped by the caller
            shared: _,  // likewise
            mask: _,
            awaited: _,
        } = self;
        // SAFETY: the caller's promise. A record being linked when the parent forked is lost to the
        // pool, nothing worse.
        unsafe { queue.break_lock() };
    }
}

impl Default for PendingSignals {
    fn default() -> Self {
        Self::new()
    }
}

/// The signals that pend for the process, because no thread accepts them yet, or because older ones
/// of their number wait at a thread.
pub struct CommonSignals {
    /// Changed under the queue's lock.
    pending: AtomicU64,
    queue: SpinLock<Common>,
}

#[derive(Clone, Copy)]
struct Common {
    list: List,
    /// The holder of each real-time signal: the thread that got the last one.
    holders: [Option<&'static PendingSignals>; REAL_TIME],
}

impl Common {
    const EMPTY: Self = Self {
        list: List::EMPTY,
        holders: [None; REAL_TIME],
    };

    /// Returns the thread but `thread` at which older instances of a real-time signal wait.
    fn holder_before(
        &self,
        thread: &PendingSignals,
        signal: u32,
    ) -> Option<&'static PendingSignals> {
        let at = signal.checked_sub(FIRST_REAL_TIME)?;
        let holder = self.holders[at as usize]?;
        let is_before = !core::ptr::eq(holder, thread) && holder.holds(signal);
        is_before.then_some(holder)
    }

    /// Notes that an instance of `signal` waits at `thread`.
    fn note(&mut self, thread: &'static PendingSignals, signal: u32) {
        if let Some(at) = signal.checked_sub(FIRST_REAL_TIME) {
            self.holders[at as usize] = Some(thread);
        }
    }
}

/// The outcome of [`CommonSignals::pass`] and [`CommonSignals::give`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Passed {
    /// The thread has the signal.
    Given,
    /// The thread ends.
    Refused,
    /// Other instances come first, or there is none.
    Late,
}

impl CommonSignals {
    /// Returns the state with nothing pending.
    #[cfg(not(any(raddle_loom, raddle_shuttle)))]
    pub const fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            queue: SpinLock::new(Common::EMPTY),
        }
    }

    /// Returns the state with nothing pending.
    #[cfg(any(raddle_loom, raddle_shuttle))]
    pub fn new() -> Self {
        Self {
            pending: AtomicU64::new(0),
            queue: SpinLock::new(Common::EMPTY),
        }
    }

    /// Returns the signals that pend.
    #[inline(always)]
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    /// Makes a signal pending, behind others of its number.
    pub fn post<D: Details>(&self, records: &Records<D>, info: &D::Info) {
        let bit = bit(D::signal(info));
        let mut queue = self.queue.lock();
        let already = self.pending.load(Ordering::Relaxed) & bit != 0;
        let (form, to) = (D::form(info), Addressee::Process);
        records.lock().add(&mut queue.list, info, form, to, already);
        self.pending.fetch_or(bit, Ordering::SeqCst);
    }

    /// Gives a signal that has just come to a thread, unless older ones of its number pend here or
    /// at another thread. `is_live` is that of [`PendingSignals::post`].
    pub fn pass<D: Details>(
        &self,
        records: &Records<D>,
        thread: &'static PendingSignals,
        info: &D::Info,
        is_live: impl FnOnce() -> bool,
    ) -> Passed {
        let signal = D::signal(info);
        let mut queue = self.queue.lock();
        let pends = self.pending.load(Ordering::Relaxed) & bit(signal) != 0;
        if pends || queue.holder_before(thread, signal).is_some() {
            return Passed::Late;
        }
        if !thread.post(records, info, D::form(info), Addressee::Process, is_live) {
            return Passed::Refused;
        }
        queue.note(thread, signal);
        Passed::Given
    }

    /// Gives the oldest instance of `signal` that pends here to a thread, unless older ones wait at
    /// another thread. `is_live` is that of [`PendingSignals::post`].
    pub fn give<D: Details>(
        &self,
        records: &Records<D>,
        thread: &'static PendingSignals,
        signal: u32,
        is_live: impl FnOnce() -> bool,
    ) -> Passed {
        let mut queue = self.queue.lock();
        let pends = self.pending.load(Ordering::Relaxed) & bit(signal) != 0;
        if !pends || queue.holder_before(thread, signal).is_some() {
            return Passed::Late;
        }
        let first = records.lock().find(queue.list, signal);
        let info = first.unwrap_or_else(|| D::without_record(signal));
        if !thread.post(records, &info, D::form(&info), Addressee::Process, is_live) {
            return Passed::Refused;
        }
        queue.note(thread, signal);
        self.remove(records, &mut queue, signal);
        Passed::Given
    }

    /// Takes `signal` for a thread, the oldest instance that came for the process, if one pends
    /// here and the thread has none of its own, which would be older.
    pub fn take<D: Details>(
        &self,
        records: &Records<D>,
        thread: &PendingSignals,
        signal: u32,
    ) -> Option<D::Info> {
        let mut queue = self.queue.lock();
        let own = thread.pending.load(Ordering::SeqCst);
        if self.pending.load(Ordering::Relaxed) & !own & bit(signal) == 0 {
            return None;
        }
        let holder = queue.holder_before(thread, signal);
        let held = holder.and_then(|holder| holder.take_shared(records, signal));
        Some(held.unwrap_or_else(|| self.remove(records, &mut queue, signal)))
    }

    /// Drops the oldest instance of `signal` that pends here, if there is one.
    pub fn drop_first<D: Details>(&self, records: &Records<D>, signal: u32) {
        let mut queue = self.queue.lock();
        if self.pending.load(Ordering::Relaxed) & bit(signal) != 0 {
            self.remove(records, &mut queue, signal);
        }
    }

    /// Removes the oldest instance, which pends, under the lock.
    fn remove<D: Details>(&self, records: &Records<D>, queue: &mut Common, signal: u32) -> D::Info {
        let mut pool = records.lock();
        let taken = pool.remove(&mut queue.list, signal, |_, _| true);
        self.settle(&pool, queue, signal);
        taken.map_or_else(|| D::without_record(signal), |(info, _)| info)
    }

    /// Takes the instances of `signal` that came for the process back from `thread`, and puts them
    /// before those that pend here. Does nothing unless `is_refused`, which is called under the
    /// locks.
    pub fn take_back<D: Details>(
        &self,
        records: &Records<D>,
        thread: &PendingSignals,
        signal: u32,
        is_refused: impl FnOnce() -> bool,
    ) {
        let mut queue = self.queue.lock();
        let mut from = thread.queue.lock();
        if !thread.holds(signal) || !is_refused() {
            return;
        }
        let mut pool = records.lock();
        let already = self.pending.load(Ordering::Relaxed) & bit(signal) != 0;
        pool.shift(&mut from.list, &mut queue.list, signal, already);
        self.pending.fetch_or(bit(signal), Ordering::SeqCst);
        thread.settle(&pool, &mut from, signal, Addressee::Process);
    }

    /// Drops the pending instances of `signal` that fit.
    pub fn discard<D: Details>(
        &self,
        records: &Records<D>,
        signal: u32,
        fits: impl Fn(&D::Info) -> bool,
    ) {
        if self.pending() & bit(signal) == 0 {
            return;
        }
        let mut queue = self.queue.lock();
        let mut pool = records.lock();
        pool.discard(&mut queue.list, signal, fits);
        self.settle(&pool, &queue, signal);
    }

    /// Clears the pending bit of `signal` unless more are queued. Under both locks.
    fn settle<D: Details>(&self, pool: &Pool<D>, queue: &Common, signal: u32) {
        if !pool.has(queue.list, signal, Addressee::Process) {
            self.pending.fetch_and(!bit(signal), Ordering::SeqCst);
        }
    }

    /// Forgets what is pending.
    pub fn drop_pending<D: Details>(&self, records: &Records<D>) {
        let mut queue = self.queue.lock();
        records.lock().drop_all(&mut queue.list);
        self.pending.store(0, Ordering::Relaxed);
    }

    /// Frees the lock. Returns true if something may be pending: the caller drops it.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists. What pends at other threads must
    /// be dropped.
    pub unsafe fn break_lock(&self) -> bool {
        let Self { pending, queue } = self;
        // SAFETY: the caller's promise. A holder from before the fork has nothing pending.
        let was_held = unsafe { queue.break_lock() };
        was_held || pending.load(Ordering::Relaxed) != 0
    }
}

impl Default for CommonSignals {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests;
