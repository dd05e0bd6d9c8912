//! The project's own integration tests, as a line of the same table: each of them runs natively and
//! with each number of carriers by itself, and reports the modes in which it failed.

use anyhow::{Context, Result};

use super::{CARRIERS, Case, Settings, exceptions};
use crate::lanes::QUICK_RELEASE;
use crate::shell;
use crate::workspace::Workspace;

const PACKAGE: &str = "raddle-tests";

pub(super) fn run(workspace: &Workspace, settings: &Settings) -> Result<Vec<Case>> {
    let package = workspace.package(PACKAGE);
    let package = package.with_context(|| format!("there is no package {PACKAGE}"))?;
    let known = exceptions::known_failures(workspace)?;
    let mut cases = Vec::new();
    for test in package.tests().filter(|test| settings.wants(test)) {
        let mut text = String::new();
        let mut cargo = shell::cargo(&workspace.root);
        let command = cargo
            .env("RADDLE_BIN", workspace.raddle())
            .env("RADDLE_TEST_TIMEOUT_S", "30")
            .envs(QUICK_RELEASE)
            .args(["test", "--no-fail-fast", "--release"])
            .args(["--package", PACKAGE, "--test", test]);
        shell::stream(command, |line| {
            text += line;
            text.push('\n');
        })?;
        let expected = |name: &str| known.reason(&format!("{test}/{name}")).is_some();
        cases.extend(read(test, &text, expected));
    }
    Ok(cases)
}

/// Reads the output of the test harness. `expected` names the tests that pass by failing.
fn read(group: &str, text: &str, expected: impl Fn(&str) -> bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in text.lines() {
        let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        let (native, raddle) = match verdict {
            "ok" if expected(name) => (Ok(()), CARRIERS.map(|_| Err("known to fail".to_owned()))),
            "ok" => (Ok(()), CARRIERS.map(|_| Ok(()))),
            "ignored" => continue,
            _ => failed(section(text, name)),
        };
        cases.push(Case {
            group: group.to_owned(),
            name: name.to_owned(),
            native,
            raddle: CARRIERS.into_iter().zip(raddle).collect(),
        });
    }
    cases
}

/// Returns the harness's section with a failed test's output.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let after = text.split_once(&format!("---- {name} stdout ----"));
    let rest = after.map_or("", |(_, rest)| rest);
    rest.split("\n---- ").next().unwrap_or_default()
}

/// Returns the failed mode from a test's output: a test stops at its first failed mode.
fn failed(output: &str) -> (Result<(), String>, [Result<(), String>; CARRIERS.len()]) {
    let mut before = true;
    let raddle = CARRIERS.map(|carriers| {
        let here = output.contains(&format!("raddle-{carriers}"));
        match (before, here) {
            (true, false) => Ok(()),
            (true, true) => {
                before = false;
                Err("failed".to_owned())
            }
            (false, _) => Err("did not run".to_owned()),
        }
    });
    if before {
        return (Err("failed".to_owned()), raddle);
    }
    (Ok(()), raddle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_names_the_mode_in_which_it_failed() {
        let text = "test a::b ... ok\ntest a::c ... FAILED\ntest a::d ... ignored\n\
                    test a::e ... ok\ntest a::f ... FAILED\n\n\
                    ---- a::c stdout ----\na::c: raddle-2: exit status 1\n\
                    ---- a::f stdout ----\na::f: natively: exit status 1\n";
        let cases = read("x", text, |name| name == "a::e");
        let passed = |case: &Case| {
            let raddle = case.raddle.iter().map(|(_, outcome)| outcome.is_ok());
            (case.native.is_ok(), raddle.collect::<Vec<_>>())
        };
        let all: Vec<_> = cases.iter().map(passed).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0], (true, vec![true; 3]));
        assert_eq!(all[1], (true, vec![true, false, false]));
        assert_eq!(all[2], (true, vec![false; 3]));
        assert!(!all[3].0);
    }
}
