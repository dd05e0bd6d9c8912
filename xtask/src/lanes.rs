//! The lanes of `xtask test`: groups of checks, each with a count of its cases.
//!
//! A lane that ran no case has failed: a test that silently stopped running looks like one that
//! passes. A lane without its test target is skipped with a message, and fails in CI.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::failures::{self, Failures};
use crate::tally::{Tally, parse_result_line};
use crate::workspace::{Workspace, in_ci};
use crate::{abi, c_library, conformance, deny, fuzz, install, shell, tidy};

/// A lane's name and its function; an `Err` from that says why the lane could not run.
struct Lane {
    name: &'static str,
    run: fn(&Workspace) -> Result<Outcome>,
}

/// The outcome of a lane.
pub(crate) enum Outcome {
    Ran(Tally),
    Skipped(String),
}

const fn lane(name: &'static str, run: fn(&Workspace) -> Result<Outcome>) -> Lane {
    Lane { name, run }
}

const LANES: &[Lane] = &[
    lane("fmt", fmt),
    lane("clippy", clippy),
    lane("tidy", tidy_lane),
    lane("doc", doc),
    lane("deny", deny::lane),
    lane("unit", unit),
    lane("loom", loom),
    lane("shuttle", shuttle),
    lane("sim", sim),
    lane("api", api),
    lane("real", real),
    lane("c-api", c_api),
    lane("policies", policies),
    lane("conformance", conformance),
    lane("fuzz", fuzz),
    lane(CHAOS, chaos),
];

/// The lane that runs only by name: its findings depend on luck.
const CHAOS: &str = "chaos";
/// Its tests, and the seeds of its rounds.
const CHAOS_TESTS: [&str; 4] = ["io", "process", "signals", "cancel"];
const CHAOS_SEEDS: [&str; 2] = ["1", "2"];

/// The tests that run under every policy but the default one.
const POLICY_TESTS: [&str; 2] = ["locks", "threads"];
const POLICIES: [&str; 4] = ["lifo", "priority", "fair", "deadline"];

/// The tests that run with another glibc.
const GLIBC_TESTS: [&str; 9] = [
    "cancel",
    "exclusion",
    "io",
    "locks",
    "machine",
    "process",
    "signals",
    "threads",
    "time",
];

/// The scheduler's tests that have lanes of their own.
const SCHEDULER: &str = "raddle-sched";
const SCHEDULER_LANES: [&str; 4] = ["loom", "shuttle", "simulator", "shares"];

/// The model-checked crates: each has test targets with the checkers' names.
const MODELLED: [&str; 3] = [SCHEDULER, "raddle-handles", "raddle"];

/// The explicit API. Its tests run with each of these numbers of carriers.
const API: &str = "raddle";
const API_CARRIERS: [&str; 2] = ["1", "3"];

/// Tests on real programs.
const REAL: &str = "raddle-tests";
/// So many of them run at a time: most of their time they wait.
const REAL_AT_A_TIME: &str = "4";

/// Optimised test code without the release's slow linking, which only installed files need.
pub(crate) const QUICK_RELEASE: [(&str, &str); 2] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
];

pub(crate) fn check_names(names: &[String]) -> Result<()> {
    for name in names {
        if !LANES.iter().any(|lane| lane.name == name) {
            let known: Vec<_> = LANES.iter().map(|lane| lane.name).collect();
            bail!("there is no lane {name}: name one of {}", known.join(", "));
        }
    }
    Ok(())
}

/// Runs the lanes named, or all but chaos; prints the sum last. Returns true when nothing failed.
/// In CI each missing package is a failed case: the tests that need it did not run.
pub(crate) fn run(
    workspace: &Workspace,
    names: &[String],
    packages_missing: usize,
) -> Result<bool> {
    let wanted = |lane: &&Lane| match names {
        [] => lane.name != CHAOS,
        _ => names.iter().any(|name| name == lane.name),
    };
    let missing = if in_ci() { packages_missing as u64 } else { 0 };
    let mut sum = Tally {
        failed: missing,
        ..Tally::default()
    };
    let mut summary = Vec::new();
    for lane in LANES.iter().filter(wanted) {
        println!("--- lane {}", lane.name);
        let started = Instant::now();
        let (tally, line) = judge(lane.name, (lane.run)(workspace), in_ci());
        println!("{line}");
        summary.push(format!(
            "{line} in {:.1} s",
            started.elapsed().as_secs_f64()
        ));
        sum.add(tally);
    }
    failures::print_kept();
    println!("---\n{}", summary.join("\n"));
    if missing > 0 {
        println!("error: {missing} packages are missing, and CI skips nothing");
    }
    println!("{} passed, {} failed", sum.passed, sum.failed);
    Ok(sum.failed == 0)
}

/// Turns a lane's outcome into counts and the line that reports it.
fn judge(name: &str, outcome: Result<Outcome>, in_ci: bool) -> (Tally, String) {
    let failed = Tally {
        failed: 1,
        ..Tally::default()
    };
    match outcome {
        Ok(Outcome::Ran(tally)) if tally.cases() == 0 => (
            failed,
            format!("lane {name}: 0 cases: a lane that runs nothing has failed"),
        ),
        Ok(Outcome::Ran(tally)) => {
            let mut line = format!("lane {name}: {} cases", tally.cases());
            if tally.failed > 0 {
                line += &format!(", {} FAILED", tally.failed);
            }
            if tally.ignored > 0 {
                line += &format!(", {} ignored", tally.ignored);
            }
            (tally, line)
        }
        Ok(Outcome::Skipped(why)) if in_ci => (
            failed,
            format!("lane {name}: error: {why}, and CI skips nothing"),
        ),
        Ok(Outcome::Skipped(why)) => (Tally::default(), format!("lane {name}: skipped: {why}")),
        Err(error) => (failed, format!("lane {name}: error: {error:#}")),
    }
}

/// One case a package: `cargo fmt --check` leaves nothing to change.
fn fmt(workspace: &Workspace) -> Result<Outcome> {
    let mut tally = Tally::default();
    for package in &workspace.packages {
        let mut command = shell::cargo(&workspace.root);
        let command = command.args(["fmt", "--package", &package.name, "--check"]);
        if command.status()?.success() {
            tally.passed += 1
        } else {
            tally.failed += 1
        }
    }
    Ok(Outcome::Ran(tally))
}

/// One case a package: its documentation is made without a warning.
fn doc(workspace: &Workspace) -> Result<Outcome> {
    let mut tally = Tally::default();
    for package in &workspace.packages {
        let mut command = shell::cargo(&workspace.root);
        command.args(["doc", "--no-deps", "--quiet", "--package", &package.name]);
        if command
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()?
            .success()
        {
            tally.passed += 1
        } else {
            println!("{}: its documentation is not clean", package.name);
            tally.failed += 1;
        }
    }
    Ok(Outcome::Ran(tally))
}

/// One case a target of the workspace: it compiles, without a warning.
fn clippy(workspace: &Workspace) -> Result<Outcome> {
    let mut checked = BTreeSet::new();
    let mut failed = BTreeSet::new();
    let status = shell::stream(
        shell::cargo(&workspace.root)
            .args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--keep-going",
                "--quiet",
            ])
            .args(["--message-format", "json", "--", "-D", "warnings"]),
        |line| read_compiler_message(line, &mut checked, &mut failed),
    )?;
    let failures = failed.len() as u64;
    let passed = checked.difference(&failed).count() as u64;
    let mut tally = Tally {
        passed,
        failed: failures,
        ignored: 0,
    };
    tally.note_exit(status.success());
    Ok(Outcome::Ran(tally))
}

/// Sorts one of Cargo's JSON messages about this workspace into targets checked and failed.
fn read_compiler_message(
    line: &str,
    checked: &mut BTreeSet<String>,
    failed: &mut BTreeSet<String>,
) {
    let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
        return;
    };
    let package = message["package_id"].as_str().unwrap_or_default();
    if !package.starts_with("path+file:") {
        return;
    }
    let test = if message["profile"]["test"] == true {
        " (test)"
    } else {
        ""
    };
    let target = format!(
        "{package} {} {}",
        message["target"]["kind"], message["target"]["name"]
    );
    match message["reason"].as_str() {
        Some("compiler-artifact") => {
            checked.insert(target + test);
        }
        Some("compiler-message") => {
            eprint!(
                "{}",
                message["message"]["rendered"].as_str().unwrap_or_default()
            );
            if message["message"]["level"] == "error" {
                failed.insert(target);
            }
        }
        _ => {}
    }
}

fn tidy_lane(workspace: &Workspace) -> Result<Outcome> {
    Ok(Outcome::Ran(tidy::run(workspace)?.tally()))
}

/// Runs all tests in the debug profile that have no lane of their own.
fn unit(workspace: &Workspace) -> Result<Outcome> {
    let elsewhere = [SCHEDULER, REAL, API, c_library::PACKAGE];
    let excluded = elsewhere.iter().flat_map(|name| ["--exclude", name]);
    let mut tally = Tally::default();
    tally.add(cargo_test(
        workspace,
        shell::cargo(&workspace.root),
        |command| command.arg("--workspace").args(excluded),
    )?);
    let Some(scheduler) = workspace.package(SCHEDULER) else {
        return Ok(Outcome::Ran(tally));
    };
    let tests = scheduler
        .tests()
        .filter(|name| !SCHEDULER_LANES.contains(name));
    tally.add(cargo_test(
        workspace,
        shell::cargo(&workspace.root),
        |command| {
            let command = command.args(["--package", SCHEDULER, "--lib"]);
            tests.fold(command, |command, test| command.args(["--test", test]))
        },
    )?);
    if scheduler.has_library() {
        tally.add(cargo_test(
            workspace,
            shell::cargo(&workspace.root),
            |command| command.args(["--package", SCHEDULER, "--doc"]),
        )?);
    }
    Ok(Outcome::Ran(tally))
}

fn loom(workspace: &Workspace) -> Result<Outcome> {
    model(workspace, "loom", "raddle_loom")
}

fn shuttle(workspace: &Workspace) -> Result<Outcome> {
    model(workspace, "shuttle", "raddle_shuttle")
}

/// A model checker's lane: the checked crates are built with the checker's `cfg`, in a target
/// folder of their own, so that the flags don't make all else build anew.
fn model(workspace: &Workspace, test: &str, cfg: &str) -> Result<Outcome> {
    if let Some(package) = MODELLED.iter().find(|name| !workspace.has_test(name, test)) {
        return Ok(Outcome::Skipped(format!(
            "{package} has no test called {test}"
        )));
    }
    let mut cargo = shell::cargo(&workspace.root);
    cargo.env("RUSTFLAGS", format!("--cfg {cfg}"));
    cargo.env("CARGO_TARGET_DIR", workspace.target.join(test));
    let tally = cargo_test(workspace, cargo, |command| {
        let packages = MODELLED.iter().flat_map(|name| ["--package", name]);
        let command = command.envs(QUICK_RELEASE);
        command.args(packages).args(["--release", "--test", test])
    })?;
    Ok(Outcome::Ran(tally))
}

fn sim(workspace: &Workspace) -> Result<Outcome> {
    if !workspace.has_test(SCHEDULER, "simulator") {
        return Ok(Outcome::Skipped(format!(
            "{SCHEDULER} has no test called simulator"
        )));
    }
    let tally = cargo_test(workspace, shell::cargo(&workspace.root), |command| {
        let command = command.envs(QUICK_RELEASE);
        command.args(["--package", SCHEDULER, "--release"]);
        command.args(["--test", "simulator", "--test", "shares"])
    })?;
    Ok(Outcome::Ran(tally))
}

/// Tests and examples of the explicit API, in programs that load the runtime themselves.
fn api(workspace: &Workspace) -> Result<Outcome> {
    if workspace.package(API).is_none() {
        return Ok(Outcome::Skipped(format!("there is no package {API}")));
    }
    workspace.build_release()?;
    let mut tally = Tally::default();
    let mut test = |carriers: &str, what: &[&str]| {
        println!("{carriers} carriers");
        let cargo = shell::cargo(&workspace.root);
        let counted = cargo_test(workspace, cargo, |command| {
            let command = command.envs(QUICK_RELEASE).env("RADDLE_CARRIERS", carriers);
            let command = command.env("RADDLE_BIN", workspace.raddle());
            command.args(["--package", API, "--release"]).args(what)
        });
        tally.add(counted?);
        anyhow::Ok(())
    };
    for carriers in API_CARRIERS {
        test(carriers, &["--lib", "--tests", "--examples"])?;
    }
    test("2", &["--doc"])?;
    Ok(Outcome::Ran(tally))
}

fn real(workspace: &Workspace) -> Result<Outcome> {
    if workspace.package(REAL).is_none() {
        return Ok(Outcome::Skipped(format!("there is no package {REAL}")));
    }
    workspace.build_release()?;
    let tally = cargo_test(workspace, shell::cargo(&workspace.root), |command| {
        let command = command
            .env("RADDLE_BIN", workspace.raddle())
            .env("RADDLE_TEST_TIMEOUT_S", "30")
            .env("RUST_TEST_THREADS", REAL_AT_A_TIME)
            .envs(QUICK_RELEASE);
        command.args(["--package", REAL, "--release"])
    })?;
    Ok(Outcome::Ran(tally))
}

/// C, C++ and Python programs with the library as it is installed; one more case checks that the
/// ABI is unchanged.
fn c_api(workspace: &Workspace) -> Result<Outcome> {
    let mut tally = Tally::default();
    if abi::run(workspace, false)? {
        tally.passed += 1
    } else {
        tally.failed += 1
    }
    let prefix = workspace.target.join("c-api");
    install::run(workspace, &prefix, "")?;
    tally.add(cargo_test(
        workspace,
        shell::cargo(&workspace.root),
        |command| {
            let command = command.env("RADDLE_PREFIX", &prefix);
            command.args(["--package", c_library::PACKAGE, "--tests"])
        },
    )?);
    Ok(Outcome::Ran(tally))
}

/// A short part of the outside suites.
fn conformance(workspace: &Workspace) -> Result<Outcome> {
    conformance::run_short(workspace).map(Outcome::Ran)
}

/// A short, fixed part of the fuzzer of system calls.
fn fuzz(workspace: &Workspace) -> Result<Outcome> {
    fuzz::run_short(workspace)
}

/// Tests on real programs under `RADDLE_CHAOS`; the first failure counts.
fn chaos(workspace: &Workspace) -> Result<Outcome> {
    real_with(workspace, "RADDLE_TEST_CHAOS", &CHAOS_SEEDS, &CHAOS_TESTS)
}

/// Tests on real programs under each policy.
fn policies(workspace: &Workspace) -> Result<Outcome> {
    real_with(workspace, "RADDLE_TEST_POLICY", &POLICIES, &POLICY_TESTS)
}

/// These tests on real programs, once with each value of a variable.
fn real_with(
    workspace: &Workspace,
    variable: &str,
    values: &[&str],
    tests: &[&str],
) -> Result<Outcome> {
    if workspace.package(REAL).is_none() {
        return Ok(Outcome::Skipped(format!("there is no package {REAL}")));
    }
    workspace.build_release()?;
    let mut tally = Tally::default();
    for value in values {
        println!("{variable}={value}");
        tally.add(cargo_test(
            workspace,
            shell::cargo(&workspace.root),
            |command| {
                let command = command
                    .env("RADDLE_BIN", workspace.raddle())
                    .env("RADDLE_TEST_TIMEOUT_S", "60")
                    .env(variable, value)
                    .envs(QUICK_RELEASE);
                let tests = tests.iter().flat_map(|test| ["--test", test]);
                command.args(["--package", REAL, "--release"]).args(tests)
            },
        )?);
    }
    Ok(Outcome::Ran(tally))
}

/// Tests on C and C++ programs that are linked with the glibc of `folder`.
pub(crate) fn with_glibc(workspace: &Workspace, folder: &Path) -> Result<bool> {
    workspace.build_release()?;
    let tally = cargo_test(workspace, shell::cargo(&workspace.root), |command| {
        let command = command
            .env("RADDLE_BIN", workspace.raddle())
            .env("RADDLE_TEST_TIMEOUT_S", "30")
            .env("RADDLE_TEST_GLIBC", folder)
            .envs(QUICK_RELEASE);
        let tests = GLIBC_TESTS.iter().flat_map(|test| ["--test", test]);
        command.args(["--package", REAL, "--release"]).args(tests)
    })?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// Runs `cargo test` with additional `arguments`, shows its output and counts its cases.
fn cargo_test(
    workspace: &Workspace,
    mut cargo: Command,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<Tally> {
    cargo
        .current_dir(&workspace.root)
        .args(["test", "--no-fail-fast"]);
    let mut tally = Tally::default();
    let mut failures = Failures::default();
    let status = shell::stream(arguments(&mut cargo), |line| {
        println!("{line}");
        failures.read(line);
        tally.add(parse_result_line(line).unwrap_or_default());
    })?;
    tally.note_exit(status.success());
    if tally.failed > 0 {
        failures.keep();
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(outcome: Result<Outcome>, in_ci: bool) -> u64 {
        judge("x", outcome, in_ci).0.failed
    }

    #[test]
    fn a_lane_without_cases_fails() {
        assert_eq!(failures(Ok(Outcome::Ran(Tally::default())), false), 1);
        assert_eq!(
            failures(
                Ok(Outcome::Ran(Tally {
                    passed: 1,
                    ..Tally::default()
                })),
                false
            ),
            0
        );
    }

    #[test]
    fn a_skipped_lane_fails_only_in_ci() {
        assert_eq!(failures(Ok(Outcome::Skipped("why".into())), false), 0);
        assert_eq!(failures(Ok(Outcome::Skipped("why".into())), true), 1);
    }

    #[test]
    fn a_lane_that_could_not_run_fails_and_says_why() {
        let (tally, line) = judge("real", Err(anyhow::anyhow!("no compiler")), false);
        assert_eq!(
            (tally.failed, line.as_str()),
            (1, "lane real: error: no compiler")
        );
    }

    #[test]
    fn an_unknown_lane_is_refused() {
        assert!(check_names(&["loom".into(), "real".into()]).is_ok());
        assert!(check_names(&["looom".into()]).is_err());
    }

    #[test]
    fn an_error_from_the_compiler_fails_its_target_and_a_foreign_one_is_ignored() {
        let mut checked = BTreeSet::new();
        let mut failed = BTreeSet::new();
        let lines = [
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/a#0.1.0",
               "target":{"kind":["lib"],"name":"a"},"profile":{"test":false}}"#,
            r#"{"reason":"compiler-message","package_id":"path+file:///x/b#0.1.0",
               "target":{"kind":["lib"],"name":"b"},"message":{"level":"error","rendered":""}}"#,
            r#"{"reason":"compiler-artifact","package_id":"registry+https://y#c@1.0.0",
               "target":{"kind":["lib"],"name":"c"},"profile":{"test":false}}"#,
        ];
        for line in lines {
            read_compiler_message(line, &mut checked, &mut failed);
        }
        assert_eq!((checked.len(), failed.len()), (1, 1));
    }
}
