//! The engine: queues, carriers, a policy and settings. It decides which of its threads runs next,
//! and on which of its carriers.
//!
//! The *default* engine, the first of the [process](crate::state::process), gets the main thread
//! and all threads that no rule and no call gives to another one. It differs from *further* engines
//! in four rules, each in one place:
//!
//! | question | default engine | further engine |
//! |---|---|---|
//! | [`Engine::has_one_queue`] | under a policy; under fifo its carriers have queues | yes |
//! | [`Engine::has_poller`] | an idle carrier waits in the pump | no |
//! | [`Engine::enlist`]: is a new carrier spare | yes | once there are as many as it wants |
//! | [`Engine::spare_ns`]: do spare carriers end | yes, but for some | no |
//!
//! What belongs to all threads is the [process](crate::state::process)'s: the table of threads,
//! futexes, timers, the event pump and sysmon. So a thread of one engine waits for one of another
//! as for any.
//!
//! A *posted* thread waits for whichever carrier of its engine comes first. A carrier that runs
//! takes posted threads now and then, one that sleeps is woken by the poster
//! ([`crate::scheduling::idle`]).

use crate::os::cpus;
use crate::state::carrier::{Carrier, Source};
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_inspect::EngineOffsets;
use raddle_sched::Injector;
use raddle_sched::count::CarrierCount;
use raddle_sched::idle::IdleSet;
use raddle_sched::policies::Kind;
use raddle_sched::share::{AheadQueue, FairClock, JointAccount};

/// See the module.
///
/// `repr(C)`: what the child of a fork writes to comes first ([`crate::state::process::Process`]).
/// Aligned, because carriers read its words at each push, and the pump's are written at each wait.
/// Zero bytes are an engine without carriers, under fifo.
#[repr(C, align(64))]
pub struct Engine {
    /// Its carriers. Listed and ended under the slots' lock.
    pub(crate) count: CarrierCount,
    /// Carriers with a kernel thread, and those that are being made.
    pub(crate) made: AtomicU32,
    /// 1 while a spare carrier is being made.
    pub(crate) making_spare: AtomicU32,
    /// Carriers beside the wanted ones, while other processes want the CPUs. Written by sysmon.
    pub(crate) extra: AtomicU32,
    /// 1 while the engine has used its quota up. Written by sysmon; SeqCst, a part of what there is
    /// to do.
    held: AtomicU32,
    /// Carriers that may be active; 0 for a further engine that isn't in use.
    pub(crate) wanted: AtomicU32,
    /// The policy, a [`Kind`]. Written when the engine is made or its policy is changed.
    pub(crate) kind: AtomicU32,
    /// Percent of one CPU that it may use; 0 for all. Read by sysmon.
    quota: AtomicU32,
    /// Its place among the engines; 0 for the default one. Written before it gets a carrier.
    number: AtomicU32,
    /// 1 while a program has it. Under the lock of [`crate::state::engines::Engines`].
    pub(crate) is_open: AtomicU32,
    /// What each runnable thread is entitled to, if the carriers have queues.
    pub fair_clock: FairClock,
    /// What compiler threads have used together.
    pub(crate) compilers: JointAccount,
    /// Runnable threads that have used more than their share.
    pub ahead: AheadQueue,
    /// Carriers asleep on their wake word.
    pub(crate) idle: IdleSet,
    /// Carriers beyond what is allowed, asleep until one that runs blocks in the kernel.
    pub(crate) spares: IdleSet,
    /// Threads that any of its carriers may take, in the order of the policy.
    pub queue: Injector,
    /// Threads that only a carrier can give to the policy, which is a plug-in.
    pub(crate) staged: Injector,
}

impl Engine {
    /// Bytes of what the child of a fork writes to.
    pub(crate) const WORDS_SIZE: usize = offset_of!(Self, queue);

    /// For readers of the process's memory.
    pub(crate) const OFFSETS: EngineOffsets = EngineOffsets {
        number: offset_of!(Self, number) as u32,
        wanted: offset_of!(Self, wanted) as u32,
        extra: offset_of!(Self, extra) as u32,
        policy: offset_of!(Self, kind) as u32,
        quota: offset_of!(Self, quota) as u32,
        queue_len: (offset_of!(Self, queue) + Injector::LEN) as u32,
        ahead_len: (offset_of!(Self, ahead) + AheadQueue::LEN) as u32,
        spares: (offset_of!(Self, spares) + IdleSet::BITS) as u32,
    };

    pub(crate) const fn new() -> Self {
        Self {
            count: CarrierCount::new(),
            made: AtomicU32::new(0),
            making_spare: AtomicU32::new(0),
            extra: AtomicU32::new(0),
            held: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            kind: AtomicU32::new(0),
            quota: AtomicU32::new(0),
            number: AtomicU32::new(0),
            is_open: AtomicU32::new(0),
            fair_clock: FairClock::new(),
            compilers: JointAccount::new(),
            ahead: AheadQueue::new(),
            idle: IdleSet::new(),
            spares: IdleSet::new(),
            queue: Injector::new(),
            staged: Injector::new(),
        }
    }

    /// Its place among the engines; 0 for the default one.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Returns true for the default engine.
    #[inline(always)]
    pub(crate) fn is_first(&self) -> bool {
        core::ptr::eq(self, PROCESS.first())
    }

    /// Returns true if all runnable threads wait in the engine's queue; false if its carriers have
    /// queues of their own, and share them by stealing.
    #[inline(always)]
    pub(crate) fn has_one_queue(&self) -> bool {
        !self.is_first() || self.has_policy()
    }

    /// Where its carriers find threads, those of bound threads apart.
    pub(crate) fn source(&self) -> Source {
        if self.has_one_queue() {
            Source::Engine
        } else {
            Source::Own
        }
    }

    /// Returns true if one of its carriers waits in the event pump.
    pub(crate) fn has_poller(&self) -> bool {
        self.is_first() && PROCESS.poller.load(Ordering::SeqCst) != 0
    }

    /// Returns true if one of its carriers should wait in the event pump, and none does.
    pub(crate) fn lacks_poller(&self) -> bool {
        self.is_first() && PROCESS.poller.load(Ordering::SeqCst) == 0
    }

    /// Percent of one CPU that its threads may use together; 0 for as much as there is.
    pub fn quota(&self) -> u32 {
        self.quota.load(Ordering::Relaxed)
    }

    /// Changes the quota. Sysmon goes by it from its next look on.
    pub fn set_quota(&self, percent: u32) {
        self.quota.store(percent, Ordering::Relaxed);
    }

    /// Makes it engine `number`, as `plan` says.
    pub(crate) fn set(&self, number: u32, plan: Plan) {
        self.number.store(number, Ordering::Relaxed);
        while !self.choose_policy(plan.kind) {
            raddle_arch::pause();
        }
        self.set_quota(plan.quota);
        self.wanted.store(plan.carriers(), Ordering::Relaxed);
    }

    /// Returns true while the quota is used up: no carrier picks a thread.
    #[inline(always)]
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::SeqCst) != 0
    }

    /// Sysmon's: holds the engine, or lets it go on.
    pub(crate) fn hold(&self, is_held: bool) {
        if self.held.swap(u32::from(is_held), Ordering::SeqCst) != 0 && !is_held {
            for _ in 0..self.posted() {
                if !self.wake_one() {
                    break;
                }
            }
        }
    }

    /// Its carriers that are listed.
    pub fn carriers(&self) -> impl Iterator<Item = &Carrier> {
        PROCESS
            .carriers()
            .filter(|carrier| core::ptr::eq(carrier.engine(), self))
    }

    /// How many carriers are listed, those that have ended included.
    #[inline(always)]
    pub fn up(&self) -> u32 {
        self.count.listed()
    }

    /// In the child of a fork: without carriers and runnable threads.
    ///
    /// # Safety
    /// Before a second thread exists.
    pub(crate) unsafe fn reset(&self) {
        let Self {
            count,
            made,
            making_spare,
            extra,
            held,
            ahead,
            idle,
            spares,
            queue,
            staged,
            // Settings, which the child has as well:
            wanted: _,
            kind: _,
            quota: _,
            number: _,
            is_open: _,
            // The same clock:
            fair_clock: _,
            compilers: _,
        } = self;
        count.reset(0);
        for word in [made, making_spare, extra, held] {
            word.store(0, Ordering::Relaxed);
        }
        idle.reset();
        spares.reset();
        // SAFETY: the caller's promise.
        unsafe {
            ahead.reset();
            queue.reset();
            staged.reset();
        }
    }
}

/// What a further engine is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kind: Kind,
    /// 0 for as many as its quota is worth, or as CPUs may be used.
    pub carriers: u32,
    /// Percent of one CPU; 0 for all.
    pub quota: u32,
}

/// The most carriers of a further engine.
pub const MAX_PLANNED: u32 = raddle_inspect::settings::ENGINE_CARRIERS_MAX;

impl Plan {
    fn carriers(&self) -> u32 {
        let carriers = match (self.carriers, self.quota) {
            (0, 0) => cpus::allowed(),
            (0, percent) => percent.div_ceil(100).min(cpus::allowed()),
            (carriers, _) => carriers,
        };
        carriers.clamp(1, MAX_PLANNED)
    }
}

impl Carrier {
    /// Returns true if another engine queues `thread`, which this carrier runs.
    pub(crate) fn is_strange_to(&self, thread: &Thread) -> bool {
        !core::ptr::eq(thread.engine(), self.engine()) && !self.is_bound()
    }

    /// Returns true if this carrier should let go of `thread`, which it runs, for others.
    pub(crate) fn is_wanted(&self, thread: &Thread) -> bool {
        self.is_awaited() || self.is_strange_to(thread)
    }

    /// Returns true if threads wait for this carrier, or its engine is held.
    pub(crate) fn is_awaited(&self) -> bool {
        let engine = self.engine();
        !self.queue.is_empty() || engine.has_posted() || engine.is_held()
    }
}
