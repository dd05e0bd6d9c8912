//! `raddle trace` only copies while it records. What becomes of the copies when the process ends,
//! when there is no room, when the reader leaves, and when signals come meanwhile.

mod protobuf;
mod trace_files;

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, find_tool, in_every_mode, raddle};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use trace_files::read;

const LIMIT: Duration = Duration::from_secs(60);
/// Two threads that take turns at SIGUSR1: their trace is larger than a pipe.
const EXCHANGES: &[&str] = &["exchanges.c"];
/// Threads that sleep for 5 ms each time.
const TICKS: &[&str] = &["busy.c", "mixed", "100"];

/// Calls `test` with a folder and a process.
fn with_program(name: &str, line: &[&str], test: impl Fn(&Path, &Running) -> Result<()>) {
    let full = format!("trace_spools::{name}");
    in_every_mode(&full, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let mut command = Program::build(line[0])?.variants[0].command.clone();
        command.extend(line[1..].iter().map(Into::into));
        let running = Running::start(mode, mode.command(&command)?, None)?;
        running.wait_until_it_says("ready\n")?;
        let folder = RunFolder::new(&format!("{name}-{mode}"))?;
        test(folder.path(), &running)
    });
}

/// Starts a tool that traces to a pipe, and has the process do what it does.
fn trace_to_pipe(running: &Running) -> Result<Child> {
    let pid = running.pid().to_string();
    let mut tracer = Command::new(raddle()?);
    tracer.args(["trace", &pid, "-o", "-"]);
    tracer.stdout(Stdio::piped()).stderr(Stdio::piped());
    let tracer = tracer.spawn()?;
    exchange(running, &tracer)?;
    Ok(tracer)
}

/// Has the process do what it does, once it is traced.
fn exchange(running: &Running, tracer: &Child) -> Result<()> {
    // The tool's second thread begins when the process has said that it records.
    let threads = format!("/proc/{}/task", tracer.id());
    let begun = Instant::now();
    while std::fs::read_dir(&threads)?.count() < 2 {
        ensure!(begun.elapsed() < LIMIT, "nothing records");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300)); // its first reading
    running.signal(Signal::USR1)?;
    running.wait_until_it_says("ready\ndone\n")?;
    std::thread::sleep(Duration::from_millis(200)); // some more readings
    Ok(())
}

fn interrupt(tracer: &Child) -> Result<()> {
    Ok(kill_process(Pid::from_child(tracer), Signal::INT)?)
}

fn ended(tracer: &mut Child) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = tracer.try_wait()? {
            return Ok(status);
        }
        ensure!(begun.elapsed() < LIMIT, "the tool goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the pipe of the tool is full: it makes the trace.
fn wait_until_it_writes(tracer: &Child) -> Result<()> {
    let stdout = tracer.stdout.as_ref().context("a pipe")?;
    let begun = Instant::now();
    while ioctl_fionread(stdout)? < 1 << 15 {
        ensure!(begun.elapsed() < LIMIT, "nothing is written");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn a_process_may_end_while_its_trace_is_made() {
    let name = "a_process_may_end_while_its_trace_is_made";
    with_program(name, EXCHANGES, |folder, running| {
        let mut tracer = trace_to_pipe(running)?;
        let stdout = tracer.stdout.as_ref().context("a pipe")?;
        ensure!(ioctl_fionread(stdout)? == 0, "it makes the trace meanwhile");
        interrupt(&tracer)?;
        wait_until_it_writes(&tracer)?;
        running.signal(Signal::KILL)?;
        std::thread::sleep(Duration::from_millis(100));
        let mut bytes = Vec::new();
        let mut stdout = tracer.stdout.take().context("a pipe")?;
        stdout.read_to_end(&mut bytes)?;
        ensure!(ended(&mut tracer)?.success(), "{tracer:?}");
        let file = folder.join("a");
        std::fs::write(&file, bytes)?;
        let traced = read(&file)?;
        for name in ["ping", "pong"] {
            let turns = traced.get(name).map_or(0, |thread| thread.turns);
            ensure!(turns > 0, "{name}: {turns} turns");
        }
        Ok(())
    });
}

#[test]
fn a_second_signal_ends_the_tool_at_once() {
    let name = "a_second_signal_ends_the_tool_at_once";
    with_program(name, EXCHANGES, |_, running| {
        let mut tracer = trace_to_pipe(running)?;
        interrupt(&tracer)?;
        wait_until_it_writes(&tracer)?;
        ensure!(tracer.try_wait()?.is_none(), "one signal ends it");
        interrupt(&tracer)?;
        let status = ended(&mut tracer)?;
        ensure!(status.signal() == Some(Signal::INT.as_raw()), "{status}");
        Ok(())
    });
}

#[test]
fn a_reader_that_leaves_ends_the_recording() {
    let name = "a_reader_that_leaves_ends_the_recording";
    with_program(name, EXCHANGES, |_, running| {
        let mut tracer = trace_to_pipe(running)?;
        drop(tracer.stdout.take());
        ended(&mut tracer)?;
        let output = tracer.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{output:?}");
        let is_said = said.lines().count() == 1 && said.contains("the reader of standard output");
        ensure!(is_said, "{said}");
        Ok(())
    });
}

#[test]
fn a_closed_standard_output_is_refused() {
    let name = "a_closed_standard_output_is_refused";
    with_program(name, EXCHANGES, |_, running| {
        let mut shell = Command::new("sh");
        let line = r#""$0" trace "$1" -d 0.1 -o - >&-"#;
        shell.args(["-c", line]).arg(raddle()?);
        let output = shell.arg(running.pid().to_string()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{output:?}");
        let is_said = said.lines().count() == 1 && said.contains("standard output is closed");
        ensure!(is_said, "{said}");
        Ok(())
    });
}

#[test]
fn without_room_for_more_the_trace_has_what_came_before() {
    let name = "without_room_for_more_the_trace_has_what_came_before";
    with_program(name, TICKS, |folder, running| {
        let file = folder.join("a");
        let pid = running.pid().to_string();
        let mut tracer = Command::new(find_tool("prlimit")?);
        tracer.arg("--fsize=4000000").arg(raddle()?);
        tracer.args(["trace", &pid, "-o"]).arg(&file);
        let mut tracer = tracer
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        ended(&mut tracer)?;
        let output = tracer.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1), "{output:?}");
        let is_said = said.lines().count() == 1 && said.contains("the trace ends early");
        ensure!(is_said, "{said}");
        let turns: u64 = read(&file)?.values().map(|thread| thread.turns).sum();
        // The trace has most of the room: a turn takes some 70 bytes of it.
        let bytes = std::fs::metadata(&file)?.len();
        ensure!((3_000_000..4_000_000).contains(&bytes), "{bytes} bytes");
        ensure!(turns > 4_000_000 / 140, "{turns} turns");
        let files = std::fs::read_dir(folder)?.count();
        ensure!(files == 1, "{files} files");
        Ok(())
    });
}
