//! CPython's own tests of threads, processes, signals and sockets (`libpython3-testsuite`).
//!
//! A group is a module of tests, a case one test; the outcomes are read from the JUnit file that
//! the test runner writes. A module that ends without a file is a failed case of its own.
//!
//! Protocol: (1) each module runs as a whole, natively and then under raddle; (2) the tests that
//! differ run again without the others, or the whole module if it did not end by itself; a test
//! that passes in the second run has passed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::process::{End, Runner, parallel};
use super::{Case, Mode, Settings};
use crate::shell;

pub(crate) const MODULES: [&str; 17] = [
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

/// Modules that take a few seconds each.
pub(crate) const SHORT: [&str; 4] = [
    "test_thread",
    "test_threading_local",
    "test_threadsignals",
    "test_fork1",
];

/// Debian's Python; its tests are in a package of the same version.
const PYTHON: &str = "python3.11";
pub(crate) const MODULE_LIMIT: Duration = Duration::from_secs(1800);

/// Waits for ever, natively too, where sockets of virtual machines have no loopback.
const NEVER_ENDING: &str = "*VSOCK*";

/// Needs the resource `network`, but for the loopback interface alone.
const NETWORK: &str = "test_socketserver";

/// Stands for the module itself among its tests.
const WHOLE: &str = "(module)";

/// Outcomes of a module's tests that ran and were not skipped.
type Outcomes = BTreeMap<String, Result<(), String>>;

/// Runs modules, `at_once` at the same time; each counts as hung after `limit`.
pub(crate) fn run(
    runner: &Runner,
    settings: &Settings,
    modules: &[&str],
    limit: Duration,
    at_once: usize,
) -> Result<Vec<Case>> {
    let python = python().with_context(|| format!("{PYTHON} is not here"))?;
    let modules = modules.iter().filter(|module| settings.wants(module));
    let modules: Vec<&str> = modules.copied().collect();
    let examined = parallel(at_once, &modules, |module| {
        examine(runner, &python, module, limit)
    });
    let mut cases = Vec::new();
    for module in examined {
        cases.extend(module?);
    }
    Ok(cases)
}

/// Returns the distribution's Python, which the package's tests belong to; one of the same name may
/// stand before it in PATH.
fn python() -> Option<PathBuf> {
    let own = Path::new("/usr/bin").join(PYTHON);
    own.is_file().then_some(own).or_else(|| shell::find(PYTHON))
}

fn examine(runner: &Runner, python: &Path, module: &str, limit: Duration) -> Result<Vec<Case>> {
    let run = |mode, tests: &[String]| run_module(runner, python, module, mode, tests, limit);
    let mut native = run(Mode::Native, &[])?;
    let failed = failed(&native, native.keys());
    if !failed.is_empty() {
        let again = run(Mode::Native, &failed)?;
        better(&mut native, again);
    }
    let mut raddle = Vec::new();
    for &carriers in runner.carriers() {
        let mode = Mode::Raddle(carriers);
        let mut outcomes = run(mode, &[])?;
        let passed = native.iter().filter(|(_, outcome)| outcome.is_ok());
        let differ = self::failed(&outcomes, passed.map(|(test, _)| test));
        if !differ.is_empty() {
            println!(
                "again: {module} with {carriers} carriers: {}",
                differ.join(" ")
            );
            let again = run(mode, &differ)?;
            let hung = outcomes.get(WHOLE) == Some(&Err(super::HUNG.to_owned()));
            better(&mut outcomes, again);
            if hung {
                outcomes.insert(WHOLE.to_owned(), Err(super::HUNG.to_owned()));
            }
        }
        raddle.push((carriers, outcomes));
    }
    Ok(compare(module, native, &raddle))
}

/// Returns those of `tests` that did not pass; only the module if it is to run as a whole.
fn failed(outcomes: &Outcomes, tests: impl Iterator<Item = impl AsRef<str>>) -> Vec<String> {
    let is_bad = |test: &str| !matches!(outcomes.get(test), Some(Ok(())));
    if is_bad(WHOLE) {
        return vec![WHOLE.to_owned()];
    }
    let tests = tests.map(|test| test.as_ref().to_owned());
    tests.filter(|test| is_bad(test)).collect()
}

/// Merges a second run: a test that passes in one of two runs has passed.
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
        let case = Case {
            group: module.to_owned(),
            name: test,
            native,
            raddle,
        };
        // The module itself is a case only if it failed.
        if case.name != WHOLE || case.native.is_err() || case.differs() {
            cases.push(case);
        }
    }
    cases
}

/// Runs some tests of a module, or all.
fn run_module(
    runner: &Runner,
    python: &Path,
    module: &str,
    mode: Mode,
    tests: &[String],
    limit: Duration,
) -> Result<Outcomes> {
    let part = if tests.is_empty() { "" } else { "-again" };
    let name = format!("{module}{part}");
    let file = runner.log(mode, &name).with_extension("xml");
    let _ = std::fs::remove_file(&file);
    let file_name = file.to_string_lossy();
    let mut arguments = vec!["-m", "test", "-v", "-i", NEVER_ENDING];
    arguments.extend(["--junit-xml", &file_name]);
    if module == NETWORK {
        arguments.extend(["-u", "network"]);
    }
    for test in tests.iter().filter(|test| *test != WHOLE) {
        arguments.extend(["-m", test]);
    }
    arguments.push(module);
    let end = runner.run(mode, &name, python, &arguments, limit)?;
    let report = std::fs::read_to_string(&file).unwrap_or_default();
    let mut outcomes = parse_junit(&report);
    let whole = match end {
        // Failed tests, which are reported one by one.
        End::Code(0 | 2) => Ok(()),
        End::Code(code) => Err(format!("exit {code}")),
        End::Signal(signal) => Err(format!("signal {signal}")),
        End::Hung => Err(super::HUNG.to_owned()),
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
        let whole = || (WHOLE.to_owned(), Ok(()));
        assert_eq!(failed(&Outcomes::new(), native.keys()), [WHOLE]);
        assert_eq!(failed(&Outcomes::from([whole()]), ["a"].iter()), ["a"]);
        let passed = Outcomes::from([whole(), ("a".to_owned(), Ok(()))]);
        assert!(failed(&passed, ["a"].iter()).is_empty());
        let cases = compare("m", native, &[(1, Outcomes::new())]);
        assert_eq!(cases[0].raddle, [(1, Err("did not run".to_owned()))]);
        assert!(cases[1].raddle.is_empty());
    }
}
