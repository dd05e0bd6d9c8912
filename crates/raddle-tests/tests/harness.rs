//! The harness itself can fail: each test here has a mistake which must be found.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use raddle_tests::{Known, Mode, Running, compare, find_tool, judge, settle};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn run(script: &str, timeout: Duration) -> Result<raddle_tests::Outcome> {
    Running::start(Mode::Native, shell(script), None)?.wait(timeout)
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn other_output_is_found() {
    let native = run("echo a; exit 3", LONG).unwrap();
    assert!(compare(&native, &run("echo a; exit 3", LONG).unwrap()).is_ok());
    let error = compare(&native, &run("echo b; exit 3", LONG).unwrap()).unwrap_err();
    assert!(error.to_string().contains("other output"), "{error}");
}

#[test]
fn another_status_is_found_and_a_signal_is_128_more() {
    let native = run("exit 3", LONG).unwrap();
    let error = compare(&native, &run("kill -TERM $$", LONG).unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("exit status 143, natively 3"),
        "{error}"
    );
}

#[test]
fn a_hang_is_ended_with_its_children_and_shown() {
    let started = Instant::now();
    let script = "echo before; sleep 1000 & echo $!; wait";
    let error = run(script, Duration::from_millis(500))
        .unwrap_err()
        .to_string();
    assert!(started.elapsed() < Duration::from_secs(100));
    assert!(error.contains("did not end within"), "{error}");
    assert!(error.contains("before\n"), "{error}");
    let child = error.lines().find_map(|line| line.parse::<u32>().ok());
    let child = child.expect("the child printed its process id");
    // A killed child is gone soon, or waits for its new parent.
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while lives() {
        assert!(
            started.elapsed() < Duration::from_secs(100),
            "{child} lives"
        );
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_program_leaves_running_does_not_hold_its_output_open() {
    let started = Instant::now();
    let outcome = run("sleep 1000 & echo done", LONG).unwrap();
    assert_eq!(outcome.stdout, "done\n");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_expected_failure_that_passes_is_a_failure() {
    let fails = || -> Result<()> { bail!("on purpose") };
    assert!(judge("t", None, Ok(())).unwrap().is_none());
    assert!(judge("t", None, fails()).is_err());
    let line = judge("t", Some("why"), fails()).unwrap().unwrap();
    assert_eq!(line, "expected failure: t: why");
    let error = judge("t", Some("why"), Ok(())).unwrap_err();
    assert!(error.to_string().contains("passes now"), "{error}");
}

#[test]
fn a_missing_tool_skips_but_not_in_ci() {
    let missing = || find_tool("no-such-tool").map_err(|error| error.context("natively"));
    let line = settle(missing(), false).unwrap().unwrap_err();
    assert!(line.contains("no-such-tool is not installed"), "{line}");
    assert!(settle(missing(), true).is_err());
    assert!(settle(find_tool("sh"), true).unwrap().is_ok());
    let fails = || -> Result<()> { bail!("on purpose") };
    assert!(settle(fails(), false).is_err());
}

#[test]
fn a_known_failure_needs_a_reason() {
    let known = Known::parse("[failures]\n\"a::b\" = \"why\"\n").unwrap();
    assert_eq!(
        (known.reason("a::b"), known.reason("a::c")),
        (Some("why"), None)
    );
    assert!(Known::parse("[failures]\n\"a::b\" = 3\n").is_err());
    assert!(Known::parse("\"a::b\" = \"why\"\n").is_err());
}

/// `io::pipes::name` is in `tests/io.rs`, in its module `pipes`, by the name `name`.
fn names_a_test(key: &str) -> bool {
    let parts: Vec<&str> = key.split("::").collect();
    let (Some(file), Some(name)) = (parts.first(), parts.last()) else {
        return false;
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{file}.rs"));
    let text = fs::read_to_string(path).unwrap_or_default();
    let has = |word: &str| {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|other| other == word)
    };
    parts.len() >= 2 && parts[1..parts.len() - 1].iter().all(|module| has(module)) && has(name)
}

#[test]
fn every_known_failure_names_a_test() {
    assert!(names_a_test("io::pipes::eventfd_counts"));
    assert!(!names_a_test("io::pipes::eventfd_counted") && !names_a_test("nothing"));
    let known = Known::load().unwrap();
    let strangers: Vec<&str> = known.tests().filter(|key| !names_a_test(key)).collect();
    assert!(strangers.is_empty(), "no such tests: {strangers:?}");
}

/// A new file of cases must be a test: a program that nothing runs proves nothing.
#[test]
fn every_program_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for entry in fs::read_dir(root.join("tests")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    for entry in fs::read_dir(root.join("programs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name.ends_with(".h") || text.contains(&format!("\"{name}\"")),
            "{name} is not"
        );
    }
}
