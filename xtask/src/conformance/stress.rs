//! stress-ng's stressors that verify what they did, for a short time each.

use std::time::Duration;

use anyhow::{Result, bail};

use super::process::{End, Runner};
use super::{CARRIERS, Case, Mode};
use crate::shell;

const STRESSORS: [&str; 18] = [
    "pthread", "mutex", "sem", "futex", "context", "switch", "yield", "sigq", "sigsegv", "clone",
    "fork", "vfork", "pipe", "sock", "poll", "epoll", "timer", "malloc",
];

const RUN_S: &str = "3";
const LIMIT: Duration = Duration::from_secs(30);

pub fn run(runner: &Runner, only: Option<&str>) -> Result<Vec<Case>> {
    let Some(program) = shell::find("stress-ng") else {
        bail!("stress-ng is not here");
    };
    let mut cases = Vec::new();
    for name in STRESSORS {
        let full_name = format!("stress-ng/{name}");
        if only.is_some_and(|only| !full_name.contains(only)) {
            continue;
        }
        let stressor = format!("--{name}");
        let arguments = [&stressor, "2", "--verify", "--timeout", RUN_S];
        let run = |mode| {
            let end = runner.run(mode, name, &program, &arguments, LIMIT);
            end.map(verdict)
        };
        let native = run(Mode::Native)?;
        let mut raddle = Vec::new();
        for carriers in CARRIERS {
            if native.is_ok() {
                let outcome = run(Mode::Raddle(carriers))?;
                raddle.push((carriers, outcome));
            }
        }
        cases.push(Case {
            group: "stress-ng".into(),
            name: name.into(),
            native,
            raddle,
        });
    }
    Ok(cases)
}

fn verdict(end: End) -> Result<(), String> {
    match end {
        End::Code(0) => Ok(()),
        End::Code(code) => Err(format!("exit {code}")),
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err("hung".to_owned()),
    }
}
