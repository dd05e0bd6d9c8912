//! The cost of raddle for a program without a gain from it: system calls, start-up, computing.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::harness::{Case, Sample, Settings, Work, median, parse};
use super::primitives::c_case;
use super::process::{self, EVERY_WAY, Way, wait};
use super::programs::{Workshop, find, skipped};
use crate::cli::QUANTUM_VARIABLE;

const CALL_ROUNDS: u32 = 200_000;
const COMPUTE_ROUNDS: u32 = 200_000_000;
const STARTS: u32 = 50;
const TURN_STEPS: u32 = 100_000_000;
/// Runs with preemption and without it, by turns.
const PAIRS: u32 = 5;
/// The quantum that is compared with none, in microseconds.
const QUANTUM_US: &str = "2000";

pub(super) fn cases(workshop: &Workshop) -> Vec<Case> {
    let mut cases = c_case(workshop, "system calls", "calls", CALL_ROUNDS);
    match find("true") {
        Some(program) => cases.push(Case {
            title: "start-up".into(),
            toolchain: program.display().to_string(),
            command: vec![program.into()],
            work: Work::StartUp {
                starts: (f64::from(STARTS) * workshop.fraction()).ceil() as u32,
            },
            ways: &EVERY_WAY,
        }),
        None => skipped("start-up", "there is no program called true"),
    }
    cases.extend(c_case(workshop, "computing", "compute", COMPUTE_ROUNDS));
    for turns in ["short", "long"] {
        let title = format!("{turns} turns");
        for mut case in c_case(workshop, &title, "turns", TURN_STEPS) {
            case.command.push(turns.into());
            case.work = Work::Preempted {
                pairs: (f64::from(PAIRS) * workshop.fraction()).ceil() as u32,
            };
            case.ways = &[Way::NativeOne, Way::RaddleOne];
            cases.push(case);
        }
    }
    cases
}

/// CPU time of threads that compute side by side; under raddle with a quantum and without one, by
/// turns, and how much more it is with one: the median of all pairs.
pub(super) fn preempted(
    way: Way,
    program: &[OsString],
    pairs: u32,
    settings: &Settings,
) -> Result<Vec<Sample>, String> {
    let cpu_ms = |quantum_us: &str| {
        let mut command = way.command(&settings.raddle, program);
        command.env(QUANTUM_VARIABLE, quantum_us);
        let samples = parse(&process::output(way, &mut command, settings.limit)?)?;
        let sample = samples.first().ok_or("it printed no figure")?;
        Ok::<f64, String>(sample.value)
    };
    let (mut with_ms, mut without_ms, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let without = cpu_ms("0")?;
        without_ms.push(without);
        if way == Way::RaddleOne {
            let with = cpu_ms(QUANTUM_US)?;
            with_ms.push(with);
            more.push((with / without - 1.0) * 100.0);
        }
    }
    let sample = |name: &str, mut values: Vec<f64>, unit: &str| {
        Some(Sample {
            name: name.into(),
            value: median(&mut values)?,
            unit: unit.into(),
        })
    };
    let samples = [
        sample("cpu", without_ms, "ms"),
        sample("cpu-preempted", with_ms, "ms"),
        sample("preemption", more, "%"),
    ];
    Ok(samples.into_iter().flatten().collect())
}

/// Starts the program again and again; the median time from start to end.
pub(super) fn start_up(
    way: Way,
    command: &mut Command,
    starts: u32,
    limit: Duration,
) -> Result<Vec<Sample>, String> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut times_ms = Vec::new();
    for _ in 0..starts {
        let started = Instant::now();
        let mut child = way.spawn(command).map_err(|error| error.to_string())?;
        match wait(&mut child, limit).map_err(|error| error.to_string())? {
            Some(status) if status.success() => {}
            Some(status) => return Err(status.to_string()),
            None => {
                return Err(format!(
                    "did not end in {} s, and was killed",
                    limit.as_secs()
                ));
            }
        }
        times_ms.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let value = median(&mut times_ms).ok_or("it was never started")?;
    Ok(vec![Sample {
        name: "true".into(),
        value,
        unit: "ms".into(),
    }])
}
