//! One command of a suite, and the outcomes of its cases.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::process::geteuid;

use super::mariadb;
use crate::conformance::HUNG;
use crate::conformance::process::End;
use crate::shell;

/// Stands for the batch itself among its cases.
pub(super) const WHOLE: &str = "(whole)";

/// The exit code of a program that says it can't judge here.
const UNSUPPORTED: i32 = 77;

/// The outcomes of cases; `Err` holds the failure.
pub(super) type Outcomes = BTreeMap<String, std::result::Result<(), String>>;

/// Debian's user and group without rights.
const NOBODY: u32 = 65534;

/// Makes the command run as the user without rights, if it would run as root.
pub(super) fn drop_root(command: &mut Command) {
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY).env("HOME", "/tmp");
    }
}

/// Gives a folder to the user without rights, if root runs this.
pub(super) fn give_away(folder: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let mut chown = Command::new("chown");
    shell::run(
        chown
            .args(["-R", &format!("{NOBODY}:{NOBODY}")])
            .arg(folder),
    )
}

/// One command of a suite.
pub(super) struct Batch {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    pub environment: Vec<(String, String)>,
    /// The suite refuses to run as root: under root it runs as the user without rights.
    pub unprivileged: bool,
    pub reading: Reading,
}

/// The source of the cases' outcomes.
#[derive(PartialEq, Eq)]
pub(super) enum Reading {
    /// The batch is one case, and its exit code the outcome.
    ExitCode,
    /// As `ExitCode`, but a script that prints the plan of no test at all is not supported here.
    Tap,
    /// MariaDB's driver runs these tests, and prints a line for each.
    Mtr(Vec<String>),
    /// Rust's test harness prints a line for each case.
    Libtest,
}

impl Reading {
    /// Returns true if the batch consists of cases that are reported one by one.
    pub(super) fn tells_cases(&self) -> bool {
        matches!(self, Reading::Libtest | Reading::Mtr(_))
    }
}

impl Batch {
    /// Returns the arguments that run all cases but `skipped`, or `only` one case.
    pub(super) fn arguments(&self, only: Option<&str>, skipped: &[&str]) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        match &self.reading {
            Reading::ExitCode | Reading::Tap => {}
            Reading::Mtr(tests) => {
                arguments.extend(mariadb::arguments(&self.name, tests, only, skipped));
            }
            Reading::Libtest => {
                arguments.push("--exact".to_owned());
                arguments.extend(only.map(str::to_owned));
                for case in skipped {
                    arguments.extend(["--skip".to_owned(), (*case).to_owned()]);
                }
            }
        }
        arguments
    }

    /// Returns the cases' outcomes, by the program's end and its output.
    pub(super) fn outcomes(&self, end: End, printed: &str) -> Outcomes {
        let (mut outcomes, whole) = match (&self.reading, end) {
            (Reading::Tap, End::Code(0)) if printed.starts_with("1..0 ") => {
                (Outcomes::new(), verdict(End::Code(UNSUPPORTED)))
            }
            (Reading::ExitCode | Reading::Tap, end) => (Outcomes::new(), verdict(end)),
            // The code of failed tests, which are reported one by one.
            (Reading::Mtr(_), End::Code(1)) if printed.contains("\nCompleted: ") => {
                (mariadb::parse(printed), Ok(()))
            }
            (Reading::Mtr(_), end) => (mariadb::parse(printed), verdict(end)),
            // The code of failed tests, which are reported one by one.
            (Reading::Libtest, End::Code(101)) if printed.contains("\ntest result: ") => {
                (parse_libtest(printed), Ok(()))
            }
            (Reading::Libtest, end) => (parse_libtest(printed), verdict(end)),
        };
        outcomes.insert(WHOLE.to_owned(), whole);
        outcomes
    }
}

fn verdict(end: End) -> std::result::Result<(), String> {
    match end {
        End::Code(0) => Ok(()),
        End::Code(UNSUPPORTED) => Err("unsupported".to_owned()),
        End::Code(code) => Err(format!("exit {code}")),
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err(HUNG.to_owned()),
    }
}

/// Reads `test NAME ... ok` of Rust's harness. A test's own output may stand before the outcome.
/// Ignored tests are left out.
fn parse_libtest(printed: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in printed.lines() {
        let Some((name, rest)) = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ... "))
        else {
            continue;
        };
        let name = name.trim_end_matches(" - should panic");
        let outcome = match rest {
            "ok" => Ok(()),
            rest if rest.ends_with("FAILED") => Err("failed".to_owned()),
            rest if rest.starts_with("ignored") => continue,
            rest if rest.ends_with("ok") => Ok(()),
            _ => continue,
        };
        outcomes.insert(name.to_owned(), outcome);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(reading: Reading) -> Batch {
        Batch {
            name: "b".into(),
            program: "/bin/true".into(),
            arguments: vec!["x".into()],
            folder: "/".into(),
            environment: Vec::new(),
            unprivileged: false,
            reading,
        }
    }

    #[test]
    fn libtest_tells_cases_and_leaves_out_ignored_ones() {
        let printed = "\nrunning 3 tests\ntest a::b ... ok\ntest c - should panic ... ok\n\
                       test d ... FAILED\ntest e ... ignored, slow\ntest f ... \n\
                       \ntest result: FAILED. 2 passed\n";
        let outcomes = batch(Reading::Libtest).outcomes(End::Code(101), printed);
        let names: Vec<_> = outcomes.keys().map(String::as_str).collect();
        assert_eq!(names, [WHOLE, "a::b", "c", "d"]);
        assert!(outcomes["d"].is_err() && outcomes["c"].is_ok() && outcomes[WHOLE].is_ok());
    }

    #[test]
    fn a_harness_that_dies_is_a_failed_case_of_its_own() {
        let outcomes = batch(Reading::Libtest).outcomes(End::Signal(11), "test a ... ok\n");
        assert_eq!(outcomes[WHOLE], Err("signal 11".to_owned()));
        assert_eq!(outcomes["a"], Ok(()));
    }

    #[test]
    fn a_script_without_a_test_is_not_supported() {
        let skipped = batch(Reading::Tap).outcomes(End::Code(0), "1..0 # SKIP no TLS\n");
        assert_eq!(skipped[WHOLE], Err("unsupported".to_owned()));
        let passed = batch(Reading::Tap).outcomes(End::Code(0), "1..1\nok 1\n");
        assert_eq!(passed[WHOLE], Ok(()));
    }

    #[test]
    fn only_the_harness_of_rust_is_told_a_case() {
        let exit = batch(Reading::ExitCode).arguments(Some("c"), &["d"]);
        assert_eq!(exit, ["x"]);
        let libtest = batch(Reading::Libtest).arguments(Some("c"), &["d"]);
        assert_eq!(libtest, ["x", "--exact", "c", "--skip", "d"]);
    }
}
