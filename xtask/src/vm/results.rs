//! The table of the machines, and the same as a file for machines.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::executables::Executable;
use super::manifest::{Machine, Manifest};
use super::report::{Report, Verdict};
use crate::workspace::Workspace;

/// The file in the target folder.
const FILE: &str = "vm/results.json";

/// The outcome of one machine.
#[derive(Default, Serialize)]
pub(super) struct Row {
    kernel: String,
    /// The kernel's release, or why the guest reported none.
    release: String,
    processor: String,
    cpus: u32,
    seconds: u64,
    cases: usize,
    passed: usize,
    /// Cases that failed once and passed in the second run, with the failures.
    passed_again: BTreeMap<String, String>,
    fail_natively: BTreeMap<String, String>,
    /// Cases that pass natively and fail under raddle.
    fail: BTreeMap<String, String>,
    /// Such cases with a reason in the manifest.
    known: BTreeMap<String, String>,
    did_not_run: Vec<String>,
    /// Lines of `raddle run -v`, if they are not the manifest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    unexpected: Option<String>,
}

impl Row {
    /// Judges a guest's report.
    pub(super) fn new(
        manifest: &Manifest,
        machine: Machine<'_>,
        executables: &[&Executable<'_>],
        report: &Report,
        took: Duration,
    ) -> Row {
        let says = &machine.processor.says;
        let is_expected = report.says.iter().any(|line| line.contains(says.as_str()));
        let mut row = Row {
            kernel: machine.kernel.name.clone(),
            release: report.release.clone().unwrap_or_else(|| "no boot".into()),
            processor: machine.processor.model.clone(),
            cpus: machine.cpus,
            seconds: took.as_secs(),
            unexpected: (!is_expected).then(|| report.says.join("; ")),
            ..Row::default()
        };
        for executable in executables {
            let file = &executable.test.file;
            for case in &executable.cases {
                let known = manifest.known(&row.kernel, file, case);
                row.add(format!("{file}/{case}"), report.verdict(file, case), known);
            }
        }
        row
    }

    fn add(&mut self, name: String, verdict: Verdict, known: Option<&str>) {
        self.cases += 1;
        match (verdict, known) {
            (Verdict::Passed, known) => {
                if known.is_some_and(|reason| !reason.starts_with("sometimes:")) {
                    println!("passes here, look at its line in the manifest: {name}");
                }
                self.passed += 1;
            }
            (Verdict::PassedAgain(why), _) => {
                self.passed += 1;
                self.passed_again.insert(name, why);
            }
            (Verdict::FailsNatively(why), _) => {
                self.fail_natively.insert(name, why);
            }
            (Verdict::Fails(why), Some(reason)) => {
                self.known.insert(name, format!("{why}: {reason}"));
            }
            (Verdict::Fails(why), None) => {
                self.fail.insert(name, why);
            }
            (Verdict::DidNotRun, _) => self.did_not_run.push(name),
        }
    }

    pub(super) fn print_differences(&self) {
        if let Some(text) = &self.unexpected {
            println!("OTHER than the manifest says: raddle run -v: {text}");
        }
        let kinds = [
            ("FAILS", &self.fail),
            ("fails, known", &self.known),
            ("passed when run again", &self.passed_again),
            ("fails natively", &self.fail_natively),
        ];
        for (kind, cases) in kinds {
            for (name, why) in cases {
                println!("{kind}: {name}: {why}");
            }
        }
        for name in &self.did_not_run {
            println!("DID NOT RUN: {name}");
        }
    }

    /// A machine on which no case passes shows nothing, and is a failure.
    fn is_good(&self) -> bool {
        self.passed > 0
            && self.fail.is_empty()
            && self.did_not_run.is_empty()
            && self.unexpected.is_none()
    }
}

pub(super) fn write(workspace: &Workspace, rows: &[Row]) -> Result<()> {
    let file = workspace.target.join(FILE);
    let text = serde_json::to_string_pretty(rows)?;
    std::fs::write(&file, text).with_context(|| format!("can't write {}", file.display()))
}

/// Prints the table. Returns true if no machine has an unknown failure.
pub(super) fn judge(rows: &[Row]) -> bool {
    println!("---");
    println!(
        "{:<28} {:<9} {:>4} {:>6} {:>6} {:>6} {:>6}  fails under raddle",
        "kernel", "processor", "CPUs", "cases", "passed", "native", "s"
    );
    for row in rows {
        let known = row.known.keys().map(|name| format!("{name} (known)"));
        let lost = row
            .did_not_run
            .iter()
            .map(|name| format!("{name} (did not run)"));
        let failed: Vec<_> = row.fail.keys().cloned().chain(known).chain(lost).collect();
        let failed = match failed.as_slice() {
            [] if row.unexpected.is_some() => "raddle is not there as expected".to_owned(),
            [] => "-".to_owned(),
            names => names.join(" "),
        };
        println!(
            "{:<28} {:<9} {:>4} {:>6} {:>6} {:>6} {:>6}  {failed}",
            row.release,
            row.processor,
            row.cpus,
            row.cases,
            row.passed,
            row.fail_natively.len(),
            row.seconds,
        );
    }
    println!("native: cases that fail natively in the guest, which show nothing of raddle");
    let bad = rows.iter().filter(|row| !row.is_good()).count();
    println!(
        "{bad} of {} machines have a failure that is not known",
        rows.len()
    );
    bad == 0 && !rows.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdicts: &[(Verdict, Option<&str>)]) -> Row {
        let mut row = Row::default();
        for (index, (verdict, known)) in verdicts.iter().enumerate() {
            row.add(format!("f/{index}"), verdict.clone(), *known);
        }
        row
    }

    #[test]
    fn only_a_failure_without_a_reason_is_bad() {
        let fails = || Verdict::Fails("exit 1".into());
        assert!(row(&[(Verdict::Passed, None), (fails(), Some("why"))]).is_good());
        assert!(!row(&[(Verdict::Passed, None), (fails(), None)]).is_good());
        assert!(!row(&[(Verdict::Passed, None), (Verdict::DidNotRun, None)]).is_good());
    }

    #[test]
    fn a_machine_that_shows_nothing_is_bad() {
        assert!(!row(&[]).is_good());
        assert!(!row(&[(Verdict::FailsNatively("x".into()), None)]).is_good());
        let mut silent = row(&[(Verdict::Passed, None)]);
        silent.unexpected = Some("runs on kernel threads".into());
        assert!(!silent.is_good());
        assert!(!judge(&[]));
    }
}
