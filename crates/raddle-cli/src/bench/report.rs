//! Results as a table, and as JSON lines that keep every sample and say where it was measured.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::harness::{Figure, Outcome, Settings};
use super::process::{EVERY_WAY, Way};
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::machine::{Machine, date};
use crate::stdout::{note, stdout};
use crate::table::{Align, Table};

/// The comparisons that the table shows: this way against that.
const RATIOS: [(Way, Way); 4] = [
    (Way::RaddleOne, Way::NativeAll),
    (Way::RaddleOne, Way::NativeOne),
    (Way::RaddleDefault, Way::NativeAll),
    (Way::RaddleDefault, Way::NativeOne),
];

pub(super) fn print_machine(machine: &Machine, rounds: u32) -> io::Result<()> {
    let quota = machine
        .cpu_quota
        .map(|quota| format!(", quota {quota:.2}"))
        .unwrap_or_default();
    note(&format!(
        "{}, {} CPUs{quota}, Linux {}, {}, raddle {}; medians of {} rounds",
        machine.cpu, machine.cpus_allowed, machine.kernel, machine.libc, machine.raddle, rounds
    ))
}

pub(super) fn print_head(machine: &Machine, settings: &Settings) -> io::Result<()> {
    print_machine(machine, settings.rounds)?;
    note("the last four columns say how many times better raddle is than the native program")?;
    if settings.fraction < 1.0 {
        note(&format!(
            "only {} of the work: noisier than a full run",
            settings.fraction
        ))?;
    }
    Ok(())
}

/// A table with a row for each figure, then a line for each way that failed.
pub(super) fn print_group(name: &str, outcomes: &[Outcome]) -> io::Result<()> {
    let mut table = Table::new(&{
        let mut columns = [Align::Right; 10];
        columns[0] = Align::Left;
        columns[1] = Align::Left;
        columns
    });
    table.row([
        "",
        "",
        "native",
        "native",
        "raddle",
        "raddle",
        "-n 1 to",
        "-n 1 to",
        "default to",
        "default to",
    ]);
    table.row([
        name, "unit", "all CPUs", "one CPU", "-n 1", "default", "all CPUs", "one CPU", "all CPUs",
        "one CPU",
    ]);
    let mut out = stdout();
    for outcome in outcomes {
        for figure in &outcome.figures {
            table.row(row(&outcome.title, figure));
        }
    }
    writeln!(out)?;
    table.write(&mut out)?;
    for outcome in outcomes {
        for (way, why) in &outcome.failures {
            writeln!(out, "{}: {} failed: {why}", outcome.title, way.name())?;
        }
    }
    Ok(())
}

fn row(title: &str, figure: &Figure) -> Vec<String> {
    let mut cells = vec![format!("{title}: {}", figure.name), figure.unit.clone()];
    cells.extend(EVERY_WAY.map(|way| figure.median(way).map_or("-".into(), rounded)));
    cells.extend(
        RATIOS.map(|(this, that)| match figure.times_better(this, that) {
            Some(ratio) => format!("{ratio:.2}x"),
            None => "-".into(),
        }),
    );
    cells
}

/// Formats a value with its significant digits.
pub(super) fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The file of JSON lines, if one was asked for.
pub(super) struct Journal<'a> {
    file: Option<File>,
    date: String,
    rounds: u32,
    fraction: f64,
    machine: &'a Machine,
}

/// One line: one figure of one program.
#[derive(Serialize)]
struct Line<'a> {
    date: &'a str,
    group: &'a str,
    program: &'a str,
    figure: &'a str,
    unit: &'a str,
    better: &'static str,
    medians: BTreeMap<&'static str, f64>,
    samples: BTreeMap<&'static str, &'a [f64]>,
    /// How many times better, as `this/that`.
    times_better: BTreeMap<String, f64>,
    failures: BTreeMap<&'static str, &'a str>,
    rounds: u32,
    fraction: f64,
    toolchain: &'a str,
    machine: &'a Machine,
}

/// Opens the file of JSON lines, before anything is measured: a failure afterwards would waste the
/// time.
pub(super) fn open(path: Option<&Path>) -> Result<Option<File>, Failure> {
    let file = path.map(|path| {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map_err(|error| {
            Failure::input(
                format!("{}: {error}", path.display()),
                "name a file that you can write to",
            )
        })
    });
    file.transpose()
}

impl<'a> Journal<'a> {
    pub(super) fn open(
        arguments: &BenchArguments,
        machine: &'a Machine,
    ) -> Result<Journal<'a>, Failure> {
        Ok(Journal {
            file: open(arguments.json.as_deref())?,
            date: date(),
            rounds: arguments.rounds,
            fraction: arguments.fraction,
            machine,
        })
    }

    pub(super) fn append(&mut self, group: &str, outcome: &Outcome) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let mut file = file;
        for figure in &outcome.figures {
            let mut text = serde_json::to_string(&self.line(group, outcome, figure))?;
            text.push('\n');
            // One write for each line: lines that another run appends at the same time stay apart.
            file.write_all(text.as_bytes())?;
        }
        Ok(())
    }

    fn line<'b>(&'b self, group: &'b str, outcome: &'b Outcome, figure: &'b Figure) -> Line<'b> {
        let ways = EVERY_WAY.iter();
        let medians = ways.filter_map(|way| Some((way.name(), figure.median(*way)?)));
        let samples = figure
            .samples
            .iter()
            .map(|(way, samples)| (way.name(), &samples[..]));
        let ratios = RATIOS.iter().filter_map(|&(this, that)| {
            let ratio = figure.times_better(this, that)?;
            Some((format!("{}/{}", this.name(), that.name()), ratio))
        });
        let failures = outcome
            .failures
            .iter()
            .map(|(way, why)| (way.name(), why.as_str()));
        Line {
            date: &self.date,
            group,
            program: &outcome.title,
            figure: &figure.name,
            unit: &figure.unit,
            better: if figure.more_is_better() {
                "more"
            } else {
                "less"
            },
            medians: medians.collect(),
            samples: samples.collect(),
            times_better: ratios.collect(),
            failures: failures.collect(),
            rounds: self.rounds,
            fraction: self.fraction,
            toolchain: &outcome.toolchain,
            machine: self.machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_dash_for_what_did_not_run() {
        let figure = Figure {
            name: "hand-off".into(),
            unit: "ns".into(),
            samples: BTreeMap::from([
                (Way::NativeOne, vec![2000.0, 2100.0, 1900.0]),
                (Way::RaddleOne, vec![100.0]),
            ]),
        };
        assert_eq!(
            row("C", &figure),
            [
                "C: hand-off",
                "ns",
                "-",
                "2000",
                "100.0",
                "-",
                "-",
                "20.00x",
                "-",
                "-"
            ]
        );
    }
}
