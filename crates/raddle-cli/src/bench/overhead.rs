//! What raddle costs a program that does not gain from it: system calls, start-up, computing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::harness::{Case, Sample, Work, median};
use super::primitives::c_case;
use super::process::{EVERY_WAY, Way, wait};
use super::programs::{Workshop, find, skipped};

const CALL_ROUNDS: u32 = 200_000;
const COMPUTE_ROUNDS: u32 = 200_000_000;
const STARTS: u32 = 50;

pub fn cases(workshop: &Workshop) -> Vec<Case> {
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
    cases
}

/// Starts the program again and again; the median time from start to end.
pub fn start_up(
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
