//! Bound threads in cores, of processes and of crashes, and in the file of a flight recorder.

mod protobuf;
mod trace_files;

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, list, raddle, status_number};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(120);
/// How often a core is written until all threads are sampled.
const TRIES: u32 = 20;

/// What the threads of the program do: the ends of their names and of their functions' names, and
/// the number of the system call in which a bound one is, if it is in the kernel for the program.
const STATES: [(&str, Option<u32>); 12] = [
    ("sleep", Some(230)),
    ("compute", None),
    ("read", Some(0)),
    ("poll", Some(7)),
    ("mutex", None),
    ("condition", None),
    ("semaphore", None),
    ("futex", None),
    ("join", None),
    ("yield", None),
    ("epoll", Some(232)),
    ("signal", None),
];

fn program(arguments: &[&str]) -> Result<Vec<OsString>> {
    let program = Program::build("bound_states.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    Ok(line)
}

fn start(mode: Mode, folder: &RunFolder, arguments: &[&str]) -> Result<Running> {
    let mut command = mode.command(&program(arguments)?)?;
    command.env("RADDLE_EXCLUDE", "name:bound-*");
    command.env("RADDLE_FLIGHT_RECORDER", "1");
    command.current_dir(folder.path());
    Running::start(mode, command, None)
}

fn run(folder: &RunFolder, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command.args(arguments).current_dir(folder.path());
    Ok(command.output()?)
}

fn run_well(folder: &RunFolder, arguments: &[&str]) -> Result<String> {
    let output = run(folder, arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Every thread of the core is there with its name, its state and its exact stack.
fn check_core(folder: &RunFolder, core: &str) -> Result<()> {
    let text = run_well(folder, &["dump", "--from", core, "--json"])?;
    let document: Value = serde_json::from_str(&text)?;
    let (threads, stacks) = (list(&document, "threads")?, list(&document, "stacks")?);
    for kind in ["bound", "free"] {
        for (state, call) in STATES {
            let name = format!("{kind}-{state}");
            let thread = threads.iter().find(|it| it["name"] == *name);
            let thread = thread.with_context(|| format!("{core}: no {name}: {text}"))?;
            let stack = thread["stack"].as_u64();
            let stack = stack.with_context(|| format!("{core}: no stack of {name}: {thread}"))?;
            let stack = &stacks[stack as usize];
            let frames = list(stack, "frames")?.iter();
            let mut functions = frames.filter_map(|it| it["functions"].as_array()).flatten();
            let wanted = format!("state_{state}");
            ensure!(
                functions.any(|it| it["name"] == *wanted) && stack["guessed"] == 0,
                "{core}: {name}: {stack}"
            );
            let is_bound = kind == "bound";
            let is_running = thread["state"] == "running";
            let runs = ["compute", "yield"].contains(&state) || is_bound && call.is_some();
            // One that computes and makes room may be in a queue.
            let may_queue = !is_bound && runs && thread["state"] == "runnable";
            ensure!(is_running == runs || may_queue, "{core}: {thread}");
            if let Some(call) = call.filter(|_| is_bound) {
                let filter = ["dump", "--from", core, "--name", &name];
                let text = run_well(folder, &filter)?;
                let said = format!("(in system call {call})");
                ensure!(text.contains(&said), "{core}: {text}");
            }
        }
    }
    Ok(())
}

fn under_raddle(name: &str, test: impl Fn(Mode, &RunFolder) -> Result<()>) {
    in_every_mode(name, |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let folder = RunFolder::new(&format!("{}-{mode}", name.replace("::", "-")))?;
        test(mode, &folder)
    });
}

#[test]
fn a_core_of_a_process_has_every_bound_thread() {
    let name = "bound_cores::a_core_of_a_process_has_every_bound_thread";
    under_raddle(name, |mode, folder| {
        let running = start(mode, folder, &[])?;
        running.wait_until_it_says("ready\n")?;
        let pid = running.pid().to_string();
        // A thread that gets no CPU of a busy machine for a moment can't be sampled.
        let mut tries = 0..TRIES;
        let going = ["core", &pid, "-o", "going", "--force"];
        while run(folder, &going)?.status.code() == Some(1) {
            ensure!(tries.next().is_some(), "threads have no registers");
        }
        check_core(folder, "going")?;
        run_well(folder, &["core", &pid, "-o", "stopped", "--stop"])?;
        check_core(folder, "stopped")
    });
}

#[test]
fn a_crash_leaves_every_bound_thread() {
    let name = "bound_cores::a_crash_leaves_every_bound_thread";
    under_raddle(name, |mode, folder| {
        let running = start(mode, folder, &["crash"])?;
        let file = format!("raddle-{}.events", running.pid());
        let outcome = running.wait(LIMIT)?;
        ensure!(status_number(outcome.status) == 128 + 11, "{outcome:?}");
        check_trace(folder, &file)?;
        let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
        let cores = fs::read_dir(folder.path())?.flatten();
        let mut cores = cores.map(|it| it.file_name().to_string_lossy().into_owned());
        let core = cores.find(|name| name.starts_with("core"));
        if let (false, Some(core)) = (pattern.starts_with(['|', '/']), core) {
            check_trace(folder, &core)?;
            check_core(folder, &core)?;
            run_well(folder, &["core", "--from", &core, "-o", "full"])?;
            check_core(folder, "full")?;
        }
        Ok(())
    });
}

/// Every bound thread has run in the trace, and those that wait for a lock have a wait.
fn check_trace(folder: &RunFolder, from: &str) -> Result<()> {
    run_well(folder, &["trace", "--from", from, "-o", "trace", "--force"])?;
    let threads = trace_files::read(&folder.path().join("trace"))?;
    let states = STATES.iter().map(|(state, _)| *state);
    for state in states.chain(["crash"]) {
        let thread = threads.get(&format!("bound-{state}"));
        let thread = thread.with_context(|| format!("{from}: no bound-{state}"))?;
        ensure!(thread.turns != 0, "{from}: bound-{state} never ran");
    }
    let waits = &threads["bound-condition"].waits;
    ensure!(
        waits.keys().any(|wait| wait.starts_with("condvar 0x")),
        "{from}: {waits:?}"
    );
    Ok(())
}
