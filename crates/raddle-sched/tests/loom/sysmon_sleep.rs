//! Sysmon's sleep without a timeout: a carrier that awakes and may make a thread, a handler that
//! records a signal, and a second carrier.
//!
//! At the end sysmon must be awake, or be about to be woken, if a carrier runs and a look is
//! needed.

use super::explore;

use Flaw::{
    AsksForThreads, BringsNothing, LooksFirst, None, PublishesLate, TakesNot, WeakCarrier,
    WeakMaker, WeakSysmon,
};
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering, fence};
use raddle_sched::wake::SysmonSleep;
use std::sync::Arc;

/// What a twin does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// Sysmon says how it sleeps after its last look.
    LooksFirst,
    /// Sysmon makes no fence.
    WeakSysmon,
    /// A maker of threads makes no fence.
    WeakMaker,
    /// A carrier that awakes makes no fence.
    WeakCarrier,
    /// A maker looks at sysmon before it counts the thread.
    PublishesLate,
    /// A poster that finds sysmon asleep doesn't wake it.
    TakesNot,
    /// A carrier wakes sysmon only if two threads live, however sysmon sleeps.
    AsksForThreads,
    /// A carrier that awakes says nothing of the files that its ring holds open.
    BringsNothing,
}

/// What happens beside sysmon.
#[derive(Clone, Copy)]
enum Story {
    /// The only thread, which runs, makes a second one, and a carrier runs that.
    SecondThread,
    /// A handler records a signal for the only thread, which runs.
    Signal,
    /// The only thread's carrier awakes. A policy is in force, so that carriers need looks.
    Policy,
    /// The only thread's carrier awakes, and its ring holds files open.
    OpenFiles,
    /// The only thread's carrier awakes.
    Nothing,
}

struct World {
    sleep: SysmonSleep,
    /// For twins: the same without its fences.
    bare: AtomicU32,
    /// Sysmon's descriptor.
    descriptor: AtomicU32,
    live: AtomicU32,
    signals: AtomicU32,
    runs: [AtomicU32; 2],
    has_policy: bool,
    has_open_files: bool,
    flaw: Flaw,
}

impl World {
    fn new(story: Story, flaw: Flaw) -> Self {
        let runs = matches!(story, Story::SecondThread | Story::Signal);
        Self {
            sleep: SysmonSleep::new(),
            bare: AtomicU32::new(0),
            descriptor: AtomicU32::new(0),
            live: AtomicU32::new(1),
            signals: AtomicU32::new(0),
            runs: [AtomicU32::new(u32::from(runs)), AtomicU32::new(0)],
            has_policy: matches!(story, Story::Policy),
            has_open_files: matches!(story, Story::OpenFiles),
            flaw,
        }
    }

    fn runs(&self, carrier: usize) -> bool {
        self.runs[carrier].load(Ordering::Relaxed) != 0
    }

    fn any_runs(&self) -> bool {
        self.runs(0) || self.runs(1)
    }

    fn is_needed(&self) -> bool {
        let of_runner = self.signals.load(Ordering::Relaxed) != 0 || self.has_open_files;
        self.live.load(Ordering::Relaxed) != 1 || self.has_policy || self.runs(0) && of_runner
    }

    /// One look of sysmon. Returns true if sysmon sleeps.
    fn sysmon(&self) -> bool {
        let is_idle = || !self.any_runs();
        match self.flaw {
            LooksFirst => {
                let sleeps = !self.is_needed();
                sleeps && self.sleep.begins_beside_one(|| false)
            }
            WeakSysmon => {
                let begins = |how, may_sleep: &dyn Fn() -> bool| {
                    self.bare.store(how, Ordering::Release);
                    may_sleep()
                };
                begins(2, &|| !self.is_needed()) || begins(1, &is_idle)
            }
            _ => {
                self.sleep.begins_beside_one(|| self.is_needed())
                    || self.sleep.begins_while_idle(is_idle)
            }
        }
    }

    fn wake(&self, is_asleep: bool) {
        if is_asleep && self.flaw != TakesNot {
            self.descriptor.store(1, Ordering::Release);
        }
    }

    /// The poster's look, and what follows from it.
    fn post(&self) {
        match self.flaw {
            WeakSysmon => self.wake(self.bare.load(Ordering::SeqCst) != 0),
            WeakMaker => self.wake(self.bare_look()),
            _ => self.wake(self.sleep.is_ended_by_need()),
        }
    }

    /// A look at sysmon without a fence, which is an access of a weaker order in the model.
    fn bare_look(&self) -> bool {
        // SAFETY: `repr(transparent)`.
        let word = unsafe { &*(&raw const self.sleep).cast::<AtomicU32>() };
        word.load(Ordering::Acquire) != 0
    }

    fn make_thread(&self) {
        if self.flaw == PublishesLate {
            self.post();
            self.live.fetch_add(1, Ordering::Relaxed);
        } else {
            self.live.fetch_add(1, Ordering::Relaxed);
            self.post();
        }
    }

    fn record_signal(&self) {
        self.signals.store(1, Ordering::Relaxed);
        self.post();
    }

    fn awake(&self, carrier: usize) {
        self.runs[carrier].store(1, Ordering::Relaxed);
        let brings_need = || self.has_open_files && self.flaw != BringsNothing;
        let ends = match self.flaw {
            WeakSysmon => self.bare.load(Ordering::SeqCst) != 0,
            WeakCarrier => self.bare_look(),
            AsksForThreads => {
                fence(Ordering::SeqCst);
                self.bare_look() && self.live.load(Ordering::Relaxed) != 1
            }
            _ => self.sleep.is_ended_by_carrier(brings_need),
        };
        self.wake(ends);
    }
}

fn sleep_beside(story: Story, preemptions: usize, flaw: Flaw) {
    explore(preemptions, move || {
        let world = Arc::new(World::new(story, flaw));
        let there = world.clone();
        let sysmon = thread::spawn(move || there.sysmon());
        let there = world.clone();
        let other = thread::spawn(move || match story {
            Story::SecondThread => there.awake(1),
            Story::Signal => there.record_signal(),
            Story::Policy | Story::OpenFiles | Story::Nothing => there.awake(0),
        });
        if matches!(story, Story::SecondThread) {
            world.make_thread();
        }
        other.join().unwrap();
        let sleeps = sysmon.join().unwrap() && world.descriptor.load(Ordering::Acquire) == 0;
        let is_needed = world.any_runs() && world.is_needed();
        assert!(!sleeps || !is_needed, "sysmon sleeps, and a look is needed");
    });
}

#[test]
fn sysmon_never_sleeps_while_a_look_is_needed() {
    sleep_beside(Story::SecondThread, 4, None);
    sleep_beside(Story::Signal, 4, None);
    sleep_beside(Story::Policy, 4, None);
    sleep_beside(Story::OpenFiles, 4, None);
}

/// The other half of the rule: beside a single thread a carrier may awake without a wake-up.
#[test]
fn sysmon_sleeps_on_beside_a_single_thread() {
    explore(4, || {
        let world = Arc::new(World::new(Story::Nothing, None));
        let there = world.clone();
        let sysmon = thread::spawn(move || there.sysmon());
        world.awake(0);
        assert!(sysmon.join().unwrap());
        assert_eq!(world.descriptor.load(Ordering::Acquire), 0, "woken in vain");
    });
}

macro_rules! twins {
    ($($name:ident: $story:ident, $flaw:expr;)+) => {
        $(
            #[test]
            #[should_panic(expected = "sysmon sleeps, and a look is needed")]
            fn $name() {
                sleep_beside(Story::$story, 4, $flaw);
            }
        )+
    };
}

twins! {
    sysmon_that_looks_first_is_caught: SecondThread, LooksFirst;
    sysmon_that_looks_for_signals_first_is_caught: Signal, LooksFirst;
    sysmon_without_a_fence_is_caught: SecondThread, WeakSysmon;
    sysmon_without_a_fence_beside_a_policy_is_caught: Policy, WeakSysmon;
    a_maker_without_a_fence_is_caught: SecondThread, WeakMaker;
    a_handler_without_a_fence_is_caught: Signal, WeakMaker;
    a_carrier_without_a_fence_is_caught: Policy, WeakCarrier;
    a_thread_that_is_counted_late_is_caught: SecondThread, PublishesLate;
    a_sleep_that_is_seen_and_not_ended_is_caught: Signal, TakesNot;
    a_carrier_that_asks_for_threads_is_caught: Policy, AsksForThreads;
    a_carrier_that_brings_open_files_unsaid_is_caught: OpenFiles, BringsNothing;
}
