//! State shared by the workers of a pool and the threads that queue work.
//!
//! Nouns: a *slot* is the place of one worker, used again when the worker ends; a worker is
//! *running*, *idle* (parked, in the list of idle workers) or *blocked* (in
//! [`blocking`](super::blocking)); a *searcher* has no work and looks for some; the *target* is how
//! many workers should run.
//!
//! To queue: push, then summon a worker unless one searches already or the target is reached. A
//! searcher that finds work, and sees more, summons the next one. So a burst wakes workers one
//! after the other, each woken by a worker that has found work.
//!
//! No burst ends with a sleeping worker and work that waits for it: a push counts the work, then
//! reads whether a worker searches; a searcher that has found work stops counting as one, then
//! reads whether more is counted; all SeqCst. One of them sees the other.
//!
//! To rest: a worker stops searching, and under the lock looks at the lanes, lists itself as idle
//! and looks at all deques. No work is left while its worker sleeps:
//! - pushes to the lanes and the list of idle workers are under the same lock;
//! - pushes to a deque, also of work from the lanes, and the rest of a worker are the protocol of
//!   [`raddle_sched::wake`]: a worker announces itself in the list of idle workers, and the pulse
//!   shows the list's sign.

use super::builder::{Config, OnPanic, Overflow, PanicReport};
use super::counters::{Counters, Counts};
use super::deque::{self, Owner, Thief};
use super::forks;
use super::job::Job;
use super::lanes::Lanes;
use super::lock::{Guard, Lock, Parker, Signal};
use super::summons::{Summons, Waiting};
use super::sync::{lock, quietly};
use super::watch::Watch;
use super::worker;
use super::{Priority, QueueError};
use raddle_sched::wake::Sign;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The most slots of a pool.
pub(super) const MAX_WORKERS: usize = 1024;
/// The most items a worker takes from the lanes at once.
const BATCH: usize = 64;

/// The words that decide whether a worker is summoned. Read at each push, written as workers come
/// and go.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Pulse {
    pub summons: Summons,
    /// Whether more workers run than the target. Written under the lock.
    pub surplus: AtomicBool,
    /// Whether there is work of high priority. Written under the lock.
    pub urgent: AtomicBool,
    /// A [`Phase`]. Written under the lock.
    phase: AtomicU8,
    /// Forks that lead to the process that made the pool.
    forks: u32,
}

/// The phase of a pool's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd)]
pub(super) enum Phase {
    /// Work is accepted.
    #[default]
    Open,
    /// Work is accepted only from the pool's own workers, and run.
    Draining,
    /// No work is accepted; waiting work is dropped.
    Dropping,
}

/// The source of work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Outside,
    Worker,
    /// Timers, descriptors, and parts of running work: exempt from the bound.
    Exempt,
}

/// The action of a summons, after the lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Wake {
    Nobody,
    Unpark(usize),
    Start(usize),
}

pub(super) struct Slot {
    pub thief: OnceLock<Thief>,
    /// The deque's owner end: here until the slot's worker takes it, and after that worker's end.
    pub owner: Mutex<Option<Owner>>,
    pub parker: Parker,
    pub counters: Counters,
}

pub(super) struct State {
    pub lanes: Lanes,
    pub phase: Phase,
    /// Idle workers, the newest last.
    pub idle: Vec<usize>,
    /// Slots without a worker, the lowest last.
    free: Vec<usize>,
    pub alive: usize,
    /// Live workers that leave after the keep-alive time.
    pub leaving: usize,
    pub blocked: usize,
    /// How many workers should run.
    pub target: usize,
    pub threads: Vec<Option<crate::thread::JoinHandle<()>>>,
    /// True while the watcher looks at this pool at every tick.
    pub monitored: bool,
    pub counts: Counts,
    panic: Option<Box<dyn Any + Send>>,
}

impl Drop for State {
    fn drop(&mut self) {
        // The pool may end on any thread.
        let payload = self.panic.take();
        quietly(|| drop(payload));
    }
}

impl State {
    pub(super) fn running(&self) -> usize {
        (self.alive - self.idle.len()).saturating_sub(self.blocked)
    }
}

pub(super) struct Shared {
    pub config: Config,
    pub pulse: Pulse,
    state: Lock<State>,
    /// Items in the lanes.
    waiting: Waiting,
    pub slots: Box<[Slot]>,
    /// All slots that were ever used are below this index.
    used: AtomicUsize,
    /// Signalled when a bounded queue gets room.
    room: Signal,
    /// Signalled when the last worker ends.
    pub ended: Signal,
    pub watch: Watch,
    pub me: Weak<Shared>,
}

impl Shared {
    pub(super) fn new(config: Config) -> Arc<Self> {
        let slot = |_| Slot {
            thief: OnceLock::new(),
            owner: Mutex::new(None),
            parker: Parker::default(),
            counters: Counters::default(),
        };
        let (target, max) = (config.min_workers, config.max_workers);
        Arc::new_cyclic(|me| Self {
            config,
            pulse: Pulse {
                summons: Summons {
                    wanting: Sign::new(true),
                    ..Summons::default()
                },
                forks: forks::watch(),
                ..Pulse::default()
            },
            state: Lock::new(State {
                lanes: Lanes::default(),
                phase: Phase::Open,
                idle: Vec::with_capacity(max),
                free: (0..max).rev().collect(),
                alive: 0,
                leaving: 0,
                blocked: 0,
                target,
                threads: (0..max).map(|_| None).collect(),
                monitored: false,
                counts: Counts::default(),
                panic: None,
            }),
            waiting: Waiting::new(),
            slots: (0..max).map(slot).collect(),
            used: AtomicUsize::new(0),
            room: Signal::default(),
            ended: Signal::default(),
            watch: Watch::default(),
            me: me.clone(),
        })
    }

    #[inline(always)]
    pub(super) fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    pub(super) fn phase(&self) -> Phase {
        match self.pulse.phase.load(Ordering::Relaxed) {
            0 => Phase::Open,
            1 => Phase::Draining,
            _ => Phase::Dropping,
        }
    }

    /// Returns whether this is the child of a fork, which has none of the workers.
    #[inline(always)]
    pub(super) fn is_forked(&self) -> bool {
        self.pulse.forks != forks::count()
    }

    /// Returns the slots that were ever used.
    pub(super) fn used(&self) -> &[Slot] {
        &self.slots[..self.used.load(Ordering::Acquire)]
    }

    /// Returns whether the lanes had work a moment ago.
    pub(super) fn has_waiting(&self) -> bool {
        self.waiting.has_any()
    }

    /// Returns whether some deque had work a moment ago.
    pub(super) fn has_stealable(&self) -> bool {
        let len = |slot: &Slot| slot.thief.get().map_or(0, Thief::len);
        self.used().iter().any(|slot| len(slot) > 0)
    }

    /// Writes the words that are read without the lock. Unchanged words aren't written: workers
    /// read them between items.
    pub(super) fn publish(&self, state: &State) {
        fn set(word: &AtomicBool, value: bool) {
            if word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::SeqCst);
            }
        }
        self.waiting.note(state.lanes.len());
        set(&self.pulse.urgent, state.lanes.urgent() > 0);
        let running = state.running();
        let available = !state.idle.is_empty() || !state.free.is_empty();
        self.pulse
            .summons
            .wanting
            .show(available && running < state.target);
        set(&self.pulse.surplus, running > state.target);
    }

    /// Counts the items in the lanes, before a summons.
    fn announce(&self, state: &State) {
        self.waiting.announce(state.lanes.len());
    }

    /// Queues a job from outside the workers' deques.
    pub(super) fn queue(
        &self,
        job: Job,
        priority: Priority,
        origin: Origin,
    ) -> Result<(), QueueError> {
        if self.is_forked() {
            return Err(QueueError::Forked);
        }
        let mut discarded = Vec::new();
        let mut state = self.state();
        loop {
            let last = match origin {
                Origin::Outside => Phase::Open,
                Origin::Worker | Origin::Exempt => Phase::Draining,
            };
            if state.phase > last {
                return Err(QueueError::Closed);
            }
            if state.lanes.len() < self.config.capacity || origin == Origin::Exempt {
                break;
            }
            match self.config.overflow {
                Overflow::Reject => {
                    state.counts.rejected += 1;
                    return Err(QueueError::Full);
                }
                Overflow::DiscardOldest => {
                    discarded.extend(state.lanes.take_least());
                    state.counts.discarded += 1;
                }
                Overflow::Block if origin == Origin::Outside => {
                    let ticket = self.room.ticket();
                    drop(state);
                    self.room.wait(ticket, None);
                    state = self.state();
                }
                Overflow::Block | Overflow::CallerRuns => {
                    state.counts.caller_ran += 1;
                    drop(state);
                    worker::run_here(self, job);
                    return Ok(());
                }
            }
        }
        state.lanes.push(priority, job);
        state.counts.queued += 1;
        self.announce(&state);
        let wake = self.summon(&mut state);
        let arm = !state.monitored && self.config.max_workers > self.config.min_workers;
        state.monitored |= arm;
        self.publish(&state);
        drop(state);
        discarded.into_iter().for_each(|job| quietly(|| drop(job)));
        if arm {
            self.watch.arm(self);
        }
        self.act(wake)
    }

    /// Puts jobs into the lanes that found no room in a deque; they were accepted before.
    pub(super) fn put_back(&self, jobs: impl Iterator<Item = Job>) {
        let mut state = self.state();
        jobs.for_each(|job| state.lanes.push(Priority::Normal, job));
        self.announce(&state);
        let wake = self.summon(&mut state);
        self.publish(&state);
        drop(state);
        // The caller is a worker: there is at least one thread.
        let _ = self.act(wake);
    }

    /// Takes a share of the lanes, at most `most` items; the first is to be run now.
    ///
    /// Takes nothing while the lock is held: a worker that waited for the lock would have to be
    /// woken by a queueing thread, and more work is in the lanes a moment later. The worker looks
    /// under the lock before it rests.
    pub(super) fn take(&self, most: usize, batch: &mut Vec<Job>) {
        if !self.has_waiting() || self.is_forked() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if state.phase == Phase::Dropping {
            return;
        }
        let share = state.lanes.len() / state.running().max(1);
        state.lanes.take(share.clamp(1, most.min(BATCH)), batch);
        self.publish(&state);
        drop(state);
        if self.config.capacity != usize::MAX {
            self.room.raise();
        }
    }

    /// Chooses a worker to summon, if one may run and none searches; the worker counts as searching
    /// from now on.
    pub(super) fn summon(&self, state: &mut State) -> Wake {
        let has_enough = state.running() >= state.target;
        let is_over = state.phase == Phase::Dropping; // a worker that ends may push work of its own
        if !self.pulse.summons.is_missing() || has_enough || is_over {
            return Wake::Nobody;
        }
        let wake = match (state.idle.pop(), state.free.is_empty()) {
            (Some(id), _) => Wake::Unpark(id),
            (None, true) => return Wake::Nobody,
            (None, false) => {
                let id = state.free.pop().unwrap_or_default();
                state.alive += 1;
                state.counts.peak = state.counts.peak.max(state.alive);
                Wake::Start(id)
            }
        };
        self.pulse.summons.searching.begin();
        wake
    }

    /// Carries out a summons. Fails if there is no worker, and no thread for one.
    pub(super) fn act(&self, wake: Wake) -> Result<(), QueueError> {
        match wake {
            Wake::Nobody => Ok(()),
            Wake::Unpark(id) => {
                self.slots[id].parker.unpark();
                Ok(())
            }
            Wake::Start(id) => self.start(id),
        }
    }

    #[cold]
    fn start(&self, id: usize) -> Result<(), QueueError> {
        let slot = &self.slots[id];
        slot.thief.get_or_init(|| {
            let (owner, thief) = deque::new();
            *lock(&slot.owner) = Some(owner);
            thief
        });
        self.used.fetch_max(id + 1, Ordering::AcqRel);
        let mut builder = crate::thread::Builder::new().name(format!("{}-{id}", self.config.name));
        if let Some(bytes) = self.config.stack_size_bytes {
            builder = builder.stack_size(bytes);
        }
        if let Some(engine) = &self.config.engine {
            builder = builder.engine(engine);
        }
        let Some(shared) = self.me.upgrade() else {
            return Err(QueueError::Closed);
        };
        match builder.spawn(move || worker::run(shared, id)) {
            Ok(thread) => {
                self.state().threads[id] = Some(thread);
                Ok(())
            }
            Err(error) => {
                self.pulse.summons.searching.end();
                let mut state = self.state();
                self.remove(&mut state, id);
                match state.alive {
                    0 => Err(QueueError::NoThread(error)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Wakes or starts a worker after a push to a deque.
    #[cold]
    pub(super) fn wake_one(&self) {
        if self.is_forked() {
            return;
        }
        let mut state = self.state();
        let wake = self.summon(&mut state);
        self.publish(&state);
        drop(state);
        // The caller is a worker: there is at least one thread.
        let _ = self.act(wake);
    }

    /// Summons a worker after a push to the caller's own deque, if one may run and none searches.
    #[inline(always)]
    pub(super) fn tell_of_push(&self) {
        if self.pulse.summons.is_due() {
            self.wake_one();
        }
    }

    /// Ends a drained pool: its workers wake up and end.
    pub(super) fn finish_if_drained(&self, state: &mut State) {
        let quiet = state.idle.len() == state.alive && state.lanes.len() == 0;
        if state.phase == Phase::Draining && quiet && !self.has_stealable() {
            self.enter(state, Phase::Dropping);
        }
    }

    pub(super) fn enter(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        self.pulse.phase.store(phase as u8, Ordering::Relaxed);
        if phase == Phase::Dropping {
            state
                .idle
                .drain(..)
                .for_each(|id| self.slots[id].parker.unpark());
            self.room.raise();
            self.watch.end();
        }
        self.publish(state);
        if state.alive == 0 {
            self.ended.raise();
        }
    }

    /// Ends the worker of a slot; its deque is empty, after it dropped `discarded` jobs. `left`:
    /// the worker got [`AfterPark::Leave`].
    pub(super) fn leave(&self, id: usize, owner: Option<Owner>, discarded: u64, left: bool) {
        *lock(&self.slots[id].owner) = owner;
        let mut state = self.state();
        state.leaving -= usize::from(left);
        state.counts.discarded += discarded;
        // Before the pool's end no thread joins the worker: it is detached.
        let alone = (state.phase == Phase::Open).then(|| state.threads[id].take());
        self.remove(&mut state, id);
        self.finish_if_drained(&mut state);
        // Work that was pushed while this worker counted as running, but had stopped looking.
        let pending = state.lanes.len() > 0 || self.has_stealable();
        let wake = if pending && state.phase != Phase::Dropping {
            self.summon(&mut state)
        } else {
            Wake::Nobody
        };
        self.publish(&state);
        drop(state);
        drop(alone);
        // Without a thread the work waits until the next push tries again.
        let _ = self.act(wake);
    }

    fn remove(&self, state: &mut State, id: usize) {
        state.alive -= 1;
        state.free.push(id);
        self.publish(state);
        if state.alive == 0 {
            self.ended.raise();
        }
    }

    /// Counts a worker that begins to block: another may run in its place.
    pub(super) fn enter_blocking(&self) {
        if self.is_forked() {
            return;
        }
        let mut state = self.state();
        state.blocked += 1;
        self.publish(&state);
        let pending = state.lanes.len() > 0 || self.has_stealable();
        let starts = state.idle.is_empty();
        drop(state);
        if pending && (!starts || self.memory_allows()) {
            self.wake_one();
        }
    }

    /// Counts a worker out that blocks no longer.
    pub(super) fn leave_blocking(&self) {
        if self.is_forked() {
            return;
        }
        let mut state = self.state();
        state.blocked -= 1;
        self.publish(&state);
    }

    /// Returns whether there is memory for another worker.
    pub(super) fn memory_allows(&self) -> bool {
        super::memory::available_percent() >= self.config.memory_reserve_percent
    }

    /// Handles a panic of work without a handle.
    pub(super) fn panicked(&self, payload: Box<dyn Any + Send>) {
        match &self.config.on_panic {
            OnPanic::Keep => {
                let mut payload = Some(payload);
                let mut state = self.state();
                if state.panic.is_none() {
                    state.panic = payload.take();
                }
                drop(state);
            }
            OnPanic::Abort => std::process::abort(),
            OnPanic::Report(hook) => hook(&PanicReport {
                pool: &self.config.name,
                payload: &*payload,
            }),
        }
    }

    pub(super) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        if self.is_forked() {
            return None;
        }
        self.state().panic.take()
    }
}
