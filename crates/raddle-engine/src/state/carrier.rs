//! The carrier: a kernel thread that runs green threads.
//!
//! A carrier finds itself through the GS base. The boundary's assembly reads the first words there,
//! too; their offsets are constants here. It has a stack of its own, for the scheduler loop and for
//! being idle, and an alternate signal stack; it has no glibc thread block and never runs libc code
//! on its own behalf.

use crate::state::accounting::Slices;
use crate::state::delays::Counts;
use crate::state::engine::Engine;
use crate::state::parts::quantum_timer::QuantumTimer;
use crate::state::parts::timing::Timing;
use crate::state::process::PROCESS;
use crate::state::samples::{SampleRing, Wanted};
use crate::state::signals::Inbox;
use crate::state::thread::Thread;
use crate::state::wakers::Wakes;
use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use raddle_arch::Context;
use raddle_inspect::{CarrierOffsets, WAIT_KINDS};
use raddle_sched::policy::Backlog;
use raddle_sched::wake::WakeWord;
use raddle_sched::{EventRing, RunQueue};
use raddle_sys::abi::CloneArgs;
use raddle_sys::{mem, nr};

/// The activity of a carrier, as sysmon and inspection see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CarrierState {
    Running = 0,
    Idle = 1,
    Polling = 2,
    /// The carrier has no kernel thread any more, and keeps its place in the list for the next one.
    Ended = 3,
}

/// Bytes of a carrier's own stack.
pub const STACK_SIZE: usize = 64 * 1024;
/// The signal that makes a carrier look whether it is to preempt (glibc's SIGCANCEL, which its
/// `tgkill` never gives to a kernel thread here). Handled with SA_RESTART.
pub const PREEMPT: usize = 32;
/// See [`Carrier::child_shares`].
pub const SHARES: u32 = 1;
/// See [`Carrier::child_shares`].
pub const LEFT: u32 = 2;
/// See [`Carrier::child_shares`].
pub const SHARES_HANDLERS: u32 = 3;
/// Offset of [`Carrier::current`] from the GS base.
pub const CURRENT: usize = 8;
/// Offset of [`Carrier::raw`].
pub const RAW: usize = 16;
/// Offset of [`Carrier::attention`].
pub const ATTENTION: usize = 20;
/// Offset of [`Carrier::deliver_here`].
pub const DELIVER_HERE: usize = core::mem::offset_of!(Carrier, deliver_here);
/// Value of [`Carrier::attention`]: a signal, or a request to give way, must be looked at before
/// the carrier may wait in the kernel.
pub const SIGNALLED: u32 = 1;
/// Value of [`Carrier::attention`]: chaos decides at the end of the next call.
pub(crate) const ASKS: u32 = 2;
/// Offset of the scheduler loop's context.
pub const SCHEDULER: usize = core::mem::offset_of!(Carrier, scheduler);

/// The queue from which a carrier takes its next thread. 0 is the carrier's own, which the short
/// way of a pick assumes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Source {
    /// Its own queue, then its engine's.
    Own = 0,
    /// The same, by the threads' accounts: see [`crate::scheduling::timed`].
    Timed = 1,
    /// Its engine's queue, which has all runnable threads.
    Engine = 2,
    /// Its mailbox: the carrier is a bound thread's.
    Mailbox = 3,
}

/// A kernel thread that runs green threads.
///
/// `repr(C)`, for two reasons. Assembly reads the first words. The words that parent and child
/// write after a fork are on one page, because the kernel copies each page that either of them
/// writes.
#[repr(C, align(4096))]
pub struct Carrier {
    /// Its own address: what `mov %gs:0` reads.
    self_ptr: Cell<*const Carrier>,
    /// The green thread on this carrier, null on the carrier's own stack. Written by the carrier;
    /// sysmon and inspection read it.
    current: AtomicPtr<Thread>,
    /// Non-zero: pass every system call to the kernel as it is (a vfork child borrows this memory).
    pub raw: Cell<u32>,
    /// Non-zero: signals wait to be looked at before user code goes on ([`SIGNALLED`]), or chaos
    /// wants to be asked (`ASKS`). Set by the signal handler on this carrier and by the carrier
    /// itself; read at the end of every handled call, and before one that passes.
    pub attention: AtomicU32,
    /// Non-zero while inside the vDSO on the runtime's behalf.
    pub in_clock: Cell<u32>,
    /// The number of entries to and exits from calls of a plug-in: odd during such a call. Written
    /// by the carrier, read by sysmon and by its own signal handler.
    pub(crate) plugin_call: AtomicU64,
    /// The value of `plugin_call` during a call that is to be abandoned. Written by sysmon.
    pub(crate) abandon: AtomicU64,
    /// The stack pointer at which the carrier goes on behind that call; 0 outside of calls. Used by
    /// the carrier and its handler.
    pub(crate) anchor: Cell<usize>,
    /// Non-zero: the signal handler may deliver on the spot although the carrier is in the
    /// runtime's text (it raised the signal for that purpose).
    pub deliver_here: Cell<u32>,

    /// True if the carrier has woken a thread for a signal since it last began to route.
    pub roused: Cell<bool>,

    /// The scheduler loop's context while a green thread runs.
    pub(crate) scheduler: Cell<Context>,
    /// The word that the switch away from the scheduler loop clears, as it clears a thread's
    /// `on_cpu`. No carrier waits for it.
    pub(crate) scheduler_on_cpu: Cell<u32>,
    /// The thread that the scheduler loop must run next. Its stack may still be in use.
    pub(crate) next: Cell<*mut Thread>,
    /// The thread that exits: the scheduler loop finishes it off its stack.
    pub(crate) exiting: Cell<*mut Thread>,
    /// The number of looks for work, from which [`raddle_sched::policy::Tick`] derives the queue
    /// that is next.
    pub(crate) picks: Cell<u32>,
    /// The state of the random numbers of [`Carrier::draw`].
    pub(crate) dice: Cell<u32>,
    /// Budget of wake-ups for this carrier's backlog.
    pub(crate) backlog: Cell<Backlog>,
    /// The last time this carrier read the clock (CLOCK_MONOTONIC, ns).
    pub now_ns: Cell<u64>,
    /// `switches` at the last look at timers and descriptors.
    pub looked: Cell<u64>,
    /// Looks in a row, before the carrier went idle, that found nothing.
    pub(crate) vain_looks: Cell<u32>,
    /// Before this time the carrier doesn't give way to other kernel threads when it goes idle.
    pub(crate) yields_from_ns: Cell<u64>,
    /// Emulated calls since the last switch, so that a loop of successful calls lets others run.
    pub calls: Cell<u32>,
    /// The count of switches and the time when these calls were last looked at.
    pub calls_seen: Cell<(u64, u64)>,
    /// The marks by which this carrier takes threads from slower rings.
    pub(crate) watch: crate::state::parts::slow_rings::Watch,
    /// The time stamp when a thread that answers clients last looked at descriptors, and how many
    /// ticks later the next one does.
    pub answers_looked: Cell<(u64, u64)>,
    /// The count of switches and the time stamp when a thread that answers clients was seen first.
    pub answers_seen: Cell<(u64, u64)>,
    /// A request to give way: one more than the value of `switches` at which it was made. The next
    /// switch makes the request void. Written by sysmon and by the carrier.
    pub(crate) preempt_at: AtomicU64,

    /// The timer that ends the turns of threads that compute.
    pub(crate) quantum_timer: QuantumTimer,

    /// 1 while this carrier counts as blocked in the kernel and another may run in its place. Set
    /// by sysmon, cleared by the carrier.
    pub(crate) handed_off: AtomicU32,

    /// 1 while sysmon may take the token of the worker that runs here: the worker gives it back by
    /// a swap then. Written by sysmon.
    pub(crate) watched: AtomicU32,

    /// [`SHARES`] while this carrier calls `execve`, or makes a child process that shares memory
    /// ([`SHARES_HANDLERS`] if it shares signal handlers, too), [`LEFT`] once that child has left
    /// this carrier for its own. Until the word is 0 again, the carrier runs no other thread, and
    /// its thread runs on no other carrier. The child recognizes itself by this word. Written by
    /// the carrier and by the child (release), which the carrier waits for (acquire).
    pub child_shares: AtomicU32,
    /// 1 while this carrier blocks further signals of the program, because [`Carrier::arrivals`]
    /// has no room for them. Set by the signal handler on this carrier; cleared by the carrier
    /// after it has routed the arrivals.
    pub closed: AtomicU32,

    /// Position among the carriers.
    pub id: Cell<u32>,
    /// Kernel thread id; 0 until it runs.
    pub kernel_tid: AtomicU32,
    /// A [`CarrierState`].
    pub(crate) state: AtomicU32,
    /// The word this carrier sleeps on.
    pub(crate) wake_word: WakeWord,
    /// Switches to green threads. Written by the carrier, read by sysmon and inspection.
    pub switches: AtomicU64,
    /// Parks of green threads, by the kind of the wait. Written by the carrier, read by inspection.
    pub(crate) parks: [AtomicU64; WAIT_KINDS],
    /// Waits that ended by their time limit, likewise.
    pub(crate) time_outs: AtomicU64,
    /// Threads taken from other carriers.
    pub steal: AtomicU64,
    /// Searches that found nothing.
    pub steal_fail: AtomicU64,
    /// Green threads preempted here.
    pub preempt: AtomicU64,
    /// Times it went to sleep.
    pub park: AtomicU64,
    /// Thefts from this carrier since it last looked. A theft shows that waking another carrier was
    /// useful.
    pub(crate) robbed: AtomicU32,
    /// A [`Source`]: non-zero leads picks, yields and wake-ups to a slower path. Written by the
    /// carrier; sysmon sets [`Source::Timed`].
    source: AtomicU32,
    /// See [`crate::scheduling::timed`].
    pub(crate) timing: Timing,
    /// The engine that it belongs to. Set before the carrier runs; in the child of a fork, by the
    /// carrier.
    engine: AtomicPtr<Engine>,
    /// If not null, the only green thread this carrier runs.
    pub bound: AtomicPtr<Thread>,
    /// Non-zero: this kernel thread was changed for its bound thread alone, and differs from the
    /// others. Set by the carrier, or before it runs.
    pub apart: Cell<u32>,
    /// Non-zero: this kernel thread has a table of descriptors that others don't share. The
    /// runtime's rows of descriptors don't describe it. Set by the carrier, or before it runs.
    pub own_files: Cell<u32>,
    /// The arguments that the kernel reads, instead of the program's, while this carrier makes a
    /// child by `clone3`.
    pub clone_args: Cell<CloneArgs>,
    /// The address of the program's own arguments of that `clone3`, or 0, and their size.
    pub clone_at: Cell<[u64; 2]>,
    /// The flags of the child that this carrier makes: the child looks at them.
    pub clone_flags: Cell<u64>,
    /// Non-zero: its bound thread is green again once the carrier isn't apart any more. Set by the
    /// carrier; cleared under the thread's lock by a caller that wants the thread bound for good.
    pub lent: AtomicU32,
    /// Non-zero: the bound thread has ended on another carrier.
    pub(crate) retired: AtomicU32,
    /// The bound thread once it is runnable. Stored by the waker, taken by the carrier.
    pub(crate) mailbox: AtomicPtr<Thread>,
    /// CPU time accounting.
    pub(crate) slices: Slices,
    /// See [`crate::state::run_length`].
    pub(crate) run_length: crate::state::run_length::RunLength,
    /// Its ring for page waits; null for none. Written by the carrier, once.
    pub(crate) pages: AtomicPtr<crate::state::parts::pages::Own>,
    /// See [`crate::kernel_threads::filters`]. Written by the carrier.
    pub(crate) asks: AtomicU32,
    /// The kernel's alternate signal stack of this carrier: lowest address and size in bytes.
    pub signal_stack: Cell<(usize, usize)>,
    /// The lowest address of its own stack, which has [`STACK_SIZE`] bytes; null for none.
    /// Written by the carrier.
    pub(crate) stack: Cell<*mut u8>,
    /// True while its stacks are left out of forks: it hasn't forked itself. Used by the carrier
    /// alone: set before the kernel is told, cleared after.
    left_out: Cell<bool>,
    /// See [`crate::state::process::Slots`]; under that lock.
    pub(crate) next_free: Cell<u32>,
    /// True once it is in the engine's list, which it doesn't leave; under the same lock.
    pub(crate) is_listed: Cell<bool>,
    /// How many kernel threads of this carrier have ended while it was listed. Written under that
    /// lock.
    pub(crate) ends: AtomicU32,
    /// Runnable green threads.
    pub queue: RunQueue,
    /// Signals that arrived here and that aren't routed yet.
    pub arrivals: Inbox,
    pub(crate) delays: Counts,
    /// See [`crate::state::events`].
    pub(crate) events: EventRing,
    /// The stamp of its last note of queues there. Used by the carrier alone.
    pub(crate) queues_noted: Cell<u64>,
    /// See [`crate::state::samples`].
    pub(crate) samples: SampleRing,
    pub(crate) sample_wanted: Wanted,
    pub(crate) wakes: Wakes,
}

/// See [`Carrier`]: the queue's ends and the counts of arrivals are on its first page.
const _: () = assert!(core::mem::offset_of!(Carrier, arrivals) + 8 <= mem::PAGE_SIZE);

impl Carrier {
    /// For readers of the process's memory.
    pub(crate) const OFFSETS: CarrierOffsets = CarrierOffsets {
        current: offset_of!(Carrier, current) as u32,
        state: offset_of!(Carrier, state) as u32,
        handed_off: offset_of!(Carrier, handed_off) as u32,
        switches: offset_of!(Carrier, switches) as u32,
        steal: offset_of!(Carrier, steal) as u32,
        steal_fail: offset_of!(Carrier, steal_fail) as u32,
        preempt: offset_of!(Carrier, preempt) as u32,
        park: offset_of!(Carrier, park) as u32,
        events: offset_of!(Carrier, events) as u32,
        engine: offset_of!(Carrier, engine) as u32,
        bound: offset_of!(Carrier, bound) as u32,
        queue_head: (offset_of!(Carrier, queue) + RunQueue::HEAD) as u32,
        queue_tail: (offset_of!(Carrier, queue) + RunQueue::TAIL) as u32,
        queue_slot: (offset_of!(Carrier, queue) + RunQueue::SLOT) as u32,
        slice_started_ns: (offset_of!(Carrier, slices) + Slices::STARTED) as u32,
        slice_read_ns: (offset_of!(Carrier, slices) + Slices::READ) as u32,
        slice_charged_ns: (offset_of!(Carrier, slices) + Slices::CHARGED) as u32,
        wake_ups: (offset_of!(Carrier, delays) + Counts::WAKE_UPS) as u32,
        delays: (offset_of!(Carrier, delays) + Counts::DELAYS) as u32,
    };

    /// Returns the running carrier.
    ///
    /// Never cached across a switch: the assembly is volatile.
    #[inline(always)]
    pub fn current<'a>() -> &'a Carrier {
        // SAFETY: every thread that can get here has a carrier at its GS base, and carriers are
        // never freed.
        unsafe { &*raddle_arch::carrier_address() }
    }

    /// Returns the running carrier; null on a kernel thread that is no carrier.
    #[inline(always)]
    pub fn current_or_null() -> *const Carrier {
        raddle_arch::gs_base() as *const Carrier
    }

    /// Prepares zeroed memory, or the slot of a carrier that has ended.
    pub(crate) fn init(&self, id: u32, engine: &Engine) {
        self.reset(engine);
        self.set_thread(null_mut());
        while self.arrivals.pop().is_some() {}
        self.closed.store(0, Ordering::Relaxed);
        self.left_out.set(false);
        self.attention.store(0, Ordering::Relaxed);
        self.in_clock.set(0);
        self.anchor.set(0);
        self.deliver_here.set(0);
        self.child_shares.store(0, Ordering::Relaxed);
        self.watched.store(0, Ordering::Relaxed);
        self.wake_word.clear();
        self.kernel_tid.store(0, Ordering::Relaxed);
        self.slices.reset();
        self.self_ptr.set(self);
        self.id.set(id);
        self.backlog.set(Backlog::new());
    }

    /// Prepares zeroed memory as a carrier on which every call passes.
    pub fn init_raw(&self) {
        self.self_ptr.set(self);
        self.join(PROCESS.first());
        self.raw.set(1);
    }

    /// Returns the green thread on this carrier.
    ///
    /// # Panics
    /// Never on a green stack, which is where it is called.
    #[inline(always)]
    pub fn thread<'a>(&self) -> &'a Thread {
        // SAFETY: set whenever the carrier is on a green stack; threads live in type-stable memory.
        unsafe { &*self.current.load(Ordering::Relaxed) }
    }

    /// Returns the green thread on this carrier, if there is one.
    #[inline(always)]
    pub fn thread_or_none<'a>(&self) -> Option<&'a Thread> {
        // SAFETY: as above.
        unsafe { self.current.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns true if a scheduler waits for the thread on this carrier.
    pub(crate) fn runs_for_scheduler(&self) -> bool {
        let thread = self.thread_or_none();
        thread.is_some_and(|thread| !thread.scheduler_token.load(Ordering::Relaxed).is_null())
    }

    #[inline(always)]
    pub(crate) fn set_thread(&self, thread: *mut Thread) {
        self.current.store(thread, Ordering::Relaxed);
    }

    /// Returns true if sysmon wants the running thread to give way to others.
    #[inline]
    pub fn is_to_preempt(&self) -> bool {
        self.preempt_at.load(Ordering::Acquire) == self.switches.load(Ordering::Relaxed) + 1
    }

    /// Makes the running thread give way at the end of its call. On this carrier.
    pub(crate) fn preempt_here(&self) {
        let switches = self.switches.load(Ordering::Relaxed);
        self.preempt_at.store(switches + 1, Ordering::Relaxed);
        self.attention.store(1, Ordering::Relaxed);
    }

    /// Returns true if this kernel thread differs from the others of the process.
    pub fn is_apart(&self) -> bool {
        self.apart.get() != 0
    }

    /// Returns true if what is known of descriptors isn't about those of this kernel thread.
    #[inline(always)]
    pub fn has_own_files(&self) -> bool {
        self.own_files.get() != 0
    }

    /// Notes the flags of the `clone` that makes the carrier's kernel thread. The carrier is apart
    /// if its kernel thread shares less with its maker than others do. Before it runs.
    pub(crate) fn become_as(&self, flags: u64) {
        const FILES: u64 = nr::CLONE_FILES as u64;
        const SHARED: u64 = FILES | (nr::CLONE_FS | nr::CLONE_SYSVSEM) as u64;
        const INTO_CGROUP: u64 = nr::CLONE_INTO_CGROUP;
        if flags & SHARED != SHARED || flags & (CloneArgs::NAMESPACES | INTO_CGROUP) != 0 {
            self.apart.set(1);
        }
        if flags & FILES == 0 {
            self.own_files.set(1);
        }
    }

    /// Returns the carrier's activity.
    pub fn state(&self) -> CarrierState {
        match self.state.load(Ordering::Relaxed) {
            1 => CarrierState::Idle,
            2 => CarrierState::Polling,
            3 => CarrierState::Ended,
            _ => CarrierState::Running,
        }
    }

    /// The engine that it belongs to.
    #[inline(always)]
    pub fn engine(&self) -> &'static Engine {
        // SAFETY: `init` or `init_raw` has set it, and engines are parts of a static.
        unsafe { &*self.engine.load(Ordering::Relaxed) }
    }

    /// Makes the carrier one of this engine's. Before it runs, and in the child of a fork.
    fn join(&self, engine: &Engine) {
        let engine = core::ptr::from_ref(engine).cast_mut();
        self.engine.store(engine, Ordering::Relaxed);
    }

    /// Returns true if a pick, a yield or a wake-up on this carrier must look at its source.
    #[inline(always)]
    pub(crate) fn takes_detour(&self) -> bool {
        self.source.load(Ordering::Relaxed) != Source::Own as u32
    }

    /// Returns true if threads that become runnable here go to this carrier's queue.
    #[inline(always)]
    pub(crate) fn has_queue(&self) -> bool {
        self.source.load(Ordering::Relaxed) <= Source::Timed as u32
    }

    /// See [`crate::scheduling::timed`]. A carrier without a queue is not timed.
    #[inline(always)]
    pub(crate) fn is_timed(&self) -> bool {
        self.source.load(Ordering::Relaxed) == Source::Timed as u32
    }

    /// Changes the carrier's source. On this carrier, or before it runs.
    pub(crate) fn set_source(&self, source: Source) {
        self.source.store(source as u32, Ordering::Relaxed);
    }

    fn change_source(&self, from: Source, to: Source) -> bool {
        let relaxed = Ordering::Relaxed;
        self.source
            .compare_exchange(from as u32, to as u32, relaxed, relaxed)
            .is_ok()
    }

    /// Returns true if the carrier is timed now and was not before.
    pub(crate) fn set_timed(&self) -> bool {
        self.change_source(Source::Own, Source::Timed)
    }

    /// Ends the carrier's accounts of CPU time. On this carrier.
    pub(crate) fn end_timing(&self) {
        self.timing.end();
        self.change_source(Source::Timed, Source::Own);
    }

    pub(crate) fn set_state(&self, state: CarrierState) {
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// Returns a random number below 2^16: the high bits of Knuth's linear congruential generator.
    #[inline(always)]
    pub(crate) fn draw(&self) -> u32 {
        let dice = self.dice.get();
        let dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.dice.set(dice);
        dice >> 16
    }

    /// Adds one to a counter that only this carrier writes.
    #[inline(always)]
    pub(crate) fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts that `thread` parks on this carrier.
    #[inline(always)]
    pub(crate) fn count_park(&self, thread: &Thread) {
        Self::count(&thread.park);
        let kind = thread.wait_kind.load(Ordering::Relaxed) as usize;
        Self::count(&self.parks[kind % WAIT_KINDS]);
    }

    /// Leaves the carrier's stacks out of forks until the carrier forks itself: a fork takes longer
    /// with each mapping. On this carrier. The first kernel thread keeps its stacks in: it forks in
    /// programs that know nothing of the runtime, too.
    pub(crate) fn leave_stacks_out(&self) {
        self.left_out.set(true);
        // SAFETY: the child of a fork has no carrier but the one that forked.
        self.each_stack(|at, len| unsafe { mem::leave_out_of_forks(at, len) });
    }

    /// Takes the carrier's stacks along into the fork that the carrier is about to make.
    #[inline]
    pub fn take_stacks_along(&self) {
        if self.left_out.get() {
            // SAFETY: the stacks are the carrier's.
            self.each_stack(|at, len| unsafe { mem::take_to_forks(at, len) });
            self.left_out.set(false);
        }
    }

    fn each_stack(&self, act: impl Fn(*mut u8, usize)) {
        let (base, size) = self.signal_stack.get();
        for (at, len) in [
            (self.stack.get(), STACK_SIZE),
            (with_exposed_provenance_mut(base), size),
        ] {
            if !at.is_null() {
                act(at, len);
            }
        }
    }

    /// As [`Carrier::take_stacks`], in the child of another carrier's fork: without those that were
    /// left out.
    pub(crate) fn take_forked_stacks(&self) -> [(*mut u8, usize); 2] {
        let stacks = self.take_stacks();
        if self.left_out.take() {
            [(null_mut(), 0); 2]
        } else {
            stacks
        }
    }

    /// Takes the memory that its kernel thread runs on: lowest addresses and sizes in bytes.
    pub(crate) fn take_stacks(&self) -> [(*mut u8, usize); 2] {
        let own = self.stack.replace(null_mut());
        let (base, size) = self.signal_stack.take();
        [(own, STACK_SIZE), (with_exposed_provenance_mut(base), size)]
    }

    /// Forgets everything but identity, and joins `engine`: in the child of a fork, and when a slot
    /// is used again.
    pub(crate) fn reset(&self, engine: &Engine) {
        #[rustfmt::skip]
        let Self {
            queue, next, exiting, raw, apart, own_files, clone_at, lent, preempt_at, quantum_timer,
            handed_off, bound, timing, mailbox, retired,
            source: _, engine: _, // by functions below
            // Identity, and what its kernel thread runs on:
            self_ptr: _, id: _, kernel_tid: _, current: _, scheduler: _, scheduler_on_cpu: _,
            signal_stack: _, stack: _, left_out: _, next_free: _, is_listed: _, ends: _,
            // The user-mode kernel's reset of signals, and `init`:
            arrivals: _, closed: _, attention: _, deliver_here: _, child_shares: _, roused: _,
            // Zero in a thread that forks, which is outside of such calls; `init`:
            in_clock: _, plugin_call: _, abandon: _, anchor: _, clone_args: _, clone_flags: _,
            // `fork::in_child` and `fork::settle`:
            slices: _, pages: _, delays: _,
            // `events::in_child`; a slot that is used again goes on with its rings:
            events: _, queues_noted: _, samples: _, sample_wanted: _,
            wakes: _,
            // What is stale here costs a closer look, or a wake-up that is not needed:
            state: _, wake_word: _, watched: _, robbed: _, asks: _, watch: _,
            // Counts and clocks that go on:
            picks: _, dice: _, backlog: _, now_ns: _, looked: _, yields_from_ns: _, calls: _,
            calls_seen: _, answers_looked: _, answers_seen: _, vain_looks: _,
            switches: _, parks: _, time_outs: _, steal: _, steal_fail: _, preempt: _, park: _,
            run_length: _,
        } = self;
        while queue.take_lifo().is_some() || queue.pop_ring().is_some() {}
        for thread in [next, exiting] {
            thread.set(null_mut());
        }
        for flag in [raw, apart, own_files] {
            flag.set(0);
        }
        clone_at.set([0; 2]);
        for word in [lent, handed_off, retired] {
            word.store(0, Ordering::Relaxed);
        }
        preempt_at.store(0, Ordering::Relaxed);
        quantum_timer.reset();
        for thread in [bound, mailbox] {
            thread.store(null_mut(), Ordering::Relaxed);
        }
        self.set_source(engine.source());
        timing.reset();
        self.join(engine);
    }
}
