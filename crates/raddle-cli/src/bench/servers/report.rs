//! Results as a table for each server, and as JSON lines with every sample.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};

use anyhow::Result;
use serde::Serialize;

use super::catalog::Missing;
use super::measure::{Outcome, Phase, Plan};
use crate::bench::harness::Figure;
use crate::bench::process::Way;
use crate::bench::report::{self, rounded};
use crate::cli::ServersArguments;
use crate::failure::Failure;
use crate::machine::{Machine, date};
use crate::stdout::{note, stdout};
use crate::table::{Align, Table};

/// Each way under raddle and its native baseline.
const PAIRS: [(Way, Way); 2] = [
    (Way::RaddleDefault, Way::NativeAll),
    (Way::RaddleOne, Way::NativeOne),
];

pub(super) fn print_head(machine: &Machine, plan: &Plan) -> io::Result<()> {
    report::print_machine(machine, plan.rounds)?;
    note(&format!(
        "windows from each start: {} of {} s; the columns with x say how many times better raddle \
         is than the native program",
        plan.windows,
        plan.window.as_secs()
    ))
}

/// Prints a line for each kind: installed, or its needs.
pub(super) fn print_list<'a>(
    kinds: impl Iterator<Item = (&'a str, &'a str, Result<(), Missing>)>,
) -> io::Result<()> {
    let mut table = Table::new(&[Align::Left; 3]);
    for (name, about, check) in kinds {
        let state = match check {
            Ok(()) => String::new(),
            Err(Missing { what, cure }) => format!("{what}: {cure}"),
        };
        table.row([name, about, &state]);
    }
    table.write(&mut stdout())
}

/// The table of one server, then a line for each way that failed.
pub(super) fn print(outcome: &Outcome) -> io::Result<()> {
    let mut out = stdout();
    writeln!(out, "\n{} ({})", outcome.name(), outcome.toolchain)?;
    table(outcome).write(&mut out)?;
    for (way, why) in &outcome.failures {
        writeln!(out, "{}: {} failed: {why}", outcome.name(), way.name())?;
    }
    Ok(())
}

fn table(outcome: &Outcome) -> Table {
    let mut columns = [Align::Right; 8];
    columns[0] = Align::Left;
    columns[1] = Align::Left;
    let mut table = Table::new(&columns);
    table.row([
        "",
        "",
        "native",
        "raddle",
        "default to",
        "native",
        "raddle",
        "-n 1 to",
    ]);
    table.row([
        "", "unit", "all CPUs", "default", "all CPUs", "one CPU", "-n 1", "one CPU",
    ]);
    let last = outcome
        .phases
        .keys()
        .filter(|phase| matches!(phase, Phase::Window(_)))
        .max();
    for (phase, figures) in &outcome.phases {
        // Of the windows in between, the rate shows how the server warms up.
        let is_between = *phase > Phase::Window(1) && Some(phase) < last;
        let shown = if is_between { 1 } else { figures.len() };
        for figure in &figures[..shown] {
            table.row(row(*phase, figure, outcome.capacity));
        }
    }
    table
}

fn row(phase: Phase, figure: &Figure, capacity: Option<f64>) -> Vec<String> {
    let name = match phase {
        Phase::Start => "start".into(),
        Phase::Window(number) => format!("window {number}"),
        Phase::Steady => "steady".into(),
        Phase::Rate(percent) => {
            let rate = capacity.unwrap_or_default() * f64::from(percent) / 100.0;
            format!("offered {percent} %, {rate:.0} req/s")
        }
    };
    let mut cells = vec![format!("{name}: {}", figure.name), figure.unit.clone()];
    for (raddle, native) in PAIRS {
        let value = |way| figure.median(way).map_or("-".into(), rounded);
        let ratio = times_better(phase, figure, raddle, native);
        let ratio = ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x"));
        cells.extend([value(native), value(raddle), ratio]);
    }
    cells
}

/// Neighbours in time are compared where there are any.
fn times_better(phase: Phase, figure: &Figure, this: Way, that: Way) -> Option<f64> {
    if phase == Phase::Steady {
        figure.times_better_than_neighbours(this, that)
    } else {
        figure.times_better(this, that)
    }
}

/// The file of JSON lines, if one was asked for.
pub(super) struct Journal<'a> {
    file: Option<File>,
    date: String,
    rounds: u32,
    window_s: u32,
    machine: &'a Machine,
}

/// One line: one figure of one phase of a server.
#[derive(Serialize)]
struct Line<'a> {
    date: &'a str,
    group: &'static str,
    server: &'a str,
    program: &'a str,
    clients: u32,
    /// `start`, `window`, `steady` or `rate`.
    phase: &'static str,
    /// For windows from 1; for offered rates in percent.
    number: u32,
    window_s: u32,
    /// Requests a second of the native server on all CPUs, where rates were offered.
    capacity: Option<f64>,
    figure: &'a str,
    unit: &'a str,
    better: &'static str,
    medians: BTreeMap<&'static str, f64>,
    samples: BTreeMap<&'static str, &'a [f64]>,
    /// How many times better, as `this/that`.
    times_better: BTreeMap<String, f64>,
    failures: BTreeMap<&'static str, &'a str>,
    rounds: u32,
    toolchain: &'a str,
    machine: &'a Machine,
}

impl<'a> Journal<'a> {
    pub(super) fn open(
        arguments: &ServersArguments,
        machine: &'a Machine,
    ) -> Result<Journal<'a>, Failure> {
        Ok(Journal {
            file: report::open(arguments.json.as_deref())?,
            date: date(),
            rounds: arguments.rounds,
            window_s: arguments.seconds,
            machine,
        })
    }

    pub(super) fn append(&mut self, server: &str, outcome: &Outcome) -> Result<()> {
        let Some(mut file) = self.file.as_ref() else {
            return Ok(());
        };
        for (phase, figures) in &outcome.phases {
            for figure in figures {
                let line = self.line(server, outcome, *phase, figure);
                let mut text = serde_json::to_string(&line)?;
                text.push('\n');
                // One write for each line: lines that another run appends at the same time stay
                // apart.
                file.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn line<'b>(
        &'b self,
        server: &'b str,
        outcome: &'b Outcome,
        phase: Phase,
        figure: &'b Figure,
    ) -> Line<'b> {
        let (name, number) = match phase {
            Phase::Start => ("start", 0),
            Phase::Window(number) => ("window", number),
            Phase::Steady => ("steady", 0),
            Phase::Rate(percent) => ("rate", percent),
        };
        let ways = figure.samples.iter();
        let medians = ways
            .clone()
            .filter_map(|(way, _)| Some((way.name(), figure.median(*way)?)));
        let ratios = PAIRS.iter().filter_map(|&(this, that)| {
            let ratio = times_better(phase, figure, this, that)?;
            Some((format!("{}/{}", this.name(), that.name()), ratio))
        });
        let failures = outcome.failures.iter();
        Line {
            date: &self.date,
            group: "servers",
            server,
            program: &outcome.title,
            clients: outcome.clients,
            phase: name,
            number,
            window_s: self.window_s,
            capacity: outcome.capacity,
            figure: &figure.name,
            unit: &figure.unit,
            better: if figure.more_is_better() {
                "more"
            } else {
                "less"
            },
            medians: medians.collect(),
            samples: ways
                .map(|(way, samples)| (way.name(), &samples[..]))
                .collect(),
            times_better: ratios.collect(),
            failures: failures
                .map(|(way, why)| (way.name(), why.as_str()))
                .collect(),
            rounds: self.rounds,
            toolchain: &outcome.toolchain,
            machine: self.machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, unit: &str, samples: &[(Way, f64)]) -> Figure {
        Figure {
            name: name.into(),
            unit: unit.into(),
            samples: samples
                .iter()
                .map(|&(way, value)| (way, vec![value]))
                .collect(),
        }
    }

    #[test]
    fn a_row_compares_each_way_with_its_baseline() {
        let samples = [
            (Way::NativeAll, 2000.0),
            (Way::RaddleDefault, 3000.0),
            (Way::RaddleOne, 1500.0),
        ];
        assert_eq!(
            row(Phase::Window(2), &figure("rate", "req/s", &samples), None),
            [
                "window 2: rate",
                "req/s",
                "2000",
                "3000",
                "1.50x",
                "-",
                "1500",
                "-"
            ]
        );
        let latency = figure("latency-p99", "us", &samples);
        assert_eq!(
            row(Phase::Rate(50), &latency, Some(20_000.0))[..5],
            [
                "offered 50 %, 10000 req/s: latency-p99",
                "us",
                "2000",
                "3000",
                "0.67x"
            ]
        );
    }

    #[test]
    fn windows_in_between_show_their_rates() {
        let figures = || {
            let sample = [(Way::NativeAll, 1.0)];
            vec![
                figure("rate", "req/s", &sample),
                figure("cpu-request", "us", &sample),
            ]
        };
        let phases = [1, 2, 3].map(|number| (Phase::Window(number), figures()));
        let outcome = Outcome {
            title: String::new(),
            toolchain: String::new(),
            clients: 1,
            capacity: None,
            phases: phases.into(),
            failures: BTreeMap::new(),
        };
        let mut text = Vec::new();
        table(&outcome).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let count = |row: &str| text.lines().filter(|line| line.starts_with(row)).count();
        assert_eq!(
            (count("window 1"), count("window 2"), count("window 3")),
            (2, 1, 2)
        );
    }
}
