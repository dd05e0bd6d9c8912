//! Policies: which of the runnable tasks runs next, and for how long.
//!
//! Without a policy of its own an engine has per-carrier queues with stealing (*fifo*,
//! [`crate::run_queue`]): nobody orders all tasks, and nobody waits for a common lock. Every other
//! policy is one structure for all carriers, behind the injector's lock: each runnable task is in
//! it, linked through its [`Node`], so nothing is allocated.
//!
//! | policy | who runs next |
//! |---|---|
//! | [`Lifo`] | who became runnable last; every [so often](lifo::OLDEST_EVERY) the oldest |
//! | [`Lanes`] (priority) | the most important [lane](lanes::lane), in turn within it |
//! | [`Fair`] | who has run least by its weight, in the group that has run least by its share |
//! | [`Deadline`] | the earliest deadline; without one, in turn, after all that have one |
//! | [`Foreign`] (a plug-in) | what its functions say, as long as that makes sense |
//!
//! What a policy knows of a task are its [`Terms`]; they may change at any time and count from the
//! next time that the task becomes runnable.

mod chain;
pub mod deadline;
pub mod fair;
pub mod foreign;
mod heap;
pub mod lanes;
pub mod lifo;
mod node;
mod order;

pub use deadline::Deadline;
pub use fair::{Fair, Weight};
pub use foreign::{Call, Fault, Foreign, Host, Table};
pub(crate) use heap::Heap;
pub use lanes::Lanes;
pub use lifo::Lifo;
pub use node::{Class, Node, Terms};
pub use order::Order;

use crate::task::{TaskList, TaskRef};

/// Why a task is runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// It has never run.
    New = 0,
    /// What it waited for happened.
    Woken = 1,
    /// It let others run.
    Yielded = 2,
    /// Its quantum is over, or somebody more important came.
    Preempted = 3,
}

/// Who runs next.
pub trait Policy {
    /// A task became runnable.
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64);

    /// Takes the task that runs next; `None` only if no task waits.
    fn pick(&mut self, now_ns: u64) -> Option<TaskRef>;

    /// How long `running` may run while others wait; `default_ns` is what the user asked for.
    fn quantum_ns(&mut self, running: TaskRef, default_ns: u64) -> u64 {
        let _ = running;
        default_ns
    }

    /// True if the task that would be picked now should run instead of `running` at once.
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

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Per-carrier queues; in [`Order`], first come, first served.
    #[default]
    Fifo = 0,
    Lifo = 1,
    Priority = 2,
    Fair = 3,
    Deadline = 4,
    Plugin = 5,
}

impl Kind {
    /// The built-in policy of this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        match name {
            b"fifo" => Some(Self::Fifo),
            b"lifo" => Some(Self::Lifo),
            b"priority" => Some(Self::Priority),
            b"fair" => Some(Self::Fair),
            b"deadline" => Some(Self::Deadline),
            _ => None,
        }
    }

    /// The kind of this number.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Lifo,
            2 => Self::Priority,
            3 => Self::Fair,
            4 => Self::Deadline,
            5 => Self::Plugin,
            _ => Self::Fifo,
        }
    }

    /// True if the policy gives a meaning to real-time classes and deadlines.
    pub const fn has_classes(self) -> bool {
        matches!(self, Self::Priority | Self::Deadline)
    }
}
