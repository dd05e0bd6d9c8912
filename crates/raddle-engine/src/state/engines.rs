//! The engines of the process: the default one, and further ones that rules of `--share` and
//! programs make.
//!
//! A thread goes to its engine's queue whenever it becomes runnable, and that engine's carriers
//! alone take it from there. The carriers of a further engine are made when the engine gets its
//! first thread, by the carrier that makes that thread; until then, and in the child of a fork, its
//! threads are the default engine's. The next engine in the same place takes them over.

use crate::os::kernel_calls;
use crate::state::accounting;
use crate::state::carrier::Carrier;
use crate::state::engine::{Engine, Plan};
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sched::SpinLock;
use raddle_sched::policies::Kind;

/// Engines, the default one (0) included.
pub const ENGINES: usize = 64;
/// Engines 1 up to this one belong to the rules of `--share`.
pub const RULED: usize = 15;
/// The most carriers of all further engines together.
pub(crate) const MAX_FURTHER: u32 = 256;

/// See the module. `repr(C)`: see [`Engine`].
#[repr(C)]
pub struct Engines {
    /// The engines in use have numbers below this one, or 0 if there is the default one alone.
    below: AtomicU32,
    /// Guards which are in use ([`Engine::wanted`]).
    choice: SpinLock<()>,
    /// The default engine.
    pub(crate) first: Engine,
    further: [Engine; ENGINES - 1],
}

impl Engines {
    /// Bytes of what the child of a fork writes to.
    pub(crate) const WORDS_SIZE: usize = core::mem::offset_of!(Self, first) + Engine::WORDS_SIZE;

    pub(crate) const fn new() -> Self {
        Self {
            below: AtomicU32::new(0),
            choice: SpinLock::new(()),
            first: Engine::new(),
            further: [const { Engine::new() }; ENGINES - 1],
        }
    }

    /// The further engine with this number, in use or not.
    fn further(&self, number: u32) -> Option<&Engine> {
        self.further.get((number as usize).checked_sub(1)?)
    }

    /// A further engine that is in use.
    pub fn get(&self, number: u32) -> Option<&Engine> {
        self.further(number).filter(|engine| engine.wanted() != 0)
    }

    /// The further engines in use.
    pub fn each_further(&self) -> impl Iterator<Item = &Engine> {
        (1..self.below.load(Ordering::Relaxed)).filter_map(|number| self.get(number))
    }

    /// The engines in use.
    pub fn each(&self) -> impl Iterator<Item = &Engine> {
        core::iter::once(&self.first).chain(self.each_further())
    }

    /// The engine that queues the threads of this one: the default one if it has no carriers.
    #[inline(always)]
    pub(crate) fn of(&self, number: u32) -> &Engine {
        match number {
            0 => &self.first,
            _ => self.of_further(number),
        }
    }

    fn of_further(&self, number: u32) -> &Engine {
        let engine = self.further(number);
        let has_carriers = |engine: &&Engine| engine.made.load(Ordering::Relaxed) != 0;
        engine.filter(has_carriers).unwrap_or(&self.first)
    }

    /// CPU time that the carriers of engine `number` have used so far.
    pub fn cpu_ns(&self, number: u32) -> u64 {
        let own = PROCESS
            .carriers()
            .filter(|carrier| carrier.engine().number() == number);
        own.map(|carrier| kernel_calls::cpu_ns(carrier.kernel_tid.load(Ordering::Relaxed)))
            .sum()
    }

    /// Makes further engine `number` what `plan` says; at start-up.
    pub fn set(&self, number: u32, plan: Plan) {
        if let Some(engine) = self.further(number) {
            engine.set(number, plan);
            self.below.fetch_max(number + 1, Ordering::Relaxed);
        }
    }

    /// A new engine; `None` if there are too many.
    pub fn open(&self, plan: Plan) -> Option<u32> {
        let _choice = self.choice.lock();
        let is_free = |number: &u32| {
            let engine = self.further(*number);
            engine.is_some_and(|engine| engine.is_open.load(Ordering::Relaxed) == 0)
        };
        let number = (RULED as u32 + 1..ENGINES as u32).find(is_free)?;
        self.set(number, plan);
        self.further(number)?.is_open.store(1, Ordering::Relaxed);
        Some(number)
    }

    /// The engine that was opened gets no more threads. Those that are about to end do so on its
    /// carriers, even if another engine has them by then.
    pub fn close(&self, number: u32) {
        let _choice = self.choice.lock();
        if let Some(engine) = self.get(number).filter(|_| number as usize > RULED) {
            engine.set_quota(0);
            engine.is_open.store(0, Ordering::Relaxed);
        }
    }

    /// Gives `thread` to engine `number`, if that has carriers or gets some, or to the default one
    /// (0). In a call, on a carrier.
    pub fn assign(&self, thread: &Thread, number: u32) {
        if thread.engine_number() == number {
            return;
        }
        if number != 0 {
            let Some(engine) = self.get(number).filter(|engine| engine.is_manned()) else {
                return;
            };
            if engine.kind() == Kind::Fair as u32 {
                accounting::switch_on();
            }
        }
        thread.set_engine(number);
        let carrier = Carrier::current();
        if core::ptr::eq(carrier.thread(), thread) {
            carrier.preempt_here();
        }
    }

    /// Returns true if further engines may have one more carrier.
    pub(crate) fn may_make(&self) -> bool {
        let made = |engine: &Engine| engine.made.load(Ordering::Relaxed);
        self.each_further().map(made).sum::<u32>() < MAX_FURTHER
    }

    /// In the child of a fork: no engine has carriers or runnable threads.
    ///
    /// # Safety
    /// Before a second thread exists.
    pub(crate) unsafe fn reset(&self) {
        let Self {
            choice,
            below: _,
            first: _, // `each`
            further: _,
        } = self;
        // SAFETY: the caller's promise.
        unsafe {
            choice.break_lock();
            self.each().for_each(|engine| engine.reset());
        }
    }
}
