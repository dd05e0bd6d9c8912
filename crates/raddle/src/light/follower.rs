//! Whom a light thread has woken by its last deed: its host runs that one next, past the queues.
//!
//! 1. Who ends sets the follower, which has left its wait to it: nobody else can wake that one.
//! 2. It takes the follower back, with the host still on its own stack. Is the follower off its
//!    stack, the host switches to it at once.
//! 3. Otherwise it is still on another host, on its way into the wait. To look until it is off
//!    could deadlock two hosts that do so on light stacks: the host puts it first into its queue,
//!    where others may find it, and who takes it there waits on a stack of its own.
//!
//! `on_cpu` falls (release) after the last use of the stack, and is read here with acquire: who
//! continues the follower sees its stack whole.

use raddle_sched::TaskRef;
use raddle_sched::sync::Ordering;
use std::cell::Cell;

/// What is to be done with a follower.
#[must_use]
#[derive(Debug)]
pub enum Turn {
    /// There is none.
    Nobody,
    /// The host runs it now.
    Now(TaskRef),
    /// It goes to the host's queue.
    Queued(TaskRef),
}

/// A host's place for one follower; the host's thread alone uses it.
#[derive(Default)]
pub struct Follower(Cell<Option<TaskRef>>);

impl Follower {
    /// Nobody follows.
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Says who follows; by who is about to end.
    #[inline(always)]
    pub fn set(&self, task: TaskRef) {
        self.0.set(Some(task));
    }

    /// Takes the follower; `may_run` is false if others come before it.
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
