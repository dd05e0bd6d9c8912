//! Runs of a suite's batches in every mode, and a second run of failed cases.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use super::batch::{Batch, Outcomes, Reading, WHOLE, drop_root};
use super::manifest::Suite;
use crate::conformance::process::{Runner, parallel};
use crate::conformance::{Case, Mode};

/// A variable that each process of a run has with the run's own value: a test may leave processes
/// behind that have left its group and its session.
const MARK: &str = "SUITES_RUN";

/// Runs every batch, and then, one after another, the cases that fail in any mode.
pub(super) fn compare_all(runner: &Runner, suite: &Suite, batches: &[Batch]) -> Result<Vec<Case>> {
    let examined = parallel(suite.at_once, batches, |batch| {
        compare(runner, suite, batch, None)
    });
    let mut cases = Vec::new();
    for (batch, examined) in batches.iter().zip(examined) {
        for mut case in examined? {
            if case.native.is_err() || case.differs() {
                confirm(runner, suite, batch, &mut case)?;
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

/// Runs one case again in every mode. A case that fails natively in one of two runs and passes in
/// the other is judged by the second.
fn confirm(runner: &Runner, suite: &Suite, batch: &Batch, case: &mut Case) -> Result<()> {
    let only = (case.name != WHOLE).then_some(case.name.as_str());
    let again = compare(runner, suite, batch, only)?;
    let Some(again) = again.into_iter().find(|again| again.name == case.name) else {
        return Ok(());
    };
    if case.native.is_err() {
        if again.native.is_ok() {
            println!("UNSTABLE natively: {}", case.full_name());
        }
        (case.native, case.raddle) = (again.native, again.raddle);
        return Ok(());
    }
    case.confirm(again);
    Ok(())
}

/// Runs a batch, or `only` one of its cases, natively and under raddle.
fn compare(runner: &Runner, suite: &Suite, batch: &Batch, only: Option<&str>) -> Result<Vec<Case>> {
    let once = |mode| outcomes(runner, suite, batch, mode, only);
    let native = once(Mode::Native)?;
    let mut raddle = Vec::new();
    if native.values().any(Result::is_ok) {
        for &carriers in runner.carriers() {
            raddle.push((carriers, once(Mode::Raddle(carriers))?));
        }
    }
    Ok(cases(batch, native, &raddle))
}

fn cases(batch: &Batch, native: Outcomes, raddle: &[(u32, Outcomes)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, native) in native {
        let under = raddle.iter().map(|(carriers, all)| {
            let missing = || Err("did not run".to_owned());
            (*carriers, all.get(&name).cloned().unwrap_or_else(missing))
        });
        let raddle = if native.is_ok() {
            under.collect()
        } else {
            Vec::new()
        };
        let group = batch.name.clone();
        let case = Case {
            group,
            name,
            native,
            raddle,
        };
        // With cases that are reported one by one, the batch itself is a case only if it failed.
        let whole = case.name == WHOLE && batch.reading.tells_cases();
        if !whole || case.native.is_err() || case.differs() {
            cases.push(case);
        }
    }
    cases
}

fn outcomes(
    runner: &Runner,
    suite: &Suite,
    batch: &Batch,
    mode: Mode,
    only: Option<&str>,
) -> Result<Outcomes> {
    let prefix = format!("{}/", batch.name);
    let skipped: Vec<_> = suite
        .skip
        .keys()
        .filter_map(|case| case.strip_prefix(&prefix))
        .collect();
    let log = match only {
        Some(case) => format!("{}-{}", batch.name, case.replace([':', ' '], "_")),
        None => batch.name.clone(),
    };
    let mark = next_mark();
    let mut command = runner.command(mode, &batch.program);
    command
        .args(batch.arguments(only, &skipped))
        .envs(batch.environment.iter().cloned())
        .env(MARK, &mark)
        .current_dir(&batch.folder);
    if batch.unprivileged {
        drop_root(&mut command);
    }
    // A program that can't be started does not affect the others.
    let end = match runner.end_of(mode, &log, &mut command, suite.limit()) {
        Ok(end) => end,
        Err(error) => {
            return Ok(Outcomes::from([(
                WHOLE.to_owned(),
                Err(format!("{error:#}")),
            )]));
        }
    };
    kill_marked(&mark);
    let printed = match batch.reading {
        Reading::ExitCode => String::new(),
        _ => read_lossy(&runner.log(mode, &log)),
    };
    Ok(batch.outcomes(end, &printed))
}

fn read_lossy(path: &std::path::Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn next_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{number}", std::process::id())
}

/// Kills every process that started with this mark in its environment.
fn kill_marked(mark: &str) {
    let variable = format!("{MARK}={mark}");
    let mut seen = BTreeSet::new();
    // A process that forks meanwhile is seen in the next round.
    for _round in 0..3 {
        let Ok(entries) = fs::read_dir("/proc") else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let marked = environment
                .split(|&byte| byte == 0)
                .any(|entry| entry == variable.as_bytes());
            if marked && let Some(pid) = Pid::from_raw(number) {
                let _ = kill_process(pid, Signal::KILL);
                seen.insert(number);
            }
        }
        if seen.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_left_its_group_is_killed_by_its_mark() {
        let mark = next_mark();
        let mut command = Command::new("setsid");
        let mut child = command
            .args(["sleep", "60"])
            .env(MARK, &mark)
            .spawn()
            .expect("setsid starts");
        // A process that is becoming another program has no environment for a moment.
        let end = loop {
            kill_marked(&mark);
            if let Some(end) = child.try_wait().expect("a child") {
                break end;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert!(!end.success());
    }

    #[test]
    fn a_case_that_is_missing_under_raddle_differs() {
        let batch = Batch {
            name: "b".into(),
            program: "/bin/true".into(),
            arguments: Vec::new(),
            folder: "/".into(),
            environment: Vec::new(),
            unprivileged: false,
            reading: Reading::Libtest,
        };
        let native = Outcomes::from([("a".into(), Ok(())), (WHOLE.into(), Ok(()))]);
        let raddle = Outcomes::from([(WHOLE.into(), Ok(()))]);
        let cases = cases(&batch, native, &[(2, raddle)]);
        assert_eq!(cases.len(), 1);
        assert!(cases[0].differs());
    }
}
