//! Signals of threads and of the process: their queues, and their way from thread to thread.
//!
//! The models run the code of [`raddle_sched::routes`] and [`raddle_sched::queues`]. The
//! surroundings are a [`World`]: threads that note what they take, and notices that make a thread
//! look at its signals later. When the model's threads have finished, each thread that was told to
//! looks. Then [`World::judge`] asserts that no signal is lost and none is taken twice.
//!
//! A twin is a [`View`] with one method of the protocol weakened.

mod descriptors;
mod order;
mod passing;
mod queues;
mod waits;

use crate::explore;
use loom::thread;
use raddle_sched::held::HeldSignals;
use raddle_sched::queues::{CommonSignals, PendingSignals, Records};
use raddle_sched::records::{Addressee, Details, Form, Pool};
use raddle_sched::routes::{Receiver, Routes};
use raddle_sched::sync::{AtomicU32, Ordering};
use raddle_sched::{SpinLock, Task, TaskRef, WaitNode, WaitTable, Wake};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A signal that merges while it pends, and one that is queued in order.
const USR1: u32 = 10;
const RT: u32 = 34;

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The details of a signal: its number, and a value.
struct Values;

type Value = (u32, u32);

impl Details for Values {
    type Info = Value;

    const UNUSED: Value = (0, 0);

    fn signal(info: &Value) -> u32 {
        info.0
    }

    fn form(info: &Value) -> Form {
        if info.0 < 32 { Form::Once } else { Form::Each }
    }

    fn add_expiry(_: &mut Value, _: &Value) -> bool {
        false
    }

    fn without_record(signal: u32) -> Value {
        panic!("no record of {signal}")
    }
}

/// A thread of the model.
struct Thread {
    signals: PendingSignals,
    task: Task,
    /// Its node for waits on one word, and the table of these.
    node: WaitNode,
    table: WaitTable<1>,
    /// 1 while it lives.
    life: AtomicU32,
    /// True if it looks at its signals later. No part of the protocol: looks come after the model.
    is_told: AtomicBool,
    /// True if its carrier was interrupted: the thread looks if it still runs.
    is_interrupted: AtomicBool,
    /// What it has taken, in order.
    taken: Mutex<Vec<Value>>,
}

impl Thread {
    /// A thread that runs.
    fn new() -> Self {
        let task = Task::new();
        task.on_cpu.store(1, Ordering::Relaxed);
        Self {
            signals: PendingSignals::new(),
            task,
            node: WaitNode::new(),
            table: WaitTable::new(),
            life: AtomicU32::new(1),
            is_told: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
            taken: Mutex::default(),
        }
    }

    /// Returns what it accepts.
    fn accepted(&self) -> u64 {
        let awaited = self.signals.awaited.load(Ordering::Relaxed);
        !self.signals.mask.load(Ordering::Relaxed) | awaited
    }

    /// Takes what the thread accepts.
    fn look(&self, view: &impl Model) {
        loop {
            let pending = self.signals.pending.load(Ordering::SeqCst) | view.common().pending();
            let due = pending & self.accepted();
            let Some(info) = (due != 0).then(|| view.take(self, due)).flatten() else {
                return;
            };
            self.taken.lock().unwrap().push(info);
        }
    }

    /// Changes the mask, as `sigprocmask` does.
    fn set_mask(&self, view: &impl Model, mask: u64) {
        view.set_mask(self, mask);
        self.look(view);
    }

    fn task_ref(&self) -> TaskRef {
        // SAFETY: the thread lives as long as the world, of which no task outlives it.
        unsafe { TaskRef::new(NonNull::from(&self.task)) }
    }

    /// Ends.
    fn end(&self, view: &impl Model) {
        view.end(self);
        self.signals.drop_pending(view.records());
    }

    fn values(&self) -> Vec<u32> {
        self.taken.lock().unwrap().iter().map(|it| it.1).collect()
    }
}

impl Receiver for Thread {
    fn signals(&self) -> &PendingSignals {
        &self.signals
    }

    fn task(&self) -> &Task {
        &self.task
    }

    fn is_live(&self) -> bool {
        self.life.load(Ordering::SeqCst) != 0
    }

    fn set_exiting(&self) {
        self.life.store(0, Ordering::SeqCst);
    }

    fn claim(&self, why: Wake) -> bool {
        // SAFETY: the task has one node, and one table.
        let queued = || unsafe { self.table.claim(&self.node, self.task_ref(), why) };
        self.task.claim(why) || queued()
    }
}

/// What the kernel does for descriptors that read signals. Each thread has a carrier, and so have
/// the signals from outside.
#[derive(Default)]
struct Kernel {
    held: HeldSignals,
    pending: Mutex<Vec<Value>>,
    /// The carriers' masks; the last is that of signals from outside.
    masks: [std::sync::atomic::AtomicU64; 3],
    /// True if carriers are to set their masks anew.
    is_told: AtomicBool,
}

impl Kernel {
    fn mask(&self, of: Option<usize>) -> &std::sync::atomic::AtomicU64 {
        &self.masks[of.unwrap_or(2)]
    }

    /// Makes a carrier block what is held.
    fn set_mask(&self, of: Option<usize>) {
        self.mask(of).store(self.held.mask(), SeqCst);
    }

    /// Delivers what a carrier doesn't block. Returns true if that was something.
    fn deliver(&self, view: &impl Routes<Details = Values>, to: Option<usize>) -> bool {
        let mask = self.mask(to).load(SeqCst);
        let open = |it: &Value| mask & bit(it.0) == 0;
        let mut pending = self.pending.lock().unwrap();
        let at = pending.iter().position(open);
        let info = at.map(|at| pending.remove(at));
        drop(pending);
        info.inspect(|info| view.to_process(info, None)).is_some()
    }

    /// Lets the carriers set their masks anew if they were told to, and delivers what they don't
    /// block, until there is nothing left.
    fn settle<V: Model>(&self, world: Ref) {
        let carriers = || (0..world.threads.len()).map(Some).chain([None]);
        loop {
            if self.is_told.swap(false, SeqCst) {
                carriers().for_each(|carrier| self.set_mask(carrier));
            }
            if !carriers().any(|carrier| self.deliver(&V::of(world, carrier), carrier)) {
                return;
            }
        }
    }
}

/// The process of a model.
struct World {
    records: Records<Values>,
    common: CommonSignals,
    kernel: Kernel,
    /// The first is the main thread.
    threads: Vec<Thread>,
    /// True if sysmon looks at the threads that run, after the model.
    is_sysmon_awake: AtomicBool,
}

/// A reference to a world, as long as a model's run.
type Ref = &'static World;

impl World {
    /// Returns what the thread at this place sees.
    fn of(&'static self, at: usize) -> Sound {
        Sound(self, Some(at))
    }

    /// Lets each thread that was told to look at its signals do so; as often as it was told.
    fn settle<V: Model>(&'static self) {
        self.kernel.settle::<V>(self);
        let is_due = |it: &Thread| {
            let runs = it.task.on_cpu.load(Ordering::Relaxed) != 0;
            let is_seen = self.is_sysmon_awake.load(SeqCst) && it.signals.deliverable() != 0;
            let is_told = it.is_told.swap(false, SeqCst);
            let is_stopped = it.is_interrupted.swap(false, SeqCst) || is_seen;
            it.is_live() && (is_told || runs && is_stopped)
        };
        while let Some(at) = self.threads.iter().position(is_due) {
            self.threads[at].look(&V::of(self, Some(at)));
        }
    }

    /// Asserts that each value was taken once, but for those of `left`, which pend and which all
    /// threads block.
    fn judge(&'static self, sent: &[u32], left: &[u32]) {
        let mut found: Vec<u32> = self.threads.iter().flat_map(Thread::values).collect();
        for twice in sent {
            let count = found.iter().filter(|&it| it == twice).count();
            assert!(count <= 1, "{twice} is taken twice");
        }
        let pending = self.common.pending();
        for thread in self.threads.iter().filter(|it| it.is_live()) {
            let set = thread.signals.pending.load(Ordering::SeqCst) | pending;
            let due = set & thread.accepted();
            assert_eq!(due, 0, "a signal is lost: no thread looks");
        }
        for &signal in &[USR1, RT] {
            while self.common.pending() & bit(signal) != 0 {
                let info = self
                    .common
                    .take(&self.records, &PendingSignals::new(), signal);
                found.push(info.unwrap().1);
                assert!(
                    left.contains(&info.unwrap().1),
                    "a signal is lost: {info:?}"
                );
            }
            for thread in &self.threads {
                while let Some(info) = thread.signals.take(&self.records, signal) {
                    assert!(left.contains(&info.1), "a signal is lost: {info:?}");
                    found.push(info.1);
                }
            }
        }
        let in_kernel = self.kernel.pending.lock().unwrap();
        for &(signal, value) in in_kernel.iter() {
            let is_accepted = |it: &Thread| it.is_live() && it.accepted() & bit(signal) != 0;
            let is_wanted = self.threads.iter().any(is_accepted);
            assert!(!is_wanted, "a signal is lost: the kernel keeps it");
            found.push(value);
        }
        found.sort_unstable();
        assert_eq!(found, sent, "a signal is lost");
    }
}

/// What a thread sees: the world, and which thread it is. A signal from outside comes to none.
trait Model: Routes<Thread = Thread, Details = Values> + Copy + Send + 'static {
    fn of(world: Ref, at: Option<usize>) -> Self;
}

/// Defines what a [`Model`] has of the surroundings.
macro_rules! surroundings {
    ($name:ident) => {
        impl $crate::signals::Model for $name {
            fn of(world: $crate::signals::Ref, at: Option<usize>) -> Self {
                Self(world, at)
            }
        }
    };
    () => {
        type Thread = $crate::signals::Thread;
        type Details = $crate::signals::Values;

        fn records(&self) -> &Records<Values> {
            &self.0.records
        }

        fn common(&self) -> &CommonSignals {
            &self.0.common
        }

        fn threads(&self) -> impl Iterator<Item = &'static Thread> {
            self.0.threads.iter()
        }

        fn main(&self) -> Option<&'static Thread> {
            self.0.threads.first()
        }

        fn running(&self) -> Option<&'static Thread> {
            self.1.map(|at| &self.0.threads[at])
        }

        fn does_nothing(&self, _: u32) -> bool {
            false
        }

        fn ends_process(&self, _: &Thread, _: u32) -> bool {
            false
        }

        fn held(&self) -> &HeldSignals {
            &self.0.kernel.held
        }

        fn block_held(&self) {
            self.0.kernel.set_mask(self.1);
        }

        fn queue_in_kernel(&self, info: &Value) -> bool {
            self.0.kernel.pending.lock().unwrap().push(*info);
            true
        }

        fn tell_carriers(&self) {
            self.0.kernel.is_told.store(true, SeqCst);
            self.0.kernel.set_mask(self.1);
            self.0.kernel.deliver(self, self.1);
        }

        fn is_over(&self, _: &Value) -> bool {
            false
        }

        fn look_here(&self) {
            self.running().unwrap().is_told.store(true, SeqCst);
        }

        fn unpark(&self, thread: &Thread) {
            thread.is_told.store(true, SeqCst);
        }

        fn interrupt(&self, thread: &Thread) -> bool {
            thread.is_interrupted.store(true, SeqCst);
            true
        }

        fn wake_sysmon(&self) {
            self.0.is_sysmon_awake.store(true, SeqCst);
        }
    };
}
use surroundings;

/// The code that runs.
#[derive(Clone, Copy)]
struct Sound(Ref, Option<usize>);

surroundings!(Sound);

impl Routes for Sound {
    surroundings!();
}

/// Runs `model` with a world of so many threads.
fn in_worlds(preemptions: usize, threads: usize, model: impl Fn(Ref) + Send + Sync + 'static) {
    explore(preemptions, move || {
        let world = Box::into_raw(Box::new(World {
            records: SpinLock::new(Pool::new()),
            common: CommonSignals::new(),
            kernel: Kernel::default(),
            threads: (0..threads).map(|_| Thread::new()).collect(),
            is_sysmon_awake: AtomicBool::new(false),
        }));
        // SAFETY: the model joins its threads, and keeps no reference.
        model(unsafe { &*world });
        // SAFETY: made above.
        drop(unsafe { Box::from_raw(world) });
    });
}
