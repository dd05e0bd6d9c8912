//! The Open POSIX Test Suite: threads, semaphores, signals, timers, clocks and message queues.
//!
//! Protocol: (1) each program of the wanted interfaces is compiled once; (2) it runs natively, and
//! if it passes there, under raddle, one case's modes after another, because a case may use names
//! that all processes share; (3) a program that differs runs once more alone: these programs judge
//! by seconds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::exceptions::Exceptions;
use super::process::{End, Runner, cpus, parallel};
use super::{Case, Posix, Settings, Suite};
use crate::workspace::Workspace;

/// The interfaces, by the first letters of their names or by all of them.
const PREFIXES: [&str; 7] = [
    "pthread_", "sem_", "sig", "timer_", "clock_", "mq_", "sched_",
];
const NAMES: [&str; 5] = ["fork", "kill", "killpg", "nanosleep", "raise"];

/// The lines of the table, by the first letters of the interfaces' names; the last has the rest.
const FAMILIES: [(&str, &[&str]); 3] = [
    ("pthread_*, sem_*", &["pthread_", "sem_"]),
    ("signals", &["sig", "kill", "raise"]),
    ("clocks, timers, scheduling, message queues", &[""]),
];

/// More than one: most programs sleep most of their time.
const RUNS_PER_CPU: usize = 5;

/// The suite's own exit codes.
const CODES: [(i32, &str); 4] = [
    (1, "failed"),
    (2, "unresolved"),
    (4, UNSUPPORTED),
    (5, UNTESTED),
];
const UNSUPPORTED: &str = "unsupported";
const UNTESTED: &str = "untested";

/// One program of the suite.
struct Program {
    group: String,
    name: String,
    source: PathBuf,
}

pub(super) fn run(workspace: &Workspace, settings: &Settings, posix: &Posix) -> Result<Vec<Suite>> {
    let interfaces = interfaces(&posix.suite)?;
    let mut programs = programs(&interfaces)?;
    programs.retain(|program| settings.wants(&program.full_name()));
    let default = workspace.target.join("conformance/posix");
    let build = posix.build.clone().unwrap_or(default);
    let runner = Runner::new(workspace.raddle(), build.clone(), settings.carriers())?;
    let built = compile(&interfaces, &build, &programs)?;
    println!("{} programs, {} compile", programs.len(), built.len());
    let once = |program: &Program| examine(&runner, program, &build, posix.limit);
    let mut cases = parallel(RUNS_PER_CPU * cpus(), &built, |program| {
        let first = once(program)?;
        // Signals and timers of other processes count against the same limits.
        let unlucky = matches!(&first.native, Err(how) if how != UNTESTED && how != UNSUPPORTED);
        if unlucky { once(program) } else { Ok(first) }
    })
    .into_iter()
    .collect::<Result<Vec<_>>>()?;
    for (case, program) in cases.iter_mut().zip(&built) {
        if case.differs() {
            case.confirm(once(program)?);
        }
    }
    let mut suites = Vec::new();
    for (title, prefixes) in FAMILIES {
        let (family, rest) = cases
            .into_iter()
            .partition(|case| prefixes.iter().any(|prefix| case.group.starts_with(prefix)));
        cases = rest;
        suites.push(Suite {
            title: format!("Open POSIX: {title}"),
            cases: family,
            exceptions: Exceptions::load(workspace, "posix")?,
        });
    }
    suites.retain(|suite| !suite.cases.is_empty());
    Ok(suites)
}

/// Returns the folder of interfaces in or below the given folder.
fn interfaces(suite: &Path) -> Result<PathBuf> {
    let below = ["", "conformance/interfaces"];
    let suites = ["", "testcases/open_posix_testsuite"];
    let candidates = suites
        .iter()
        .flat_map(|root| below.map(|folder| suite.join(root).join(folder)));
    candidates
        .into_iter()
        .find(|folder| folder.join("pthread_create").is_dir())
        .with_context(|| format!("no conformance/interfaces in {}", suite.display()))?
        .canonicalize()
        .context("the suite's folder")
}

/// Returns the programs that run; compile-only programs have names that say so.
fn programs(interfaces: &Path) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for group in names(interfaces)? {
        let prefixed = PREFIXES.iter().any(|prefix| group.starts_with(prefix));
        if !prefixed && !NAMES.contains(&group.as_str()) {
            continue;
        }
        for file in names(&interfaces.join(&group))? {
            let Some(name) = file.strip_suffix(".c") else {
                continue;
            };
            if name.contains('-') && !name.contains("buildonly") {
                programs.push(Program {
                    group: group.clone(),
                    name: name.to_owned(),
                    source: interfaces.join(&group).join(&file),
                });
            }
        }
    }
    Ok(programs)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("can't read {}", folder.display()))?
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut names: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Compiles what is not compiled yet; returns the programs that compile.
fn compile<'a>(
    interfaces: &Path,
    build: &Path,
    programs: &'a [Program],
) -> Result<Vec<&'a Program>> {
    let suite = interfaces.join("../..");
    let common = build.join("common.o");
    let include = suite.join("include");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-w", "-O1", "-c", "-I"]).arg(&include);
    let cc = cc.arg(suite.join("lib/common.c")).arg("-o").arg(&common);
    ensure!(
        cc.status()?.success(),
        "the suite's library does not compile"
    );
    let compiled = parallel(cpus(), programs, |program| -> Result<bool> {
        let output = program.binary(build);
        if output.exists() {
            return Ok(true);
        }
        std::fs::create_dir_all(build.join(&program.group))?;
        let mut cc = Command::new("cc");
        let cc = cc.args(["-w", "-O1", "-I"]).arg(&include);
        let cc = cc.arg(&program.source).arg(&common).arg("-o").arg(&output);
        Ok(cc
            .args(["-pthread", "-lrt", "-lm"])
            .output()?
            .status
            .success())
    });
    let compiled = compiled.into_iter().collect::<Result<Vec<_>>>()?;
    let pairs = programs.iter().zip(compiled);
    Ok(pairs
        .filter_map(|(program, good)| good.then_some(program))
        .collect())
}

impl Program {
    fn full_name(&self) -> String {
        format!("{}/{}", self.group, self.name)
    }

    fn binary(&self, build: &Path) -> PathBuf {
        build.join(&self.group).join(&self.name)
    }
}

fn examine(runner: &Runner, program: &Program, build: &Path, limit: Duration) -> Result<Case> {
    let (binary, full_name) = (program.binary(build), program.full_name());
    runner.compare(&program.group, &program.name, |mode| {
        let end = runner.run(mode, &full_name, &binary, &[], limit);
        end.map(verdict)
    })
}

fn verdict(end: End) -> Result<(), String> {
    match end {
        End::Code(0) => Ok(()),
        End::Code(code) => {
            let known = CODES.iter().find(|(known, _)| *known == code);
            Err(known.map_or_else(|| format!("exit {code}"), |(_, word)| (*word).to_owned()))
        }
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err(super::HUNG.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_the_suites() {
        assert_eq!(verdict(End::Code(0)), Ok(()));
        assert_eq!(verdict(End::Code(2)), Err("unresolved".to_owned()));
        assert_eq!(verdict(End::Code(77)), Err("exit 77".to_owned()));
        assert_eq!(verdict(End::Signal(11)), Err("signal 11".to_owned()));
    }
}
