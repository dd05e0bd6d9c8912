//! `raddle run --flight-recorder`, traces of processes that have crashed, and traces that wait for
//! a condition.

mod protobuf;
mod trace_files;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle, status_number};
use rustix::process::Signal;
use trace_files::read;

const LIMIT: Duration = Duration::from_secs(60);
const VARIABLE: &str = "RADDLE_FLIGHT_RECORDER";

fn program(source: &str, arguments: &[&str]) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    Ok(line)
}

fn under_raddle(name: &str, test: impl Fn(Mode, &RunFolder) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("{}-{mode}", name.replace("::", "-")))?;
        test(mode, &folder)
    });
}

fn recorded(mode: Mode, folder: &RunFolder, line: &[OsString]) -> Result<Running> {
    let mut command = mode.command(line)?;
    command.current_dir(folder.path()).env(VARIABLE, "1");
    Running::start(mode, command, None)
}

fn run(folder: &RunFolder, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    Ok(command
        .args(arguments)
        .current_dir(folder.path())
        .output()?)
}

fn files(folder: &RunFolder, ending: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder.path())?.flatten();
    let files = entries.map(|entry| entry.path());
    Ok(files
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect())
}

/// Every worker of `core_threads.c` is in the trace, with its wait.
fn has_workers(folder: &RunFolder, from: &str, count: usize) -> Result<()> {
    let output = run(folder, &["trace", "--from", from, "-o", "trace", "--force"])?;
    ensure!(output.status.success(), "{output:?}");
    let threads = read(&folder.path().join("trace"))?;
    for number in 0..count {
        let thread = threads.get(&format!("worker-{number}"));
        let thread = thread.with_context(|| format!("no worker-{number}: {output:?}"))?;
        ensure!(thread.turns != 0, "worker-{number} never ran");
        let waits = thread
            .waits
            .keys()
            .any(|wait| wait.starts_with("condvar 0x"));
        ensure!(waits, "{:?}", thread.waits);
    }
    Ok(())
}

#[test]
fn a_crash_leaves_the_last_events() {
    let name = "flight_recorder::a_crash_leaves_the_last_events";
    under_raddle(name, |mode, folder| {
        let running = recorded(mode, folder, &program("core_threads.c", &["20", "crash"])?)?;
        let pid = running.pid();
        let outcome = running.wait(LIMIT)?;
        ensure!(status_number(outcome.status) == 128 + 11, "{outcome:?}");
        let file = format!("raddle-{pid}.events");
        let stderr = outcome.stderr.clone();
        ensure!(
            stderr.lines().count() == 1 && stderr.contains(&file),
            "{stderr}"
        );
        has_workers(folder, &file, 20)?;
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
        let cores = fs::read_dir(folder.path())?.flatten();
        let mut cores = cores.filter(|it| it.file_name().to_string_lossy().starts_with("core"));
        if let (false, Some(core)) = (pattern.starts_with(['|', '/']), cores.next()) {
            has_workers(folder, &core.file_name().to_string_lossy(), 20)?;
        }
        // A file that was cut off or changed is shown as far as it goes, or refused.
        let whole = fs::read(folder.path().join(&file))?;
        for length in (0..whole.len()).step_by(1 + whole.len() / 31) {
            fs::write(folder.path().join("cut"), &whole[..length])?;
            let output = run(folder, &["trace", "--from", "cut", "-o", "t", "--force"])?;
            let code = output.status.code();
            ensure!(code == Some(0) || code == Some(2), "{length}: {output:?}");
        }
        for at in (0..whole.len().min(4096)).step_by(97) {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            fs::write(folder.path().join("cut"), &changed)?;
            let output = run(folder, &["trace", "--from", "cut", "-o", "t", "--force"])?;
            let code = output.status.code();
            ensure!(code == Some(0) || code == Some(2), "{at}: {output:?}");
        }
        Ok(())
    });
}

#[test]
fn signals_with_a_core_dump_leave_events_and_others_none() {
    let name = "flight_recorder::signals_with_a_core_dump_leave_events_and_others_none";
    under_raddle(name, |mode, folder| {
        let line = program("core_threads.c", &["3"])?;
        for (signal, leaves) in [
            (Signal::ABORT, true),
            (Signal::QUIT, true),
            (Signal::SEGV, true),
            (Signal::FPE, true),
            (Signal::TERM, false),
            (Signal::INT, false),
            (Signal::KILL, false),
        ] {
            let running = recorded(mode, folder, &line)?;
            running.wait_until_it_says("ready\n")?;
            let file = folder
                .path()
                .join(format!("raddle-{}.events", running.pid()));
            running.signal(signal)?;
            let outcome = running.wait(LIMIT)?;
            let status = status_number(outcome.status);
            ensure!(status == 128 + signal.as_raw(), "{signal:?}: {outcome:?}");
            ensure!(file.exists() == leaves, "{signal:?}: {outcome:?}");
        }
        Ok(())
    });
}

#[test]
fn where_no_file_can_be_made_the_crash_is_the_same() {
    let name = "flight_recorder::where_no_file_can_be_made_the_crash_is_the_same";
    under_raddle(name, |mode, folder| {
        let mut command = mode.command(&program("core_threads.c", &["3", "crash"])?)?;
        command
            .current_dir(folder.path())
            .env(VARIABLE, "/proc/self");
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        ensure!(status_number(outcome.status) == 128 + 11, "{outcome:?}");
        let stderr = outcome.stderr.clone();
        ensure!(
            stderr.lines().count() == 1 && stderr.contains("are lost"),
            "{stderr}"
        );
        // In a folder of files only, there is a file of this name already.
        let running = recorded(mode, folder, &program("core_threads.c", &["3"])?)?;
        running.wait_until_it_says("ready\n")?;
        let file = folder
            .path()
            .join(format!("raddle-{}.events", running.pid()));
        fs::write(&file, "precious")?;
        running.signal(Signal::ABORT)?;
        let outcome = running.wait(LIMIT)?;
        ensure!(status_number(outcome.status) == 128 + 6, "{outcome:?}");
        ensure!(fs::read_to_string(&file)? == "precious");
        Ok(())
    });
}

#[test]
fn a_recorder_goes_on_and_off_and_a_child_has_its_own() {
    let name = "flight_recorder::a_recorder_goes_on_and_off_and_a_child_has_its_own";
    under_raddle(name, |mode, folder| {
        let running = recorded(mode, folder, &program("exchanges.c", &[])?)?;
        running.wait_until_it_says("ready\n")?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        let pid = running.pid().to_string();
        let output = run(folder, &["trace", &pid, "--last", "60", "-o", "a"])?;
        ensure!(output.status.success(), "{output:?}");
        let threads = read(&folder.path().join("a"))?;
        ensure!(threads.get("ping").is_some_and(|it| it.turns >= 3000));
        let output = run(folder, &["ctl", &pid, "flight-recorder", "off"])?;
        ensure!(output.status.success(), "{output:?}");
        // What was recorded can still be read, and is no crash of a recorder that is on.
        let output = run(folder, &["trace", &pid, "--last", "60", "-o", "b"])?;
        ensure!(output.status.success(), "{output:?}");
        running.signal(Signal::ABORT)?;
        running.wait(LIMIT)?;
        ensure!(files(folder, ".events")?.is_empty());
        Ok(())
    });
}

#[test]
fn a_trace_waits_for_a_condition() {
    let name = "flight_recorder::a_trace_waits_for_a_condition";
    under_raddle(name, |mode, folder| {
        let mut command = mode.command(&program("computing.c", &[])?)?;
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        running.wait_until_it_says("computing\n")?;
        let pid = running.pid().to_string();
        // Eight threads compute on fewer carriers: each waits for quanta of the others.
        for (flag, said) in [
            ("--when-runnable", " was runnable for "),
            ("--when-stalled", " while others were runnable"),
        ] {
            let line = [
                "trace", &pid, flag, "1", "--last", "1", "-o", "a", "--force",
            ];
            let output = run(folder, &line)?;
            ensure!(output.status.success(), "{output:?}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(text.contains(said) && text.lines().count() == 2, "{text}");
            ensure!(!text.contains(" 0 turns and "), "{text}");
            read(&folder.path().join("a"))?;
        }
        let line = [
            "trace",
            &pid,
            "--when-late",
            "60000",
            "-d",
            "0.2",
            "-o",
            "never",
        ];
        let output = run(folder, &line)?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(files(folder, "never")?.is_empty());
        running.signal(Signal::TERM)?;
        running.wait(LIMIT)?;
        Ok(())
    });
}
