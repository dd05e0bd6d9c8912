//! A whole small scheduler: carriers are shuttle's threads, green threads are state machines.
//!
//! A *green thread* has a list of steps: it posts to a counter, waits for one (with or without a
//! deadline), sleeps, yields. A *carrier* picks as the engine does (slot, ring, injector, theft),
//! waits for `on_cpu`, runs one green thread up to its next park, and sleeps if it finds no work.
//! The *clock* advances virtual time while a thread waits for it. If a wake-up is lost, every
//! thread blocks in the end, and shuttle reports that.

use crate::{Bed, Tasks, explore};
use core::cell::Cell;
use raddle_sched::policy::Tick;
use raddle_sched::timers::NEVER;
use raddle_sched::{
    IdleSet, Injector, RunQueue, TaskList, TaskRef, Timers, WaitNode, WaitTable, Wake,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shuttle::thread;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Post(usize),
    Wait(usize),
    WaitFor(usize, u64),
    Sleep(u64),
    Yield,
}

/// A fault put in on purpose, to see that it is found.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A waiter checks its counter before it raises the count of waiters.
    EarlyCheck,
    /// A carrier looks at the injector before it publishes that it sleeps.
    EarlyLook,
    /// The picker of a green thread doesn't wait until the thread is off its stack.
    NoOnCpu,
}

struct Green {
    steps: Vec<Step>,
    /// The thread's next step. Like the next field, written by the carrier that runs the thread.
    at: Cell<usize>,
    /// The deadline of the current wait; 0 without one.
    deadline_ns: Cell<u64>,
    /// 1 while a carrier runs it.
    running: AtomicU32,
}

// SAFETY: a green thread runs on one carrier at a time; `running` checks it.
unsafe impl Sync for Green {}

struct World {
    fault: Fault,
    tasks: Tasks,
    nodes: Vec<WaitNode>,
    greens: Vec<Green>,
    counters: Vec<AtomicU32>,
    table: WaitTable<2>,
    timers: Timers,
    now_ns: AtomicU64,
    queues: Vec<RunQueue>,
    injector: Injector,
    idle: IdleSet,
    beds: Vec<Bed>,
    /// Steps with deadlines that aren't done.
    timed: AtomicUsize,
    left: AtomicUsize,
}

impl World {
    fn new(carriers: usize, counters: usize, programs: Vec<Vec<Step>>, fault: Fault) -> Arc<Self> {
        let timed = |step: &&Step| matches!(step, Step::WaitFor(..) | Step::Sleep(_));
        Arc::new(Self {
            fault,
            tasks: Tasks::new(programs.len()),
            nodes: programs.iter().map(|_| WaitNode::new()).collect(),
            counters: (0..counters).map(|_| AtomicU32::new(0)).collect(),
            table: WaitTable::new(),
            timers: Timers::new(),
            now_ns: AtomicU64::new(1),
            queues: (0..carriers).map(|_| RunQueue::new()).collect(),
            injector: Injector::new(),
            idle: IdleSet::new(),
            beds: (0..carriers).map(|_| Bed::new()).collect(),
            timed: AtomicUsize::new(programs.iter().flatten().filter(timed).count()),
            left: AtomicUsize::new(programs.len()),
            greens: programs.into_iter().map(Green::new).collect(),
        })
    }

    fn wake_one(&self) {
        if let Some(id) = self.idle.take_one() {
            self.beds[id].wake();
        }
    }

    fn inject(&self, list: TaskList) {
        if !list.is_empty() {
            self.injector.push_all(list);
            self.wake_one();
        }
    }

    fn push(&self, own: usize, task: TaskRef) {
        if let Some(overflow) = self.queues[own].push(task) {
            self.inject(overflow);
        }
        if self.queues[own].ring_len() > 1 {
            self.wake_one();
        }
    }

    fn unpark(&self, own: usize, woken: TaskList) {
        while let Some(task) = woken.pop() {
            if let Some(displaced) = self.queues[own].push_lifo(task) {
                self.push(own, displaced);
            }
        }
    }

    /// Runs a picked green thread until it parks, yields or finishes.
    fn run(&self, own: usize, task: TaskRef) {
        let index = self.tasks.index(task);
        let green = &self.greens[index];
        while self.fault != Fault::NoOnCpu && task.get().on_cpu.load(Ordering::Acquire) != 0 {
            thread::yield_now();
        }
        task.get().on_cpu.store(1, Ordering::Relaxed);
        assert_eq!(
            green.running.swap(1, Ordering::SeqCst),
            0,
            "a green thread runs twice"
        );
        while self.step(own, index) {}
        // The switch off the stack: from here on another carrier may run the thread.
        green.running.store(0, Ordering::SeqCst);
        task.get().on_cpu.store(0, Ordering::Release);
    }

    /// Runs one step of a green thread. Returns false if the thread gave up the carrier.
    fn step(&self, own: usize, index: usize) -> bool {
        let green = &self.greens[index];
        let resumed = green.deadline_ns.replace(0);
        if resumed != 0 && self.resume(index, resumed) == Wake::TimedOut {
            self.timed.fetch_sub(1, Ordering::SeqCst);
            green.at.set(green.at.get() + 1);
        }
        let Some(&step) = green.steps.get(green.at.get()) else {
            if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.beds.iter().for_each(Bed::wake);
            }
            return false;
        };
        let goes_on = match step {
            Step::Post(counter) => {
                self.counters[counter].fetch_add(1, Ordering::SeqCst);
                let woken = TaskList::new();
                self.table.wake_fenced(counter * 8, 1, !0, &woken);
                self.unpark(own, woken);
                true
            }
            Step::Yield => {
                green.at.set(green.at.get() + 1);
                self.push(own, self.tasks.get(index));
                return false;
            }
            Step::Sleep(ns) => {
                self.tasks.get(index).get().prepare();
                self.set_deadline(index, ns);
                return false;
            }
            Step::Wait(counter) => self.take(index, counter, NEVER),
            Step::WaitFor(counter, ns) => self.take(index, counter, ns),
        };
        if goes_on {
            green.at.set(green.at.get() + 1);
        }
        goes_on
    }

    /// Takes one from a counter, or parks until it isn't zero or for `ns`; returns false if it
    /// parked.
    fn take(&self, index: usize, counter: usize, ns: u64) -> bool {
        let word = &self.counters[counter];
        let (task, node) = (self.tasks.get(index), &self.nodes[index]);
        loop {
            let take = |count: u32| count.checked_sub(1);
            if word
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_ok()
            {
                self.timed
                    .fetch_sub(usize::from(ns != NEVER), Ordering::SeqCst);
                return true;
            }
            task.get().prepare();
            let early = self.fault == Fault::EarlyCheck;
            let still = || early || word.load(Ordering::SeqCst) == 0;
            // SAFETY: nodes and tasks live as long as the world.
            if unsafe { self.table.enqueue(node, task, counter * 8, !0, still) } {
                self.set_deadline(index, ns);
                return false;
            }
        }
    }

    fn set_deadline(&self, index: usize, ns: u64) {
        let green = &self.greens[index];
        let deadline_ns = self.now_ns.load(Ordering::SeqCst).saturating_add(ns);
        green.deadline_ns.set(deadline_ns);
        if ns != NEVER {
            self.timers.insert(self.tasks.get(index), deadline_ns);
        }
    }

    /// Ends a park after the wake-up.
    fn resume(&self, index: usize, deadline_ns: u64) -> Wake {
        let task = self.tasks.get(index);
        let outcome = task.get().outcome();
        if outcome != Wake::TimedOut {
            self.timers.remove(task);
        } else {
            assert!(
                self.now_ns.load(Ordering::SeqCst) >= deadline_ns,
                "a timer fired early"
            );
        }
        if outcome != Wake::Woken {
            // SAFETY: the node was given to this table, or to none.
            unsafe { self.table.cancel(&self.nodes[index]) };
        }
        outcome
    }

    fn pick(&self, own: usize, count: u32) -> Option<TaskRef> {
        let (tick, queue) = (Tick::of(count), &self.queues[own]);
        let first = if tick.injector {
            self.injector.pop()
        } else {
            None
        };
        first
            .or_else(|| if tick.fair { queue.pop_ring() } else { None })
            .or_else(|| queue.take_lifo())
            .or_else(|| queue.pop_ring())
            .or_else(|| self.injector.pop())
    }

    fn steal(&self, own: usize) -> Option<TaskRef> {
        for other in (0..self.queues.len()).filter(|&other| other != own) {
            let first = self.queues[own].steal(&self.queues[other]);
            if first.is_some() {
                return first;
            }
        }
        self.queues[(own + 1) % self.queues.len()].take_lifo()
    }

    fn carrier(&self, own: usize) {
        for count in 0.. {
            if self.left.load(Ordering::SeqCst) == 0 {
                return;
            }
            match self.pick(own, count).or_else(|| self.steal(own)) {
                Some(task) => self.run(own, task),
                None => self.sleep(own),
            }
        }
    }

    fn sleep(&self, own: usize) {
        let early = self.injector.is_empty();
        self.idle.insert(own);
        let empty = if self.fault == Fault::EarlyLook {
            early
        } else {
            self.injector.is_empty()
        };
        if empty && self.left.load(Ordering::SeqCst) > 0 {
            self.beds[own].sleep();
        }
        self.idle.take(own);
    }

    /// Advances time while a thread waits for it.
    fn clock(&self) {
        for tick in 0.. {
            if self.timed.load(Ordering::SeqCst) == 0 {
                return;
            }
            assert!(
                tick < 20_000,
                "time passes and nobody runs: a wake-up was lost"
            );
            let step_ns = thread_rng().gen_range(1..5);
            let now_ns = self.now_ns.fetch_add(step_ns, Ordering::SeqCst) + step_ns;
            self.inject(self.timers.expire(now_ns));
            thread::yield_now();
        }
    }

    /// Runs everything to its end, then checks that nothing is left.
    fn play(world: &Arc<Self>) {
        for index in 0..world.tasks.len() {
            let list = TaskList::new();
            list.push(world.tasks.get(index));
            world.injector.push_all(list);
        }
        let carriers = (0..world.queues.len()).map(|own| {
            let world = world.clone();
            thread::spawn(move || world.carrier(own))
        });
        let carriers: Vec<_> = carriers.collect();
        world.clock();
        carriers
            .into_iter()
            .for_each(|carrier| carrier.join().unwrap());
        assert!(world.queues.iter().all(RunQueue::is_empty) && world.injector.is_empty());
        assert!((0..world.counters.len()).all(|counter| world.table.row_waiters(counter * 8) == 0));
        assert_eq!(world.timers.earliest_ns(), NEVER);
        assert!(
            world
                .greens
                .iter()
                .all(|green| green.at.get() == green.steps.len())
        );
    }
}

impl Green {
    fn new(steps: Vec<Step>) -> Self {
        let running = AtomicU32::new(0);
        Self {
            steps,
            at: Cell::new(0),
            deadline_ns: Cell::new(0),
            running,
        }
    }
}

/// Two green threads that hand each other `rounds` turns.
fn ping_pong(rounds: usize, first: usize) -> [Vec<Step>; 2] {
    let (ping, pong) = (first, first + 1);
    [
        [Step::Post(ping), Step::Wait(pong)].repeat(rounds),
        [Step::Wait(ping), Step::Post(pong)].repeat(rounds),
    ]
}

/// Hand-offs, producers and consumers, deadlines and yields at once.
fn mixed(carriers: usize, fault: Fault) {
    explore(move || {
        let mut programs = Vec::from(ping_pong(3, 0));
        programs.push([Step::Post(2), Step::Yield, Step::Post(2)].to_vec());
        programs.push([Step::Sleep(3), Step::Post(2), Step::Post(2)].to_vec());
        programs.push(vec![Step::Wait(2); 2]);
        programs.push([Step::Wait(2), Step::Yield, Step::Wait(2)].to_vec());
        programs.push([Step::WaitFor(3, 4), Step::WaitFor(3, 2), Step::Yield].to_vec());
        programs.push([Step::Sleep(2), Step::Post(3), Step::Yield, Step::Sleep(1)].to_vec());
        World::play(&World::new(carriers, 4, programs, fault));
    });
}

#[test]
fn three_carriers_bring_every_green_thread_to_its_end() {
    mixed(3, Fault::None);
}

#[test]
fn two_carriers_bring_every_green_thread_to_its_end() {
    mixed(2, Fault::None);
}

/// More runnable green threads than the rings hold.
#[test]
fn a_crowd_that_overflows_the_rings_ends_too() {
    explore(|| {
        let mut programs = vec![vec![Step::Yield, Step::Wait(0), Step::Yield]; 12];
        programs.push(vec![Step::Post(0); 12]);
        World::play(&World::new(3, 1, programs, Fault::None));
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_check_before_the_count_is_caught() {
    mixed(2, Fault::EarlyCheck);
}

#[test]
#[should_panic(expected = "a wake-up was lost")]
fn a_look_before_publishing_is_caught() {
    explore(|| {
        let programs = [
            [Step::Sleep(2)].to_vec(),
            [Step::Sleep(1), Step::Sleep(3)].to_vec(),
        ];
        World::play(&World::new(1, 1, programs.to_vec(), Fault::EarlyLook));
    });
}

#[test]
#[should_panic(expected = "a green thread runs twice")]
fn a_pick_that_ignores_on_cpu_is_caught() {
    mixed(3, Fault::NoOnCpu);
}
