//! Fair: CPU time by weight.
//!
//! A task's *virtual time* is the CPU time that it has used, divided by its weight; the task with
//! the least runs next. So while tasks compete, each gets time in proportion to its weight, whether
//! it computes all the time or in short pieces. Each step of niceness down multiplies the weight by
//! five quarters.
//!
//! Tasks are in *groups*. Groups share the time in the same way by their own weights, and the tasks
//! of a group share the group's part: that part doesn't depend on how many tasks the group has.
//!
//! A long absence earns no claim on all that time: a task that wakes, or a group that was empty,
//! has at least the virtual time that the last one picked had, less [`CREDIT_NS`].

use super::heap::Heap;
use super::{Policy, Reason};
use crate::order::share::GRANULARITY_NS;
use crate::task::{TaskRef, Terms, of};

/// The number of groups. Group 0 is the rest: tasks in no other group.
pub const GROUPS: usize = 16;
/// How far the virtual time of a task, or a group, that wakes may be behind those that ran.
pub const CREDIT_NS: u64 = 4_000_000;
/// The weight of niceness 0.
const UNIT: u64 = 1024;

/// Weights of niceness -20 to 19.
const WEIGHTS: [u64; 40] = {
    let mut weights = [0; 40];
    let mut index = 20;
    let mut fraction = UNIT << 16;
    while index < 40 {
        weights[index] = (fraction + (1 << 15)) >> 16;
        fraction = fraction * 4 / 5;
        index += 1;
    }
    index = 20;
    fraction = UNIT << 16;
    while index > 0 {
        index -= 1;
        fraction = fraction * 5 / 4;
        weights[index] = (fraction + (1 << 15)) >> 16;
    }
    weights
};

/// A task's part of CPU time, in proportion to that of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub(crate) u64);

impl Weight {
    /// The weight of niceness 0.
    pub const ONE: Self = Self(UNIT);

    /// Returns the weight of a task with these terms.
    pub fn of(terms: &Terms) -> Self {
        Self::of_nice(terms.nice())
    }

    /// Returns the weight of a task of niceness `nice`.
    pub fn of_nice(nice: i32) -> Self {
        Self(WEIGHTS[(nice.clamp(-20, 19) + 20) as usize])
    }

    /// Returns this weight in proportion to another one: [`Weight::ONE`] if they are the same.
    pub fn beside(self, usual: Self) -> Self {
        Self((self.0 * UNIT / usual.0.max(1)).max(1))
    }

    /// Returns the virtual time for `ran_ns` of CPU time.
    pub const fn virtual_ns(self, ran_ns: u64) -> u64 {
        ran_ns * UNIT / self.0
    }
}

struct Group {
    /// The group's tasks, by virtual time.
    heap: Heap,
    /// Virtual time of the task picked last.
    floor_ns: u64,
    virtual_ns: u64,
    weight: u32,
    /// Tasks in the heap.
    waiting: u64,
}

impl Group {
    const NEW: Self = Self {
        heap: Heap::new(),
        floor_ns: 0,
        virtual_ns: 0,
        weight: 0,
        waiting: 0,
    };

    /// Returns the weight in hundredths; 0, where no shares are set, counts as 100.
    fn weight(&self) -> u64 {
        match self.weight {
            0 => 100,
            weight => u64::from(weight),
        }
    }
}

/// See the module.
pub struct Fair {
    groups: [Group; GROUPS],
    /// Virtual time of the group picked last.
    floor_ns: u64,
}

impl Fair {
    /// No tasks; one group.
    pub const fn new() -> Self {
        Self {
            groups: [const { Group::NEW }; GROUPS],
            floor_ns: 0,
        }
    }

    /// Sets the weights of all groups, the rest first.
    pub fn set_shares(&mut self, weights: &[u32; GROUPS]) {
        for (group, weight) in self.groups.iter_mut().zip(weights) {
            group.weight = *weight;
        }
    }

    /// A task ends. Its group is charged for its last turn. New tasks begin later by that time,
    /// divided among the tasks that wait: otherwise short tasks, one after the other, would always
    /// come before a task that computes.
    pub fn ended(&mut self, task: TaskRef) {
        let own = of(task);
        let ran_ns = self.charge_group(task);
        let group = &mut self.groups[own.in_group.get() as usize];
        if let Some(each_ns) = ran_ns.checked_div(group.waiting) {
            group.floor_ns += Weight::of(&own.terms).virtual_ns(each_ns);
        }
    }

    /// Charges the group of a task for what the task has run since it was queued, and returns that
    /// time.
    fn charge_group(&mut self, task: TaskRef) -> u64 {
        let own = of(task);
        let total_ns = own.terms.ran_ns();
        let ran_ns = total_ns.saturating_sub(own.counted_ns.replace(total_ns));
        let charged = &mut self.groups[own.in_group.get() as usize];
        charged.virtual_ns += ran_ns * 100 / charged.weight();
        ran_ns
    }

    /// Returns the weights as they were set.
    pub fn shares(&self) -> [u32; GROUPS] {
        core::array::from_fn(|index| self.groups[index].weight)
    }
}

impl Default for Fair {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Fair {
    fn enqueue(&mut self, task: TaskRef, reason: Reason, _: u64) {
        let (own, floor_ns) = (of(task), self.floor_ns);
        let index = own.terms.group().min(GROUPS as u32 - 1);
        let ran_ns = self.charge_group(task);
        let before = own.in_group.replace(index);
        let group = &mut self.groups[index as usize];
        group.waiting += 1;
        if group.heap.is_empty() {
            group.virtual_ns = group.virtual_ns.max(floor_ns.saturating_sub(CREDIT_NS));
        }
        let mut virtual_ns = own.virtual_ns.get() + Weight::of(&own.terms).virtual_ns(ran_ns);
        if before != index || reason == Reason::New {
            virtual_ns = group.floor_ns;
        } else if reason == Reason::Woken {
            virtual_ns = virtual_ns.max(group.floor_ns.saturating_sub(CREDIT_NS));
        }
        own.virtual_ns.set(virtual_ns);
        // A task that yields lets at least one other run, and loses nothing by it.
        let least_ns = group
            .heap
            .least()
            .filter(|_| reason == Reason::Yielded)
            .unwrap_or(0);
        group.heap.push(task, virtual_ns.max(least_ns));
    }

    fn pick(&mut self, _: u64) -> Option<TaskRef> {
        let groups = self.groups.iter_mut();
        let waiting = groups.filter(|group| !group.heap.is_empty());
        let group = waiting.min_by_key(|group| group.virtual_ns)?;
        self.floor_ns = self.floor_ns.max(group.virtual_ns);
        let task = group.heap.pop()?;
        group.waiting -= 1;
        group.floor_ns = group.floor_ns.max(of(task).virtual_ns.get());
        Some(task)
    }

    /// Goes by the virtual time that `running` has had so far. Compares within its group only: a
    /// group's time is less exact.
    fn outranks(&self, running: TaskRef) -> bool {
        let own = of(running);
        let uncounted_ns = own.terms.ran_ns().saturating_sub(own.counted_ns.get());
        let virtual_ns = own.virtual_ns.get() + Weight::of(&own.terms).virtual_ns(uncounted_ns);
        let group = &self.groups[own.in_group.get() as usize];
        let least_ns = group.heap.least();
        least_ns.is_some_and(|least_ns| least_ns.saturating_add(GRANULARITY_NS) < virtual_ns)
    }
}
