//! `raddle record`: which code ended the waits of which.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, in_every_mode, or_skip, raddle};

fn command_line(source: &str) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    Ok(variant.command.clone())
}

/// Runs a test with the number of carriers of each mode under raddle.
fn with_carriers(name: &str, test: impl Fn(&str, u16) -> Result<()>) {
    in_every_mode(name, |mode| match mode {
        Mode::Raddle { carriers } => test(&mode.to_string(), carriers),
        Mode::Native => Ok(()),
    });
}

/// Records a program, and writes the file.
fn record(carriers: u16, file: &Path, program: &[OsString], rest: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command.args(["record", "-F", "999", "-o"]).arg(file);
    command.arg("--").args(program).args(rest);
    command.env("RADDLE_CARRIERS", carriers.to_string());
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

/// Stacks: the frames, and microseconds.
type Stacks = Vec<(Vec<String>, u64)>;

/// Reads folded stacks.
fn read(file: &Path) -> Result<Stacks> {
    let text = std::fs::read_to_string(file)?;
    text.lines()
        .map(|line| {
            let (stack, us) = line.rsplit_once(' ').context("a weight")?;
            let frames = stack.split(';').map(str::to_owned).collect();
            Ok((frames, us.parse()?))
        })
        .collect()
}

/// Sums the time of stacks with such frames in this order.
fn sum(stacks: &[(Vec<String>, u64)], parts: &[&str]) -> u64 {
    let has = |frames: &[String]| {
        let mut frames = frames.iter();
        parts
            .iter()
            .all(|part| frames.any(|frame| frame.contains(part)))
    };
    let found = stacks.iter().filter(|(frames, _)| has(frames));
    found.map(|(_, us)| us).sum()
}

/// Records a program that says which parts its three wakers have, and compares these with those of
/// the recording, up to so many points. `place` is where the waiter waits. Returns what was printed
/// and the stacks.
fn compare(
    carriers: u16,
    file: &Path,
    program: &[OsString],
    place: &[&str],
    points: f64,
) -> Result<(String, Stacks)> {
    let output = record(carriers, file, program, &["4"])?;
    let stdout = String::from_utf8(output.stdout)?;
    let parts = stdout.lines().filter_map(|line| line.strip_prefix("part "));
    let said: BTreeMap<&str, f64> = parts
        .filter_map(|part| part.split_once(' '))
        .map(|(name, time)| Ok((name, time.parse()?)))
        .collect::<Result<_>>()?;
    ensure!(said.len() == 3, "{stdout}");
    let said_sum: f64 = said.values().sum();
    let stacks = read(file)?;
    let found = |name: &&str| sum(&stacks, &[place, &["[woken by", *name]].concat()) as f64;
    let whole: f64 = said.keys().map(found).sum();
    for (name, said) in &said {
        let (found, said) = (found(name) / whole, said / said_sum);
        let is_near = (found - said).abs() * 100.0 < points;
        ensure!(is_near, "{name}: {found:.3}, not {said:.3}\n{stdout}");
    }
    let is_whole = (0.3..1.2).contains(&(whole / 1e6 / said_sum));
    ensure!(is_whole, "{whole} us of {said_sum} s\n{stdout}");
    Ok((stdout, stacks))
}

#[test]
fn the_parts_of_three_wakers_are_those_that_the_program_has_measured() {
    let name = "wakers::the_parts_of_three_wakers_are_those_that_the_program_has_measured";
    with_carriers(name, |mode_name, carriers| {
        let folder = RunFolder::new(&format!("wakers-{mode_name}"))?;
        let file = folder.path().join("a.wakers.folded");
        let program = command_line("wakers.c")?;
        let place = ["waits_here", "[waiting: condvar"];
        let (stdout, stacks) = compare(carriers, &file, &program, &place, 5.0)?;
        // The first and the last wait may have no waker.
        let woken = sum(&stacks, &[&place[..], &["[woken by program"]].concat());
        let all = sum(&stacks, &place);
        ensure!(woken * 10 > all * 9, "{woken} of {all} us\n{stdout}");
        // What ends by itself is no place in the code.
        let sleeps = sum(&stacks, &["rests", "[waiting: sleep", "[woken by a timer"]);
        ensure!(sleeps > 2_000_000, "{sleeps} us\n{stdout}");
        ensure!(
            stdout.contains("waits but for sleeps, by what ended them")
                && stdout.contains("woken by program in pthread_cond_signal < wake < wake_th"),
            "{stdout}"
        );
        Ok(())
    });
}

/// Calls `test` with the command of a program in another language, and a file.
fn managed(name: &str, source: &str, test: impl Fn(u16, &Path, &[OsString]) -> Result<()>) {
    let Some(program) = or_skip(name, Program::build(source)) else {
        return;
    };
    let program = &program.variants[0].command;
    with_carriers(name, |mode_name, carriers| {
        let folder = RunFolder::new(&format!("wakers-{source}-{mode_name}"))?;
        test(carriers, &folder.path().join("a.wakers.folded"), program)
    });
}

#[test]
fn wakers_have_java_methods() {
    let name = "wakers::wakers_have_java_methods";
    managed(name, "Wakers.java", |carriers, file, program| {
        let place = ["Wakers.waitsHere", "LockSupport.park"];
        compare(carriers, file, program, &place, 8.0).map(drop)
    });
}

#[test]
fn wakers_have_no_wrong_python_functions() {
    let name = "wakers::wakers_have_no_wrong_python_functions";
    managed(name, "wakers.py", |carriers, file, program| {
        record(carriers, file, program, &["2"])?;
        let stacks = read(file)?;
        let place = ["waits_here", "Condition.wait", "[woken by"];
        let woken = sum(&stacks, &[&place[..], &["PyThread_release_lock"]].concat());
        ensure!(woken > 1_000_000, "{woken} us in {stacks:?}");
        for function in ["wake_one", "wake_two", "wake_three"] {
            let wrong = sum(&stacks, &["[woken by", function]);
            ensure!(wrong == 0, "{wrong} us in {function}");
        }
        Ok(())
    });
}

#[test]
fn a_program_without_wake_ups_is_recorded() {
    let name = "wakers::a_program_without_wake_ups_is_recorded";
    with_carriers(name, |mode_name, carriers| {
        let folder = RunFolder::new(&format!("no-wakers-{mode_name}"))?;
        let file = folder.path().join("a.wakers.folded");
        let program = command_line("wakers.c")?;
        record(carriers, &file, &program, &["1", "yields"])?;
        let stacks = read(&file)?;
        ensure!(sum(&stacks, &["[woken by", "wake"]) == 0, "{stacks:?}");
        Ok(())
    });
}

#[test]
fn another_process_that_wakes_is_named() {
    let name = "wakers::another_process_that_wakes_is_named";
    with_carriers(name, |mode_name, carriers| {
        let folder = RunFolder::new(&format!("other-process-{mode_name}"))?;
        let file = folder.path().join("a.wakers.folded");
        let output = record(carriers, &file, &command_line("other_process.c")?, &[])?;
        let stdout = String::from_utf8(output.stdout)?;
        let poster = stdout.lines().find_map(|line| line.strip_prefix("poster "));
        let poster = format!("poster ({})", poster.context("the other process")?);
        let stacks = read(&file)?;
        for place in [
            "wait_for_semaphore",
            "wait_for_pipe",
            "wait_for_socket",
            "wait_for_connection",
            "wait_for_watched",
        ] {
            let all = sum(&stacks, &[place]);
            let found = sum(&stacks, &[place, &poster, "[woken by the kernel: "]);
            ensure!(
                found * 10 > all * 8,
                "{place}: {found} of {all} us: {stacks:?}"
            );
        }
        Ok(())
    });
}

/// The thread that a carrier happens to run is no waker; and what began to wait before the
/// recording has a waker.
#[test]
fn the_kernel_and_ends_of_threads_are_named() {
    let name = "wakers::the_kernel_and_ends_of_threads_are_named";
    with_carriers(name, |mode_name, carriers| {
        let folder = RunFolder::new(&format!("kernel-wakers-{mode_name}"))?;
        let file = folder.path().join("a.wakers.folded");
        record(carriers, &file, &command_line("kernel_wakers.c")?, &["3"])?;
        let stacks = read(&file)?;
        for (place, waker) in [
            ("wait_for_signal", "[woken by the kernel"),
            ("wait_for_children", "[woken by the kernel"),
            ("wait_for_end", "[woken by the end of a thread"),
        ] {
            let all = sum(&stacks, &[place, "[waiting: "]);
            let found = sum(&stacks, &[place, "[waiting: ", waker]);
            ensure!(all > 1_000_000, "{place}: {all} us: {stacks:?}");
            ensure!(
                found * 10 > all * 9,
                "{place}: {found} of {all} us: {stacks:?}"
            );
        }
        Ok(())
    });
}
