//! The green thread. The [table](ThreadTable) of all of them is in `table`.

mod table;

use crate::state::accounting::CpuTime;
use crate::state::attributes;
use crate::state::compilers;
pub use crate::state::life::Life;
use crate::state::signals::{PendingSignals, ThreadSignals};
use crate::state::turn::Turn;
use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};
use raddle_arch::Context;
pub use raddle_inspect::WaitKind;
pub use raddle_interface::Birth;
use raddle_interface::{HostControl, ReuseControl, SchedulerToken, WorkerControl, WorkerState};
use raddle_sched::routes::Receiver;
use raddle_sched::share::Account;
use raddle_sched::{Task, TaskRef, WaitNode, Wake};
pub use table::{MAX_THREADS, TID_BASE, ThreadTable};

use crate::state::carrier::Carrier;
use crate::state::engine::Engine;
use crate::state::process::PROCESS;

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
    /// If not null, this thread is run by user-mode schedulers ([`crate::scheduling::ums`]). Set
    /// before it runs and cleared at its end.
    pub ums: AtomicPtr<WorkerControl>,
    /// The token of the scheduler that waits for this thread, or null. Set by the scheduler; taken
    /// by the thread, or by sysmon.
    pub(crate) scheduler_token: AtomicPtr<SchedulerToken>,
    /// If not null, this thread hosts light threads of the explicit API.
    pub host: Cell<*const HostControl>,
    pub signals: ThreadSignals,

    /// The wait node for waits on one thing.
    pub node: WaitNode,
    pub since_ns: AtomicU64,
    pub deadline_ns: AtomicU64,
    /// The mutex that goes with the condition variable that it waits for, or 0. For tools.
    pub wait_lock: AtomicUsize,
    /// Times it parked.
    pub park: AtomicU64,
    /// Times another carrier than its last one ran it.
    pub steal: AtomicU64,
    /// When it became runnable, if that is measured; else 0. See [`crate::state::delays`].
    pub(crate) ready_ns: AtomicU64,
    /// The stamp at which it left its carrier last while events were recorded; 0 before. Written by
    /// that carrier, read by the waker.
    pub(crate) waits_from: AtomicU64,
    /// Times it was preempted.
    pub preempt: AtomicU64,
    /// The turn in which the thread was preempted, if it was.
    pub(crate) turn: Turn,
    /// The address of its save area, which has its registers while it is preempted; 0 before the
    /// first preemption. The memory stays with the slot.
    pub save_area: Cell<usize>,
    /// The address that `CLONE_CHILD_CLEARTID` names in the program's memory, or 0. When the thread
    /// exits, the word there is zeroed, and its waiters are woken.
    pub clear_tid: Cell<usize>,
    /// The head of its robust list, as `set_robust_list(2)` got it.
    pub robust_list: Cell<usize>,
    /// 1 if another thread waited for a PI futex that this thread owned. SeqCst: the waiter sets it
    /// before it looks whether the owner lives; the owner reads it after it has marked itself as
    /// exiting.
    pub inherits: AtomicU32,
    /// If not null, the carrier that runs this thread and nothing else.
    pub bound: AtomicPtr<Carrier>,
    /// The bound carrier to which the thread returns ([`crate::scheduling::bound::unbind`]), or
    /// null. Used by the thread alone.
    pub(crate) away_from: AtomicPtr<Carrier>,
    /// [`ROUTED`], [`FOLLOWED`]. Stale bits cost a closer look and no more.
    routes: AtomicU32,
    /// Number of the engine that it belongs to; 0 for the default one. Written with `routes`.
    engine: AtomicU32,
    /// The properties that the explicit API asked for, of the next thread that this one creates.
    pub next: Cell<Birth>,
    /// How long its scheduler lets it compute at a time, in nanoseconds; 0 for no limit. Written by
    /// the scheduler, read by sysmon.
    pub(crate) worker_quantum_ns: AtomicU64,
    /// The worker that the next thread becomes that this one creates; null for none.
    pub(crate) ums_next: Cell<*const WorkerControl>,
    /// The token that this thread has taken, as a light worker, to decide. Its own.
    pub deciding: Cell<*const SchedulerToken>,
    /// 1 if the thread was cancelled and hasn't noticed it yet. SeqCst: the canceller sets it
    /// before it tries to claim a wait; the waiter reads it after it has announced the wait.
    pub cancelled: AtomicU32,
    /// True if the next thread that this one creates is to be bound, by an exclusion rule.
    pub bind_next: Cell<bool>,
    /// One more than a descriptor of the file that the thread's call waits for, if the program has
    /// closed the number meanwhile; else 0. Set by the closing thread, before it wakes this one.
    pub(crate) closed_file: AtomicU32,
    /// True if the next thread that this one creates is to be green where others aren't
    /// ([`crate::state::process::Process::is_explicit`]).
    pub green_next: Cell<bool>,
    /// The policy's group of the next thread that this one creates, or 0 if no rule says.
    pub share_next: Cell<u32>,
    /// The thread's part of reuse ([`crate::state::reusable`]); null for a thread that isn't kept
    /// when it ends.
    pub reuse: Cell<*const ReuseControl>,
    /// The next thread in a list of kept threads. Under the lock there.
    pub(crate) next_reusable: Cell<*const Thread>,
    pub(crate) cpu: CpuTime,
    /// 1 for a compiler thread ([`crate::state::compilers`]).
    pub(crate) compiles: AtomicU32,
    /// The CPU time that it has used, weighted by its share. Written by the carrier that runs it or
    /// makes it runnable.
    pub(crate) account: Account,
    /// The thread that has made it: an id, or 0.
    pub(crate) maker: AtomicU32,
    /// The thread that has lent it its turn: an id, or 0. Written by the lender, and by the carrier
    /// that runs this thread.
    pub(crate) lender: AtomicU32,
    /// Scheduling attributes.
    pub attributes: attributes::Shared,
    life: AtomicU32,
    generation: Cell<u32>,
    /// Its number in the table. Written before the slot is used for the first time.
    slot: Cell<u32>,
    pub name: [AtomicU8; 16],
}

/// In [`Thread::routes`]: a wake-up may put the thread elsewhere than into a run queue, because it
/// is bound, a UMS worker, or a further engine's. Set by the thread that makes it so (release),
/// before this one is woken again.
const ROUTED: u32 = 1;
/// In [`Thread::routes`]: a wake-up is an event. Set by the carrier that begins to run the thread.
const FOLLOWED: u32 = 2;

impl Thread {
    /// Offset of the word that has the thread's [`Life`].
    pub(crate) const LIFE: usize = core::mem::offset_of!(Thread, life);
    /// Offset of the engine's number.
    pub(crate) const ENGINE: usize = core::mem::offset_of!(Thread, engine);
}

/// Offset of [`ThreadSignals::call_site`] in a thread.
pub const CALL_SITE: usize =
    core::mem::offset_of!(Thread, signals) + core::mem::offset_of!(ThreadSignals, call_site);
/// Offset of [`ThreadSignals::call_frame`] in a thread.
pub const CALL_FRAME: usize =
    core::mem::offset_of!(Thread, signals) + core::mem::offset_of!(ThreadSignals, call_frame);

const _: () = {
    const LINE: usize = 64;
    let signals = core::mem::offset_of!(Thread, signals) + ThreadSignals::PENDING;
    assert!(core::mem::offset_of!(Thread, context) / LINE == signals / LINE);
};

impl Thread {
    /// Returns the part of the thread that the scheduler knows.
    #[inline(always)]
    pub fn task_ref(&self) -> TaskRef {
        // SAFETY: threads live in type-stable memory; the task is its first field.
        unsafe { TaskRef::new(core::ptr::NonNull::from(self).cast()) }
    }

    /// Returns the thread that a task is the part of.
    #[inline(always)]
    pub fn of<'a>(task: TaskRef) -> &'a Thread {
        // SAFETY: every task of the engine is the first field of a Thread in the table.
        unsafe { &*task.as_ptr().cast::<Thread>() }
    }

    /// Claims the thread's wait, of either kind. Returns true if the claim succeeds; the caller
    /// must then push the thread.
    #[must_use]
    pub fn claim(&self, why: Wake) -> bool {
        // SAFETY: threads are queued with their own node, in the table of futexes.
        let queued = || unsafe { PROCESS.futexes.claim(&self.node, self.task_ref(), why) };
        self.task.claim(why) || queued()
    }

    /// Returns a pointer to the thread, for fields that hold one.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut Thread {
        core::ptr::from_ref(self).cast_mut()
    }

    /// Returns true if the thread must not run on `carrier`, which has picked it, because it was
    /// bound while it stood in a queue. For the carrier that ran the thread last, one comparison
    /// tells.
    #[inline(always)]
    pub(crate) fn was_bound_to_other(&self, carrier: &Carrier) -> bool {
        let here = core::ptr::from_ref(carrier).cast_mut();
        self.carrier.load(Ordering::Relaxed) != here && {
            let bound = self.bound.load(Ordering::Acquire);
            !bound.is_null() && bound != here
        }
    }

    /// Marks the thread, which `carrier` has picked and no carrier is on, as one that a carrier is
    /// on. Returns false and takes the mark back if the thread must not run there
    /// ([`Thread::was_bound_to_other`]). The mark comes first: a binder sees it, or this call sees
    /// the binding ([`Process::call_home`](crate::state::process::Process::call_home)).
    #[inline(always)]
    pub(crate) fn is_taken_by(&self, carrier: &Carrier) -> bool {
        self.task.on_cpu.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if self.was_bound_to_other(carrier) {
            self.task.on_cpu.store(0, Ordering::Release);
            return false;
        }
        true
    }

    /// Returns true if the thread is bound and runs, or ran last, on another carrier than its own.
    #[inline(always)]
    pub(crate) fn strays_on(&self, carrier: &Carrier) -> bool {
        let bound = self.bound.load(Ordering::Acquire);
        !bound.is_null() && !core::ptr::eq(bound, carrier)
    }

    /// Returns true if a user-mode scheduler or a host of light threads must hear of the thread's
    /// waits.
    #[inline(always)]
    pub(crate) fn is_special(&self) -> bool {
        self.ums.load(Ordering::Relaxed).addr() | self.host.get().addr() != 0
    }

    /// Returns true if the next thread that it creates is no UMS worker.
    pub fn ums_next_is_none(&self) -> bool {
        self.ums_next.get().is_null()
    }

    /// Returns true if a wake-up does more than put the thread into a run queue.
    #[inline(always)]
    pub(crate) fn takes_detour(&self) -> bool {
        self.routes.load(Ordering::Relaxed) != 0
    }

    /// Returns true if a wake-up puts the thread anywhere but into a run queue.
    #[inline(always)]
    pub(crate) fn is_woken_elsewhere(&self) -> bool {
        self.routes.load(Ordering::Relaxed) & ROUTED != 0
    }

    /// Marks the thread as one that a wake-up may put elsewhere than into a run queue.
    pub(crate) fn is_routed(&self) {
        self.routes.fetch_or(ROUTED, Ordering::SeqCst);
    }

    /// Wake-ups of the thread are events from now on ([`crate::state::events`]).
    pub(crate) fn is_followed(&self) {
        if self.routes.load(Ordering::Relaxed) & FOLLOWED == 0 {
            self.routes.fetch_or(FOLLOWED, Ordering::Relaxed);
        }
    }

    /// Wake-ups are no events any more.
    pub(crate) fn is_not_followed(&self) {
        if self.routes.load(Ordering::Relaxed) & FOLLOWED != 0 {
            self.routes.fetch_and(!FOLLOWED, Ordering::Relaxed);
        }
    }

    /// Takes the mark of [`Thread::is_routed`] away from the running thread, which is no longer
    /// bound. Another thread may bind it anew meanwhile: the binder sets `routes` after it has
    /// stored the carrier, which is read last here.
    pub(crate) fn is_unbound(&self) {
        if self.ums.load(Ordering::Relaxed).is_null() && self.engine_number() == 0 {
            self.routes.swap(0, Ordering::SeqCst);
            if !self.bound.load(Ordering::SeqCst).is_null() {
                self.is_routed();
            }
        }
    }

    /// Returns the number of the engine that the thread belongs to; 0 for the default one.
    #[inline(always)]
    pub fn engine_number(&self) -> u32 {
        self.engine.load(Ordering::Relaxed)
    }

    /// Returns the engine that queues the thread.
    #[inline(always)]
    pub(crate) fn engine(&self) -> &'static Engine {
        PROCESS.engines.of(self.engine_number())
    }

    /// Gives the thread to engine `number`, from the next time on that the thread becomes runnable.
    pub(crate) fn set_engine(&self, number: u32) {
        self.engine.store(number, Ordering::Relaxed);
        self.is_routed();
    }

    /// Makes the thread the main thread of a fork's child, which has the id `pid`.
    ///
    /// # Safety
    /// Only in the child of a fork, for the thread that survives, before a second thread exists.
    pub(crate) unsafe fn in_child(&self, pid: u32) {
        #[rustfmt::skip]
        let Self {
            signals, attributes, bound, away_from, robust_list, inherits, tid,
            ums: _, scheduler_token: _, // `leave_ums`
            cpu: _, // `accounting::in_child`
            // Used for waits only; the thread runs:
            task: _, node: _, wait_kind: _, wait_arg: _, context: _, since_ns: _, deadline_ns: _,
            wait_lock: _, ready_ns: _, waits_from: _, closed_file: _,
            // Identity, and what libc and the program have said of the thread:
            fs: _, host: _, clear_tid: _, next: _, bind_next: _, green_next: _, share_next: _,
            ums_next: _, reuse: _, name: _, save_area: _, life: _, generation: _, slot: _,
            cancelled: _, compiles: _, account: _, maker: _, lender: _,
            // The child's engines have the policies and settings of the parent's:
            engine: _, routes: _,
            // Only the carrier that forked is left:
            carrier: _,
            // Counts that go on; what is measured by them:
            switches: _, park: _, steal: _, preempt: _, turn: _, worker_quantum_ns: _,
            // Written before it is read:
            deciding: _, next_reusable: _,
        } = self;
        #[rustfmt::skip]
        let ThreadSignals {
            state: _, // `break_locks`; what is pending is dropped by the user-mode kernel
            suspended_mask: _, handled: _, interrupting: _, call_site: _, call_frame: _,
            progress: _, alternate: _,
        } = signals;
        // SAFETY: the caller's promise.
        unsafe {
            signals.break_locks();
            attributes.break_lock();
        }
        bound.store(null_mut(), Ordering::Relaxed);
        away_from.store(null_mut(), Ordering::Relaxed);
        robust_list.set(0); // libc tells the kernel of it anew
        self.leave_ums();
        inherits.store(0, Ordering::Relaxed);
        tid.store(pid, Ordering::Relaxed);
    }

    /// Ends the thread as a UMS worker: in the child of a fork no thread is one.
    pub(crate) fn leave_ums(&self) {
        let control = self.ums.swap(null_mut(), Ordering::Relaxed);
        // SAFETY: null, or the control of a worker that hasn't ended, which lives; here as a copy.
        if let Some(control) = unsafe { control.as_ref() } {
            control.state.set(WorkerState::ENDED);
        }
        self.scheduler_token.store(null_mut(), Ordering::Relaxed);
    }

    /// Returns the thread id that programs see.
    #[inline(always)]
    pub fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Returns the thread's state of life.
    pub fn life(&self) -> Life {
        match self.life.load(Ordering::SeqCst) {
            1 => Life::Live,
            2 => Life::Exiting,
            _ => Life::Free,
        }
    }

    /// Returns true if the program has closed the number that the thread waited for.
    pub fn has_closed_file(&self) -> bool {
        self.closed_file.load(Ordering::Relaxed) != 0
    }

    /// Takes the descriptor by which the file of a closed number was kept; the caller closes it.
    pub fn take_closed_file(&self) -> Option<u32> {
        self.closed_file.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// Notes what the thread is about to wait for. `deadline_ns` is 0 without a timeout.
    #[inline(always)]
    pub fn waits_for(&self, kind: WaitKind, arg: usize, deadline_ns: u64) {
        self.wait_kind.store(kind.0, Ordering::Relaxed);
        self.wait_arg.store(arg, Ordering::Relaxed);
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
    }

    /// Copies a name of at most 15 bytes; the rest is cut, as `PR_SET_NAME` does.
    pub fn set_name(&self, name: &[u8]) {
        compilers::named(self, name);
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

impl Receiver for Thread {
    #[inline(always)]
    fn signals(&self) -> &PendingSignals {
        &self.signals
    }

    fn task(&self) -> &Task {
        &self.task
    }

    fn is_live(&self) -> bool {
        self.life() == Life::Live
    }

    fn set_exiting(&self) {
        self.life.store(Life::Exiting as u32, Ordering::SeqCst);
    }

    #[inline(always)]
    fn claim(&self, why: Wake) -> bool {
        Thread::claim(self, why)
    }
}
