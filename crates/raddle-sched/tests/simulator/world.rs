//! State that all actors share, the queue of events, and the engine's pushes and wake-ups.

use crate::actors::Sysmon;
use crate::carrier::{Carrier, State};
use crate::judge::{Judge, WAKE_MAX_NS};
use crate::mirror::{Mirror, Place};
use crate::program::{self, Step, Workload};
use crate::rng::Rng;
use core::cell::Cell;
use core::ptr::NonNull;
use raddle_sched::policy::SOON_NS;
use raddle_sched::timers::NEVER;
use raddle_sched::{IdleSet, Injector, Task, TaskList, TaskRef, Timers, WaitNode, WaitTable};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A fault put in on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    NeverWake,
    NoSysmon,
    /// A searcher looks at the slot of the first busy carrier only.
    WatchesFirst,
    NeverFair,
    /// A carrier sleeps without looking at the injector again.
    NoSecondLook,
    NeverPolls,
    /// All stolen tasks go through the thief's ring.
    StealsIntoRing,
}

pub(crate) struct Green {
    pub node: WaitNode,
    pub steps: Vec<Step>,
    pub at: usize,
    /// The deadline of the current wait; 0 without one.
    pub deadline_ns: u64,
}

/// The most events of a seed; one that takes more counts as endless.
const MAX_EVENTS: u64 = 4_000_000;

pub(crate) struct World {
    pub rng: Rng,
    pub fault: Fault,
    pub now_ns: u64,
    pub events_done: u64,
    pub tasks: Box<[Task]>,
    pub greens: Vec<Green>,
    pub counters: Vec<Cell<u32>>,
    pub table: WaitTable<64>,
    pub timers: Timers,
    pub injector: Injector,
    pub idle: IdleSet,
    pub carriers: Vec<Carrier>,
    pub poller: Option<usize>,
    pub poller_deadline_ns: u64,
    pub sysmon: Sysmon,
    pub to_start: Vec<usize>,
    pub to_post: Vec<usize>,
    pub mirror: Mirror,
    pub judge: Judge,
    /// Time, order among equals, actor, and the actor's turn: an event of an older turn is stale.
    events: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    turns: Vec<u64>,
}

impl World {
    pub(crate) fn new(seed: u64, carriers: usize, workload: Workload, fault: Fault) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x9E37_79B9) ^ carriers as u64);
        let programs = program::make(workload, &mut rng);
        let count = programs.lists.len();
        let green = |steps| Green {
            node: WaitNode::new(),
            steps,
            at: 0,
            deadline_ns: 0,
        };
        let mut world = Self {
            rng,
            fault,
            now_ns: 1_000_000,
            events_done: 0,
            tasks: (0..count).map(|_| Task::new()).collect(),
            greens: programs.lists.into_iter().map(green).collect(),
            counters: vec![Cell::new(0); programs.counters],
            table: WaitTable::new(),
            timers: Timers::new(),
            injector: Injector::new(),
            idle: IdleSet::new(),
            carriers: (0..carriers).map(|_| Carrier::new()).collect(),
            poller: None,
            poller_deadline_ns: NEVER,
            sysmon: Sysmon::new(carriers),
            to_start: (0..count).collect(),
            to_post: programs.from_outside,
            mirror: Mirror::new(carriers, count),
            judge: Judge::default(),
            events: BinaryHeap::new(),
            turns: vec![0; carriers + 2],
        };
        world.shuffle_starts();
        (0..carriers + 2).for_each(|actor| world.schedule(actor, 1));
        world
    }

    fn shuffle_starts(&mut self) {
        for index in (1..self.to_start.len()).rev() {
            let other = self.rng.between(0, index as u64) as usize;
            self.to_start.swap(index, other);
        }
    }

    pub(crate) fn task(&self, green: usize) -> TaskRef {
        // SAFETY: the tasks are boxed, and live as long as the world with all its queues.
        unsafe { TaskRef::new(NonNull::from(&self.tasks[green])) }
    }

    pub(crate) fn green(&self, task: TaskRef) -> usize {
        (task.as_ptr().addr() - self.tasks.as_ptr().addr()) / size_of::<Task>()
    }

    /// Gives an actor its next event, `delay_ns` from now, in place of its last one.
    pub(crate) fn schedule(&mut self, actor: usize, delay_ns: u64) {
        self.turns[actor] += 1;
        let at_ns = self.now_ns.saturating_add(delay_ns);
        let order = self.rng.next();
        self.events
            .push(Reverse((at_ns, order, actor, self.turns[actor])));
    }

    /// Runs until nothing can happen any more.
    pub(crate) fn play(&mut self) {
        while let Some(Reverse((at_ns, _, actor, turn))) = self.events.pop() {
            if turn != self.turns[actor] {
                continue;
            }
            self.now_ns = at_ns;
            self.events_done += 1;
            assert!(self.events_done < MAX_EVENTS, "this seed never ends");
            self.judge_idleness();
            match actor.checked_sub(self.carriers.len()) {
                None => self.step_carrier(actor),
                Some(0) => self.step_sysmon(),
                Some(_) => self.step_outside(),
            }
        }
        self.mirror.assert_finished();
        assert_eq!(self.timers.earliest_ns(), NEVER);
        assert!((0..self.counters.len()).all(|c| self.table.row_waiters(key(c)) == 0));
    }

    /// Returns the longest run without a switch that hasn't ended.
    fn running_slice_ns(&self) -> u64 {
        let since = |carrier: &Carrier| carrier.on_since_ns.map(|since| self.now_ns - since);
        self.carriers.iter().filter_map(since).max().unwrap_or(0)
    }

    fn judge_idleness(&mut self) {
        let Some(queued_ns) = self.mirror.oldest_queued_ns() else {
            return;
        };
        let idle = self
            .carriers
            .iter()
            .filter_map(|carrier| carrier.idle_since_ns)
            .min();
        let Some(idle_ns) = idle else { return };
        let waited_ns = self.now_ns - queued_ns.max(idle_ns);
        let slice_ns = self.running_slice_ns();
        self.judge.idle(waited_ns, self.carriers.len(), slice_ns);
    }

    // The engine's pushes.

    /// Makes a task runnable next on `carrier`.
    pub(crate) fn unpark_on(&mut self, carrier: usize, task: TaskRef) {
        let green = self.green(task);
        let expected = self.mirror.push_slot(carrier, green, self.now_ns);
        let displaced = self.carriers[carrier].queue.push_lifo(task);
        assert_eq!(displaced.map(|task| self.green(task)), expected);
        if let Some(task) = displaced {
            self.mirror.displace(carrier, self.green(task));
            self.push_real_ring(carrier, task);
        }
    }

    /// Makes a list runnable, behind `carrier`'s tasks.
    pub(crate) fn unpark_all(&mut self, carrier: usize, woken: TaskList) {
        while let Some(task) = woken.pop() {
            self.push_ring(carrier, task);
        }
    }

    pub(crate) fn push_ring(&mut self, carrier: usize, task: TaskRef) {
        self.mirror
            .push_ring(carrier, self.green(task), self.now_ns);
        self.push_real_ring(carrier, task);
    }

    /// Pushes to the real ring, after the mirror.
    pub(crate) fn push_real_ring(&mut self, carrier: usize, task: TaskRef) {
        if let Some(moved) = self.carriers[carrier].queue.push(task) {
            self.judge.overflows += 1;
            let expected = self.mirror.overflow(carrier);
            let list = TaskList::new();
            for green in expected {
                let task = moved.pop().expect("fewer moved than the ring had");
                assert_eq!(self.green(task), green, "an overflow out of order");
                list.push(task);
            }
            assert!(moved.is_empty());
            self.injector.push_all(list);
        }
        if self.carriers.len() > 1 && self.carriers[carrier].queue.ring_len() > 1 {
            self.backlog(carrier);
        }
    }

    /// Posts from outside the carriers.
    pub(crate) fn inject(&mut self, task: TaskRef) {
        self.mirror.inject(self.green(task), self.now_ns);
        self.injector.push(task);
        self.wake_one();
    }

    fn backlog(&mut self, carrier: usize) {
        if self.idle.is_empty() && self.poller.is_none() {
            return;
        }
        let now_ns = self.now_ns;
        let carrier = &mut self.carriers[carrier];
        if core::mem::take(&mut carrier.robbed) {
            carrier.backlog.useful();
        }
        if carrier.backlog.spend(now_ns) {
            self.wake_one();
        }
    }

    /// Wakes a sleeping carrier, or the poller. Returns false if there is none.
    pub(crate) fn wake_one(&mut self) -> bool {
        if self.fault == Fault::NeverWake && self.mirror.oldest_queued_ns() < Some(self.now_ns) {
            return false;
        }
        if self.suffices_poller() {
            return self.kick();
        }
        if let Some(id) = self.idle.take_one() {
            self.carriers[id].woken = true;
            if self.carriers[id].state == State::Asleep {
                self.wake_later(id);
            }
            return true;
        }
        self.kick()
    }

    /// Returns true if the poller suffices: no other carrier is awake, nothing is due soon, and it
    /// hasn't been woken already.
    fn suffices_poller(&self) -> bool {
        let Some(poller) = self.poller else {
            return false;
        };
        let is_alone = self.idle.len() + 1 >= self.carriers.len();
        let is_free = !self.carriers[poller].woken || self.injector.len() <= 1;
        is_alone && is_free && !self.is_due_soon()
    }

    /// Returns true if a carrier should wait for timers.
    pub(crate) fn is_due_soon(&self) -> bool {
        self.timers.earliest_ns().saturating_sub(self.now_ns) <= SOON_NS
    }

    /// Wakes the poller, if it waits already; returns true if there is a poller.
    pub(crate) fn kick(&mut self) -> bool {
        let Some(poller) = self.poller else {
            return false;
        };
        let kicked = !core::mem::replace(&mut self.carriers[poller].woken, true);
        if kicked && self.carriers[poller].state == State::Polling {
            self.wake_later(poller);
        }
        true
    }

    fn wake_later(&mut self, actor: usize) {
        let delay_ns = self.rng.between(1_000, WAKE_MAX_NS);
        self.schedule(actor, delay_ns);
    }

    /// A carrier left its sleep: sysmon watches from now on.
    pub(crate) fn carrier_awoke(&mut self) {
        if self.carriers.len() > 1 && self.sysmon.rouse() {
            self.wake_later(self.carriers.len());
        }
    }

    /// Expires timers on `carrier`.
    pub(crate) fn expire(&mut self, carrier: usize) {
        let (expired, list) = (self.timers.expire(self.now_ns), TaskList::new());
        let slice_ns = self.running_slice_ns();
        while let Some(task) = expired.pop() {
            let green = self.green(task);
            self.judge
                .timer(self.greens[green].deadline_ns, self.now_ns, slice_ns);
            assert_ne!(self.mirror.place(green), Place::Done);
            list.push(task);
        }
        self.unpark_all(carrier, list);
    }
}

/// The wait table's key of a counter.
pub(crate) fn key(counter: usize) -> usize {
    0x1000 + counter * 4
}
