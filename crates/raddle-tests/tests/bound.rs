//! Threads that wait in the kernel on their carriers: bound ones, which have kernel threads of
//! their own, in profiles, lists of locks and traces; and others in profiles.

mod protobuf;
mod trace_files;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};
use serde_json::Value;

const RULES: (&str, &str) = ("RADDLE_EXCLUDE", "name:bound-*");

fn command_line(source: &str, seconds: &str) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    let mut line = variant.command.clone();
    line.push(seconds.into());
    Ok(line)
}

/// The seconds that the program has measured.
fn said(output: &Output) -> Result<BTreeMap<String, f64>> {
    let text = std::str::from_utf8(&output.stdout)?;
    let parts = text.lines().filter_map(|line| line.strip_prefix("part "));
    let parts = parts.map(|part| {
        let (name, time) = part.split_once(' ').context("a time")?;
        Ok((name.to_owned(), time.parse()?))
    });
    parts.collect()
}

/// The seconds of folded stacks of a thread with this function, which end with one of these
/// activities; without any, those on a CPU.
fn seconds(folded: &str, thread: &str, function: &str, activities: &[&str]) -> f64 {
    let lines = folded.lines().filter_map(|line| {
        let (stack, us) = line.rsplit_once(' ')?;
        let frames: Vec<&str> = stack.split(';').collect();
        let last = frames.last()?;
        let is_its = frames.first() == Some(&thread) && frames.contains(&function);
        let is_it = match activities {
            [] => !last.starts_with('['),
            all => all.iter().any(|it| last.starts_with(it)),
        };
        (is_its && is_it).then(|| us.parse::<f64>().unwrap_or(0.0) / 1e6)
    });
    lines.sum()
}

/// Records the program for three seconds, and compares the times with its own.
fn check_profile(mut command: Command, file: &Path, has_perf_events: bool) -> Result<()> {
    let output = command.args(command_line("bound.c", "3")?).output()?;
    ensure!(output.status.success(), "{output:?}");
    let said = said(&output)?;
    let folded = std::fs::read_to_string(file)?;
    // A thread that has got its lock needs a CPU.
    let found: [(_, _, &[&str]); 3] = [
        ("bound-computes", "compute", &[]),
        ("bound-reads", "wait_for_pipe", &["[in kernel]"]),
        (
            "bound-locks",
            "wait_for_lock",
            &["[waiting: futex", "[runnable]"],
        ),
    ];
    for (thread, function, activities) in found {
        let mut found = seconds(&folded, thread, function, activities);
        if function == "wait_for_pipe" {
            // So has one of which the call is over.
            let note = "[on a carrier without a CPU]";
            found += seconds(&folded, thread, note, &[note]);
        }
        let said = said[function];
        // The runtime's samples come at most 1000 times a second, and not while it sleeps.
        let least = if has_perf_events || function != "compute" {
            0.9
        } else {
            0.75
        };
        // On a busy machine samples of CPU time are few.
        let most = if function == "compute" { 1.25 } else { 1.1 };
        ensure!(
            found >= said * least && found <= said * most,
            "{function}: {found} s of {said}: {folded}"
        );
    }
    let unread: f64 = folded
        .lines()
        .filter(|line| line.starts_with("bound-") && line.contains("[stack not read]"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    ensure!(unread < 600_000.0, "{unread} us without a stack: {folded}");
    let text = String::from_utf8(output.stdout)?;
    ensure!(!text.contains("left out"), "{text}");
    Ok(())
}

fn record(mode: Mode, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(raddle()?);
    command.arg("record").args(arguments).env(RULES.0, RULES.1);
    let Mode::Raddle { carriers } = mode else {
        bail!("a mode under raddle");
    };
    command.env("RADDLE_CARRIERS", carriers.to_string());
    Ok(command)
}

#[test]
fn a_profile_has_what_bound_threads_do() {
    let name = "bound::a_profile_has_what_bound_threads_do";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let folder = RunFolder::new(&format!("bound-{mode}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let command = record(mode, &["-F", "499", "-o", path, "--"])?;
        check_profile(command, &file, true)
    });
}

#[test]
fn a_profile_without_perf_events_has_them_too() {
    let name = "bound::a_profile_without_perf_events_has_them_too";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let folder = RunFolder::new(&format!("bound-refused-{mode}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let inner = record(mode, &["-F", "499", "-o", path, "--"])?;
        let filter = command_line("refused.c", "")?;
        let mut command = Command::new(&filter[0]);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        check_profile(command, &file, false)
    });
}

/// Starts the program for a minute.
fn start(mode: Mode) -> Result<Running> {
    let mut command = mode.command(&command_line("bound.c", "60")?)?;
    command.env(RULES.0, RULES.1);
    let running = Running::start(mode, command, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn succeed(arguments: &[&str]) -> Result<String> {
    let output = Command::new(raddle()?).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn a_lock_that_a_bound_thread_waits_for_is_listed() {
    let name = "bound::a_lock_that_a_bound_thread_waits_for_is_listed";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let running = start(mode)?;
        let pid = running.pid().to_string();
        let text = succeed(&["locks", "--json", "-d", "1", &pid])?;
        let document: Value = serde_json::from_str(&text)?;
        let lock = &document["locks"][0];
        ensure!(
            lock["name"] == "lock_bound" && lock["kind"] == "mutex",
            "{document}"
        );
        let waited_s = lock["waited_ns"].as_f64().context("a time")? / 1e9;
        ensure!((0.4..1.1).contains(&waited_s), "{document}");
        Ok(())
    });
}

#[test]
fn a_trace_has_turns_waits_and_stays_in_the_kernel_of_bound_threads() {
    let name = "bound::a_trace_has_turns_waits_and_stays_in_the_kernel_of_bound_threads";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let running = start(mode)?;
        let pid = running.pid().to_string();
        let folder = RunFolder::new(&format!("bound-trace-{mode}"))?;
        let file = folder.path().join("a.pftrace");
        let path = file.to_str().context("a path")?;
        succeed(&["trace", &pid, "-d", "1.5", "-o", path])?;
        let traced = trace_files::read(&file)?;
        let reader = traced.get("bound-reads").context("the reader")?;
        // It goes on each 100 ms.
        let stays = reader.waits.get("in the kernel").copied().unwrap_or(0);
        ensure!((5..=40).contains(&stays), "{stays} stays in the kernel");
        // Threads that have no switch run all the time. One that wants a CPU is not in the kernel.
        let computes = traced.get("bound-computes").context("the other one")?;
        let turns = (computes.turns, reader.turns);
        ensure!(turns.0 != 0 && turns.1 != 0, "{turns:?} turns");
        let stays = computes.waits.get("in the kernel");
        ensure!(stays.is_none(), "{stays:?} stays in the kernel");
        let waiter = traced.get("bound-locks").context("the waiter")?;
        let is_lock = |(name, _): &(&String, &u64)| name.starts_with("futex 0x");
        let waits: u64 = waiter.waits.iter().filter(is_lock).map(|it| it.1).sum();
        ensure!(
            waits >= 20 && waiter.turns >= 20,
            "{waits} waits, {} turns",
            waiter.turns
        );
        ensure!(waiter.wakes >= 20, "{} wake-ups", waiter.wakes);
        // A bound thread that runs again is not late.
        let late = ["trace", &pid, "--when-late", "900", "-d", "2", "-o"];
        let other = folder.path().join("b.pftrace");
        let late = Command::new(raddle()?).args(late).arg(other).output()?;
        ensure!(late.status.code() == Some(1), "{late:?}");
        Ok(())
    });
}

#[test]
fn a_thread_that_becomes_bound_is_counted_from_then_on() {
    let name = "bound::a_thread_that_becomes_bound_is_counted_from_then_on";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("bound-later-{mode}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let mut command = Command::new(raddle()?);
        command.env("RADDLE_CARRIERS", carriers.to_string());
        command.args(["record", "-F", "499", "-o", path, "--"]);
        let mut line = command_line("binds_later.c", "8")?;
        line.push("150".into());
        let output = command.args(line).output()?;
        ensure!(output.status.success(), "{output:?}");
        let said = said(&output)?["wait"];
        let folded = std::fs::read_to_string(&file)?;
        let waited = seconds(&folded, "later", "[in kernel]", &["[in kernel]"]);
        let waited = waited.max(seconds(
            &folded,
            "later",
            "wait_in_kernel",
            &["[in kernel]"],
        ));
        ensure!(
            waited > said * 0.6 && waited < said * 1.1,
            "{waited} s of {said}: {folded}"
        );
        let runnable = seconds(&folded, "later", "[runnable]", &["[runnable]"]);
        ensure!(runnable < said * 0.5, "{runnable} s: {folded}");
        Ok(())
    });
}

#[test]
fn a_carrier_that_nothing_else_needs_is_in_the_kernel_with_its_thread() {
    let name = "bound::a_carrier_that_nothing_else_needs_is_in_the_kernel_with_its_thread";
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let folder = RunFolder::new(&format!("sits-{mode}"))?;
        let file = folder.path().join("a.folded");
        let path = file.to_str().context("a path")?;
        let mut command = record(mode, &["-o", path, "--"])?;
        let output = command.args(command_line("sits.c", "3")?).output()?;
        ensure!(output.status.success(), "{output:?}");
        let said = said(&output)?["wait_for_child"];
        let folded = std::fs::read_to_string(&file)?;
        let found = seconds(&folded, "sits", "wait_for_child", &["[in kernel]"]);
        ensure!(
            found > said * 0.6 && found < said * 1.2,
            "{found} s of {said}: {folded}"
        );
        Ok(())
    });
}
