//! A server in all ways at the same time, loaded by turns: its neighbours in time are compared.
//!
//! The speed of a shared machine may change by a factor of two within a minute. A window of each
//! way follows one of its baseline at once, and what counts is the median of their ratios
//! ([`Phase::Steady`]). The order of a pair changes from one window to the next.
//!
//! A server that has no load should cost nothing. What it does nevertheless (compilers of a
//! managed runtime) falls into a window of another way.

use super::catalog::Server;
use super::measure::{Outcome, Phase, Plan, full_speed, measured, start};
use super::running::Running;
use crate::bench::harness::progress;
use crate::bench::process::Way;

/// The ways of servers and folders, each beside its baseline.
pub(super) const WAYS: [Way; 4] = [
    Way::NativeAll,
    Way::RaddleDefault,
    Way::NativeOne,
    Way::RaddleOne,
];

/// A way, its server with files of its own, and the process.
struct Lane<'a> {
    way: Way,
    server: &'a Server,
    running: Running,
}

impl Outcome {
    /// Runs the plan's rounds. The servers are equal, and have a folder each.
    pub(super) fn run_side_by_side(&mut self, servers: &[Server], plan: &Plan) {
        for round in 1..=plan.rounds {
            let mut lanes = Vec::new();
            for (way, (server, folder)) in WAYS.into_iter().zip(servers.iter().zip(&plan.folders)) {
                progress(&format!("{}: start, {}", self.name(), way.name()));
                match start(server, way, plan, folder) {
                    Ok(running) => lanes.push(Lane {
                        way,
                        server,
                        running,
                    }),
                    Err(why) => drop(self.failures.insert(way, why)),
                }
            }
            for number in 1..=plan.windows {
                let what = format!("{}, round {round} of {}", self.name(), plan.rounds);
                progress(&format!("{what}: window {number} of {}", plan.windows));
                lanes.retain_mut(|lane| self.window(lane, number, plan));
                if number % 2 == 1 {
                    lanes.chunks_mut(2).for_each(<[Lane]>::reverse);
                }
            }
            progress("");
            for lane in lanes {
                if let Err(why) = lane.running.stop() {
                    self.failures.insert(lane.way, why);
                }
            }
        }
    }

    /// Loads one server for a window. Returns false if it failed.
    fn window(&mut self, lane: &mut Lane, number: u32, plan: &Plan) -> bool {
        let clients = self.clients;
        let load = |port| full_speed(lane.server, port, clients, plan);
        let window = measured(&mut lane.running, load).and_then(|window| {
            let answered = window.seen.rate > 0.0;
            answered
                .then_some(window)
                .ok_or("it answered no request".into())
        });
        match window {
            Ok(window) if number > plan.windows / 2 => {
                self.add_window(Phase::Steady, lane.way, &window);
            }
            Ok(window) => self.add_window(Phase::Window(number), lane.way, &window),
            Err(why) => {
                self.failures.insert(lane.way, why);
                return false;
            }
        }
        true
    }
}
