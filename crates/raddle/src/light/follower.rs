//! The light thread that another one has woken by its last act: its host runs it next, past the
//! queues.
//!
//! 1. The ending light thread sets the follower, which has left its wait to this one waker.
//! 2. It takes the follower back, with the host still on the ending thread's stack. If the follower
//!    is off its stack, the host switches to it at once.
//! 3. Otherwise the follower is still on another host, on its way into the wait. Spinning until it
//!    is off its stack could deadlock two hosts that spin on light stacks: the host puts the
//!    follower first into its queue, where other hosts may find it; a host that takes it there
//!    waits on a stack of its own.
//!
//! `on_cpu` falls (release) after the last use of the stack, and is read here with acquire: the
//! host that continues the follower sees its stack whole.

use raddle_sched::TaskRef;
use raddle_sched::sync::Ordering;
use std::cell::Cell;

/// The next step for a follower.
#[must_use]
#[derive(Debug)]
pub enum Turn {
    /// There is no follower.
    Nobody,
    /// The host runs the follower now.
    Now(TaskRef),
    /// The follower goes to the host's queue.
    Queued(TaskRef),
}

/// A host's slot for one follower; only the host's thread uses it.
#[derive(Default)]
pub struct Follower(Cell<Option<TaskRef>>);

impl Follower {
    /// Makes an empty slot.
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Sets the follower; called by the light thread that is about to end.
    #[inline(always)]
    pub fn set(&self, task: TaskRef) {
        self.0.set(Some(task));
    }

    /// Takes the follower; `may_run` is false if other light threads come before it.
    #[inline(always)]
    pub fn take(&self, may_run: bool) -> Turn {
        match self.0.take() {
            None => Turn::Nobody,
            Some(task) if may_run && task.get().on_cpu.load(Ordering::Acquire) == 0 => {
                Turn::Now(task)
            }
            Some(task) => Turn::Queued(task),
        }
    }
}
