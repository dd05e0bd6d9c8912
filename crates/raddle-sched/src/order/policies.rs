//! Policies: which of the runnable tasks runs next, and for how long.
//!
//! Without a policy of its own an engine has per-carrier queues with stealing (*fifo*,
//! [`crate::run_queue`]): no common order, and no common lock. Every other policy is one structure
//! for all carriers, behind the injector's lock. Each runnable task is linked into it through its
//! [`Node`], so it never allocates.
//!
//! | policy | which task runs next |
//! |---|---|
//! | [`Lifo`] | the last to become runnable; every [so often](lifo::OLDEST_EVERY) the oldest |
//! | [`Lanes`] (priority) | the first of the most important [lane](lanes::lane) |
//! | [`Fair`] | the least run by weight, in the group that has run least by its share |
//! | [`Deadline`] | the one with the earliest deadline; those without one, in turn, come last |
//! | [`Foreign`] (a plug-in) | the one that its functions pick, while their results are valid |
//!
//! A policy knows a task by its [`Terms`]. They may change at any time, and count from the next
//! time that the task becomes runnable.

mod chain;
pub mod deadline;
pub mod fair;
pub mod foreign;
mod heap;
pub mod lanes;
pub mod lifo;
mod order;

pub use deadline::Deadline;
pub use fair::{Fair, Weight};
pub use foreign::{Call, Fault, Foreign, Host, Table};
pub(crate) use heap::Heap;
pub use lanes::Lanes;
pub use lifo::Lifo;
pub use order::Order;

pub use crate::task::{Class, Node, Terms};
use crate::task::{TaskList, TaskRef};

/// Why a task is runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The task has never run.
    New = 0,
    /// The event that the task waited for happened.
    Woken = 1,
    /// The task yielded.
    Yielded = 2,
    /// The task's quantum is over, or a more important task became runnable.
    Preempted = 3,
}

/// An order of runnable tasks.
pub trait Policy {
    /// A task became runnable.
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64);

    /// Takes the task that runs next; `None` only if no task waits.
    fn pick(&mut self, now_ns: u64) -> Option<TaskRef>;

    /// Returns how long `running` may run while others wait; `default_ns` is the user's setting.
    fn quantum_ns(&mut self, running: TaskRef, default_ns: u64) -> u64 {
        let _ = running;
        default_ns
    }

    /// Returns true if the task that would be picked now should run instead of `running` at once.
    fn outranks(&self, running: TaskRef) -> bool {
        let _ = running;
        false
    }
}

impl Policy for TaskList {
    fn enqueue(&mut self, task: TaskRef, _: Reason, _: u64) {
        self.push(task);
    }

    fn pick(&mut self, _: u64) -> Option<TaskRef> {
        self.pop()
    }
}

pub use raddle_inspect::policy::Kind;
