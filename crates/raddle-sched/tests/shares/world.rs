//! Imaginary carriers and tasks around the real order.

use raddle_sched::policies::Weight;
use raddle_sched::policy::QUANTUM_NS;
use raddle_sched::share::{
    Account, AheadQueue, Chooser, FairClock, GRANULARITY_NS, JointAccount, Load, Sources,
    gives_way, slice_ns,
};
use raddle_sched::{Injector, RunQueue, Task, TaskRef};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::used::Used;

mod works;

pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1000 * US;
/// How often sysmon looks at turns that may be over.
const LOOK_NS: u64 = 100 * US;
/// The most tasks of a world.
const MOST_TASKS: usize = 4096;
/// Time between two tasks on a carrier.
const SWITCH_NS: u64 = 200;
/// How long calls take that make or lock something.
const MOMENT_NS: u64 = US;

/// What a task does.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    /// Runs all the time.
    Compute,
    /// Runs and sleeps in turn, for times between these.
    RunAndSleep { run: (u64, u64), sleep: (u64, u64) },
    /// Runs for a time, wakes the task after it, and waits to be woken.
    First(u64),
    /// Runs for a time, wakes the task before it, and waits to be woken.
    Second(u64),
    /// Runs for a time, wakes the task after it, and runs on.
    Waker(u64),
    /// Runs for a time, and waits to be woken.
    Woken(u64),
    /// Runs for a time, wakes one of so many tasks after it in turn, and runs on.
    Dispatch(u64, usize),
    /// Runs for a time and yields.
    Yield(u64),
    /// Runs for a time, makes a new task of the one after it, runs on for a moment, and waits for
    /// the new task's end.
    Create(u64),
    /// Runs for a time and ends.
    Created(u64),
    /// Tries for a moment to lock what the task that is so many places before it holds, and lends
    /// it the turn.
    Lend(usize),
}

struct Green {
    behaviour: Behaviour,
    used: Used,
    ran_ns: u64,
    /// Which task it wakes next, counted from its own place.
    next: usize,
    /// The rest of the current piece of work.
    left_ns: u64,
    runnable_since_ns: Option<u64>,
    was_woken: bool,
    waits: bool,
    longest_wait_ns: u64,
    /// Which task has lent this one its turn.
    lender: Option<usize>,
}

struct Carrier {
    queue: RunQueue,
    chooser: Chooser,
    running: Option<usize>,
    since_ns: u64,
    /// Counts turns, so that events of earlier turns are recognised.
    turn: u64,
    sleeps: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The task on a carrier has done its piece of work, if this turn still lasts.
    Done(usize, u64),
    /// A carrier picks.
    Pick(usize),
    Wake(usize),
    Look,
}

pub(crate) struct World {
    now_ns: u64,
    seed: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    carriers: Vec<Carrier>,
    tasks: Vec<Task>,
    runnable: usize,
    greens: Vec<Green>,
    ahead: AheadQueue,
    injector: Injector,
    clock: FairClock,
    joint: Rc<JointAccount>,
    pub longest_wait_ns: u64,
    pub longest_wake_ns: u64,
    pub wake_ns: u64,
    pub wakes: u64,
    pub most_runnable: usize,
    /// The niceness of tasks that are added.
    pub nice: i32,
    /// A fault on purpose: tasks that are ahead run only if no other waits.
    pub prefers_sleepers: bool,
    /// A fault on purpose: the last turn of a task that ends is not counted.
    pub forgets_last_turns: bool,
    /// A fault on purpose: a turn that is lent costs the lender nothing.
    pub lends_for_nothing: bool,
    /// Tasks at the end of their sleep are also queued on carriers.
    pub wakes_anywhere: bool,
    /// The carriers get 1 / `host_share` of their CPUs.
    pub host_share: u64,
}

struct Queues<'a> {
    world: &'a World,
    own: usize,
}

impl Sources for Queues<'_> {
    fn look_around(&mut self) {}

    fn take_slot(&mut self) -> Option<TaskRef> {
        self.world.carriers[self.own].queue.take_lifo()
    }

    fn take_ring(&mut self) -> Option<TaskRef> {
        self.world.carriers[self.own].queue.pop_ring()
    }

    fn take_injected(&mut self) -> Option<TaskRef> {
        self.world.injector.pop()
    }

    fn queued(&self) -> usize {
        self.world.carriers[self.own].queue.len()
    }

    fn steal(&mut self) -> Option<TaskRef> {
        let others = self.world.carriers.iter().enumerate();
        others
            .filter(|&(at, other)| at != self.own && other.queue.ring_len() > 1)
            .find_map(|(_, other)| other.queue.pop_ring())
    }
}

impl World {
    pub(crate) fn new(seed: u64, carriers: usize) -> Self {
        let carrier = || Carrier {
            queue: RunQueue::new(),
            chooser: Chooser::default(),
            running: None,
            since_ns: 0,
            turn: 0,
            sleeps: false,
        };
        let mut world = Self {
            now_ns: MS,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            events: BinaryHeap::new(),
            carriers: (0..carriers).map(|_| carrier()).collect(),
            tasks: Vec::with_capacity(MOST_TASKS),
            runnable: 0,
            greens: Vec::new(),
            ahead: AheadQueue::new(),
            injector: Injector::new(),
            clock: FairClock::new(),
            joint: Rc::new(JointAccount::new()),
            longest_wait_ns: 0,
            longest_wake_ns: 0,
            wake_ns: 0,
            wakes: 0,
            most_runnable: 0,
            nice: 0,
            prefers_sleepers: false,
            forgets_last_turns: false,
            lends_for_nothing: false,
            wakes_anywhere: false,
            host_share: 1,
        };
        for own in 0..carriers {
            world.after(0, Event::Pick(own));
        }
        world.after(LOOK_NS, Event::Look);
        world
    }

    pub(crate) fn carriers(&self) -> usize {
        self.carriers.len()
    }

    pub(crate) fn ran_ns(&self, green: usize) -> u64 {
        self.greens[green].ran_ns
    }

    pub(crate) fn longest_wait_ns(&self, green: usize) -> u64 {
        let since_ns = self.greens[green].runnable_since_ns;
        let waits_ns = since_ns.map_or(0, |since_ns| self.now_ns.saturating_sub(since_ns));
        self.greens[green].longest_wait_ns.max(waits_ns)
    }

    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed >> 11
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.random() % (most - least + 1)
    }

    fn after(&mut self, delay_ns: u64, event: Event) {
        let tie = self.random();
        self.events
            .push(Reverse((self.now_ns + delay_ns, tie, event)));
    }

    pub(crate) fn add(&mut self, behaviour: Behaviour) -> usize {
        let green = self.greens.len();
        let waits = matches!(
            behaviour,
            Behaviour::Second(_) | Behaviour::Woken(_) | Behaviour::Created(_)
        );
        self.greens.push(Green {
            behaviour,
            used: Used {
                own: Account::new(),
                joint: None,
                weight: Weight::of_nice(self.nice),
            },
            ran_ns: 0,
            next: 0,
            left_ns: 0,
            runnable_since_ns: None,
            was_woken: false,
            waits,
            longest_wait_ns: 0,
            lender: None,
        });
        assert!(green < MOST_TASKS, "tasks must not move");
        self.tasks.push(Task::new());
        if !waits {
            self.make_runnable(green);
            self.injector.push(self.task(green));
        }
        green
    }

    /// Adds a task that computes and has the joint account.
    pub(crate) fn add_joint(&mut self) -> usize {
        let green = self.add(Behaviour::Compute);
        self.greens[green].used.joint = Some(Rc::clone(&self.joint));
        green
    }

    pub(crate) fn add_pair(&mut self, run_ns: u64) {
        self.add(Behaviour::First(run_ns));
        self.add(Behaviour::Second(run_ns));
    }

    pub(crate) fn add_waker(&mut self, every_ns: u64, run_ns: u64) {
        self.add(Behaviour::Waker(every_ns));
        self.add(Behaviour::Woken(run_ns));
    }

    pub(crate) fn add_creator(&mut self, every_ns: u64, run_ns: u64) {
        self.add(Behaviour::Create(every_ns));
        self.add(Behaviour::Created(run_ns));
    }

    pub(crate) fn add_dispatcher(&mut self, every_ns: u64, workers: usize, run_ns: u64) {
        self.add(Behaviour::Dispatch(every_ns, workers));
        (0..workers).for_each(|_| {
            self.add(Behaviour::Woken(run_ns));
        });
    }

    pub(crate) fn add_random_mix(&mut self) {
        for _ in 0..self.between((1, 3 * self.carriers.len() as u64 + 8)) {
            let long_ns = [5 * US, 50 * US, 500 * US, 5 * MS][self.random() as usize % 4];
            let run = (1000, long_ns);
            let run_ns = self.between(run);
            match self.random() % 9 {
                0 => drop(self.add(Behaviour::Compute)),
                1 => self.add_pair(run_ns),
                8 => self.add_creator(run_ns.div_ceil(3), run_ns),
                2 => self.add_waker(long_ns, run_ns),
                3 => drop(self.add(Behaviour::Yield(run_ns))),
                5 => {
                    let workers = self.between((1, 20)) as usize;
                    self.add_dispatcher(run_ns.div_ceil(3), workers, run_ns);
                }
                4 => drop(self.add(Behaviour::RunAndSleep {
                    run,
                    sleep: (100, 5 * US),
                })),
                _ => drop(self.add(Behaviour::RunAndSleep {
                    run,
                    sleep: (1000, 2 * long_ns),
                })),
            }
        }
    }

    fn task(&self, green: usize) -> TaskRef {
        // SAFETY: tasks live as long as the world, and don't move.
        unsafe { TaskRef::new(NonNull::from(&self.tasks[green])) }
    }

    fn green(&self, task: TaskRef) -> usize {
        (task.as_ptr().addr() - self.tasks.as_ptr().addr()) / size_of::<Task>()
    }

    pub(crate) fn play(&mut self, time_ns: u64) {
        let end_ns = self.now_ns + time_ns;
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns > end_ns {
                break;
            }
            self.now_ns = at_ns;
            match event {
                Event::Done(own, turn) if self.carriers[own].turn == turn => self.work_done(own),
                Event::Done(..) => {}
                Event::Pick(own) => self.pick(own),
                Event::Wake(green) => self.sleep_ends(green),
                Event::Look => self.look(),
            }
        }
        let waiting = self
            .greens
            .iter()
            .filter_map(|green| green.runnable_since_ns);
        let longest_ns = waiting
            .map(|since_ns| end_ns.saturating_sub(since_ns))
            .max();
        self.longest_wait_ns = self.longest_wait_ns.max(longest_ns.unwrap_or(0));
    }

    // Tasks become runnable.

    /// Queues a task at the end of its sleep: from outside of all carriers, on a carrier that
    /// looked at timers, or on one that handled a signal.
    fn sleep_ends(&mut self, green: usize) {
        let own = self.random() as usize % self.carriers.len();
        match self.random() % 3 {
            place @ 0..=1 if self.wakes_anywhere && self.carriers[own].running.is_some() => {
                self.queue(own, green, place == 0);
            }
            _ => {
                self.make_runnable(green);
                self.injector.push(self.task(green));
                self.wake_carrier();
            }
        }
    }

    fn make_runnable(&mut self, green: usize) {
        self.greens[green].runnable_since_ns = Some(self.now_ns);
        self.runnable += 1;
        let running = self.carriers.iter().filter(|c| c.running.is_some());
        self.most_runnable = self.most_runnable.max(self.runnable + running.count());
    }

    /// Queues a task on a carrier by its account; in the slot if it was woken.
    fn queue(&mut self, own: usize, green: usize, is_woken: bool) {
        self.make_runnable(green);
        let used = &self.greens[green].used;
        let task = self.task(green);
        if used.is_ahead_after(0, &self.clock) {
            self.ahead.push(task, used.due_ns(&self.clock));
        } else {
            let displaced = if is_woken {
                self.carriers[own].queue.push_lifo(task)
            } else {
                Some(task)
            };
            if let Some(task) = displaced
                && let Some(overflow) = self.carriers[own].queue.push(task)
            {
                self.injector.push_all(overflow);
            }
        }
        self.wake_carrier();
    }

    fn wake_carrier(&mut self) {
        if let Some(own) = self.carriers.iter().position(|carrier| carrier.sleeps) {
            self.carriers[own].sleeps = false;
            self.after(20 * US, Event::Pick(own));
        }
    }

    // Turns.

    /// Charges the running task.
    fn settle(&mut self, own: usize) -> u64 {
        let carrier = &mut self.carriers[own];
        let turn_ns = (self.now_ns - carrier.since_ns) / self.host_share;
        carrier.since_ns = self.now_ns;
        let fair_ns = match carrier.running {
            Some(_) => self.clock.advance(turn_ns),
            None => self.clock.read_ns(),
        };
        if let Some(green) = carrier.running {
            let green = &mut self.greens[green];
            green.ran_ns += turn_ns;
            green.left_ns = green.left_ns.saturating_sub(turn_ns);
            green.used.ran(self.now_ns, turn_ns, &self.clock);
            let lender = green.lender.take().filter(|_| !self.lends_for_nothing);
            if let Some(lender) = lender {
                self.greens[lender].used.lent(turn_ns, &self.clock);
            }
        }
        let _ = carrier
            .chooser
            .turn_ended(self.now_ns, turn_ns, !self.ahead.is_empty());
        fair_ns
    }

    fn pick(&mut self, own: usize) {
        if self.carriers[own].running.is_some() {
            return;
        }
        self.carriers[own].since_ns = self.now_ns;
        let fair_ns = if self.prefers_sleepers {
            0
        } else {
            self.settle(own)
        };
        let mut queues = Queues { world: self, own };
        let chooser = &self.carriers[own].chooser;
        let task = chooser.choose(self.now_ns, fair_ns, &self.ahead, &mut queues);
        let task = task.or_else(|| self.steal_any(own));
        let Some(task) = task else {
            self.carriers[own].sleeps = true;
            return self.note_load();
        };
        let green = self.green(task);
        self.start(own, green);
        self.note_load();
    }

    fn steal_any(&self, own: usize) -> Option<TaskRef> {
        let others = self
            .carriers
            .iter()
            .enumerate()
            .filter(|&(at, _)| at != own);
        others
            .map(|(_, other)| &other.queue)
            .find_map(|queue| queue.pop_ring().or_else(|| queue.take_lifo()))
    }

    /// Notes the load while the carrier is about to run a task, or none.
    fn note_load(&mut self) {
        let runs = self.carriers.iter().filter(|c| c.running.is_some()).count();
        self.clock.note(Load {
            carriers: runs.max(1) as u32,
            runnable: (self.runnable + runs) as u32,
        });
    }

    fn start(&mut self, own: usize, green: usize) {
        let since_ns = self.greens[green].runnable_since_ns.take();
        let waited_ns = self.now_ns - since_ns.expect("a task runs that was not queued");
        self.runnable -= 1;
        self.longest_wait_ns = self.longest_wait_ns.max(waited_ns);
        let longest_ns = &mut self.greens[green].longest_wait_ns;
        *longest_ns = (*longest_ns).max(waited_ns);
        if std::mem::take(&mut self.greens[green].was_woken) {
            self.longest_wake_ns = self.longest_wake_ns.max(waited_ns);
            self.wake_ns += waited_ns;
            self.wakes += 1;
        }
        if self.greens[green].left_ns == 0 {
            self.greens[green].left_ns = match self.greens[green].behaviour {
                Behaviour::Compute => u64::MAX,
                Behaviour::RunAndSleep { run, .. } => self.between(run),
                Behaviour::First(ns)
                | Behaviour::Second(ns)
                | Behaviour::Waker(ns)
                | Behaviour::Woken(ns)
                | Behaviour::Dispatch(ns, _)
                | Behaviour::Create(ns)
                | Behaviour::Created(ns)
                | Behaviour::Yield(ns) => ns,
                Behaviour::Lend(_) => MOMENT_NS,
            };
        }
        self.greens[green].used.begin(&self.clock);
        let carrier = &mut self.carriers[own];
        carrier.running = Some(green);
        carrier.since_ns = self.now_ns;
        carrier.turn += 1;
        self.next_done(own);
    }

    fn next_done(&mut self, own: usize) {
        let carrier = &self.carriers[own];
        let Some(green) = carrier.running else {
            return;
        };
        let (turn, green) = (carrier.turn, &self.greens[green]);
        if !matches!(green.behaviour, Behaviour::Compute) {
            self.after(green.left_ns, Event::Done(own, turn));
        }
    }

    /// The running task leaves its carrier, which picks the next one.
    fn leave(&mut self, own: usize) -> usize {
        self.settle(own);
        let carrier = &mut self.carriers[own];
        carrier.turn += 1;
        let green = carrier.running.take().expect("a running task");
        self.after(SWITCH_NS, Event::Pick(own));
        green
    }

    fn preempt(&mut self, own: usize) {
        let green = self.leave(own);
        self.carriers[own].chooser.made_room();
        self.make_runnable(green);
        let due_ns = self.greens[green].used.due_ns(&self.clock);
        self.ahead.push(self.task(green), due_ns);
    }

    /// Sysmon ends turns that are over.
    fn look(&mut self) {
        for own in 0..self.carriers.len() {
            let carrier = &self.carriers[own];
            let Some(green) = carrier.running else {
                continue;
            };
            let held_ns = self.now_ns - carrier.since_ns;
            let due_waits = !carrier.queue.is_empty() || !self.injector.is_empty();
            let used = &self.greens[green].used;
            let is_ahead = used.is_ahead_after(held_ns, &self.clock);
            let recent_ns = |green: usize| self.greens[green].used.own.recent_ns(self.now_ns);
            let woken = carrier.queue.peek_lifo().map(|task| self.green(task));
            let slice_ns = match woken {
                Some(woken) if gives_way(recent_ns(green) + held_ns, recent_ns(woken)) => {
                    GRANULARITY_NS
                }
                _ if due_waits && is_ahead => slice_ns(self.clock.load(), QUANTUM_NS),
                _ => QUANTUM_NS,
            };
            let waits = due_waits || !self.ahead.is_empty();
            let fresh = !self.injector.is_empty() && held_ns >= GRANULARITY_NS;
            if waits && (held_ns >= slice_ns || fresh) {
                self.preempt(own);
            }
        }
        self.after(LOOK_NS * self.host_share, Event::Look);
    }
}
