//! Recordings of programs that measure by themselves what their parts take.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, in_every_mode, raddle};

/// The functions of shares.c and shares.py that compute, those that wait, and the locks.
pub(crate) const COMPUTING: [&str; 5] = [
    "compute_one",
    "compute_two",
    "compute_three",
    "compute_four",
    "compute_five",
];
pub(crate) const WAITING: [&str; 6] = [
    "wait_one",
    "wait_two",
    "wait_three",
    "wait_four",
    "wait_five",
    "wait_rest",
];
pub(crate) const LOCKS: [&str; 3] = ["lock_one", "lock_two", "lock_three"];

/// By how many points a share may be off: samples are chosen by lot.
const POINTS: f64 = 2.0;
/// The same on a busy machine, which gives fewer of them, and stops threads between two readings of
/// their own clocks; and for locks, where the interpreter's own lock is waited for, too.
const POINTS_BUSY: f64 = 5.0;
const POINTS_BUSY_LOCKS: f64 = 8.0;
/// Samples in a second of CPU time. A program that hardly gets a CPU has few.
const HZ: f64 = 999.0;
/// What `raddle record` says of samples of CPU time that are fewer than half of those that were
/// asked for: by how many points the shares of what executes may be off. That is two standard
/// deviations, and of a dozen shares one may be off by twice as much.
const MAY_BE_OFF: &str = "may be off by ";
/// A machine is busy that takes so much of the carriers' time.
const BUSY: f64 = 0.02;

/// Folded stacks: the frames, and microseconds.
pub(crate) type Stacks = Vec<(Vec<String>, u64)>;
/// Seconds, by the names of parts.
pub(crate) type Times = BTreeMap<String, f64>;
/// What was printed (on stderr, then on stdout), what the program has measured, and what was
/// recorded of it.
pub(crate) type Recorded = (String, Times, Stacks);

/// Returns the command of a program that has one way to run.
pub(crate) fn command_line(source: &str) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    Ok(variant.command.clone())
}

/// Runs a test with the number of carriers of each mode under raddle.
pub(crate) fn with_carriers(name: &str, test: impl Fn(&str, Mode) -> Result<()>) {
    in_every_mode(name, |mode| match mode {
        Mode::Raddle { .. } => test(&mode.to_string(), mode),
        Mode::Native => Ok(()),
    });
}

/// The command `raddle record` with arguments, for programs with as many carriers as the mode says.
pub(crate) fn record(mode: Mode, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(raddle()?);
    command.arg("record").args(arguments);
    let Mode::Raddle { carriers } = mode else {
        bail!("a mode under raddle");
    };
    command.env("RADDLE_CARRIERS", carriers.to_string());
    Ok(command)
}

/// One program of known shares at a time.
static MEASURES: Mutex<()> = Mutex::new(());

/// Records a program of known shares for four seconds.
pub(crate) fn record_program(
    mut command: Command,
    line: &[OsString],
    file: &Path,
) -> Result<Recorded> {
    let _alone = MEASURES.lock();
    let output = command.args(line).arg("4").output()?;
    ensure!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout)?;
    let (said, stacks) = (said(&stdout)?, read(file)?);
    Ok((String::from_utf8(output.stderr)? + &stdout, said, stacks))
}

/// Reads folded stacks.
pub(crate) fn read(file: &Path) -> Result<Stacks> {
    let text = std::fs::read_to_string(file)?;
    ensure!(!text.is_empty(), "no stacks");
    text.lines()
        .map(|line| {
            let (stack, us) = line.rsplit_once(' ').context("a weight")?;
            let frames = stack.split(';').map(str::to_owned).collect();
            Ok((frames, us.parse()?))
        })
        .collect()
}

/// Sums the time of stacks with each of these frames; of several in a stack the innermost counts.
pub(crate) fn times(stacks: &[(Vec<String>, u64)], names: &[&str]) -> Times {
    let mut times = BTreeMap::new();
    for (frames, us) in stacks {
        let is_named = |frame: &&String| names.iter().any(|name| frame.contains(name));
        if let Some(frame) = frames.iter().rev().find(is_named) {
            let name = names.iter().find(|name| frame.contains(*name));
            *times
                .entry(name.copied().unwrap_or_default().to_owned())
                .or_default() += *us as f64 / 1e6;
        }
    }
    times
}

/// Returns the stacks of threads that executed.
pub(crate) fn executing(stacks: &Stacks) -> Stacks {
    let executes = |(frames, _): &&(Vec<String>, u64)| {
        let last = frames.last().map_or("", |it| it);
        !last.starts_with('[')
    };
    stacks.iter().filter(executes).cloned().collect()
}

/// Returns by how many points the tool says that shares of what executes may be off, or 0.
fn may_be_off(printed: &str) -> f64 {
    let plain = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let points = plain.split_once(MAY_BE_OFF);
    let points = points.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    points.unwrap_or(0.0)
}

/// Compares the shares of functions that compute, of those that wait, and of waits for locks.
pub(crate) fn compare_all(
    (printed, said): (&str, &Times),
    stacks: &Stacks,
    computing: &[&str],
    waiting: &[&str],
    locking: &[&str],
) -> Result<()> {
    let sum = |stacks: &Stacks| stacks.iter().map(|it| it.1).sum::<u64>() as f64;
    let is_without = |frame: &String| frame.contains("without a CPU");
    let without = stacks
        .iter()
        .filter(|(frames, _)| frames.iter().any(is_without));
    let without: Stacks = without.cloned().collect();
    let executing = executing(stacks);
    let is_busy = sum(&without) > sum(&executing) * BUSY;
    let (points, of_locks) = if is_busy {
        (POINTS_BUSY, POINTS_BUSY_LOCKS)
    } else {
        (POINTS, POINTS)
    };
    // What holds a lock is not what waits for it.
    let locked = times(stacks, &[locking, &["Shares.hold"]].concat());
    compare(said, &locked, locking, of_locks)?;
    // Two standard deviations of a share of a half, twice.
    let by_chance = 200.0 / (sum(&executing) / 1e6 * HZ).max(1.0).sqrt();
    let by_chance = if is_busy { by_chance } else { 0.0 };
    let of_cpu = points.max(by_chance).max(2.0 * may_be_off(printed));
    compare(said, &times(&executing, computing), computing, of_cpu)?;
    compare(said, &times(stacks, waiting), waiting, points)
}

/// Compares shares of a sum with those that the program has measured.
fn compare(said: &Times, found: &Times, names: &[&str], points: f64) -> Result<()> {
    let sum = |times: &Times| -> f64 { names.iter().filter_map(|name| times.get(*name)).sum() };
    let (said_sum, found_sum) = (sum(said), sum(found));
    ensure!(found_sum > 0.0, "none of {names:?} was found");
    for name in names {
        let said = said.get(*name).context("the program's own time")? / said_sum;
        let found = found.get(*name).copied().unwrap_or(0.0) / found_sum;
        let off = (said - found).abs() * 100.0;
        ensure!(
            off <= points,
            "{name}: {found:.3} of the time, and not {said:.3}"
        );
    }
    Ok(())
}

/// Returns what the program has measured.
pub(crate) fn said(stdout: &str) -> Result<Times> {
    let parts = stdout.lines().filter_map(|line| line.strip_prefix("part "));
    parts
        .map(|part| {
            let (name, time) = part.split_once(' ').context("a time")?;
            Ok((name.to_owned(), time.parse()?))
        })
        .collect()
}
