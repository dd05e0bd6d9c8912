//! The rest of a worker: it is listed as idle, sleeps until it is summoned, and may end instead.

use super::shared::{Phase, Shared, State};
use raddle_sched::wake::{Announce, prepare};

/// The next action of a worker after its park.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterPark {
    /// The worker was summoned, and searches.
    Search,
    ParkAgain,
    /// The worker was idle for the keep-alive time, and enough others stay.
    Leave,
    /// The pool ends.
    End,
}

impl Shared {
    /// Lists the worker as idle if there is no work for it. Returns whether it may rest. The caller
    /// has stopped searching.
    pub(super) fn may_rest(&self, id: usize) -> bool {
        let mut state = self.state();
        if state.phase == Phase::Dropping {
            return false;
        }
        let surplus = state.running() > state.target;
        if state.lanes.len() > 0 && !surplus {
            return false;
        }
        let mut entry = IdleEntry {
            shared: self,
            state: &mut state,
            id,
        };
        let finds_work = || self.has_stealable() && !surplus;
        let ticket = prepare(&self.slots[id].parker.word, &mut entry, finds_work);
        if ticket.is_some() {
            self.finish_if_drained(&mut state);
        }
        ticket.is_some()
    }

    /// Returns the next action of a worker after its park. `expired`: the keep-alive time is over.
    pub(super) fn after_park(&self, id: usize, expired: bool) -> AfterPark {
        let mut state = self.state();
        if !state.idle.contains(&id) {
            return match state.phase {
                Phase::Dropping => AfterPark::End,
                _ => AfterPark::Search,
            };
        }
        // Leaving workers are alive for a while, but are not among those that stay.
        if expired && state.alive - state.leaving > self.config.min_workers {
            state.leaving += 1;
            state.idle.retain(|&idle| idle != id);
            self.publish(&state);
            return AfterPark::Leave;
        }
        AfterPark::ParkAgain
    }
}

/// A worker's entry among the idle ones, under the lock.
struct IdleEntry<'a> {
    shared: &'a Shared,
    state: &'a mut State,
    id: usize,
}

impl Announce for IdleEntry<'_> {
    fn announce(&mut self) -> bool {
        self.state.idle.push(self.id);
        self.shared.publish(self.state);
        true
    }

    fn withdraw(&mut self) {
        self.state.idle.retain(|&idle| idle != self.id);
        self.shared.publish(self.state);
    }
}
