//! `raddle record` on programs in several languages: the shares of programs that measure them
//! themselves, and the names of functions; and on programs that do things by turns.

mod recordings;

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, free_threaded, raddle};
use recordings::{
    COMPUTING, LOCKS, Recorded, Stacks, WAITING, command_line, compare_all, executing, read,
    record, record_program, said, times, with_carriers,
};
use serde_json::Value;

/// The least part of the time of which stacks have names from end to end.
const NAMED: f64 = 0.95;
const LIMIT: Duration = Duration::from_secs(60);
/// By how much the share of a function may be off: the threads are met some fifty times in it.
const OFF: f64 = 0.15;

/// Records a program of known shares.
fn recorded(name: &str, mode: Mode, line: &[OsString]) -> Result<Recorded> {
    let folder = RunFolder::new(&format!("{name}-{mode}"))?;
    let file = folder.path().join("a.folded");
    let path = file.to_str().context("a path")?;
    record_program(record(mode, &["-F", "999", "-o", path, "--"])?, line, &file)
}

/// Samples come by chance, and other processes take CPUs: one of three recordings has to be right.
fn one_is_right(check: impl Fn() -> Result<()>) -> Result<()> {
    check().or_else(|_| check()).or_else(|_| check())
}

/// Returns true for a frame that is no name of a function: an address, or a remark in its place.
fn is_nameless(frame: &str) -> bool {
    let is_address = |(_, digits): (&str, &str)| {
        !digits.is_empty() && digits.chars().all(|it| it.is_ascii_hexdigit())
    };
    let remarks = ["[code without a name]", "[stack not read]", "[unknown]"];
    frame.rsplit_once("+0x").is_some_and(is_address)
        || frame
            .split_once("0x")
            .filter(|it| it.0.is_empty())
            .is_some_and(is_address)
        || remarks.contains(&frame)
}

/// Checks that enough of the time has stacks of which each frame is named. The first frame is the
/// thread. Time without a CPU has no stack.
fn are_named(stacks: &Stacks) -> Result<()> {
    let (mut named, mut all) = (0, 0);
    let mut nameless: Vec<(u64, &str)> = Vec::new();
    for (frames, us) in stacks {
        let frames = frames.get(1..).context("a thread and a frame")?;
        if frames.iter().any(|it| it.contains("without a CPU")) {
            continue;
        }
        all += us;
        match frames.iter().find(|it| is_nameless(it)) {
            Some(frame) => nameless.push((*us, frame)),
            None => named += us,
        }
    }
    nameless.sort_unstable_by(|a, b| b.cmp(a));
    nameless.truncate(8);
    let share = named as f64 / all as f64;
    ensure!(
        share >= NAMED,
        "{share:.4} of the time is named: {nameless:?}"
    );
    Ok(())
}

const JAVA_COMPUTING: [&str; 5] = [
    "Shares.computeOne",
    "Shares.computeTwo",
    "Shares.computeThree",
    "Shares.computeFour",
    "Shares.computeFive",
];
const JAVA_WAITING: [&str; 6] = [
    "Shares.waitOne",
    "Shares.waitTwo",
    "Shares.waitThree",
    "Shares.waitFour",
    "Shares.waitFive",
    "Shares.waitRest",
];
const JAVA_LOCKS: [&str; 3] = ["Shares.lockOne", "Shares.lockTwo", "Shares.lockThree"];

#[test]
fn shares_of_java_are_those_that_the_program_has_measured() {
    let name = "record_languages::shares_of_java_are_those_that_the_program_has_measured";
    with_carriers(name, |_, mode| {
        for variant in Program::build("Shares.java")?.variants {
            let check = || {
                let (printed, said, stacks) = recorded("shares-java", mode, &variant.command)?;
                compare_all(
                    (&printed, &said),
                    &stacks,
                    &JAVA_COMPUTING,
                    &JAVA_WAITING,
                    &JAVA_LOCKS,
                )?;
                are_named(&stacks)
            };
            one_is_right(check).map_err(|error| variant.name(error))?;
        }
        Ok(())
    });
}

#[test]
fn shares_of_python_are_those_that_the_program_has_measured() {
    let name = "record_languages::shares_of_python_are_those_that_the_program_has_measured";
    with_carriers(name, |_, mode| {
        one_is_right(|| {
            let (printed, said, stacks) =
                recorded("shares-python", mode, &command_line("shares.py")?)?;
            compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)?;
            are_named(&stacks)
        })
    });
}

#[test]
fn shares_of_python_without_a_global_lock_are_right() {
    let name = "record_languages::shares_of_python_without_a_global_lock_are_right";
    with_carriers(name, |_, mode| {
        let Some(interpreter) = free_threaded() else {
            return Ok(());
        };
        let mut line = command_line("shares.py")?;
        line[0] = interpreter.into();
        one_is_right(|| {
            let (printed, said, stacks) = recorded("shares-free", mode, &line)?;
            compare_all((&printed, &said), &stacks, &COMPUTING, &WAITING, &LOCKS)?;
            are_named(&stacks)
        })
    });
}

/// The time of functions that were inlined counts for them, too.
#[test]
fn functions_of_c_cplusplus_and_rust_are_named() {
    let name = "record_languages::functions_of_c_cplusplus_and_rust_are_named";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("named-{mode_name}"))?;
        for (source, functions) in [
            ("shares.c", &["compute_five", "turn"][..]),
            (
                "named.cc",
                &["__introsort_loop<", "sorts", "looks_up", "operator()"],
            ),
            ("named_rust.rs", &["::sorts", "::looks_up"]),
        ] {
            let file = folder.path().join(format!("{source}.folded"));
            let path = file.to_str().context("a path")?;
            let mut command = record(mode, &["-F", "499", "-o", path, "--"])?;
            let output = command.args(command_line(source)?).arg("2").output()?;
            ensure!(output.status.success(), "{output:?}");
            let stacks = read(&file)?;
            are_named(&stacks).with_context(|| source.to_owned())?;
            for function in functions {
                let found = times(&executing(&stacks), &[function]);
                ensure!(!found.is_empty(), "{source}: no {function}");
            }
        }
        Ok(())
    });
}

#[test]
fn turns_as_long_as_a_period_are_seen_from_their_beginnings() {
    let name = "record_languages::turns_as_long_as_a_period_are_seen_from_their_beginnings";
    with_carriers(name, |_, mode| {
        let line = command_line("long_turns.c")?;
        one_is_right(|| {
            let (_, said, stacks) = recorded("long-turns", mode, &line)?;
            let first = |times: &recordings::Times| -> Option<f64> {
                let (one, two) = (times.get("compute_one")?, times.get("compute_two")?);
                Some(one / (one + two))
            };
            let found = first(&times(&executing(&stacks), &COMPUTING)).context("both functions")?;
            let said = first(&said).context("both functions")?;
            ensure!(
                (found - said).abs() < 0.05,
                "{found:.3} of the time, and not {said:.3}"
            );
            Ok(())
        })
    });
}

#[test]
fn threads_in_lockstep_are_met_in_all_that_they_do() {
    let name = "record_languages::threads_in_lockstep_are_met_in_all_that_they_do";
    with_carriers(name, |mode_name, mode| {
        let folder = RunFolder::new(&format!("lockstep-{mode_name}"))?;
        let file = folder.path().join("a.folded");
        let check = || -> Result<()> {
            let path = file.to_str().context("a path")?;
            let mut command = record(mode, &["--force", "-o", path, "--"])?;
            let output = command
                .args(command_line("lockstep.c")?)
                .arg("6")
                .output()?;
            ensure!(output.status.success(), "{output:?}");
            let said = said(&String::from_utf8(output.stdout)?)?;
            let waits: Vec<_> = read(&file)?
                .into_iter()
                .filter(|(frames, _)| frames.iter().any(|it| it.starts_with("[waiting")))
                .collect();
            let found = times(&waits, &["sleep_short", "sleep_long"]);
            let share = |times: &recordings::Times| -> Result<f64> {
                let short = times.get("sleep_short").copied().unwrap_or_default();
                let long = times.get("sleep_long").copied().unwrap_or_default();
                ensure!(short + long > 0.0, "neither function");
                Ok(short / (short + long))
            };
            let (found, said) = (share(&found)?, share(&said)?);
            ensure!((found - said).abs() < OFF, "{found:.3} and not {said:.3}");
            Ok(())
        };
        // Looks come by chance: a recording may have too few of them in one function.
        check().or_else(|_| check())
    });
}

#[test]
fn readers_of_a_lock_hold_it() {
    let name = "record_languages::readers_of_a_lock_hold_it";
    with_carriers(name, |_, mode| {
        let mut arguments = command_line("lock_readers.c")?;
        arguments.push("60".into());
        let running = Running::start(mode, mode.command(&arguments)?, None)?;
        let pid = running.pid().to_string();
        let begun = Instant::now();
        let document = loop {
            let mut command = Command::new(raddle()?);
            let output = command
                .args(["locks", "--json", "-d", "3", &pid])
                .output()?;
            if output.status.success() {
                break serde_json::from_slice::<Value>(&output.stdout)?;
            }
            ensure!(begun.elapsed() < LIMIT, "{output:?}"); // no thread yet
        };
        let lock = &document["locks"][0];
        ensure!(lock["kind"] == "read-write lock", "{document}");
        let held_at = lock["held_at"].as_array().context("holders")?;
        let ns = |is_reader: bool| -> f64 {
            let of = held_at
                .iter()
                .filter(|it| it["thread"].is_null() == is_reader);
            of.filter_map(|it| it["waited_ns"].as_f64()).sum()
        };
        let text = held_at.iter().map(Value::to_string).collect::<String>();
        ensure!(ns(true) > 3.0 * ns(false), "{document}");
        ensure!(!text.contains("read_hold"), "{document}");
        Ok(())
    });
}
