//! `xtask fuzz calls`: builds the fuzzer of system calls and runs it; the lane `fuzz` is a short,
//! fixed part of it.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::lanes::Outcome;
use crate::shell;
use crate::tally::Tally;
use crate::workspace::Workspace;

const PACKAGE: &str = "raddle-fuzz";

/// The fuzzer's exit status where the kernel allows no namespaces.
const NOT_CONTAINED: i32 = 77;

/// Runs a campaign, or what the arguments ask for.
pub(crate) fn run(workspace: &Workspace, what: &str, arguments: &[String]) -> Result<bool> {
    ensure!(
        what == "calls",
        "there is nothing to fuzz that is called {what}: say calls"
    );
    Ok(command(workspace)?.args(arguments).status()?.success())
}

/// The corpus: cases that were faults once.
pub(crate) fn run_short(workspace: &Workspace) -> Result<Outcome> {
    let mut tally = Tally::default();
    let mut command = command(workspace)?;
    command.args(["--calls", "0", "--shrink", "3"]);
    let status = shell::stream(&mut command, |line| {
        println!("{line}");
        if let Some((cases, failed)) = counts(line) {
            tally.passed = cases.saturating_sub(failed);
            tally.failed = failed;
        }
    })?;
    if status.code() == Some(NOT_CONTAINED) {
        return Ok(Outcome::Skipped("cases can't be contained here".into()));
    }
    tally.note_exit(status.success());
    Ok(Outcome::Ran(tally))
}

/// Reads cases and differences of the line `fuzz: 12 cases, 3 unexplained`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (cases, rest) = line.strip_prefix("fuzz: ")?.split_once(" cases, ")?;
    let failed = rest.strip_suffix(" unexplained")?;
    Some((cases.parse().ok()?, failed.parse().ok()?))
}

/// Returns the fuzzer's command, with the paths of this tree.
fn command(workspace: &Workspace) -> Result<Command> {
    workspace.build_release()?;
    shell::run(shell::cargo(&workspace.root).args(["build", "--release", "--package", PACKAGE]))?;
    let programs = workspace.target.join("release");
    let package = workspace.root.join("crates").join(PACKAGE);
    let mut command = Command::new(programs.join("fuzz-calls"));
    command.arg("--raddle").arg(workspace.raddle());
    command
        .arg("--executor")
        .arg(programs.join("fuzz-executor"));
    command.arg("--folder").arg(workspace.target.join("fuzz"));
    command.arg("--corpus").arg(package.join("corpus"));
    command
        .arg("--explanations")
        .arg(package.join("explanations.toml"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn the_last_line_has_the_counts() {
        assert_eq!(counts("fuzz: 120 cases, 3 unexplained"), Some((120, 3)));
        assert_eq!(counts("fuzz: many cases, 3 unexplained"), None);
        assert_eq!(counts("120 cases"), None);
    }
}
