//! MariaDB's tests: its driver starts servers of its own and runs a test after the other.
//!
//! Nouns: a *suite* of the driver is a batch; a *case* is a test, and `TEST 'COMBINATION'` where
//! the driver runs a test several times with different settings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::batch::{Batch, Outcomes, Reading, give_away};
use crate::shell;

/// Where Debian has the driver and the tests.
const FOLDER: &str = "/usr/share/mysql/mysql-test";
const DRIVER: &str = "mariadb-test-run.pl";
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
/// The driver gives up after so many minutes of one test.
const TEST_LIMIT_MINUTES: &str = "2";

/// One batch for each suite of the driver, with the tests named.
pub(super) fn batches(suites: &BTreeMap<String, Vec<String>>) -> Result<Vec<Batch>> {
    let perl = shell::find("perl").context("perl is not here")?;
    let folder = PathBuf::from(FOLDER);
    ensure!(
        folder.join(DRIVER).is_file(),
        "{FOLDER}/{DRIVER} is not here"
    );
    // Below the target folder the paths of the servers' Unix sockets would be too long. Syncing a
    // disk would take most of the time.
    let state = Path::new(MEMORY).join("raddle-mariadb");
    let _ = fs::remove_dir_all(&state);
    fs::create_dir_all(&state)?;
    give_away(&state)?;
    let batch = |(name, tests): (&String, &Vec<String>)| Batch {
        name: name.clone(),
        program: perl.clone(),
        arguments: settings(&state.join(name)),
        folder: folder.clone(),
        environment: Vec::new(),
        unprivileged: true,
        reading: Reading::Mtr(tests.clone()),
    };
    Ok(suites.iter().map(batch).collect())
}

fn settings(state: &Path) -> Vec<String> {
    let fixed = ["--force", "--max-test-fail=0", "--retry=0", "--parallel=1"];
    let mut arguments = vec![DRIVER.to_owned()];
    arguments.extend(fixed.map(str::to_owned));
    arguments.push(format!("--testcase-timeout={TEST_LIMIT_MINUTES}"));
    arguments.push(format!("--vardir={}", state.display()));
    arguments.push(format!("--tmpdir={}-tmp", state.display()));
    arguments
}

/// Returns the tests of a suite in the driver's form: all but `skipped`, or `only` one case.
pub(super) fn arguments(
    suite: &str,
    tests: &[String],
    only: Option<&str>,
    skipped: &[&str],
) -> Vec<String> {
    let named = |case: &str| format!("{suite}.{}", case.replace(" '", ",").replace('\'', ""));
    if let Some(case) = only {
        return vec![named(case)];
    }
    let wanted = tests
        .iter()
        .filter(|test| !skipped.contains(&test.as_str()));
    wanted.map(|test| named(test)).collect()
}

/// Reads `SUITE.TEST 'COMBINATION'  w1 [ pass ]  12`. Tests that the driver skips are left out.
pub(super) fn parse(printed: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in printed.lines() {
        let Some((before, after)) = line.split_once("[ ") else {
            continue;
        };
        let word = after.split(" ]").next().unwrap_or_default();
        let outcome = match word {
            "pass" => Ok(()),
            "fail" => Err("failed".to_owned()),
            _ => continue,
        };
        let mut name: Vec<&str> = before.split_whitespace().collect();
        name.pop_if(|last| is_worker(last));
        let name = name.join(" ");
        if let Some((_, case)) = name.split_once('.') {
            // The driver judges a server's log after the test, and may revoke a pass.
            let known = outcomes.entry(case.to_owned()).or_insert_with(|| Ok(()));
            if outcome.is_err() {
                *known = outcome;
            }
        }
    }
    outcomes
}

/// Returns true for `w1`, a worker of the driver.
fn is_worker(word: &str) -> bool {
    let number = word.strip_prefix('w').unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_tells_cases_and_leaves_out_skipped_ones() {
        let printed = "TEST    RESULT\n\nmain.a     [ pass ]     9\n\
                       main.b 'innodb'   w12 [ fail ]\n\
                       main.c 'x,y'   [ skipped ]  no\n\
                       main.d   w1 [ pass ]\nmain.d   [ fail ]  log\n";
        let outcomes = parse(printed);
        let names: Vec<_> = outcomes.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "b 'innodb'", "d"]);
        assert!(outcomes["a"].is_ok() && outcomes["b 'innodb'"].is_err());
        assert!(outcomes["d"].is_err());
    }

    #[test]
    fn a_case_is_named_with_its_combination() {
        let tests = ["a".to_owned(), "b".to_owned()];
        assert_eq!(arguments("main", &tests, None, &["b"]), ["main.a"]);
        let only = arguments("main", &tests, Some("b 'innodb'"), &[]);
        assert_eq!(only, ["main.b,innodb"]);
    }
}
