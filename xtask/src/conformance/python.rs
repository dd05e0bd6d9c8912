//! CPython's own tests of threads, processes, signals and sockets (`libpython3-testsuite`).
//!
//! A group is a module of tests, a case one test; what each did is read from the JUnit file that
//! the test runner writes. A module that ends without one is a failed case of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::process::{End, Runner};
use super::{CARRIERS, Case, Mode};
use crate::shell;

const MODULES: [&str; 17] = [
    "test_threading",
    "test_thread",
    "test_threading_local",
    "test_threadsignals",
    "test_queue",
    "test_concurrent_futures",
    "test_asyncio",
    "test_socket",
    "test_socketserver",
    "test_subprocess",
    "test_fork1",
    "test_signal",
    "test_faulthandler",
    "test_multiprocessing_fork",
    "test_multiprocessing_spawn",
    "test_ssl",
    "test_selectors",
];

/// Debian's; its tests are in a package of the same version.
const PYTHON: &str = "python3.11";
const MODULE_LIMIT: Duration = Duration::from_secs(900);

/// Waits for ever, natively too, where sockets of virtual machines have no loopback.
const NEVER_ENDING: &str = "*VSOCK*";

/// Stands for the module itself among its tests.
const WHOLE: &str = "(module)";

/// What each test of a module did; only those that ran and were not skipped.
type Outcomes = BTreeMap<String, Result<(), String>>;

pub fn run(runner: &Runner, only: Option<&str>) -> Result<Vec<Case>> {
    let Some(python) = shell::find(PYTHON) else {
        bail!("{PYTHON} is not here");
    };
    let mut cases = Vec::new();
    for module in MODULES {
        if only.is_none_or(|only| module.contains(only)) {
            cases.extend(examine(runner, &python, module)?);
        }
    }
    Ok(cases)
}

fn examine(runner: &Runner, python: &Path, module: &str) -> Result<Vec<Case>> {
    let native = run_module(runner, python, module, Mode::Native)?;
    let mut raddle = Vec::new();
    for carriers in CARRIERS {
        let mode = Mode::Raddle(carriers);
        let mut outcomes = run_module(runner, python, module, mode)?;
        if differ(&native, &outcomes) {
            println!("again: {module} with {carriers} carriers");
            let again = run_module(runner, python, module, mode)?;
            better(&mut outcomes, again);
        }
        raddle.push((carriers, outcomes));
    }
    Ok(compare(module, native, &raddle))
}

/// Whether a test that passed natively is missing or failed.
fn differ(native: &Outcomes, outcomes: &Outcomes) -> bool {
    let passed = native.iter().filter(|(_, outcome)| outcome.is_ok());
    passed
        .into_iter()
        .any(|(test, _)| !matches!(outcomes.get(test), Some(Ok(()))))
}

/// A test that passes in one of two runs has passed.
fn better(outcomes: &mut Outcomes, again: Outcomes) {
    for (test, outcome) in again {
        let first = outcomes.entry(test).or_insert_with(|| outcome.clone());
        if outcome.is_ok() {
            *first = outcome;
        }
    }
}

fn compare(module: &str, native: Outcomes, raddle: &[(u32, Outcomes)]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (test, native) in native {
        let outcome = |outcomes: &Outcomes| {
            let missing = || Err("did not run".to_owned());
            outcomes.get(&test).cloned().unwrap_or_else(missing)
        };
        let under = raddle
            .iter()
            .map(|(carriers, all)| (*carriers, outcome(all)));
        let raddle = if native.is_ok() {
            under.collect()
        } else {
            Vec::new()
        };
        cases.push(Case {
            group: module.to_owned(),
            name: test,
            native,
            raddle,
        });
    }
    cases
}

fn run_module(runner: &Runner, python: &Path, module: &str, mode: Mode) -> Result<Outcomes> {
    let file = runner.log(mode, module).with_extension("xml");
    let _ = std::fs::remove_file(&file);
    let arguments = ["-m", "test", "-v", "-i", NEVER_ENDING, "--junit-xml"];
    let file_name = file.to_string_lossy();
    let arguments = [&arguments[..], &[&file_name, module]].concat();
    let end = runner.run(mode, module, python, &arguments, MODULE_LIMIT)?;
    let report = std::fs::read_to_string(&file).unwrap_or_default();
    let mut outcomes = parse_junit(&report);
    let whole = match end {
        // Failed tests: they are told one by one.
        End::Code(0 | 2) => Ok(()),
        End::Code(code) => Err(format!("exit {code}")),
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err("hung".to_owned()),
    };
    outcomes.insert(WHOLE.to_owned(), whole);
    Ok(outcomes)
}

/// Reads the test cases of a JUnit file. Skipped ones are left out. Subtests share their test's
/// name, and one that fails is the test's failure.
fn parse_junit(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for element in text.split("<testcase ").skip(1) {
        let Some((_, name)) = element.split_once("name=\"") else {
            continue;
        };
        let name = name.split('"').next().unwrap_or_default();
        let body = element.split("</testcase>").next().unwrap_or_default();
        if body.contains("<skipped") {
            continue;
        }
        let failed = body.contains("<failure") || body.contains("<error");
        let outcome = if failed {
            Err("failed".to_owned())
        } else {
            Ok(())
        };
        let known = outcomes.entry(name.to_owned()).or_insert_with(|| Ok(()));
        if failed {
            *known = outcome;
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_files_give_names_and_failures() {
        let text = r#"<testsuite><testcase name="test.a.B.c" status="run" time="0"></testcase>
            <testcase name="test.a.B.d" status="run"><failure type="x">t</failure></testcase>
            <testcase name="test.a.B.e" status="run"><skipped>no</skipped></testcase>
            <testcase name="test.a.B.f" result="completed" /></testsuite>"#;
        let outcomes = parse_junit(text);
        let names: Vec<_> = outcomes.keys().map(String::as_str).collect();
        assert_eq!(names, ["test.a.B.c", "test.a.B.d", "test.a.B.f"]);
        assert!(outcomes["test.a.B.d"].is_err() && outcomes["test.a.B.f"].is_ok());
    }

    #[test]
    fn a_test_that_is_missing_under_raddle_differs() {
        let native = Outcomes::from([("a".to_owned(), Ok(())), ("b".to_owned(), Err("f".into()))]);
        assert!(differ(&native, &Outcomes::new()));
        assert!(!differ(
            &native,
            &Outcomes::from([("a".to_owned(), Ok(()))])
        ));
        let cases = compare("m", native, &[(1, Outcomes::new())]);
        assert_eq!(cases[0].raddle, [(1, Err("did not run".to_owned()))]);
        assert!(cases[1].raddle.is_empty());
    }
}
