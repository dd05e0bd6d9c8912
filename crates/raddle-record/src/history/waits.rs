//! What a history says of waits that go on.

use super::{Doing, History};
use crate::profile::Activity;

impl History {
    /// Returns the wait of a thread, and when it began; `None` if the thread doesn't wait.
    pub fn waiting(&self, tid: u32) -> Option<(Doing, u64)> {
        let live = &self.live[self.find(tid)? as usize];
        let doing = Doing {
            thread: live.position,
            activity: live.activity,
            object: live.object,
        };
        matches!(live.activity, Activity::Waiting(_)).then_some((doing, live.since_ns))
    }

    /// Returns all waits that go on, and when they began.
    pub fn all_waiting(&self) -> impl Iterator<Item = (Doing, u64)> {
        self.places.keys().filter_map(|&tid| self.waiting(tid))
    }
}
