//! How long locks are held, and by which thread waits for them end: mutexes of which waits are in
//! the kernel, and waits that time out.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// How long the program holds its lock at a time.
const HOLD_NS: f64 = 20e6;

/// Returns the command of the program with one of its kinds of locks.
fn program(kind: &str, seconds: &str) -> Result<Vec<OsString>> {
    let program = Program::build("lock_kinds.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    let mut command = variant.command.clone();
    command.extend([kind.into(), seconds.into()]);
    Ok(command)
}

/// Runs a test with the number of carriers of each mode under raddle.
fn with_carriers(name: &str, test: impl Fn(Mode, u16) -> Result<()>) {
    in_every_mode(name, |mode| match mode {
        Mode::Raddle { carriers } => test(mode, carriers),
        Mode::Native => Ok(()),
    });
}

/// Records the locks of `lock_kinds.c` for three seconds, and returns the only one.
fn lock(mode: Mode, kind: &str) -> Result<Value> {
    let running = Running::start(mode, mode.command(&program(kind, "60")?)?, None)?;
    let pid = running.pid().to_string();
    let begun = Instant::now();
    loop {
        let mut command = Command::new(raddle()?);
        let output = command
            .args(["locks", "--json", "-d", "3", &pid])
            .output()?;
        ensure!(begun.elapsed() < LIMIT, "{output:?}");
        // There may be no thread yet.
        let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let lock = &document["locks"][0];
        if lock["waits"].as_u64().is_some_and(|waits| waits > 10) {
            return Ok(lock.clone());
        }
    }
}

#[test]
fn a_lock_of_any_kind_is_held_for_as_long_as_its_holder_has_it() {
    let name = "lock_holds::a_lock_of_any_kind_is_held_for_as_long_as_its_holder_has_it";
    with_carriers(name, |mode, _| {
        for kind in ["plain", "robust", "shared", "timed", "timed_robust"] {
            let lock = lock(mode, kind)?;
            let figure = |name: &str| {
                let figure = lock[name].as_f64();
                figure.with_context(|| format!("{kind}: no {name}: {lock:#}"))
            };
            let (holds, held_ns) = (figure("holds")?, figure("held_ns")?);
            // On a busy machine a hold is longer, and the waiter comes late for a part of it.
            let mean = held_ns / holds;
            let longest = figure("longest_hold_ns")?;
            let are_long = mean > 0.4 * HOLD_NS && longest > 0.8 * HOLD_NS;
            ensure!(holds > 5.0 && are_long, "{kind}: {mean} ns: {lock:#}");
            // One thread waits while the other holds.
            let part = held_ns / figure("waited_ns")?;
            ensure!((0.4..1.6).contains(&part), "{kind}: {part}: {lock:#}");
        }
        Ok(())
    });
}

#[test]
fn holds_of_another_process_are_no_number() {
    let name = "lock_holds::holds_of_another_process_are_no_number";
    with_carriers(name, |mode, _| {
        let lock = lock(mode, "foreign")?;
        for name in ["holds", "held_ns", "longest_hold_ns"] {
            ensure!(lock[name].is_null(), "{name}: {lock:#}");
        }
        let figure = |name: &str| lock[name].as_f64().context("a number");
        let part = figure("ended_elsewhere_ns")? / figure("waited_ns")?;
        // The last wait may not have ended.
        ensure!(part > 0.2, "{part}: {lock:#}");
        Ok(())
    });
}

#[test]
fn waits_in_the_kernel_are_ended_by_threads_of_the_process() {
    let name = "lock_holds::waits_in_the_kernel_are_ended_by_threads_of_the_process";
    with_carriers(name, |mode, carriers| {
        for kind in ["robust", "shared"] {
            let folder = RunFolder::new(&format!("lock-holds-{kind}-{mode}"))?;
            let file = folder.path().join("a.wakers.folded");
            let path = file.to_str().context("a path")?;
            let mut command = Command::new(raddle()?);
            command.env("RADDLE_CARRIERS", carriers.to_string());
            command.args(["record", "-F", "999", "-o", path, "--"]);
            let output = command.args(program(kind, "3")?).output()?;
            ensure!(output.status.success(), "{output:?}");
            let (by_holder, all) = woken(&file)?;
            ensure!(
                by_holder * 2 > all && all > 0,
                "{kind}: {by_holder} of {all} us: {output:?}"
            );
        }
        Ok(())
    });
}

/// Returns how long the waiter has waited for the lock: what the holder has ended in the function
/// that releases the lock, and all.
fn woken(file: &Path) -> Result<(u64, u64)> {
    let (mut by_holder, mut all) = (0, 0);
    for line in std::fs::read_to_string(file)?.lines() {
        let (stack, us) = line.rsplit_once(' ').context("a weight")?;
        let us: u64 = us.parse()?;
        if stack.contains(";want;") {
            all += us;
            let is_by = stack.contains("[woken by holder") && stack.contains(";release;");
            by_holder += us * u64::from(is_by);
        }
    }
    Ok((by_holder, all))
}
