//! The table of threads.
//!
//! Threads live in *slots* of a table that grows by [chunks](crate::os::chunks): type-stable
//! memory, so a stale reference can be looked at, never followed into something else. A thread id
//! is [`TID_BASE`] + generation x [`MAX_THREADS`] + slot: above any pid, below 2^30 (glibc and the
//! kernel keep flags in the two bits above), and a freed slot's next thread has another id. A slot
//! of which all ids were used *rests* until [`RESTING`] others do: a process uses 65,280 ids before
//! one comes again, where Linux has 32,768 (`/proc/sys/kernel/pid_max`, unless it was raised).
//! Generation and slot are counted from a random number of the process, its *salt*: locks that are
//! shared between processes hold ids, and an owner elsewhere must not be taken for oneself.

use super::{Birth, Life, Thread, WaitKind};
use crate::os::chunks::{Chunks, Zeroed};
use crate::state::process::PROCESS;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use raddle_sched::{SpinLock, Task, WaitNode};
use raddle_sys::{is_err, nr, sys};

/// The smallest id of a green thread but the main one (Linux's largest `pid_max`).
pub const TID_BASE: u32 = 1 << 22;
/// Slots in the table.
pub const MAX_THREADS: usize = raddle_inspect::settings::THREADS_MAX as usize;
const GENERATIONS: u32 = ((1 << 30) - TID_BASE) / MAX_THREADS as u32;
/// Slots that rest, at most, once all their ids were used.
const RESTING: usize = 64;
/// Slots mapped at a time.
const CHUNK: usize = 256;
/// The bits of [`ThreadTable::live`] that count threads that are not free.
const LIVE: usize = (1 << 24) - 1;
/// One more thread that was made and is not free.
const ONE_MORE: usize = LIVE + 2;
const _: () = assert!(MAX_THREADS < LIVE / 2);

// SAFETY: atomics, cells of integers and pointers, and types of the scheduler that zero begins.
unsafe impl Zeroed for Thread {}

/// The table of threads. What is written more often than chunks are made is at the end.
#[repr(C)]
pub struct ThreadTable {
    threads: Chunks<Thread, { MAX_THREADS / CHUNK }, CHUNK>,
    /// Slots that were ever used; grows only. Their chunks are mapped.
    used: AtomicUsize,
    /// Threads that are not free, in the low bits ([`LIVE`]); above these, threads ever made.
    live: AtomicUsize,
    /// How many those may be; 0 for as many as there are slots.
    limit: AtomicUsize,
    /// Where generations and slots begin to be counted in ids. Changed with one thread only.
    salt: AtomicU32,
    slots: SpinLock<Slots>,
}

/// For readers of the process's memory.
pub(crate) struct TablePlaces {
    pub chunks: usize,
    pub chunk_count: usize,
    pub slots_per_chunk: usize,
    pub used: usize,
}

/// Slots without a thread, linked through `wait_arg`: 0 ends a list, else slot + 1.
struct Slots {
    free: usize,
    /// Those that rest, the first one longest.
    first: usize,
    last: usize,
    resting: usize,
}

impl ThreadTable {
    /// Offset of the first of the counts.
    pub(crate) const COUNTS: usize = core::mem::offset_of!(Self, used);

    /// An empty table without memory.
    pub const fn new() -> Self {
        Self {
            threads: Chunks::new(),
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            salt: AtomicU32::new(0),
            slots: SpinLock::new(Slots {
                free: 0,
                first: 0,
                last: 0,
                resting: 0,
            }),
        }
    }

    /// Draws the salt. Ids of this process other than the main thread's become invalid.
    pub(crate) fn draw_salt(&self) {
        const NONBLOCK: usize = nr::GRND_NONBLOCK as usize;
        let mut salt = 0u32;
        // SAFETY: the kernel fills a word, or none.
        unsafe {
            let done = sys!(nr::__NR_getrandom, &raw mut salt, 4usize, NONBLOCK);
            if is_err(done) {
                salt = (sys!(nr::__NR_getpid) as u32).wrapping_mul(0x9E37_79B9);
            }
        }
        self.salt.store(salt, Ordering::Relaxed);
    }

    #[inline(always)]
    fn slot<'a>(&self, index: usize) -> &'a Thread {
        // SAFETY: callers stay below `used`, where all chunks are mapped.
        unsafe { self.threads.get(index).unwrap_unchecked() }
    }

    /// Takes a slot for a new, live thread.
    ///
    /// # Errors
    /// EAGAIN when the limit is reached, the table is full or memory is short, as `clone(2)` would
    /// answer.
    pub fn allocate<'a>(&self) -> Result<&'a Thread, isize> {
        if self.is_full() {
            return Err(raddle_sys::err(raddle_sys::errno::EAGAIN));
        }
        let mut slots = self.slots.lock();
        let free = self.take_free(&mut slots).or_else(|| self.make_slot());
        let index = free.or_else(|| self.take_resting(&mut slots));
        drop(slots);
        let index = index.ok_or(raddle_sys::err(raddle_sys::errno::EAGAIN))?;
        self.live.fetch_add(ONE_MORE, Ordering::Relaxed);
        PROCESS.sysmon.thread_begins();
        let thread = self.slot(index);
        self.prepare(thread, index as u32);
        Ok(thread)
    }

    fn take_free(&self, slots: &mut Slots) -> Option<usize> {
        let index = slots.free.checked_sub(1)?;
        slots.free = self.slot(index).wait_arg.load(Ordering::Relaxed);
        Some(index)
    }

    /// Begins to use another slot; `None` without memory, or in a full table. Under the lock.
    fn make_slot(&self) -> Option<usize> {
        let index = self.used.load(Ordering::Relaxed);
        self.threads.make(index).ok()?.slot.set(index as u32);
        self.used.store(index + 1, Ordering::Release);
        Some(index)
    }

    /// Takes the slot that rests longest.
    fn take_resting(&self, slots: &mut Slots) -> Option<usize> {
        let index = slots.first.checked_sub(1)?;
        slots.first = self.slot(index).wait_arg.load(Ordering::Relaxed);
        slots.resting -= 1;
        Some(index)
    }

    /// Makes a retired thread that kept its slot a new one that lives, with the same stack and
    /// thread block.
    ///
    /// # Safety
    /// As for [`ThreadTable::recycle`]; the thread must be the caller's.
    pub(crate) unsafe fn renew(&self, thread: &Thread) {
        let (clear_tid, robust_list) = (thread.clear_tid.get(), thread.robust_list.get());
        self.live.fetch_add(ONE_MORE, Ordering::Relaxed);
        PROCESS.sysmon.thread_begins();
        self.prepare(thread, self.index(thread) as u32);
        thread.clear_tid.set(clear_tid);
        thread.robust_list.set(robust_list);
    }

    /// Returns true if there may be no other thread.
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != 0 && self.live() >= limit
    }

    fn prepare(&self, thread: &Thread, slot: u32) {
        let generation = thread.generation.get();
        thread.generation.set((generation + 1) % GENERATIONS);
        let salt = self.salt.load(Ordering::Relaxed);
        let generation = (generation + (salt >> 20) % GENERATIONS) % GENERATIONS;
        let place = slot.wrapping_add(salt) % MAX_THREADS as u32;
        let tid = TID_BASE + generation * MAX_THREADS as u32 + place;
        thread.tid.store(tid, Ordering::Relaxed);
        thread.bind_next.set(false);
        thread.closed_file.store(0, Ordering::Relaxed);
        thread.green_next.set(false);
        thread.host.set(null());
        thread.ums.store(null_mut(), Ordering::Relaxed);
        thread.ums_next.set(null());
        thread.scheduler_token.store(null_mut(), Ordering::Relaxed);
        thread.worker_quantum_ns.store(0, Ordering::Relaxed);
        thread.cancelled.store(0, Ordering::Relaxed);
        thread.clear_tid.set(0);
        thread.robust_list.set(0);
        thread.inherits.store(0, Ordering::Relaxed);
        thread.bound.store(null_mut(), Ordering::Relaxed);
        thread.away_from.store(null_mut(), Ordering::Relaxed);
        thread.routes.store(0, Ordering::Relaxed);
        thread.engine.store(0, Ordering::Relaxed);
        thread.next.set(Birth::default());
        thread.carrier.store(null_mut(), Ordering::Relaxed);
        thread.switches.store(0, Ordering::Relaxed);
        thread.park.store(0, Ordering::Relaxed);
        thread.steal.store(0, Ordering::Relaxed);
        thread.preempt.store(0, Ordering::Relaxed);
        thread.turn.reset();
        thread.ready_ns.store(0, Ordering::Relaxed);
        thread.waits_for(WaitKind::NONE, 0, 0);
        thread.signals.reset();
        thread.cpu.reset(0);
        thread.attributes.reset();
        thread.task.policy.reset(tid);
        thread.compiles.store(0, Ordering::Relaxed);
        thread.account.reset(PROCESS.first().fair_clock.read_ns());
        thread.maker.store(0, Ordering::Relaxed);
        thread.lender.store(0, Ordering::Relaxed);
        thread.share_next.set(0);
        thread.reuse.set(null());
        thread.task.rank.store(0, Ordering::Relaxed);
        thread.life.store(Life::Live as u32, Ordering::Release);
    }

    /// Ends the thread for all that ask; its pending signals were dropped. The slot keeps the id
    /// until it is recycled. Returns how many threads are left.
    pub fn retire(&self, thread: &Thread) -> usize {
        thread.life.store(Life::Free as u32, Ordering::Release);
        (self.live.fetch_sub(1, Ordering::Relaxed) - 1) & LIVE
    }

    /// Gives a retired thread's slot back.
    ///
    /// # Safety
    /// No run queue, wait queue or timer may hold the thread, and no other thread runs on its
    /// stack.
    pub unsafe fn recycle(&self, thread: &Thread) {
        let mut slots = self.slots.lock();
        if thread.has_new_id() {
            return self.free(&mut slots, thread);
        }
        let link = self.index(thread) + 1;
        thread.wait_arg.store(0, Ordering::Relaxed);
        if slots.first == 0 {
            slots.first = link;
        } else {
            let last = self.slot(slots.last - 1);
            last.wait_arg.store(link, Ordering::Relaxed);
        }
        slots.last = link;
        slots.resting += 1;
        if slots.resting > RESTING
            && let Some(index) = self.take_resting(&mut slots)
        {
            self.free(&mut slots, self.slot(index));
        }
    }

    fn free(&self, slots: &mut Slots, thread: &Thread) {
        thread.wait_arg.store(slots.free, Ordering::Relaxed);
        slots.free = self.index(thread) + 1;
    }

    /// Calls `act` while no thread begins in a slot that another one had before: a thread that is
    /// seen to live there, and ends, leaves a slot that no other has yet.
    pub(crate) fn with_slots_kept<R>(&self, act: impl FnOnce() -> R) -> R {
        let _slots = self.slots.lock();
        act()
    }

    fn index(&self, thread: &Thread) -> usize {
        thread.slot.get() as usize
    }

    /// The live thread with this id. The main thread has the process's id, and is in slot 0.
    pub fn find<'a>(&self, tid: u32) -> Option<&'a Thread> {
        self.slot_of(tid)
            .filter(|thread| thread.life() == Life::Live)
    }

    /// The slot of the last thread with this id, whether it lives or not.
    pub fn slot_of<'a>(&self, tid: u32) -> Option<&'a Thread> {
        let index = if tid >= TID_BASE {
            let salt = self.salt.load(Ordering::Relaxed);
            (tid - TID_BASE).wrapping_sub(salt) as usize % MAX_THREADS
        } else {
            0
        };
        if index >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let thread = self.slot(index);
        (thread.tid() == tid).then_some(thread)
    }

    /// The live thread with `tid` in the id bits of `mask`, which are at least the slot's.
    pub fn find_by_low_bits<'a>(&self, tid: u32, mask: u32) -> Option<&'a Thread> {
        let salt = self.salt.load(Ordering::Relaxed);
        let index = tid.wrapping_sub(TID_BASE).wrapping_sub(salt) as usize % MAX_THREADS;
        if index >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let thread = self.slot(index);
        (thread.tid() & mask == tid && thread.life() == Life::Live).then_some(thread)
    }

    /// The thread in the slot that begins at this address.
    pub(crate) fn at<'a>(&self, address: usize) -> Option<&'a Thread> {
        let index = self.threads.index_at(address)?;
        (index < self.slots()).then(|| self.slot(index))
    }

    /// Where the table is in memory: the array of its chunks, and the word with [`Self::slots`].
    pub(crate) fn places(&self) -> TablePlaces {
        TablePlaces {
            chunks: (&raw const self.threads).addr(),
            chunk_count: MAX_THREADS / CHUNK,
            slots_per_chunk: CHUNK,
            used: (&raw const self.used).addr(),
        }
    }

    /// Slots that were ever used.
    pub fn slots(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// The thread in a slot, whatever it is now.
    pub fn in_slot(&self, index: usize) -> Option<&Thread> {
        (index < self.slots()).then(|| self.slot(index))
    }

    /// All threads that aren't free, with the risk that one is freed meanwhile.
    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        (0..self.used.load(Ordering::Acquire))
            .map(|index| self.slot(index))
            .filter(|thread| thread.life() != Life::Free)
    }

    /// Bounds the threads alive at a time; a few creators at once may each pass it by one.
    pub fn set_limit(&self, threads: usize) {
        self.limit.store(threads, Ordering::Relaxed);
    }

    /// Threads that aren't free.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed) & LIVE
    }

    /// Threads that aren't free, and those that were ever made in this process, the main one
    /// included; both of one moment.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let word = self.live.load(Ordering::Relaxed);
        (word & LIVE, word / (LIVE + 1))
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn break_lock(&self) {
        let Self {
            slots,
            threads: _,
            used: _,
            live: _,
            limit: _,
            salt: _,
        } = self;
        // SAFETY: the holder of the lock, if any, doesn't exist here.
        unsafe { slots.break_lock() };
    }

    /// Frees every thread but `survivor`.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists, and with a free lock.
    pub unsafe fn keep_only(&self, survivor: &Thread) {
        for index in 0..self.used.load(Ordering::Relaxed) {
            let thread = self.slot(index);
            if thread.life() != Life::Free && thread.as_ptr() != survivor.as_ptr() {
                // SAFETY: the other threads don't exist in this process. What queues and carriers
                // left in them is the parent's.
                unsafe {
                    let at = thread.as_ptr();
                    (&raw mut (*at).task).write(Task::new());
                    (&raw mut (*at).node).write(WaitNode::new());
                    thread.signals.break_locks();
                    thread.signals.drop_pending();
                    thread.attributes.break_lock();
                    thread.leave_ums();
                    self.retire(thread);
                    self.recycle(thread);
                }
            }
        }
        // One that began or ended as the parent forked may have been counted, but not seen here.
        self.live.store(ONE_MORE, Ordering::Relaxed);
    }
}

impl Thread {
    /// Returns true if the slot's next thread has an id that none there has had.
    pub fn has_new_id(&self) -> bool {
        self.generation.get() != 0
    }
}

impl Default for ThreadTable {
    fn default() -> Self {
        Self::new()
    }
}
