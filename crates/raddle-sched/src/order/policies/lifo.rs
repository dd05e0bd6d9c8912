//! Lifo: the task that became runnable last runs next, on warm caches.
//!
//! A task that yields or has used up its quantum goes to the other end. Once every [`OLDEST_EVERY`]
//! picks the task at that end runs, so that two tasks that wake each other don't starve the rest.

use super::chain::Chain;
use super::{Policy, Reason};
use crate::task::TaskRef;

/// The task at the other end runs once every so many picks.
pub const OLDEST_EVERY: u32 = 16;

/// See the module.
pub struct Lifo {
    /// Newest first.
    chain: Chain,
    picks: u32,
}

impl Lifo {
    /// No tasks.
    pub const fn new() -> Self {
        Self {
            chain: Chain::new(),
            picks: 0,
        }
    }
}

impl Default for Lifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Lifo {
    fn enqueue(&mut self, task: TaskRef, reason: Reason, _: u64) {
        match reason {
            Reason::New | Reason::Woken => self.chain.push_front(task),
            Reason::Yielded | Reason::Preempted => self.chain.push_back(task),
        }
    }

    fn pick(&mut self, _: u64) -> Option<TaskRef> {
        self.picks = self.picks.wrapping_add(1);
        if self.picks.is_multiple_of(OLDEST_EVERY) {
            self.chain.pop_back()
        } else {
            self.chain.pop_front()
        }
    }
}
