//! The end of a pool: no more work from outside, waiting work run or dropped, the workers gone.

use super::lock::Guard;
use super::shared::{Phase, Shared, State, Wake};
use super::sync::quietly;
use super::worker::Local;
use super::{DisposeReport, Pending};
use std::time::{Duration, Instant};

impl Shared {
    /// Ends the pool; see [`Pool::dispose`](super::Pool::dispose).
    pub(super) fn dispose(&self, pending: Pending, timeout: Option<Duration>) -> DisposeReport {
        if self.is_forked() {
            return DisposeReport::default(); // the parent disposes of it
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.watch.close();
        let before = self.stats();
        let mut state = self.state();
        if state.phase == Phase::Open {
            self.enter(&mut state, Phase::Draining);
        }
        if pending == Pending::Run {
            if Local::is_in(self) {
                // A worker of the pool can't wait: the workers, this one among them, run the
                // waiting work and find that the pool is drained.
                return DisposeReport {
                    still_running: state.alive,
                    panicked: before.panicked,
                    ..DisposeReport::default()
                };
            }
            state = self.drain(state, deadline);
        }
        let dropped = state.lanes.clear();
        state.counts.discarded += dropped.len() as u64;
        if state.phase != Phase::Dropping {
            self.enter(&mut state, Phase::Dropping);
        }
        self.publish(&state);
        drop(state);
        dropped.into_iter().for_each(|job| quietly(|| drop(job)));
        self.wait_for_end(deadline);
        let mut state = self.state();
        let threads: Vec<_> = match state.alive {
            0 => state.threads.iter_mut().filter_map(Option::take).collect(),
            _ => Vec::new(),
        };
        let still_running = state.alive;
        drop(state);
        threads.into_iter().for_each(|thread| drop(thread.join()));
        let after = self.stats();
        DisposeReport {
            ran: after.executed - before.executed,
            dropped: after.discarded - before.discarded,
            still_running,
            panicked: after.panicked,
        }
    }

    /// Waits until everything queued has run, or the deadline.
    fn drain<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        deadline: Option<Instant>,
    ) -> Guard<'a, State> {
        self.finish_if_drained(&mut state);
        while state.phase == Phase::Draining {
            if state.alive == 0 {
                // All workers ended, or none could start: try once more, or drop the waiting work.
                let wake = self.summon(&mut state);
                drop(state);
                let started = self.act(wake);
                state = self.state();
                if started.is_err() || wake == Wake::Nobody {
                    break;
                }
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                break;
            }
            state = self.wait_for_an_end(state, deadline);
        }
        state
    }

    fn wait_for_end(&self, deadline: Option<Instant>) {
        let mut state = self.state();
        let late = || deadline.is_some_and(|at| at <= Instant::now());
        while state.alive > 0 && !Local::is_in(self) && !late() {
            state = self.wait_for_an_end(state, deadline);
        }
    }

    fn wait_for_an_end<'a>(
        &'a self,
        state: Guard<'a, State>,
        deadline: Option<Instant>,
    ) -> Guard<'a, State> {
        let ticket = self.ended.ticket();
        drop(state);
        self.ended.wait(ticket, deadline);
        self.state()
    }
}
