//! Deadline: the earliest deadline runs first (Liu and Layland 1973).
//!
//! A task's deadline is its relative deadline after the moment at which it became runnable. A task
//! that is preempted past its deadline gets a new one. Tasks without a deadline run in turn while
//! no task with one is runnable; at most every [`RELIEF_NS`] the first of them runs all the same,
//! if it has waited that long. Budgets are not enforced.

use super::chain::Chain;
use super::heap::Heap;
use super::lanes::RELIEF_NS;
use super::{Policy, Reason};
use crate::task::{TaskRef, of};

/// No deadline.
const NONE: u64 = u64::MAX;

/// See the module.
pub struct Deadline {
    heap: Heap,
    /// Tasks without a deadline, in turn.
    rest: Chain,
    relieved_ns: u64,
}

impl Deadline {
    /// No tasks.
    pub const fn new() -> Self {
        Self {
            heap: Heap::new(),
            rest: Chain::new(),
            relieved_ns: 0,
        }
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Deadline {
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64) {
        of(task).since_ns.set(now_ns);
        let (relative_ns, last_ns) = (of(task).terms.deadline_ns(), of(task).key.get());
        let keeps = reason == Reason::Preempted && (now_ns..NONE).contains(&last_ns);
        let due_ns = match relative_ns {
            0 => return self.rest.push_back(task),
            _ if keeps => last_ns,
            _ => now_ns.saturating_add(relative_ns).min(NONE - 1),
        };
        self.heap.push(task, due_ns);
    }

    fn pick(&mut self, now_ns: u64) -> Option<TaskRef> {
        let waited = |since_ns: u64| now_ns.saturating_sub(since_ns) >= RELIEF_NS;
        let head_waited = |head: TaskRef| waited(of(head).since_ns.get());
        if waited(self.relieved_ns) && self.rest.first().is_some_and(head_waited) {
            self.relieved_ns = now_ns;
            return self.rest.pop_front();
        }
        self.heap.pop().or_else(|| self.rest.pop_front())
    }

    fn outranks(&self, running: TaskRef) -> bool {
        let (terms, key) = (&of(running).terms, of(running).key.get());
        let own_ns = if terms.deadline_ns() == 0 { NONE } else { key };
        self.heap.least().is_some_and(|due_ns| due_ns < own_ns)
    }
}
