//! `--exclude`: the threads that a rule names have kernel threads of their own, and no others.
//!
//! Seen from outside, by `raddle dump`, which says what a thread is bound to.

use std::process::Command;

use anyhow::{Result, ensure};
use raddle_tests::{Mode, Program, Running, or_skip, raddle};

/// The lines of a dump that name a bound thread, while the program waits under these rules.
fn bound_threads(rules: &str, carriers: u16) -> Result<Vec<String>> {
    let program = Program::build("excluded.c")?;
    let mode = Mode::Raddle { carriers };
    let mut command = mode.command(&program.variants[0].command)?;
    command.env("RADDLE_EXCLUDE", rules);
    let running = Running::start(mode, command, None)?;
    running.wait_until_it_says("waiting\n")?;
    let pid = running.pid().to_string();
    let output = Command::new(raddle()?).args(["dump", &pid]).output()?;
    ensure!(output.status.success(), "dump: {output:?}");
    let text = String::from_utf8(output.stdout)?;
    running.terminate()?;
    ensure!(text.contains("free-2"), "no such thread in {text}");
    let bound = text.lines().filter(|line| line.contains("bound to"));
    Ok(bound.map(str::to_owned).collect())
}

fn check(rules: &str, wanted: &[&str]) {
    for carriers in [1, 2] {
        let Some(bound) = or_skip(rules, bound_threads(rules, carriers)) else {
            return;
        };
        let found = |name: &&str| bound.iter().any(|line| line.contains(name));
        assert!(
            bound.len() == wanted.len() && wanted.iter().all(found),
            "{rules}: {bound:?}, wanted {wanted:?}"
        );
    }
}

#[test]
fn a_thread_is_bound_by_its_name() {
    check("name:kept*", &["kept-1"]);
}

#[test]
fn threads_are_bound_by_the_library_of_their_start_function() {
    check("lib:program", &["kept-1", "free-1", "free-2"]);
}

#[test]
fn a_rule_that_fits_nothing_binds_nothing() {
    check("name:other*;lib:libother.so;start:other", &[]);
}
