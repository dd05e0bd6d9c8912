//! `raddle record` and `raddle locks` on programs that do things by turns: no turn is met more
//! likely than another.

mod recordings;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{RunFolder, Running, raddle};
use recordings::{command_line, read, record, said, times, with_carriers};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// By how much the share of a function may be off: the threads are met some fifty times in it.
const OFF: f64 = 0.15;

#[test]
fn threads_in_lockstep_are_met_in_all_that_they_do() {
    let name = "record_turns::threads_in_lockstep_are_met_in_all_that_they_do";
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
        // Of looks by chance, one recording in twenty may have too few in a function.
        check().or_else(|_| check())
    });
}

#[test]
fn readers_of_a_lock_hold_it() {
    let name = "record_turns::readers_of_a_lock_hold_it";
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
