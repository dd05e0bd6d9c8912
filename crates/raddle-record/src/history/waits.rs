//! Waits: those that go on, and what is kept of those that are over.

use super::live::Waited;
use super::{Doing, Ended, History, Position};
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

    /// Adds a thread's waits to all that is known of their object.
    pub(super) fn keep_wait(&mut self, position: Position, (waited, ended): &(Waited, Ended)) {
        let activity = Activity::Waiting(waited.kind);
        self.threads[position as usize].waiting_ns += waited.total.ns;
        let doing = self.keep(position, activity, waited.object, &waited.total);
        if *ended != Ended::default()
            && let Some(doing) = doing
        {
            self.ended.entry(doing).or_default().merge(ended);
        }
        if waited.wakes != 0 {
            self.objects
                .count_wakes(waited.number, waited.waker, waited.wakes.into());
        }
    }
}
