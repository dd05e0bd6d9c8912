//! Green threads in debuggers, core dumps and crash reports.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Missing, Program, RunFolder, Running, find_tool, in_every_mode, status_number};
use rustix::process::Signal;

mod tracing {
    raddle_tests::cases! { "traced.c":
        ends_while_threads_get_stuck,
        kernel_threads_are_born_as_debuggers_expect,
    }
}

const LIMIT: Duration = Duration::from_secs(120);
/// Instructions that the debugger steps through: the calls and their ways back.
const STEPS: usize = 500;

/// gdb without the user's settings; the runtime's own signals aren't shown.
fn gdb(commands: &[&str]) -> Result<Vec<String>> {
    let mut line = vec![find_tool("gdb")?.to_string_lossy().into_owned()];
    let first = [
        "set pagination off",
        "set debuginfod enabled off",
        "set print address off",
        "handle SIG32 SIG33 nostop noprint pass",
    ];
    line.extend(["-nx", "-batch"].map(str::to_owned));
    for command in first.iter().chain(commands) {
        line.extend(["-ex".to_owned(), (*command).to_owned()]);
    }
    Ok(line)
}

fn output(line: &[String], folder: &Path) -> Result<String> {
    let mut command = Command::new(&line[0]);
    let output = command.args(&line[1..]).current_dir(folder).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn stacks() -> Result<String> {
    let program = Program::build("stacks.c")?;
    Ok(program.variants[0].command[0]
        .to_string_lossy()
        .into_owned())
}

fn wait_for(running: &Running, text: &str) -> Result<()> {
    let started = Instant::now();
    while !running.stdout_so_far().contains(text) {
        ensure!(started.elapsed() < LIMIT, "it never said {text}");
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The program's frames are in this order, from the inside out.
fn ensure_frames(text: &str, names: &[&str]) -> Result<()> {
    let mut rest = text;
    for name in names {
        let at = rest
            .find(name)
            .with_context(|| format!("no {name} in its place in\n{text}"))?;
        rest = &rest[at..];
    }
    Ok(())
}

const FRAMES: [&str; 3] = ["inner_frame ()", "outer_frame ()", "run ("];

#[test]
fn gdb_shows_the_frames_of_a_thread_that_waits_in_a_system_call() {
    let name = "debugging::gdb_shows_the_frames_of_a_thread_that_waits_in_a_system_call";
    in_every_mode(name, |mode| {
        let folder = RunFolder::new(&format!("gdb-attach-{mode}"))?;
        let mut command = mode.command(&[stacks()?.as_str(), "w"])?;
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        wait_for(&running, "waiting\n")?;
        sleep(Duration::from_millis(50));
        let mut line = gdb(&["thread apply all backtrace"])?;
        line.extend(["-p".to_owned(), running.pid().to_string()]);
        let text = output(&line, folder.path())?;
        ensure_frames(&text, &["open_for_ever ()"])?;
        ensure_frames(&text, &FRAMES)?;
        running.signal(Signal::KILL)?;
        running.wait(LIMIT)?;
        Ok(())
    });
}

const GDB_CRASHED: &str = "Fatal signal: Segmentation fault\n----- Backtrace -----";

#[test]
fn gdb_shows_the_frames_at_every_instruction_of_a_call() {
    let name = "debugging::gdb_shows_the_frames_at_every_instruction_of_a_call";
    in_every_mode(name, |mode| {
        let folder = RunFolder::new(&format!("gdb-step-{mode}"))?;
        let body = "stepi\necho ----\\n\nbacktrace 40\nset $steps = $steps + 1";
        let script = format!("set $steps = 0\nwhile $steps < {STEPS}\n{body}\nend\n");
        let path = folder.path().join("script");
        fs::write(&path, script)?;
        let source = format!("source {}", path.display());
        let commands = [
            "break call_both",
            "run",
            "delete",
            "set scheduler-locking on",
            &source,
            "kill",
        ];
        let mut line = gdb(&commands)?;
        line.extend(["--args".to_owned(), stacks()?, "s".to_owned()]);
        let run = || {
            let mut command = mode.command(&line)?;
            command.current_dir(folder.path());
            Running::start(mode, command, None)?.wait(LIMIT)
        };
        let mut outcome = run()?;
        // gdb itself may crash (seen with Debian 12's when its first step meets a new thread).
        for _ in 0..2 {
            if outcome.stderr.contains(GDB_CRASHED) || outcome.stdout.contains(GDB_CRASHED) {
                outcome = run()?;
            }
        }
        let traces: Vec<&str> = outcome.stdout.split("----\n").skip(1).collect();
        ensure!(
            traces.len() == STEPS,
            "{}{}",
            outcome.stdout,
            outcome.stderr
        );
        for (step, trace) in traces.iter().enumerate() {
            ensure_frames(trace, &FRAMES).with_context(|| format!("after {step} steps"))?;
        }
        Ok(())
    });
}

/// A core file in the working folder, if the kernel puts it there.
fn ensure_cores_are_files() -> Result<()> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    let pattern = pattern.trim();
    if pattern.starts_with('|') || pattern.contains('/') {
        let what = format!("a core_pattern for core files in the working folder ({pattern})");
        anyhow::bail!(Missing(what));
    }
    Ok(())
}

/// The thread that crashes is the first of the core, with its own frames.
fn check_core(name: &str, how: &str, signal: i32, says: &str) {
    in_every_mode(name, |mode| {
        ensure_cores_are_files()?;
        let folder = RunFolder::new(&format!("core-{how}-{mode}"))?;
        let program = stacks()?;
        let mut command = mode.command(&[program.as_str(), how])?;
        command.current_dir(folder.path());
        let outcome = Running::start(mode, command, None)?.wait(LIMIT)?;
        let status = status_number(outcome.status);
        ensure!(status == 128 + signal, "status {status}");
        let core = fs::read_dir(folder.path())?
            .flatten()
            .find(|entry| entry.file_name().to_string_lossy().starts_with("core"))
            .context("no core file")?;
        let mut line = gdb(&["backtrace"])?;
        line.extend([program, core.path().to_string_lossy().into_owned()]);
        let text = output(&line, folder.path())?;
        ensure!(text.contains(says), "no {says} in\n{text}");
        ensure_frames(&text, &["crash ()"])?;
        ensure_frames(&text, &FRAMES)
    });
}

#[test]
fn a_core_of_a_fault_shows_the_faulting_thread() {
    let name = "debugging::a_core_of_a_fault_shows_the_faulting_thread";
    check_core(name, "f", 11, "signal SIGSEGV");
}

#[test]
fn a_core_of_an_abort_shows_the_thread_that_aborted() {
    let name = "debugging::a_core_of_an_abort_shows_the_thread_that_aborted";
    check_core(name, "a", 6, "signal SIGABRT");
}

#[test]
fn a_core_of_a_raised_signal_shows_the_thread_that_raised_it() {
    let name = "debugging::a_core_of_a_raised_signal_shows_the_thread_that_raised_it";
    check_core(name, "q", 3, "signal SIGQUIT");
}

/// The JVM's report of its own crash.
fn check_report(name: &str, argument: &str, thread: Option<&str>) {
    in_every_mode(name, |mode| {
        for variant in Program::build("Crash.java")?.variants {
            let folder = RunFolder::new(&format!("jvm-{argument}-{mode}"))?;
            let report = folder.path().join("report");
            let mut line = variant.command.clone();
            let flag = format!("-XX:ErrorFile={}", report.display());
            line.insert(1, flag.into());
            line.push(argument.into());
            let mut command = mode.command(&line)?;
            command.current_dir(folder.path());
            let running = Running::start(mode, command, None)?;
            wait_for(&running, "ready\n")?;
            if thread.is_none() {
                running.signal(Signal::SEGV)?;
            }
            let outcome = running.wait(LIMIT)?;
            let status = status_number(outcome.status);
            ensure!(
                status == 134,
                "{} status {status}\n{}{}",
                variant.label,
                outcome.stdout,
                outcome.stderr
            );
            let text = fs::read_to_string(&report).with_context(|| outcome.stdout.clone())?;
            for wanted in ["SIGSEGV", "Native frames:"] {
                ensure!(text.contains(wanted), "no {wanted} in\n{text}");
            }
            let current = text.lines().find(|line| line.starts_with("Current thread"));
            let current = current.context("no current thread")?;
            let named = thread.is_none_or(|thread| current.contains(thread));
            ensure!(named, "{} {current}", variant.label);
            ensure!(!text.contains("[error occurred"), "{text}");
        }
        Ok(())
    });
}

#[test]
fn the_report_of_a_jvm_that_crashed_names_the_thread() {
    let name = "debugging::the_report_of_a_jvm_that_crashed_names_the_thread";
    check_report(name, "alone", Some("\"crasher\""));
}

#[test]
fn a_jvm_that_is_sent_a_fault_writes_its_report() {
    let name = "debugging::a_jvm_that_is_sent_a_fault_writes_its_report";
    check_report(name, "killed", None);
}
