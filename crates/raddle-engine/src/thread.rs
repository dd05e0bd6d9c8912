//! The green thread and the table of all of them.
//!
//! Threads live in *slots* of one reserved array that is committed as it grows: type-stable memory,
//! so a stale reference can be looked at, never followed into something else. A thread id is
//! [`TID_BASE`] + generation x [`MAX_THREADS`] + slot: above any pid, below 2^30 (glibc and the
//! kernel keep flags in the two bits above), and a freed slot's next thread has another id.
//! Generation and slot are counted from a random number of the process, its *salt*: locks that are
//! shared between processes hold ids, and an owner elsewhere must not be taken for oneself.

use crate::accounting::CpuTime;
use crate::attributes;
pub use crate::life::{Life, WaitKind};
use crate::signals::ThreadSignals;
use crate::turn::Turn;
use core::cell::Cell;
use core::ptr::{null, null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use raddle_context::Context;
pub use raddle_interface::Birth;
use raddle_interface::{HostControl, Lease, Seat, WorkerControl, WorkerState};
use raddle_sched::{SpinLock, Task, TaskRef, WaitNode, Wake};
use raddle_sys::{is_err, mem, nr, sys};

use crate::carrier::Carrier;
use crate::engine::ENGINE;

/// The smallest id of a green thread but the main one (Linux's largest `pid_max`).
pub const TID_BASE: u32 = 1 << 22;
/// Slots in the table.
pub const MAX_THREADS: usize = 1 << 20;
const GENERATIONS: u32 = ((1 << 30) - TID_BASE) / MAX_THREADS as u32;
/// Slots committed at a time.
const CHUNK: usize = 256;

/// One green thread. Fields without a note are written by the thread itself or its carrier.
#[repr(C, align(64))]
pub struct Thread {
    /// The scheduler's part; first, because a `TaskRef` is cast back to its thread.
    pub task: Task,
    /// What it waits for: a [`WaitKind`], its address or descriptor, since when, until when.
    pub wait_kind: AtomicU32,
    pub tid: AtomicU32,
    pub wait_arg: AtomicUsize,

    // What a switch needs, in one cache line; so is where the signals begin.
    /// Where it continues, while it is off its stack.
    pub context: Cell<Context>,
    /// Its FS base: glibc's thread block.
    pub fs: Cell<u64>,
    /// The carrier it runs or last ran on.
    pub carrier: AtomicPtr<Carrier>,
    /// Times it was switched to.
    pub switches: AtomicU64,
    /// If not null, this thread is run by user-mode schedulers ([`crate::ums`]). Set before it runs
    /// and cleared at its end.
    pub ums: AtomicPtr<WorkerControl>,
    /// If not null, a scheduler waits for this thread. Set by the scheduler; taken by the thread,
    /// or by sysmon.
    pub(crate) lease: AtomicPtr<Lease>,
    /// If not null, this thread hosts light threads of the explicit API.
    pub host: Cell<*const HostControl>,
    pub signals: ThreadSignals,

    /// The wait node for waits on one thing.
    pub node: WaitNode,
    pub since_ns: AtomicU64,
    pub deadline_ns: AtomicU64,
    /// Times it parked.
    pub parks: AtomicU64,
    /// Times another carrier than its last one ran it.
    pub migrations: AtomicU64,
    /// When it was woken, if that wake-up is measured; else 0. See [`crate::latency`].
    pub(crate) woken_ns: AtomicU64,
    /// Times it was preempted.
    pub preemptions: AtomicU64,
    /// Its turn, if it was interrupted in it.
    pub(crate) turn: Turn,
    /// Where its registers are kept while it is preempted; 0 before the first time. The memory
    /// stays with the slot.
    pub save_area: Cell<usize>,
    /// `CLONE_CHILD_CLEARTID`'s address: zeroed and woken when it exits.
    pub clear_tid: Cell<*mut AtomicU32>,
    /// Head of its robust list, as `set_robust_list(2)` was told.
    pub robust_list: Cell<usize>,
    /// 1 if somebody waited for a PI futex that it owned. SeqCst: set before the waiter looks
    /// whether the owner lives, read by the owner after it has said that it doesn't.
    pub inherits: AtomicU32,
    /// If not null, the carrier that runs this thread and nothing else.
    pub bound: AtomicPtr<Carrier>,
    /// If not null, the carrier that ran it alone and will again ([`crate::bound::unbind`]).
    /// The thread's own.
    pub(crate) away_from: AtomicPtr<Carrier>,
    /// Non-zero: a wake-up may put the thread elsewhere than into a run queue, because it is bound,
    /// a UMS worker, or a side engine's. Set by whoever makes it so (release), before the thread is
    /// woken again; what is no longer true costs a closer look and no more.
    routes: AtomicU32,
    /// The side engine that it belongs to ([`crate::sides`]), or 0. Written with `routes`.
    side: AtomicU32,
    /// What the explicit API said of the next thread that this one creates.
    pub next: Cell<Birth>,
    /// How long its scheduler lets it compute at a time; 0 for ever. Written by the scheduler, read
    /// by sysmon.
    pub(crate) leased_ns: AtomicU64,
    /// The next thread that this one creates is that worker.
    pub(crate) ums_next: Cell<*const WorkerControl>,
    /// 1 if somebody cancelled the thread and it has not looked yet. SeqCst: set before the
    /// canceller tries to claim a wait, read by the waiter after it announced the wait.
    pub cancelled: AtomicU32,
    /// The next thread that this one creates is to be bound (an exclusion rule).
    pub bind_next: Cell<bool>,
    /// One more than a descriptor of the file that the thread's call waits for, if the program has
    /// closed the number meanwhile; else 0. Set by who closes, before it wakes the thread.
    pub(crate) kept: AtomicU32,
    /// The next thread that this one creates is to be green, where others aren't
    /// ([`crate::engine::Engine::is_explicit`]).
    pub green_next: Cell<bool>,
    /// The policy's group of the next thread that this one creates, or 0 if no rule says.
    pub share_next: Cell<u32>,
    /// If not null, the thread is kept when it ends ([`crate::kept`]).
    pub seat: Cell<*const Seat>,
    /// The next thread that is kept. Under the lock there.
    pub(crate) next_kept: Cell<*const Thread>,
    pub(crate) cpu: CpuTime,
    /// Scheduling attributes.
    pub attributes: attributes::Shared,
    life: AtomicU32,
    generation: Cell<u32>,
    pub name: [AtomicU8; 16],
}

/// Offset of [`ThreadSignals::call_site`] in a thread.
pub const CALL_SITE: usize =
    core::mem::offset_of!(Thread, signals) + core::mem::offset_of!(ThreadSignals, call_site);

const _: () = {
    const LINE: usize = 64;
    let signals = core::mem::offset_of!(Thread, signals) + ThreadSignals::PENDING;
    assert!(core::mem::offset_of!(Thread, context) / LINE == signals / LINE);
};

impl Thread {
    /// The thread's part that the scheduler knows.
    #[inline(always)]
    pub fn task_ref(&self) -> TaskRef {
        // SAFETY: threads live in type-stable memory; the task is its first field.
        unsafe { TaskRef::new(core::ptr::NonNull::from(self).cast()) }
    }

    /// The thread a task belongs to.
    #[inline(always)]
    pub fn of<'a>(task: TaskRef) -> &'a Thread {
        // SAFETY: every task of the engine is the first field of a Thread in the table.
        unsafe { &*task.as_ptr().cast::<Thread>() }
    }

    /// Tries to win the right to wake the thread, however it waits; the winner must push it.
    #[must_use]
    pub fn claim(&self, why: Wake) -> bool {
        // SAFETY: threads are queued with their own node, in the table of futexes.
        let queued = || unsafe { ENGINE.futexes.claim(&self.node, self.task_ref(), why) };
        self.task.claim(why) || queued()
    }

    /// The thread as a pointer, for fields that hold one.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut Thread {
        core::ptr::from_ref(self).cast_mut()
    }

    /// True if the thread must not run on `carrier`, which has picked it: it was bound while it
    /// stood in a queue. A carrier that ran it last looks no closer, which keeps this cheap.
    #[inline(always)]
    pub(crate) fn was_bound_to_other(&self, carrier: &Carrier) -> bool {
        let here = core::ptr::from_ref(carrier).cast_mut();
        self.carrier.load(Ordering::Relaxed) != here && {
            let bound = self.bound.load(Ordering::Acquire);
            !bound.is_null() && bound != here
        }
    }

    /// True if the thread is bound and runs, or ran last, on another carrier than its own.
    #[inline(always)]
    pub(crate) fn strays_on(&self, carrier: &Carrier) -> bool {
        let bound = self.bound.load(Ordering::Acquire);
        !bound.is_null() && !core::ptr::eq(bound, carrier)
    }

    /// True if a thread's wait and wake-up aren't the carrier's concern alone.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        self.ums.load(Ordering::Relaxed).addr() | self.host.get().addr() != 0
    }

    /// True if its next thread is to be no UMS worker.
    pub fn ums_next_is_none(&self) -> bool {
        self.ums_next.get().is_null()
    }

    /// True if a wake-up puts the thread anywhere but into a run queue.
    #[inline(always)]
    pub(crate) fn is_woken_elsewhere(&self) -> bool {
        self.routes.load(Ordering::Relaxed) != 0
    }

    /// The thread is bound or a UMS worker from now on.
    pub(crate) fn is_routed(&self) {
        self.routes.fetch_or(1, Ordering::SeqCst);
    }

    /// The running thread is no longer bound, unless somebody binds it meanwhile: who does says so
    /// after it has stored the carrier, which is looked at last here.
    pub(crate) fn is_unbound(&self) {
        if self.ums.load(Ordering::Relaxed).is_null() && self.side() == 0 {
            self.routes.swap(0, Ordering::SeqCst);
            if !self.bound.load(Ordering::SeqCst).is_null() {
                self.is_routed();
            }
        }
    }

    /// The side engine that the thread belongs to, or 0.
    #[inline(always)]
    pub fn side(&self) -> u32 {
        self.side.load(Ordering::Relaxed)
    }

    /// From the next time that it becomes runnable, the thread is this side engine's, or the first
    /// engine's (0).
    pub(crate) fn set_side(&self, side: u32) {
        self.side.store(side, Ordering::Relaxed);
        self.is_routed();
    }

    /// In the child of a fork nobody is a worker.
    pub(crate) fn leave_ums(&self) {
        let control = self.ums.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: null, or the control of a worker that hasn't ended, which lives; here as a copy.
        if let Some(control) = unsafe { control.as_ref() } {
            control.state.set(WorkerState::ENDED);
        }
        self.lease.store(null_mut(), Ordering::Relaxed);
    }

    /// The thread id that programs see.
    #[inline(always)]
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Where it is in its life.
    pub fn life(&self) -> Life {
        match self.life.load(Ordering::SeqCst) {
            1 => Life::Live,
            2 => Life::Exiting,
            _ => Life::Free,
        }
    }

    /// Marks it as exiting: signals don't find it any more.
    pub fn set_exiting(&self) {
        self.life.store(Life::Exiting as u32, Ordering::SeqCst);
    }

    /// True if the program has closed the number that the thread waited for.
    pub fn has_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed) != 0
    }

    /// Takes the descriptor by which the file of a closed number was kept; the caller closes it.
    pub fn take_kept(&self) -> Option<u32> {
        self.kept.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// Says what the thread is about to wait for. `deadline_ns` is 0 without a timeout.
    #[inline(always)]
    pub fn waits_for(&self, kind: WaitKind, arg: usize, deadline_ns: u64) {
        self.wait_kind.store(kind as u32, Ordering::Relaxed);
        self.wait_arg.store(arg, Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    /// Copies a name of at most 15 bytes; the rest is cut, as `PR_SET_NAME` does.
    pub fn set_name(&self, name: &[u8]) {
        for (i, byte) in self.name.iter().enumerate() {
            let value = if i < 15 {
                name.get(i).copied().unwrap_or(0)
            } else {
                0
            };
            byte.store(value, Ordering::Relaxed);
        }
    }

    /// The name, zero-padded.
    pub fn name(&self) -> [u8; 16] {
        core::array::from_fn(|i| self.name[i].load(Ordering::Relaxed))
    }
}

/// The table of threads.
pub struct ThreadTable {
    base: AtomicUsize,
    /// Slots that were ever used; grows only.
    used: AtomicUsize,
    /// Threads that are not free.
    live: AtomicUsize,
    /// How many those may be; 0 for as many as there are slots.
    limit: AtomicUsize,
    /// Where generations and slots begin to be counted in ids. Changed with one thread only.
    salt: AtomicU32,
    slots: SpinLock<Slots>,
}

struct Slots {
    /// Free slots, linked through `wait_arg`; 0 ends the list, else slot + 1.
    free: usize,
    committed: usize,
}

impl ThreadTable {
    /// An empty table without memory.
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
            salt: AtomicU32::new(0),
            slots: SpinLock::new(Slots {
                free: 0,
                committed: 0,
            }),
        }
    }

    /// Reserves the table's address space.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn init(&self) -> Result<(), isize> {
        let base = mem::reserve(MAX_THREADS * size_of::<Thread>())?;
        self.base.store(base.expose_provenance(), Ordering::Relaxed);
        self.draw_salt();
        Ok(())
    }

    /// Draws the salt. Ids of this process other than the main thread's become invalid.
    pub(crate) fn draw_salt(&self) {
        const NONBLOCK: usize = 1;
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
        let base = with_exposed_provenance_mut::<Thread>(self.base.load(Ordering::Relaxed));
        // SAFETY: callers stay below `used`, which is committed; zero bytes are a valid Thread.
        unsafe { &*base.add(index) }
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
        let index = if slots.free != 0 {
            let index = slots.free - 1;
            slots.free = self.slot(index).wait_arg.load(Ordering::Relaxed);
            index
        } else {
            let index = self.used.load(Ordering::Relaxed);
            if index == slots.committed {
                self.grow(&mut slots)?;
            }
            self.used.store(index + 1, Ordering::Release);
            index
        };
        drop(slots);
        self.live.fetch_add(1, Ordering::Relaxed);
        let thread = self.slot(index);
        self.prepare(thread, index as u32);
        Ok(thread)
    }

    /// Makes a retired thread, whose slot wasn't given back, another one that lives and has its
    /// stack and thread block.
    ///
    /// # Safety
    /// As for [`ThreadTable::recycle`]; the thread must be the caller's.
    pub(crate) unsafe fn renew(&self, thread: &Thread) {
        let (clear_tid, robust_list) = (thread.clear_tid.get(), thread.robust_list.get());
        self.live.fetch_add(1, Ordering::Relaxed);
        self.prepare(thread, self.index(thread) as u32);
        thread.clear_tid.set(clear_tid);
        thread.robust_list.set(robust_list);
    }

    /// True if there may be no other thread.
    pub(crate) fn is_full(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != 0 && self.live() >= limit
    }

    fn grow(&self, slots: &mut Slots) -> Result<(), isize> {
        let again = raddle_sys::err(raddle_sys::errno::EAGAIN);
        if slots.committed + CHUNK > MAX_THREADS {
            return Err(again);
        }
        let base = with_exposed_provenance_mut::<Thread>(self.base.load(Ordering::Relaxed));
        // SAFETY: the range lies in the table's reservation.
        let done = unsafe {
            mem::commit(
                base.add(slots.committed).cast(),
                CHUNK * size_of::<Thread>(),
            )
        };
        done.map_err(|_| again)?;
        slots.committed += CHUNK;
        Ok(())
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
        thread.kept.store(0, Ordering::Relaxed);
        thread.green_next.set(false);
        thread.host.set(null());
        thread.ums.store(null_mut(), Ordering::Relaxed);
        thread.ums_next.set(null());
        thread.lease.store(null_mut(), Ordering::Relaxed);
        thread.leased_ns.store(0, Ordering::Relaxed);
        thread.cancelled.store(0, Ordering::Relaxed);
        thread.clear_tid.set(null_mut());
        thread.robust_list.set(0);
        thread.inherits.store(0, Ordering::Relaxed);
        thread.bound.store(null_mut(), Ordering::Relaxed);
        thread.away_from.store(null_mut(), Ordering::Relaxed);
        thread.routes.store(0, Ordering::Relaxed);
        thread.side.store(0, Ordering::Relaxed);
        thread.next.set(Birth::default());
        thread.carrier.store(null_mut(), Ordering::Relaxed);
        thread.switches.store(0, Ordering::Relaxed);
        thread.parks.store(0, Ordering::Relaxed);
        thread.migrations.store(0, Ordering::Relaxed);
        thread.preemptions.store(0, Ordering::Relaxed);
        thread.turn.reset();
        thread.woken_ns.store(0, Ordering::Relaxed);
        thread.waits_for(WaitKind::None, 0, 0);
        thread.signals.reset();
        thread.cpu.reset(0);
        thread.attributes.reset();
        thread.task.policy.reset(tid);
        thread.share_next.set(0);
        thread.seat.set(null());
        thread.task.rank.store(0, Ordering::Relaxed);
        thread.life.store(Life::Live as u32, Ordering::Release);
    }

    /// The thread, whose pending signals were dropped, is gone for everybody who asks; its slot
    /// keeps its id until it is recycled. Returns how many threads are left.
    pub fn retire(&self, thread: &Thread) -> usize {
        thread.life.store(Life::Free as u32, Ordering::Release);
        self.live.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Gives a retired thread's slot back.
    ///
    /// # Safety
    /// No run queue, wait queue or timer may hold the thread, and nobody runs on its stack.
    pub unsafe fn recycle(&self, thread: &Thread) {
        let index = self.index(thread);
        let mut slots = self.slots.lock();
        thread.wait_arg.store(slots.free, Ordering::Relaxed);
        slots.free = index + 1;
    }

    /// Calls `act`, and no thread begins meanwhile in a slot that another one had before: who is
    /// seen to live there, and ends, leaves a slot that is nobody's yet.
    pub(crate) fn with_slots_kept<R>(&self, act: impl FnOnce() -> R) -> R {
        let _slots = self.slots.lock();
        act()
    }

    fn index(&self, thread: &Thread) -> usize {
        let offset = thread.as_ptr().addr() - self.base.load(Ordering::Relaxed);
        offset / size_of::<Thread>()
    }

    /// The live thread with this id. The main thread, whose id is the process's, is in slot 0.
    pub fn find<'a>(&self, tid: u32) -> Option<&'a Thread> {
        self.slot_of(tid)
            .filter(|thread| thread.life() == Life::Live)
    }

    /// The slot whose last thread had this id, whether it lives or not.
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

    /// The live thread whose id is `tid` in the bits of `mask`, which are at least the slot's.
    pub fn find_by_low_bits<'a>(&self, tid: u32, mask: u32) -> Option<&'a Thread> {
        let salt = self.salt.load(Ordering::Relaxed);
        let index = tid.wrapping_sub(TID_BASE).wrapping_sub(salt) as usize % MAX_THREADS;
        if index >= self.used.load(Ordering::Acquire) {
            return None;
        }
        let thread = self.slot(index);
        (thread.tid() & mask == tid && thread.life() == Life::Live).then_some(thread)
    }

    /// The thread whose slot begins at this address.
    pub(crate) fn at<'a>(&self, address: usize) -> Option<&'a Thread> {
        let offset = address.checked_sub(self.base.load(Ordering::Relaxed))?;
        let index = offset / size_of::<Thread>();
        let is_slot = offset.is_multiple_of(size_of::<Thread>());
        (is_slot && index < self.slots()).then(|| self.slot(index))
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
        self.live.load(Ordering::Relaxed)
    }

    /// Frees the lock.
    ///
    /// # Safety
    /// Only in the child of a fork, before a second thread exists.
    pub(crate) unsafe fn break_lock(&self) {
        // SAFETY: the holder of the lock, if any, doesn't exist here.
        unsafe { self.slots.break_lock() };
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
                    thread.signals.queue.break_locks();
                    thread.signals.drop_pending();
                    thread.attributes.break_lock();
                    thread.leave_ums();
                    self.retire(thread);
                    self.recycle(thread);
                }
            }
        }
    }
}

impl Default for ThreadTable {
    fn default() -> Self {
        Self::new()
    }
}
