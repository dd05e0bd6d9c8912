//! `raddle bench insight`: what the tools cost a server that they watch.
//!
//! One server runs under raddle for the whole time, and is loaded window after window. In every
//! second window a tool watches it; the windows before and after it are its baseline. So the
//! server's state, its memory and the machine's mood are the same for both, and what counts is the
//! median of the ratios.
//!
//! Protocol of a window with a tool: start the tool, load the server, end the tool with SIGINT, and
//! wait for its end. The load begins when the tool has had [`SETTLE`] to begin.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use super::catalog::Server;
use super::measure::{Measured, Plan, full_speed, measured, start};
use super::running::Running;
use super::{chosen, prepared, registry, tree, verdict};
use crate::bench::harness::{median, progress, this_executable};
use crate::bench::process::Way;
use crate::bench::programs::Workshop;
use crate::bench::report::print_machine;
use crate::cli::{InsightArguments, ServersArguments};
use crate::machine::Machine;
use crate::run::preload;
use crate::stdout::stdout;

/// From the start of a tool to that of the load.
const SETTLE: Duration = Duration::from_millis(500);

/// A tool: its name, its arguments, in which the process's number takes the place of `PID`, and
/// whether it is a command that ends at once and is undone by another.
struct Tool {
    name: &'static str,
    arguments: &'static [&'static str],
    /// Switches the tool off, for those that are not a process of their own.
    off: Option<&'static [&'static str]>,
}

const TOOLS: [Tool; 5] = [
    Tool {
        name: "record, 99 Hz",
        arguments: &["record", "PID"],
        off: None,
    },
    Tool {
        name: "trace",
        arguments: &["trace", "PID", "-o", "trace.pftrace", "--force"],
        off: None,
    },
    Tool {
        name: "flight recorder",
        arguments: &["ctl", "PID", "record", "on"],
        off: Some(&["ctl", "PID", "record", "off"]),
    },
    Tool {
        name: "top, 2 Hz",
        arguments: &["top", "PID", "--batch", "-d", "0.5"],
        off: None,
    },
    Tool {
        name: "locks",
        arguments: &["locks", "PID", "-d", "3600"],
        off: None,
    },
];

/// What a tool has cost in the windows that it watched.
#[derive(Default)]
struct Costs {
    rates: Vec<f64>,
    p99s: Vec<f64>,
    /// The tool's own CPU time, of one CPU.
    cpus: Vec<f64>,
    /// More memory of the server, in MiB.
    memory: Vec<f64>,
    /// The tool's own, in MiB.
    own_memory: Vec<f64>,
}

pub(in crate::bench) fn run(arguments: &InsightArguments) -> Result<std::process::ExitCode> {
    let kinds = chosen(&arguments.servers)?;
    preload::find()?;
    registry::watch()?;
    let workshop = Workshop::open(1.0)?;
    registry::remove_at_end(&workshop.path(""));
    let plan = Plan {
        rounds: arguments.rounds,
        windows: 1,
        window: Duration::from_secs(arguments.seconds.into()),
        rates_percent: &[],
        port: None,
        raddle: this_executable()?,
        folders: vec![workshop.path("")],
    };
    print_machine(&Machine::look(), plan.rounds)?;
    let (mut measured, mut failed) = (0, 0);
    let settings = ServersArguments::of_names(&arguments.servers);
    for kind in kinds {
        let shops = std::slice::from_ref(&workshop);
        for server in prepared(kind, shops, &settings)?.into_iter().flatten() {
            let clients = match &arguments.clients[..] {
                [] => server.clients,
                given => given,
            };
            for &clients in clients {
                match watch(&server, clients, &plan) {
                    Ok(()) => measured += 1,
                    Err(why) => {
                        failed += 1;
                        eprintln!("raddle: {}, {clients} clients: {why}", server.title);
                    }
                }
            }
        }
    }
    registry::wait_for_signal();
    verdict(measured, failed)
}

/// Measures all tools on one server.
fn watch(server: &Server, clients: u32, plan: &Plan<'_>) -> Result<(), String> {
    let folder = &plan.folders[0];
    if let Some(set_up) = server.set_up {
        set_up(folder)?;
    }
    let mut running = start(server, Way::RaddleDefault, plan, folder)?;
    let load = |running: &mut Running| -> Result<Measured, String> {
        measured(running, |port| full_speed(server, port, clients, plan))
    };
    let mut all: BTreeMap<usize, Costs> = BTreeMap::new();
    load(&mut running)?; // warm
    let mut before = load(&mut running)?;
    for round in 1..=plan.rounds {
        for (number, tool) in TOOLS.iter().enumerate() {
            progress(&format!(
                "{}, {clients} clients, round {round} of {}: {}",
                server.title, plan.rounds, tool.name
            ));
            let memory = resident_mib(running.pid());
            let mut watcher = Watcher::start(tool, running.pid(), plan, folder)?;
            let with = load(&mut running)?;
            let own_memory = watcher.memory();
            let cpu = watcher.end()?;
            let more = resident_mib(running.pid()) - memory;
            let after = load(&mut running)?;
            let costs = all.entry(number).or_default();
            costs
                .rates
                .push(ratio(&with, &before, &after, |it| it.seen.rate));
            let p99 = |it: &Measured| it.seen.latency.map_or(f64::NAN, |it| it.p99_us);
            costs.p99s.push(ratio(&with, &before, &after, p99));
            costs
                .cpus
                .push(cpu.as_secs_f64() / plan.window.as_secs_f64());
            costs.memory.push(more);
            costs.own_memory.push(own_memory);
            before = after;
        }
    }
    progress("");
    running.stop()?;
    print(server, clients, plan, all).map_err(|error| error.to_string())
}

/// Returns a figure against the mean of those of the windows around it.
fn ratio(
    with: &Measured,
    before: &Measured,
    after: &Measured,
    of: impl Fn(&Measured) -> f64,
) -> f64 {
    of(with) * 2.0 / (of(before) + of(after))
}

/// A tool that watches.
struct Watcher<'a> {
    child: Option<Child>,
    off: Option<Command>,
    name: &'a str,
}

impl<'a> Watcher<'a> {
    fn start(tool: &'a Tool, pid: u32, plan: &Plan<'_>, folder: &Path) -> Result<Self, String> {
        let command = |arguments: &[&str]| {
            let mut command = Command::new(&plan.raddle);
            let number = pid.to_string();
            let arguments = arguments.iter();
            command
                .args(arguments.map(|&it| if it == "PID" { &*number } else { it }))
                .current_dir(folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        let mut watcher = Watcher {
            child: None,
            off: tool.off.map(command),
            name: tool.name,
        };
        let mut start = command(tool.arguments);
        match tool.off {
            Some(_) => watcher.run(start)?,
            None => watcher.child = Some(start.spawn().map_err(|error| error.to_string())?),
        }
        std::thread::sleep(SETTLE);
        if let Some(child) = &mut watcher.child
            && let Ok(Some(status)) = child.try_wait()
        {
            return Err(format!("{} ended at once, {status}", tool.name));
        }
        Ok(watcher)
    }

    fn run(&self, mut command: Command) -> Result<(), String> {
        let status = command.status().map_err(|error| error.to_string())?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| format!("{}: {status}", self.name))
    }

    /// Returns the memory of the tool, in MiB.
    fn memory(&self) -> f64 {
        self.child.as_ref().map_or(0.0, |it| resident_mib(it.id()))
    }

    /// Ends the tool, and returns the CPU time that it used while it watched.
    fn end(&mut self) -> Result<Duration, String> {
        let text = |error: io::Error| error.to_string();
        if let Some(off) = self.off.take() {
            self.run(off)?;
        }
        let Some(mut child) = self.child.take() else {
            return Ok(Duration::ZERO);
        };
        let pid = Pid::from_child(&child);
        let cpu = tree::cpu_time(pid);
        kill_process(pid, Signal::INT).map_err(|error| error.to_string())?;
        child.wait().map_err(text)?;
        Ok(cpu)
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn print(
    server: &Server,
    clients: u32,
    plan: &Plan<'_>,
    all: BTreeMap<usize, Costs>,
) -> io::Result<()> {
    let mut out = stdout();
    writeln!(
        out,
        "\n{}, {clients} clients, {} windows of {} s each, against the windows around them\n",
        server.title,
        plan.rounds,
        plan.window.as_secs()
    )?;
    writeln!(
        out,
        "| tool | rate | p99 | the tool's CPU | the tool's memory | the server's memory grows by |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for (number, mut costs) in all {
        let middle = |values: &mut Vec<f64>| {
            values.retain(|it| it.is_finite());
            median(values).unwrap_or(f64::NAN)
        };
        writeln!(
            out,
            "| {} | {:.3} | {:.3} | {:.1}% | {:.1} MiB | {:+.1} MiB |",
            TOOLS[number].name,
            middle(&mut costs.rates),
            middle(&mut costs.p99s),
            middle(&mut costs.cpus) * 100.0,
            middle(&mut costs.own_memory),
            middle(&mut costs.memory),
        )?;
    }
    Ok(())
}
