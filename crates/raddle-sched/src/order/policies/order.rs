//! The policy in use, behind the injector's lock.

use super::fair::GROUPS;
use super::foreign::{Fault, Host, Table};
use super::{Deadline, Fair, Foreign, Kind, Lanes, Lifo, Policy, Reason};
use crate::task::{TaskList, TaskRef, of};

/// All policies, of which one is in use. All zero is fifo without tasks.
pub struct Order {
    kind: Kind,
    len: usize,
    /// How many of them wait since their quantum was over.
    made_room: usize,
    fifo: TaskList,
    lifo: Lifo,
    lanes: Lanes,
    fair: Fair,
    deadline: Deadline,
    foreign: Foreign,
}

impl Order {
    /// Fifo, without tasks.
    pub const fn new() -> Self {
        Self {
            kind: Kind::Fifo,
            len: 0,
            made_room: 0,
            fifo: TaskList::new(),
            lifo: Lifo::new(),
            lanes: Lanes::new(),
            fair: Fair::new(),
            deadline: Deadline::new(),
            foreign: Foreign::new(),
        }
    }

    /// Changes the policy to a built-in one, which gets the tasks that wait in their order so far.
    pub fn choose(&mut self, kind: Kind, now_ns: u64) {
        if kind == self.kind {
            return;
        }
        if self.kind == Kind::Plugin {
            self.foreign.leave();
        }
        let waiting = TaskList::new();
        while let Some(task) = self.take_any(now_ns) {
            waiting.push(task);
        }
        self.kind = kind;
        while let Some(task) = waiting.pop() {
            self.enqueue(task, Reason::Woken, now_ns);
        }
    }

    /// Takes a task out of the policy in use, which is about to change.
    fn take_any(&mut self, now_ns: u64) -> Option<TaskRef> {
        if self.kind != Kind::Plugin {
            return self.pick(now_ns);
        }
        let task = self.foreign.give_up()?;
        self.made_room -= usize::from(of(task).made_room.replace(false));
        self.len -= 1;
        Some(task)
    }

    /// As [`Order::choose`], for a plug-in.
    pub fn choose_foreign(&mut self, table: &'static Table, host: Host) {
        self.choose(Kind::Plugin, 0);
        self.foreign.set(table, host);
    }

    /// Returns the policy in use.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// See [`Fair::set_shares`].
    pub fn set_shares(&mut self, weights: &[u32; GROUPS]) {
        self.fair.set_shares(weights);
    }

    /// See [`Fair::shares`].
    pub fn shares(&self) -> [u32; GROUPS] {
        self.fair.shares()
    }

    /// Forgets all tasks, which belong to another process.
    pub fn forget(&mut self) {
        let (kind, shares) = (self.kind, self.shares());
        let foreign = core::mem::take(&mut self.foreign);
        *self = Self::new();
        self.set_shares(&shares);
        self.kind = kind;
        self.foreign = foreign;
        if kind == Kind::Plugin {
            self.foreign.begin();
        }
    }

    /// Returns the number of tasks that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no task waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if tasks wait and each of them has computed until its quantum was over.
    pub fn all_compute(&self) -> bool {
        self.len != 0 && self.made_room == self.len
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match self.kind {
            Kind::Fifo => &mut self.fifo,
            Kind::Lifo => &mut self.lifo,
            Kind::Priority => &mut self.lanes,
            Kind::Fair => &mut self.fair,
            Kind::Deadline => &mut self.deadline,
            Kind::Plugin => &mut self.foreign,
        }
    }

    /// Returns what a plug-in did wrong, once: the policy is fifo from then on.
    pub fn take_fault(&mut self) -> Option<Fault> {
        let fault = self.foreign.fault.take()?;
        if self.kind != Kind::Plugin {
            return None;
        }
        self.kind = Kind::Fifo;
        while let Some(task) = self.foreign.give_up() {
            self.fifo.push(task);
        }
        Some(fault)
    }

    /// A task became runnable.
    pub fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64) {
        self.len += 1;
        if self.kind == Kind::Fifo {
            return self.fifo.push(task);
        }
        let made_room = reason == Reason::Preempted;
        of(task).made_room.set(made_room);
        self.made_room += usize::from(made_room);
        self.policy().enqueue(task, reason, now_ns);
    }

    /// A running task ends.
    pub fn ended(&mut self, task: TaskRef) {
        if self.kind == Kind::Fair {
            self.fair.ended(task);
        }
    }

    /// Takes the task that runs next; `None` if none waits, or if [`Order::take_fault`] returns a
    /// fault.
    pub fn pick(&mut self, now_ns: u64) -> Option<TaskRef> {
        let task = match self.kind {
            Kind::Fifo => self.fifo.pop(),
            _ => self.policy().pick(now_ns),
        }?;
        self.len -= 1;
        self.made_room -= usize::from(of(task).made_room.replace(false));
        Some(task)
    }

    /// See [`Policy::quantum_ns`].
    pub fn quantum_ns(&mut self, running: TaskRef, default_ns: u64) -> u64 {
        self.policy().quantum_ns(running, default_ns)
    }

    /// See [`Policy::outranks`].
    pub fn outranks(&mut self, running: TaskRef) -> bool {
        self.policy().outranks(running)
    }
}

impl Default for Order {
    fn default() -> Self {
        Self::new()
    }
}
