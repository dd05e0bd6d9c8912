//! Rounds of one server: started in every way by turns, loaded in windows, ended.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::catalog::{Client, Server};
use super::requests::{Latency, Load, Window};
use super::running::Running;
use super::side_by_side::WAYS;
use super::{requests, sysbench, wrk};
use crate::bench::harness::{Figure, Sample, add, progress};
use crate::bench::process::{EVERY_WAY, Way};

pub(super) struct Plan<'a> {
    pub rounds: u32,
    pub windows: u32,
    pub window: Duration,
    /// Offered rates, of the native capacity.
    pub rates_percent: &'a [u32],
    pub port: Option<u16>,
    pub raddle: PathBuf,
    /// For temporary files: one, or one for each of the [servers that run side by side](WAYS).
    pub folders: Vec<PathBuf>,
}

/// A phase of a server's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// From the start until the server listens.
    Start,
    /// Full speed; counted from 1.
    Window(u32),
    /// The second half of the windows of servers that are loaded by turns.
    Steady,
    /// A constant rate, in percent of the native capacity.
    Rate(u32),
}

/// The outcome of one server with one number of clients.
pub(super) struct Outcome {
    pub title: String,
    pub toolchain: String,
    pub clients: u32,
    /// Requests a second that the native server on all CPUs answers, where rates are offered.
    pub capacity: Option<f64>,
    pub phases: BTreeMap<Phase, Vec<Figure>>,
    /// Ways that failed, and why.
    pub failures: BTreeMap<Way, String>,
}

/// Returns an outcome for each number of clients, measured when the iterator reaches it. Several
/// servers are one server with several sets of files: they run [side by side](super::side_by_side).
pub(super) fn measure<'a>(
    servers: &'a [Server],
    clients: &'a [u32],
    plan: &'a Plan<'a>,
) -> impl Iterator<Item = Outcome> + 'a {
    let server = &servers[0];
    let clients = match clients {
        [] => server.clients,
        _ => clients,
    };
    let mut places = servers.iter().zip(&plan.folders);
    let ready = places.try_for_each(|(server, folder)| match server.set_up {
        Some(set_up) => set_up(folder),
        None => Ok(()),
    });
    clients.iter().map(move |&clients| {
        let mut outcome = Outcome {
            title: server.title.clone(),
            toolchain: server.toolchain.clone(),
            clients,
            capacity: None,
            phases: BTreeMap::new(),
            failures: BTreeMap::new(),
        };
        match &ready {
            Ok(()) if servers.len() == WAYS.len() => outcome.run_side_by_side(servers, plan),
            Ok(()) => outcome.run(server, plan),
            Err(why) => outcome.fail_everywhere(why),
        }
        outcome
    })
}

impl Outcome {
    /// The server and its clients.
    pub(super) fn name(&self) -> String {
        let plural = if self.clients == 1 { "" } else { "s" };
        format!("{}, {} client{plural}", self.title, self.clients)
    }

    fn run(&mut self, server: &Server, plan: &Plan) {
        if !plan.rates_percent.is_empty() {
            match capacity(server, self.clients, plan) {
                Ok(capacity) => self.capacity = Some(capacity),
                Err(why) => return self.fail_everywhere(&why),
            }
        }
        for round in 1..=plan.rounds {
            let what = format!("{}, round {round}", self.name());
            let what = format!("{what} of {}", plan.rounds);
            let mut told = Vec::new();
            for way in EVERY_WAY {
                // A way that has failed would only fail again.
                if self.failures.contains_key(&way) {
                    continue;
                }
                progress(&format!("{what}: {}", way.name()));
                let run = self.run_once(server, way, plan);
                told.push(match &run {
                    Ok(rate) => format!("{} {rate:.0} req/s", way.name()),
                    Err(_) => format!("{} failed", way.name()),
                });
                if let Err(why) = run {
                    self.failures.insert(way, why);
                }
            }
            progress("");
            eprintln!("{what}: {}", told.join(", "));
        }
    }

    fn fail_everywhere(&mut self, why: &str) {
        self.failures = EVERY_WAY.map(|way| (way, why.to_owned())).into();
    }

    /// Runs the server once, from start to end. Returns the rate of the last window at full speed.
    fn run_once(&mut self, server: &Server, way: Way, plan: &Plan) -> Result<f64, String> {
        let mut running = start(server, way, plan, &plan.folders[0])?;
        let start_ms = running.start_up.as_secs_f64() * 1e3;
        self.add(Phase::Start, way, sample("listens-after", start_ms, "ms"));
        let clients = self.clients;
        let mut last = 0.0;
        for number in 1..=plan.windows {
            let window = measured(&mut running, |port| full_speed(server, port, clients, plan))?;
            last = window.seen.rate;
            self.add_window(Phase::Window(number), way, &window);
        }
        if last == 0.0 {
            return Err("it answered no request in the last window".into());
        }
        for &percent in plan.rates_percent {
            let rate = self.capacity.unwrap_or_default() * f64::from(percent) / 100.0;
            let window = measured(&mut running, |port| {
                own(server, port, clients, plan, Some(rate))
            })?;
            self.add_window(Phase::Rate(percent), way, &window);
        }
        running.stop()?;
        Ok(last)
    }

    fn add(&mut self, phase: Phase, way: Way, sample: Sample) {
        add(self.phases.entry(phase).or_default(), way, sample);
    }

    pub(super) fn add_window(&mut self, phase: Phase, way: Way, window: &Measured) {
        let seen = &window.seen;
        self.add(phase, way, sample("rate", seen.rate, "req/s"));
        if let Some(Latency { p50_us, p99_us }) = seen.latency {
            self.add(phase, way, sample("latency-p50", p50_us, "us"));
            self.add(phase, way, sample("latency-p99", p99_us, "us"));
        }
        if seen.requests > 0 {
            let cpu_us = window.cpu.as_secs_f64() * 1e6 / seen.requests as f64;
            self.add(phase, way, sample("cpu-request", cpu_us, "us"));
        }
    }
}

/// A client's figures of a window, and the server's use of the CPU meanwhile.
pub(super) struct Measured {
    pub seen: Window,
    cpu: Duration,
}

fn sample(name: &str, value: f64, unit: &str) -> Sample {
    Sample {
        name: name.into(),
        value,
        unit: unit.into(),
    }
}

/// Starts the server and stores the data that its clients read.
pub(super) fn start(
    server: &Server,
    way: Way,
    plan: &Plan,
    folder: &Path,
) -> Result<Running, String> {
    let running = Running::start(server, way, plan.port, &plan.raddle, folder)?;
    if let Client::Own(protocol) = server.client {
        let prepared = protocol.prepare(running.port);
        prepared.map_err(|error| format!("it stored no value: {error}"))?;
    }
    Ok(running)
}

/// Measures one window. If the client fails because the server has died, the error has the server's
/// last lines.
pub(super) fn measured(
    running: &mut Running,
    load: impl FnOnce(u16) -> Result<Window, String>,
) -> Result<Measured, String> {
    let before = running.cpu_time();
    let seen = load(running.port);
    let cpu = running.cpu_time().saturating_sub(before);
    running.ensure_alive()?;
    Ok(Measured { seen: seen?, cpu })
}

/// A window at full speed. For offered rates our own client measures the capacity as well, so that
/// both figures come from one client.
pub(super) fn full_speed(
    server: &Server,
    port: u16,
    clients: u32,
    plan: &Plan,
) -> Result<Window, String> {
    match server.client {
        Client::Http if plan.rates_percent.is_empty() => wrk::run(port, clients, plan.window),
        Client::Sysbench => sysbench::run(port, clients, plan.window),
        Client::Http | Client::Own(_) => own(server, port, clients, plan, None),
    }
}

fn own(
    server: &Server,
    port: u16,
    clients: u32,
    plan: &Plan,
    rate: Option<f64>,
) -> Result<Window, String> {
    let protocol = server.client.protocol();
    requests::run(&Load {
        port,
        protocol: protocol.ok_or("its client knows no constant rate")?,
        connections: clients,
        time: plan.window,
        rate,
    })
}

/// Requests a second of the native server on all CPUs, in the last of the windows.
fn capacity(server: &Server, clients: u32, plan: &Plan) -> Result<f64, String> {
    progress(&format!("{}: native capacity", server.title));
    let mut running = start(server, Way::NativeAll, plan, &plan.folders[0])?;
    let mut rate = 0.0;
    for _ in 0..plan.windows {
        rate = measured(&mut running, |port| own(server, port, clients, plan, None))?
            .seen
            .rate;
    }
    running.stop()?;
    progress("");
    Ok(rate)
}
