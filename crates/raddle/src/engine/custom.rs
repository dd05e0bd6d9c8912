//! An engine with a policy of the program's own.
//!
//! The engine's threads are UMS workers of one completion list; *drivers*, green threads of the
//! same engine, one for each carrier, run them. So the policy is called on ordinary threads, and
//! its faults are confined to them.
//!
//! 1. A driver takes the listed workers and enqueues them in the policy; then it asks the policy
//!    for the next worker.
//! 2. The driver executes that worker until it parks (it will be listed), yields, or has used its
//!    quantum up (it is enqueued again).
//! 3. A driver without a worker to run sleeps on the list. A driver that adds to `waiting` and
//!    sees a sleeper rings the *bell*, a context without a worker, by listing it. The sleeper
//!    counts itself and then looks at `runnable`; the other driver adds to `runnable` and then
//!    looks at the count, all SeqCst.
//!
//! One driver at a time has the policy: it *takes it out*, and brings it back after the call. The
//! policy's threads are in [`Core::waiting`], too, which only the driver with the policy changes;
//! so the policy's answers can be checked, and after a failure `waiting` is the queue. If a call
//! takes too long, the *watcher*, which sleeps while there are no calls, gives the policy and its
//! driver up and makes another driver.

use super::policy::{Failure, Policy, Reason, Runnable};
use super::table::ThreadCell;
use crate::thread::{Builder, NextBirth};
use crate::ums::{self, CompletionList, Context};
use raddle_interface::{Birth, Claim, Ended};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The shortest quantum.
const LEAST: Duration = Duration::from_micros(50);
/// Time between the watcher's looks during a call.
const LOOK: Duration = Duration::from_millis(100);
/// The number of looks after which a call is too long.
const LOOKS: u32 = 10;

/// A thread of the engine.
pub(super) struct Worker {
    pub(super) id: u64,
    pub(super) name: Option<String>,
    pub(super) birth: Birth,
    pub(super) ran_ns: AtomicU64,
    /// The thread as a policy in C's form sees it.
    pub(super) seen: ThreadCell,
    pub(super) context: Context,
    has_run: AtomicBool,
}

/// The state of the policy: here, taken out, or failed.
enum PolicyState {
    Here(Box<dyn Policy>),
    /// A driver has it.
    Out,
    Failed(Failure),
}

struct Core {
    policy: PolicyState,
    /// Live workers, by the number in their contexts.
    workers: HashMap<u64, Arc<Worker>>,
    /// The threads that the policy has, in the order in which they came.
    waiting: BTreeMap<u64, Arc<Worker>>,
    next_turn: u64,
}

/// State shared by the drivers and the watcher: see the module.
pub(super) struct Shared {
    name: String,
    number: u32,
    list: CompletionList,
    core: Mutex<Core>,
    /// Signals that the policy is back.
    back: Condvar,
    /// The length of [`Core::waiting`].
    runnable: AtomicUsize,
    sleepers: AtomicUsize,
    bell: Context,
    is_rung: AtomicBool,
    is_over: AtomicBool,
    lost: Arc<AtomicBool>,
    next_id: AtomicU64,
    /// Odd while the policy is in a call.
    calls: AtomicU64,
    watcher: OnceLock<Thread>,
    watcher_sleeps: AtomicBool,
    drivers: AtomicU32,
}

impl Shared {
    /// Starts the drivers and the watcher.
    pub(super) fn start(
        name: &str,
        number: u32,
        drivers: usize,
        policy: Box<dyn Policy>,
    ) -> io::Result<Arc<Self>> {
        let list = CompletionList::new()?;
        let shared = Arc::new(Self {
            name: name.to_owned(),
            number,
            bell: Context::new(&list),
            list,
            core: Mutex::new(Core {
                policy: PolicyState::Here(policy),
                workers: HashMap::new(),
                waiting: BTreeMap::new(),
                next_turn: 0,
            }),
            back: Condvar::new(),
            runnable: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            is_rung: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            lost: Arc::new(AtomicBool::new(false)),
            next_id: AtomicU64::new(1),
            calls: AtomicU64::new(0),
            watcher: OnceLock::new(),
            watcher_sleeps: AtomicBool::new(false),
            drivers: AtomicU32::new(0),
        });
        let watched = Arc::clone(&shared);
        let watcher = Builder::new()
            .name("raddle-watch")
            .spawn(move || watched.watch())?;
        let _ = shared.watcher.set(watcher.thread().clone());
        for _ in 0..drivers {
            if let Err(error) = shared.add_driver() {
                shared.end();
                return Err(error);
            }
        }
        Ok(shared)
    }

    fn add_driver(self: &Arc<Self>) -> io::Result<()> {
        let own = Arc::clone(self);
        let birth = NextBirth::ask(Birth {
            engine: self.number,
            ..Birth::default()
        });
        let made = Builder::new().spawn(move || own.drive());
        drop(birth);
        self.drivers
            .fetch_add(u32::from(made.is_ok()), Ordering::Relaxed);
        made.map(drop)
    }

    /// Ends the drivers and the watcher, once the workers have ended. The functions of the
    /// engine's threads have returned, and there will be no further thread; what a thread does at
    /// its end, such as destructors of its thread-locals, may still wait for something.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake_to_end();
    }

    /// Lets a driver and the watcher look at [`Self::is_done`].
    fn wake_to_end(&self) {
        self.ring();
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    /// Returns true once there is nothing left to do, for good.
    fn is_done(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) && self.core().workers.is_empty()
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        match self.core().policy {
            PolicyState::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `make`, which makes a worker of the given context.
    pub(super) fn adopt<T>(
        &self,
        birth: &Birth,
        name: Option<&str>,
        make: impl FnOnce(&Context) -> io::Result<T>,
    ) -> io::Result<T> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let context = Context::new(&self.list);
        context.set_user_context(id as usize);
        let worker = Arc::new(Worker {
            id,
            name: name.map(str::to_owned),
            birth: *birth,
            ran_ns: AtomicU64::new(0),
            seen: ThreadCell::default(),
            context: context.clone(),
            has_run: AtomicBool::new(false),
        });
        self.core().workers.insert(id, worker); // the worker may be listed before `make` returns
        let made = make(&context);
        if made.is_err() {
            self.core().workers.remove(&id);
        }
        made
    }

    /// Wakes sleeping drivers.
    fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::SeqCst) {
            self.list.post(&self.bell);
        }
    }

    fn drive(self: Arc<Self>) {
        let Ok(_mode) = ums::Mode::enter() else {
            return; // can't be: a driver is no worker and no scheduler
        };
        loop {
            if let Ok(listed) = self.list.dequeue(Some(Duration::ZERO)) {
                self.collect(listed);
            }
            if let Some((worker, quantum)) = self.next() {
                self.run(worker, quantum);
            } else if self.is_done() {
                return self.wake_to_end(); // the next driver
            } else {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let has_work = self.runnable.load(Ordering::SeqCst) != 0;
        let listed = if has_work || self.is_done() {
            None
        } else {
            self.list.dequeue(None).ok()
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if let Some(listed) = listed {
            self.collect(listed);
        }
    }

    /// Enqueues listed workers in the policy, and forgets ended ones.
    fn collect(&self, listed: ums::Items) {
        for context in listed {
            if context == self.bell {
                self.is_rung.store(false, Ordering::SeqCst);
                continue;
            }
            let id = context.user_context() as u64;
            if context.has_ended() {
                self.core().workers.remove(&id);
                continue;
            }
            let worker = self.core().workers.get(&id).cloned();
            if let Some(worker) = worker {
                let reason = if !worker.has_run.swap(true, Ordering::Relaxed) {
                    Reason::New
                } else {
                    Reason::Woken
                };
                self.enqueue(worker, reason);
            }
        }
        if self.runnable.load(Ordering::SeqCst) > 1 && self.sleepers.load(Ordering::SeqCst) != 0 {
            self.ring();
        }
    }

    /// Takes the policy out. Returns `None` for it if it has failed.
    fn take_out(&self) -> (MutexGuard<'_, Core>, Option<Box<dyn Policy>>) {
        let mut core = self.core();
        loop {
            match std::mem::replace(&mut core.policy, PolicyState::Out) {
                PolicyState::Here(policy) => return (core, Some(policy)),
                PolicyState::Failed(failure) => {
                    core.policy = PolicyState::Failed(failure);
                    return (core, None);
                }
                PolicyState::Out => {
                    let woken = self.back.wait(core);
                    core = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Calls the policy, which is out. Returns `None` if it panics.
    fn call<R>(
        &self,
        policy: &mut dyn Policy,
        call: impl FnOnce(&mut dyn Policy) -> R,
    ) -> Option<R> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.watcher_sleeps.load(Ordering::SeqCst)
            && self.watcher_sleeps.swap(false, Ordering::SeqCst)
            && let Some(watcher) = self.watcher.get()
        {
            watcher.unpark();
        }
        let result = catch_unwind(AssertUnwindSafe(|| call(policy)));
        self.calls.fetch_add(1, Ordering::SeqCst);
        result.map_err(forget).ok() // the payload's destructor may panic, too
    }

    /// Brings the policy back, unless it failed in its call or was given up.
    fn bring_back(&self, mut core: MutexGuard<'_, Core>, policy: Box<dyn Policy>, wrong: Wrong) {
        let has_lost = self.lost.swap(false, Ordering::Relaxed);
        let wrong = match wrong {
            None | Some(Failure::Nothing) if has_lost => Some(Failure::Lost),
            wrong => wrong,
        };
        let mut left = None;
        match (&core.policy, wrong) {
            (PolicyState::Out, None) => core.policy = PolicyState::Here(policy),
            (PolicyState::Out, Some(failure)) => {
                core.policy = PolicyState::Failed(failure);
                left = Some(policy);
                self.report(failure);
            }
            _ => left = Some(policy),
        }
        drop(core);
        self.back.notify_all();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(left)));
        let _ = dropped.map_err(forget); // as in `call`
    }

    fn report(&self, failure: Failure) {
        let name = &self.name;
        eprintln!("raddle: the policy of engine {name:?} {failure}; fifo from now on");
    }

    /// Enqueues a runnable worker in the policy.
    fn enqueue(&self, worker: Arc<Worker>, reason: Reason) {
        let (mut core, policy) = self.take_out();
        let turn = core.next_turn;
        core.next_turn += 1;
        core.waiting.insert(turn, Arc::clone(&worker));
        self.runnable.fetch_add(1, Ordering::SeqCst);
        drop(core);
        let Some(mut policy) = policy else {
            return;
        };
        let thread = Runnable {
            worker,
            turn,
            lost: Some(Arc::clone(&self.lost)),
        };
        let done = self.call(&mut *policy, |policy| policy.enqueue(thread, reason));
        let wrong = done.is_none().then_some(Failure::Panicked);
        self.bring_back(self.core(), policy, wrong);
    }

    /// Returns the worker that runs next, and its quantum.
    fn next(&self) -> Option<(Arc<Worker>, Option<Duration>)> {
        let (mut core, policy) = self.take_out();
        let Some(mut policy) = policy else {
            return self.next_in_turn(&mut core);
        };
        if core.waiting.is_empty() {
            self.bring_back(core, policy, None);
            return None;
        }
        drop(core);
        let answer = self.call(&mut *policy, |policy| {
            let thread = policy.pick()?;
            let quantum = policy.quantum(&thread);
            Some((thread, quantum))
        });
        let mut core = self.core();
        let (picked, wrong) = match answer {
            None => (None, Some(Failure::Panicked)),
            Some(None) => (None, Some(Failure::Nothing)),
            Some(Some((thread, quantum))) => match self.accept(&mut core, thread) {
                Some(worker) => (Some((worker, quantum)), None),
                None => (None, Some(Failure::Foreign)),
            },
        };
        self.bring_back(core, policy, wrong);
        match wrong {
            None => picked,
            Some(_) => self.next_in_turn(&mut self.core()),
        }
    }

    /// Returns the worker of an answer, if the policy had it.
    fn accept(&self, core: &mut Core, mut thread: Runnable) -> Option<Arc<Worker>> {
        let lost = thread.lost.take();
        let is_own = lost.is_some_and(|lost| Arc::ptr_eq(&lost, &self.lost));
        // Another engine's thread may have the turn of one that waits here.
        if !is_own {
            return None;
        }
        let worker = core.waiting.remove(&thread.turn)?;
        self.runnable.fetch_sub(1, Ordering::SeqCst);
        Some(worker)
    }

    /// Returns the oldest worker, without a policy.
    fn next_in_turn(&self, core: &mut Core) -> Option<(Arc<Worker>, Option<Duration>)> {
        let (_, worker) = core.waiting.pop_first()?;
        self.runnable.fetch_sub(1, Ordering::SeqCst);
        Some((worker, Some(Duration::from_millis(2))))
    }

    /// Runs a worker until it gives the carrier back.
    fn run(&self, worker: Arc<Worker>, quantum: Option<Duration>) {
        loop {
            match ums::claim(&worker.context) {
                Claim::Claimed => break,
                Claim::Locked => crate::yield_now(), // another carrier saves its registers
                _ => return,                         // ended: in the child of a fork
            }
        }
        let quantum = quantum.map_or(0, |quantum| {
            let ns = quantum.max(LEAST).as_nanos();
            u64::try_from(ns).unwrap_or(u64::MAX)
        });
        let start = Instant::now();
        // SAFETY: claimed above; drivers are in scheduling mode.
        let ended = unsafe { ums::run_for(&worker.context, quantum) };
        let took_ns = start.elapsed().as_nanos() as u64;
        worker.ran_ns.fetch_add(took_ns, Ordering::Relaxed);
        match ended {
            Ended::Yielded => self.enqueue(worker, Reason::Yielded),
            Ended::Preempted => self.enqueue(worker, Reason::Preempted),
            Ended::Parked | Ended::InKernel | Ended::Exited => {}
        }
    }

    /// Gives the policy up when one call takes too long.
    fn watch(self: Arc<Self>) {
        let (mut seen, mut looks) = (0, 0);
        while !self.is_done() {
            let calls = self.calls.load(Ordering::SeqCst);
            looks = if calls == seen { looks + 1 } else { 0 };
            seen = calls;
            if calls.is_multiple_of(2) && looks > 0 {
                self.watcher_sleeps.store(true, Ordering::SeqCst);
                let is_quiet = self.calls.load(Ordering::SeqCst) == calls;
                if is_quiet && !self.is_done() {
                    std::thread::park();
                }
                self.watcher_sleeps.store(false, Ordering::SeqCst);
                continue;
            }
            if looks >= LOOKS && self.give_up(calls) {
                return; // the policy isn't called any more
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Gives up a policy that doesn't return from this call; the other drivers go on without it.
    fn give_up(self: &Arc<Self>, calls: u64) -> bool {
        let mut core = self.core();
        let is_it =
            matches!(core.policy, PolicyState::Out) && self.calls.load(Ordering::SeqCst) == calls;
        if is_it {
            core.policy = PolicyState::Failed(Failure::Stuck);
            self.report(Failure::Stuck); // before the failure can be seen
            drop(core);
            self.back.notify_all();
            // If no driver can be made, the other ones, if there are any, have more to do.
            let _ = self.add_driver();
        }
        is_it
    }
}

type Wrong = Option<Failure>;
