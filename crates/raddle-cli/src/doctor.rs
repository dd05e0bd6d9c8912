//! `raddle doctor`: the parts of this machine that raddle can use, one line each.
//!
//! Nouns: a *finding* is one line: a name, a [`State`], what was seen, and, unless all is well, the
//! degradation and the cure. A *probe* asks the kernel by trying: a version number or a setting
//! says what should work, a filter in a container has the last word.
//!
//! `broken` means that no program would get green threads; it makes the exit status 1.

mod cpu;
mod kernel;
mod limits;
mod probe;
mod software;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::cli::DoctorArguments;
use crate::stdout::stdout;
use crate::table::{Align, Table};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    Degraded,
    Broken,
}

/// One line of the report.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub name: &'static str,
    pub state: State,
    pub seen: String,
    /// The degradation, if there is one.
    pub consequence: Option<&'static str>,
    pub cure: Option<String>,
}

impl Finding {
    pub(crate) fn ok(name: &'static str, seen: impl Into<String>) -> Finding {
        Finding {
            name,
            state: State::Ok,
            seen: seen.into(),
            consequence: None,
            cure: None,
        }
    }

    pub(crate) fn degraded(
        name: &'static str,
        seen: impl Into<String>,
        consequence: &'static str,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            state: State::Degraded,
            consequence: Some(consequence),
            cure: Some(cure.into()),
            ..Finding::ok(name, seen)
        }
    }

    pub(crate) fn broken(
        name: &'static str,
        seen: impl Into<String>,
        consequence: &'static str,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            state: State::Broken,
            ..Finding::degraded(name, seen, consequence, cure)
        }
    }

    fn sentence(&self) -> String {
        match (self.consequence, &self.cure) {
            (Some(consequence), Some(cure)) => format!("{}: {consequence}: {cure}", self.seen),
            _ => self.seen.clone(),
        }
    }
}

const CHECKS: &[fn() -> Finding] = &[
    kernel::version,
    kernel::procfs,
    cpu::fs_base,
    cpu::vectors,
    software::libc,
    software::preload,
    cpu::carriers,
    kernel::text_patching,
    limits::guards,
    limits::mappings,
    limits::thread_ids,
    kernel::perf_events,
    kernel::io_uring,
    kernel::selinux,
    kernel::seccomp,
    kernel::ptrace,
    cpu::shadow_stack,
];

#[derive(Serialize)]
struct Report {
    state: State,
    findings: Vec<Finding>,
}

pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode> {
    let findings: Vec<_> = CHECKS.iter().map(|check| check()).collect();
    let report = Report {
        state: worst(&findings),
        findings,
    };
    let mut out = stdout();
    if arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        writeln!(out, "{text}")?;
    } else {
        write_lines(&report, &mut out)?
    }
    Ok(ExitCode::from(u8::from(report.state == State::Broken)))
}

fn worst(findings: &[Finding]) -> State {
    let has = |state| findings.iter().any(|finding| finding.state == state);
    match (has(State::Broken), has(State::Degraded)) {
        (true, _) => State::Broken,
        (false, true) => State::Degraded,
        (false, false) => State::Ok,
    }
}

fn write_lines(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::new(&[Align::Left; 3]);
    for finding in &report.findings {
        table.row([word(finding.state), finding.name, &finding.sentence()]);
    }
    table.write(out)?;
    let verdict = match report.state {
        State::Ok => "everything works here",
        State::Degraded => "raddle works here, with what is degraded above",
        State::Broken => "no green threads here, until what is broken above is mended",
    };
    writeln!(out, "{verdict}")
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Degraded => "degraded",
        State::Broken => "broken",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Finding> {
        vec![
            Finding::ok("kernel", "Linux 6.1"),
            Finding::degraded("io_uring", "refused", "files use helpers", "allow it"),
        ]
    }

    #[test]
    fn the_worst_finding_is_the_verdict() {
        assert_eq!(worst(&sample()[..1]), State::Ok);
        assert_eq!(worst(&sample()), State::Degraded);
        let mut findings = sample();
        findings.insert(
            0,
            Finding::broken("cpu", "old", "no green threads", "another CPU"),
        );
        assert_eq!(worst(&findings), State::Broken);
    }

    #[test]
    fn one_line_has_state_consequence_and_cure() {
        let report = Report {
            state: State::Degraded,
            findings: sample(),
        };
        let mut text = Vec::new();
        write_lines(&report, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "ok        kernel    Linux 6.1\n\
             degraded  io_uring  refused: files use helpers: allow it\n\
             raddle works here, with what is degraded above\n"
        );
    }
}
