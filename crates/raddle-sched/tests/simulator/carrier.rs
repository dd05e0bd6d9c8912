//! The carrier: the engine's loop, one small step an event.

use crate::judge::{SEARCH_NS, STEP_MAX_NS, WAKE_MAX_NS};
use crate::mirror::Place;
use crate::program::Step;
use crate::world::{Fault, World, key};
use core::sync::atomic::Ordering;
use raddle_sched::policy::{Backlog, Tick};
use raddle_sched::run_queue::CAPACITY;
use raddle_sched::timers::NEVER;
use raddle_sched::{RunQueue, TaskList, TaskRef, Wake};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    Pick,
    /// Looks at others until a time; with the carriers that were busy at first, and their switches.
    Search(u64, Vec<(usize, u64)>),
    /// A green thread was picked, which may still be on its stack.
    Enter(usize),
    On(usize),
    /// The green thread parked (or is done), and its carrier is about to leave its stack.
    Leave(usize),
    Rest,
    PollerPublishes,
    PollerLooks,
    Polling,
    SleeperLooks,
    Asleep,
    Awake,
}

pub(crate) struct Carrier {
    pub queue: RunQueue,
    pub state: State,
    pub backlog: Backlog,
    pub picks: u32,
    pub switches: u64,
    pub robbed: bool,
    /// Its wake word was stored to, or the pump kicked.
    pub woken: bool,
    /// True if it runs in the eyes of sysmon.
    pub runs: bool,
    /// When it began to run nothing.
    pub idle_since_ns: Option<u64>,
    /// When the green thread came onto it.
    pub on_since_ns: Option<u64>,
}

impl Carrier {
    pub(crate) fn new() -> Self {
        Self {
            queue: RunQueue::new(),
            state: State::Pick,
            backlog: Backlog::new(),
            picks: 0,
            switches: 0,
            robbed: false,
            woken: false,
            runs: true,
            idle_since_ns: None,
            on_since_ns: None,
        }
    }
}

/// The result of a green thread's step.
enum Did {
    /// The thread goes on after this many nanoseconds.
    Went(u64),
    Parked,
    Yielded,
    Ended,
}

impl World {
    /// Makes one step, and schedules the carrier's next event unless it sleeps.
    pub(crate) fn step_carrier(&mut self, own: usize) {
        let state = core::mem::replace(&mut self.carriers[own].state, State::Pick);
        let mut delay_ns = Some(self.rng.between(20, STEP_MAX_NS));
        let next = match state {
            State::Pick => match self.pick(own) {
                Some(task) => State::Enter(self.green(task)),
                None => self.begin_search(own),
            },
            State::Search(until_ns, busy) => self.search(own, until_ns, busy),
            State::Enter(green) => self.enter(own, green),
            State::On(green) => match self.step_green(own, green) {
                Did::Went(ns) => {
                    delay_ns = Some(ns);
                    State::On(green)
                }
                did => self.leave(own, green, did),
            },
            State::Leave(green) => {
                self.tasks[green].on_cpu.store(0, Ordering::Release);
                State::Pick
            }
            rest => self.rest(own, rest, &mut delay_ns),
        };
        self.carriers[own].state = next;
        if let Some(delay_ns) = delay_ns {
            self.schedule(own, delay_ns);
        }
    }

    // Picking.

    fn pick(&mut self, own: usize) -> Option<TaskRef> {
        let count = self.carriers[own].picks.wrapping_add(1);
        self.carriers[own].picks = count;
        self.mirror.pick(own);
        let tick = Tick::of(count);
        if tick.poll && self.fault != Fault::NeverPolls {
            self.expire(own);
        }
        if tick.injector
            && let Some(task) = self.injector.pop()
        {
            assert_eq!(Some(self.green(task)), self.mirror.pop_injector());
            return Some(task);
        }
        if tick.fair
            && self.fault != Fault::NeverFair
            && let Some(task) = self.pop_ring(own)
        {
            return Some(task);
        }
        self.take_slot(own)
            .or_else(|| self.pop_ring(own))
            .or_else(|| self.take_injected(own))
    }

    fn pop_ring(&mut self, own: usize) -> Option<TaskRef> {
        let task = self.carriers[own].queue.pop_ring();
        assert_eq!(
            task.map(|task| self.green(task)),
            self.mirror.pop_ring(own),
            "out of order"
        );
        task
    }

    fn take_slot(&mut self, victim: usize) -> Option<TaskRef> {
        let task = self.carriers[victim].queue.take_lifo();
        assert_eq!(
            task.map(|task| self.green(task)),
            self.mirror.take_slot(victim)
        );
        task
    }

    /// Takes a fair share of the injector: one to run, the rest into the ring.
    fn take_injected(&mut self, own: usize) -> Option<TaskRef> {
        let waiting = self.injector.len();
        if waiting == 0 {
            return None;
        }
        let share = (waiting / self.carriers.len() + 1).min(CAPACITY / 2);
        let taken = self.injector.pop_some(share);
        assert!(taken.len() <= share && !taken.is_empty());
        let mut first = None;
        while let Some(task) = taken.pop() {
            let green = self.green(task);
            assert_eq!(
                Some(green),
                self.mirror.pop_injector(),
                "injected out of order"
            );
            if first.is_none() {
                first = Some(task);
            } else {
                self.mirror.displace(own, green);
                self.push_real_ring(own, task);
            }
        }
        first
    }

    // Searching.

    fn begin_search(&mut self, own: usize) -> State {
        self.carriers[own].idle_since_ns.get_or_insert(self.now_ns);
        if self.carriers.len() == 1 {
            return State::Rest;
        }
        if let Some(stolen) = self.steal_rings(own) {
            return stolen;
        }
        let busy = self
            .carriers
            .iter()
            .enumerate()
            .filter(|&(id, other)| id != own && other.runs);
        let mut busy: Vec<_> = busy.map(|(id, other)| (id, other.switches)).collect();
        if self.fault == Fault::WatchesFirst {
            busy.truncate(1);
        }
        if busy.is_empty() {
            return State::Rest;
        }
        State::Search(self.now_ns + SEARCH_NS - 2 * STEP_MAX_NS, busy)
    }

    fn search(&mut self, own: usize, until_ns: u64, busy: Vec<(usize, u64)>) -> State {
        if !self.injector.is_empty() {
            return State::Pick;
        }
        if let Some(stolen) = self.steal_rings(own) {
            return stolen;
        }
        if self.now_ns < until_ns {
            return State::Search(until_ns, busy);
        }
        for (other, switches) in busy {
            if self.carriers[other].switches == switches
                && let Some(task) = self.take_slot(other)
            {
                self.note_theft(other);
                return State::Enter(self.green(task));
            }
        }
        State::Rest
    }

    /// Steals half of the first ring that isn't empty: one to run, the rest into the own ring.
    fn steal_rings(&mut self, own: usize) -> Option<State> {
        for other in (0..self.carriers.len()).filter(|&other| other != own) {
            let had = self.carriers[own].queue.ring_len();
            if self.fault == Fault::StealsIntoRing {
                let count = self.carriers[own]
                    .queue
                    .steal_from(&self.carriers[other].queue);
                self.mirror.steal(own, other, count);
                if count > 0 {
                    self.note_theft(other);
                    return Some(State::Pick);
                }
            } else if let Some(task) = self.carriers[own].queue.steal(&self.carriers[other].queue) {
                assert_eq!(
                    Some(self.green(task)),
                    self.mirror.pop_ring(other),
                    "out of order"
                );
                let count = self.carriers[own].queue.ring_len() - had;
                self.mirror.steal(own, other, count);
                self.note_theft(other);
                return Some(State::Enter(self.green(task)));
            }
        }
        None
    }

    fn note_theft(&mut self, victim: usize) {
        self.judge.thefts += 1;
        self.carriers[victim].robbed = true;
    }

    // Running.

    fn enter(&mut self, own: usize, green: usize) -> State {
        let on_cpu = &self.tasks[green].on_cpu;
        if on_cpu.load(Ordering::Acquire) != 0 {
            return State::Enter(green);
        }
        on_cpu.store(1, Ordering::Relaxed);
        self.mirror.run(green, own);
        let carrier = &mut self.carriers[own];
        carrier.runs = true;
        carrier.switches += 1;
        carrier.idle_since_ns = None;
        carrier.on_since_ns = Some(self.now_ns);
        State::On(green)
    }

    fn leave(&mut self, own: usize, green: usize, did: Did) -> State {
        if let Some(since_ns) = self.carriers[own].on_since_ns.take() {
            self.judge.slice_ns = self.judge.slice_ns.max(self.now_ns - since_ns);
        }
        match did {
            Did::Yielded => {
                let task = self.task(green);
                self.push_ring(own, task);
            }
            Did::Ended => self.mirror.park(green, Place::Done),
            // The mirror noted the park before the thread could be woken.
            Did::Parked | Did::Went(_) => {}
        }
        State::Leave(green)
    }

    fn step_green(&mut self, own: usize, green: usize) -> Did {
        let deadline_ns = core::mem::take(&mut self.greens[green].deadline_ns);
        if deadline_ns != 0 && self.resume(green) == Wake::TimedOut {
            self.greens[green].at += 1;
        }
        let Some(&step) = self.greens[green].steps.get(self.greens[green].at) else {
            return Did::Ended;
        };
        let did = match step {
            Step::Run(ns) => Did::Went(ns),
            Step::Post(counter) => self.post(own, counter, 1),
            Step::PostMany(counter, many) => self.post(own, counter, many),
            Step::Yield => Did::Yielded,
            Step::Sleep(ns) => {
                self.task(green).get().prepare();
                self.mirror.park(green, Place::Waiting);
                self.set_deadline(green, ns);
                return Did::Parked;
            }
            Step::Wait(counter) => self.take(green, counter, NEVER),
            Step::WaitFor(counter, ns) => self.take(green, counter, ns),
        };
        if !matches!(did, Did::Parked) {
            self.greens[green].at += 1;
        }
        did
    }

    fn post(&mut self, own: usize, counter: usize, many: u32) -> Did {
        let word = &self.counters[counter];
        word.set(word.get() + many);
        let woken = TaskList::new();
        self.table.wake(key(counter), many as usize, !0, &woken);
        if woken.len() == 1 {
            woken
                .pop()
                .into_iter()
                .for_each(|task| self.unpark_on(own, task));
        } else {
            self.unpark_all(own, woken);
        }
        Did::Went(self.rng.between(30, STEP_MAX_NS))
    }

    fn take(&mut self, green: usize, counter: usize, ns: u64) -> Did {
        let task = self.task(green);
        task.get().prepare();
        let word = &self.counters[counter];
        let node = &self.greens[green].node;
        // SAFETY: green threads and their nodes live as long as the table.
        if !unsafe {
            self.table
                .enqueue(node, task, key(counter), !0, || word.get() == 0)
        } {
            word.set(word.get() - 1);
            return Did::Went(self.rng.between(20, STEP_MAX_NS));
        }
        self.mirror.park(green, Place::Waiting);
        self.set_deadline(green, ns);
        Did::Parked
    }

    fn set_deadline(&mut self, green: usize, ns: u64) {
        let deadline_ns = self.now_ns.saturating_add(ns);
        self.greens[green].deadline_ns = deadline_ns;
        if ns == NEVER || !self.timers.insert(self.task(green), deadline_ns) {
            return;
        }
        if self.poller.is_some() && deadline_ns < self.poller_deadline_ns {
            self.kick();
        }
    }

    fn resume(&mut self, green: usize) -> Wake {
        let task = self.task(green);
        let outcome = task.get().outcome();
        if outcome != Wake::TimedOut {
            self.timers.remove(task);
        }
        if outcome != Wake::Woken {
            // SAFETY: the node was given to this table, or to none.
            unsafe { self.table.cancel(&self.greens[green].node) };
        }
        outcome
    }

    // Resting.

    fn rest(&mut self, own: usize, state: State, delay_ns: &mut Option<u64>) -> State {
        let looks = self.fault != Fault::NoSecondLook;
        match state {
            State::Rest if self.poller.is_none() => {
                self.poller = Some(own);
                self.carriers[own].woken = false;
                self.carriers[own].runs = false;
                State::PollerPublishes
            }
            State::Rest => {
                self.carriers[own].woken = false;
                self.carriers[own].runs = false;
                self.idle.insert(own);
                State::SleeperLooks
            }
            State::PollerPublishes => {
                self.poller_deadline_ns = self.timers.earliest_ns();
                State::PollerLooks
            }
            State::PollerLooks => {
                let deadline_ns = self.timers.earliest_ns();
                let work = !self.injector.is_empty() && looks;
                let due = work || deadline_ns < self.poller_deadline_ns;
                if !due && !self.carriers[own].woken {
                    let late_ns = self.rng.between(0, WAKE_MAX_NS);
                    let sleep_ns = self.poller_deadline_ns.saturating_sub(self.now_ns) + late_ns;
                    *delay_ns = (self.poller_deadline_ns != NEVER).then_some(sleep_ns);
                }
                State::Polling
            }
            State::Polling => {
                self.poller = None;
                self.carriers[own].runs = true;
                self.expire(own);
                self.carrier_awoke();
                State::Pick
            }
            State::SleeperLooks => {
                let work = !self.injector.is_empty() && looks || self.poller.is_none();
                if work || self.carriers[own].woken {
                    return State::Awake;
                }
                *delay_ns = None;
                State::Asleep
            }
            State::Asleep => State::Awake,
            _ => {
                self.idle.take(own);
                self.expire(own);
                self.carriers[own].runs = true;
                self.carrier_awoke();
                State::Pick
            }
        }
    }
}
