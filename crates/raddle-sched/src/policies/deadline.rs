//! Deadline: the earliest deadline runs first (Liu and Layland 1973).
//!
//! A task's deadline is so much later than the moment at which it became runnable. One that
//! computes past its deadline gets the next one; tasks without a deadline run in turn while none
//! that has one is runnable. Budgets are not enforced.

use super::heap::Heap;
use super::node::of;
use super::{Policy, Reason};
use crate::task::TaskRef;

/// The key of tasks without a deadline.
const NONE: u64 = u64::MAX;

/// See the module.
pub struct Deadline {
    heap: Heap,
}

impl Deadline {
    /// No tasks.
    pub const fn new() -> Self {
        Self { heap: Heap::new() }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Deadline {
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64) {
        let (relative_ns, last_ns) = (of(task).terms.deadline_ns(), of(task).key.get());
        let keeps = reason == Reason::Preempted && (now_ns..NONE).contains(&last_ns);
        let due_ns = match relative_ns {
            0 => NONE,
            _ if keeps => last_ns,
            _ => now_ns.saturating_add(relative_ns).min(NONE - 1),
        };
        self.heap.push(task, due_ns);
    }

    fn pick(&mut self, _: u64) -> Option<TaskRef> {
        self.heap.pop()
    }

    fn outranks(&self, running: TaskRef) -> bool {
        let (terms, key) = (&of(running).terms, of(running).key.get());
        let own_ns = if terms.deadline_ns() == 0 { NONE } else { key };
        self.heap.least().is_some_and(|due_ns| due_ns < own_ns)
    }
}
