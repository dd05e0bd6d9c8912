//! Every call that may wait, on every kind of descriptor, blocking and not: `matrix.c` makes each
//! on a thread of its own, and prints the results. Under raddle each gives its native result.
//!
//! A call counts as waiting if it hasn't returned in time, which a busy machine may cause by
//! itself. So calls that differ are made once more, without the others and with more time, natively
//! and under raddle; only a difference then counts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, check_list, in_every_mode, status_number};

const TIMEOUT: Duration = Duration::from_secs(240);
/// A busy machine doesn't cause more differences than this.
const MOST_AGAIN: usize = 200;
/// How many are shown.
const MOST_SHOWN: usize = 40;

/// Each call's result, by its name.
type Results = BTreeMap<String, String>;

fn run(mode: Mode, arguments: &[&str]) -> Result<Results> {
    let program = Program::build("matrix.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("a C program is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let folder = RunFolder::new(&format!("matrix-{}-{mode}", arguments[0]))?;
    let mut command = mode.command(&line)?;
    command.current_dir(folder.path());
    let outcome = Running::start(mode, command, None)?.wait(TIMEOUT)?;
    let status = status_number(outcome.status);
    let last = outcome.stdout.lines().last().unwrap_or_default();
    ensure!(
        status == 0,
        "exit status {status} after `{last}`\n{}",
        outcome.stderr
    );
    let split = |line: &str| {
        line.split_once(": ")
            .map(|(call, gave)| (call.into(), gave.into()))
    };
    let results: Option<Results> = outcome.stdout.lines().map(split).collect();
    results.context("each line is a call and what it gave")
}

/// The calls with different results, and both results.
fn differences<'a>(native: &'a Results, other: &'a Results) -> Vec<(&'a str, &'a str, &'a str)> {
    let calls = native.keys().chain(other.keys());
    let pairs = calls.map(|call| {
        let gave = |results: &'a Results| results.get(call).map_or("nothing", String::as_str);
        (call.as_str(), gave(native), gave(other))
    });
    let mut pairs: Vec<_> = pairs.filter(|(_, native, other)| native != other).collect();
    pairs.dedup();
    pairs
}

fn describe(differences: &[(&str, &str, &str)]) -> String {
    let line = |(call, native, other): &(&str, &str, &str)| {
        format!("\n{call}: {other}; natively: {native}")
    };
    let shown = differences.iter().take(MOST_SHOWN).map(line);
    format!(
        "{} calls differ{}",
        differences.len(),
        shown.collect::<String>()
    )
}

fn check(group: &str) {
    let mut native = Results::new();
    in_every_mode(&format!("matrix::{group}"), |mode| {
        let results = run(mode, &[group])?;
        ensure!(!results.is_empty(), "the group has calls");
        if mode == Mode::Native {
            native = results;
            return Ok(());
        }
        let first = differences(&native, &results);
        ensure!(first.len() <= MOST_AGAIN, "{}", describe(&first));
        if first.is_empty() {
            return Ok(());
        }
        let again: Vec<&str> = ["--only"]
            .into_iter()
            .chain(first.iter().map(|(call, ..)| *call))
            .collect();
        let (native, results) = (run(Mode::Native, &again)?, run(mode, &again)?);
        let second = differences(&native, &results);
        ensure!(second.is_empty(), "{}", describe(&second));
        Ok(())
    });
}

macro_rules! groups {
    ($($group:ident),+ $(,)?) => {
        $(
            #[test]
            fn $group() {
                check(stringify!($group));
            }
        )+

        #[test]
        fn lists_every_group_of_its_program() {
            check_list("matrix.c", &[$(stringify!($group)),+]);
        }
    };
}

groups! {
    files,
    pipes,
    terminals,
    streams,
    datagrams,
    packets,
    connections,
    connecting,
    udp,
    counters,
    others,
    queues,
}
