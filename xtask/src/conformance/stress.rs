//! stress-ng's stressors that verify their work, for a short time each.

use std::time::Duration;

use anyhow::{Result, bail};

use super::process::{End, Runner};
use super::{Case, Settings};
use crate::shell;

const STRESSORS: [&str; 18] = [
    "pthread", "mutex", "sem", "futex", "context", "switch", "yield", "sigq", "sigsegv", "clone",
    "fork", "vfork", "pipe", "sock", "poll", "epoll", "timer", "malloc",
];

/// Seconds for each stressor.
pub(super) const LONG: &str = "3";
pub(super) const SHORT: &str = "1";
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn run(runner: &Runner, settings: &Settings, run_s: &str) -> Result<Vec<Case>> {
    let Some(program) = shell::find("stress-ng") else {
        bail!("stress-ng is not here");
    };
    let mut cases = Vec::new();
    for name in STRESSORS {
        if !settings.wants(&format!("stress-ng/{name}")) {
            continue;
        }
        let stressor = format!("--{name}");
        let arguments = [&stressor, "2", "--verify", "--timeout", run_s];
        let once = |mode| {
            let end = runner.run(mode, name, &program, &arguments, LIMIT);
            end.map(verdict)
        };
        let mut case = runner.compare("stress-ng", name, once)?;
        if case.differs() {
            case.confirm(runner.compare("stress-ng", name, once)?);
        }
        cases.push(case);
    }
    Ok(cases)
}

fn verdict(end: End) -> Result<(), String> {
    match end {
        End::Code(0) => Ok(()),
        End::Code(code) => Err(format!("exit {code}")),
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err(super::HUNG.to_owned()),
    }
}
