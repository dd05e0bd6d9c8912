//! Tools of languages and of the system on a process under raddle: debuggers, profilers, tracers.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, find_tool, in_every_mode, py_spy};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(60);

fn under_raddle(name: &str, test: impl Fn(Mode) -> Result<()>) {
    in_every_mode(name, |mode| match mode {
        Mode::Raddle { .. } => test(mode),
        Mode::Native => Ok(()),
    });
}

fn command_line(source: &str) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let first = program.variants.first().context("no way to run it")?;
    Ok(first.command.clone())
}

fn start(mode: Mode, source: &str, word: &str) -> Result<Running> {
    let running = Running::start(mode, mode.command(&command_line(source)?)?, None)?;
    running.wait_until_it_says(word)?;
    Ok(running)
}

fn run(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    ensure_success(&output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ensure_success(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

fn ensure_all(text: &str, words: &[&str]) -> Result<()> {
    match words.iter().find(|word| !text.contains(*word)) {
        Some(word) => bail!("no {word} in\n{text}"),
        None => Ok(()),
    }
}

#[test]
fn tracebacks_of_python_show_every_thread() {
    let name = "other_tools::tracebacks_of_python_show_every_thread";
    under_raddle(name, |mode| {
        let running = start(mode, "tracebacks.py", "ready\n")?;
        running.signal(Signal::USR1)?;
        running.signal(Signal::USR2)?;
        running.wait_until_it_says("ready\nhandled\n")?;
        running.signal(Signal::KILL)?;
        let said = running.wait(LIMIT)?.stderr;
        ensure_all(&said, &["Timeout (0:00:00.100000)!"])?;
        for function in ["in wait_for_the_lock", "in sleep_for_long", "in <module>"] {
            let times = said.matches(function).count();
            ensure!(times == 2, "{function} {times} times in\n{said}");
        }
        Ok(())
    });
}

#[test]
fn tools_of_java_show_every_thread() {
    let name = "other_tools::tools_of_java_show_every_thread";
    under_raddle(name, |mode| {
        for variant in Program::build("Waiting.java")?.variants {
            let running = Running::start(mode, mode.command(&variant.command)?, None)?;
            running.wait_until_it_says("waiting\n")?;
            let pid = running.pid().to_string();
            let java = Path::new(&variant.command[0]);
            let jstack = java.with_file_name("jstack");
            let jcmd = java.with_file_name("jcmd");
            for text in [run(&jstack, &[&pid])?, run(&jcmd, &[&pid, "Thread.print"])?] {
                ensure_all(&text, &["\"main\" #", "\"Thread-0\" #", "\"Thread-99\" #"])?;
                let waits = text.matches("at Waiting.lambda$main$0").count();
                ensure!(waits == 100, "{waits} threads wait in\n{text}");
            }
        }
        Ok(())
    });
}

#[test]
fn debuggers_show_the_thread_of_each_carrier() {
    let name = "other_tools::debuggers_show_the_thread_of_each_carrier";
    under_raddle(name, |mode| {
        let tool = find_tool("eu-stack").or_else(|_| find_tool("pstack"))?;
        let running = start(mode, "deep_stacks.c", "ready\n")?;
        let pid = running.pid().to_string();
        let is_eu_stack = tool.file_name().is_some_and(|it| it == "eu-stack");
        let arguments: &[&str] = if is_eu_stack { &["-p", &pid] } else { &[&pid] };
        // eu-stack's status is 1 if one frame of all can't be unwound.
        let output = Command::new(&tool).args(arguments).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure_all(&text, &["#0"])?;
        ensure!(running.stdout_so_far() == "ready\n");
        Ok(())
    });
}

#[test]
fn strace_shows_what_reaches_the_kernel() {
    let name = "other_tools::strace_shows_what_reaches_the_kernel";
    under_raddle(name, |mode| {
        let folder = RunFolder::new(&format!("strace-{mode}"))?;
        let report = folder.path().join("report");
        let mut line: Vec<OsString> = vec![find_tool("strace")?.into()];
        line.extend(["-f", "-o"].map(OsString::from));
        line.push(report.clone().into());
        let program = mode.command(&command_line("burning.c")?)?;
        line.push(program.get_program().into());
        line.extend(program.get_args().map(OsString::from));
        let outcome = Running::start(mode, Mode::Native.command(&line)?, None)?.wait(LIMIT)?;
        ensure!(outcome.stdout == "done\n", "{}", outcome.stderr);
        let report = std::fs::read_to_string(report)?;
        // The runtime first tries to write without waiting.
        ensure_all(
            &report,
            &["iov_base=\"done\\n\"", "RWF_NOWAIT", "exit_group(0"],
        )?;
        // Natively each of the 400 turns takes a call. A hand-off on one carrier is no call;
        // several carriers sleep and wake.
        let futexes = report.matches("futex(").count();
        let is_one = mode == (Mode::Raddle { carriers: 1 });
        ensure!(!is_one || futexes < 200, "{futexes} calls of futex");
        Ok(())
    });
}

#[test]
fn perf_shows_functions_of_green_threads() {
    let name = "other_tools::perf_shows_functions_of_green_threads";
    under_raddle(name, |mode| {
        let folder = RunFolder::new(&format!("perf-{mode}"))?;
        let perf = find_tool("perf")?;
        let data = folder
            .path()
            .join("perf.data")
            .to_string_lossy()
            .into_owned();
        let program = mode.command(&command_line("burning.c")?)?;
        let mut command = Command::new(&perf);
        command.args([
            "record",
            "-e",
            "cpu-clock:u",
            "--call-graph",
            "dwarf",
            "-o",
            &data,
        ]);
        command
            .arg("--")
            .arg(program.get_program())
            .args(program.get_args());
        let output = command.output()?;
        ensure_success(&output)?;
        let text = run(&perf, &["script", "-i", &data])?;
        let burns = text.matches(" burn+").count();
        ensure!(burns > 50, "{burns} samples of burn in\n{text}");
        let below = text.matches(" alternate+").count();
        ensure!(below > 50, "{below} samples of its caller");
        Ok(())
    });
}

#[test]
fn py_spy_shows_threads_of_python() {
    let name = "other_tools::py_spy_shows_threads_of_python";
    under_raddle(name, |mode| {
        let tool = py_spy()?;
        let running = start(mode, "tracebacks.py", "ready\n")?;
        let text = run(&tool, &["dump", "--pid", &running.pid().to_string()])?;
        ensure_all(&text, &["wait_for_the_lock", "sleep_for_long", "<module>"])
    });
}

/// A process that a tracer has stopped and left goes on.
#[test]
fn a_tracer_that_leaves_costs_nothing() {
    let name = "other_tools::a_tracer_that_leaves_costs_nothing";
    under_raddle(name, |mode| {
        let tool = find_tool("strace")?;
        let running = start(mode, "tracebacks.py", "ready\n")?;
        let mut tracer = Command::new(tool)
            .args(["-f", "-o", "/dev/null", "-p"])
            .arg(running.pid().to_string())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        sleep(Duration::from_millis(300));
        rustix::process::kill_process(rustix::process::Pid::from_child(&tracer), Signal::INT)?;
        tracer.wait()?;
        let begun = Instant::now();
        running.signal(Signal::USR2)?;
        running.wait_until_it_says("ready\nhandled\n")?;
        ensure!(begun.elapsed() < LIMIT);
        Ok(())
    });
}
