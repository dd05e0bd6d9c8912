//! `raddle trace`: every turn and every wait of a program is in the file, and what can't be traced
//! is refused.

mod protobuf;
mod trace_files;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode, raddle};
use rustix::process::Signal;
use serde_json::Value;
use trace_files::read;

const LIMIT: Duration = Duration::from_secs(60);
/// Turns of each thread of `exchanges.c`.
const ROUNDS: u64 = 3000;

fn command_line() -> Result<Vec<OsString>> {
    let program = Program::build("exchanges.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    Ok(variant.command.clone())
}

fn with_program(name: &str, test: impl Fn(&str, &Running) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let running = Running::start(mode, mode.command(&command_line()?)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&mode.to_string(), &running)
    });
}

fn run(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(raddle()?).args(arguments).output()?)
}

fn succeed(arguments: &[&str]) -> Result<String> {
    let output = run(arguments)?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Counters of the threads, by their names.
fn counters(pid: &str) -> Result<BTreeMap<String, (u64, u64)>> {
    let text = succeed(&["dump", pid, "--no-stacks", "--json"])?;
    let document: Value = serde_json::from_str(&text)?;
    let threads = document["threads"].as_array().context("threads")?;
    let counter = |thread: &Value, name: &str| thread[name].as_u64().context("a counter");
    threads
        .iter()
        .map(|thread| {
            let name = thread["name"].as_str().context("a name")?.to_owned();
            Ok((
                name,
                (counter(thread, "active")?, counter(thread, "preempt")?),
            ))
        })
        .collect()
}

#[test]
fn every_turn_and_every_wait_is_in_the_trace() {
    let name = "traces::every_turn_and_every_wait_is_in_the_trace";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-{mode}"))?;
        let file = folder.path().join("a.pftrace");
        let path = file.to_str().context("a path")?;
        let pid = running.pid().to_string();
        succeed(&["ctl", &pid, "record", "on"])?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        let said = succeed(&["trace", &pid, "--last", "60", "-o", path])?;
        ensure!(
            said.contains(" turns and ") && said.contains(path),
            "{said}"
        );
        let traced = read(&file)?;
        let counters = counters(&pid)?;
        for name in ["ping", "pong"] {
            let thread = traced.get(name).with_context(|| format!("no {name}"))?;
            let (active, preempt) = counters[name];
            ensure!(
                thread.turns == active,
                "{name}: {} of {active}",
                thread.turns
            );
            ensure!(thread.wakes <= active, "{name}: {} woken", thread.wakes);
            let woken = thread.wakes + preempt;
            ensure!(
                woken >= active,
                "{name}: {} woken of {active}",
                thread.wakes
            );
            let semaphore = |(name, _): &(&String, &u64)| name.starts_with("semaphore 0x");
            let waits: u64 = thread.waits.iter().filter(semaphore).map(|it| it.1).sum();
            ensure!(
                waits <= ROUNDS + 1 && waits + preempt >= active - 1,
                "{waits} waits"
            );
            if mode == "raddle-1" {
                ensure!(waits >= ROUNDS - 1, "{waits} waits: each turn has one");
            }
        }
        // Recorded is what happened while it was on.
        succeed(&["ctl", &pid, "record", "off"])?;
        Ok(())
    });
}

#[test]
fn threads_that_live_for_some_milliseconds_have_names() {
    let name = "traces::threads_that_live_for_some_milliseconds_have_names";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let line = Program::build("brief.c")?.variants[0].command.clone();
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        let folder = RunFolder::new(&format!("trace-brief-{mode}"))?;
        let pid = running.pid().to_string();
        let file = |name: &str| folder.path().join(name);
        let (now, kept) = (file("now"), file("kept"));
        let mut tracer = Command::new(raddle()?);
        tracer.args(["trace", &pid, "-d", "1", "-o"]).arg(&now);
        let tracer = tracer.stdout(std::process::Stdio::piped()).spawn()?;
        std::thread::sleep(Duration::from_millis(500)); // usually it has begun by then
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        let output = tracer.wait_with_output()?;
        ensure!(output.status.success(), "{output:?}");
        let mut last = Command::new(raddle()?);
        last.args(["trace", &pid, "--last", "60", "-o"]).arg(&kept);
        let output = last.output()?;
        ensure!(output.status.success(), "{output:?}");
        for file in [now, kept] {
            let traced = read(&file)?;
            for name in ["maker", "brief-named-0", "brief-named-3"] {
                ensure!(traced.contains_key(name), "no {name}: {:?}", traced.keys());
            }
        }
        Ok(())
    });
}

/// The rings are read in several parts, and reach back to different times.
#[test]
fn what_was_kept_is_in_order_and_has_no_wait_over_a_pause() {
    let name = "traces::what_was_kept_is_in_order_and_has_no_wait_over_a_pause";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let mut line = Program::build("trading.c")?.variants[0].command.clone();
        line.push("200000".into());
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        let folder = RunFolder::new(&format!("trace-kept-{mode}"))?;
        let file = folder.path().join("a");
        let path = file.to_str().context("a path")?;
        let pid = running.pid().to_string();
        let recorder = |more: &[&str]| {
            let line = [&["ctl", &pid, "flight-recorder"], more].concat();
            succeed(&line)
        };
        recorder(&["on", "--events", "1048576"])?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        recorder(&["off"])?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\ndone\n")?;
        recorder(&["on"])?;
        std::thread::sleep(Duration::from_millis(100));
        succeed(&["trace", &pid, "--last", "60", "-o", path])?;
        let traced = read(&file)?;
        for name in ["seller", "buyer"] {
            let turns = traced.get(name).map_or(0, |thread| thread.turns);
            ensure!(turns >= 100_000, "{name}: {turns} turns");
        }
        // Its sleep before the pause has ended, and the one after it has begun at the new start.
        let sleeps = &traced["sleeper"].waits["sleep"];
        ensure!(*sleeps >= 4, "{sleeps} sleeps");
        succeed(&["trace", &pid, "--last", "0.05", "-o", path, "--force"])?;
        ensure!(read(&file)?.contains_key("sleeper"));
        Ok(())
    });
}

#[test]
fn a_trace_ends_with_its_time_and_with_the_process() {
    let name = "traces::a_trace_ends_with_its_time_and_with_the_process";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-ends-{mode}"))?;
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let pid = running.pid().to_string();
        let (short, ended) = (file("short"), file("ended"));
        succeed(&["trace", &pid, "-d", "0.1", "-o", &short])?;
        let mut tracer = Command::new(raddle()?)
            .args(["trace", &pid, "-o", &ended])
            .stdout(std::process::Stdio::null())
            .spawn()?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        std::thread::sleep(Duration::from_millis(300)); // usually the tracer has begun by then
        running.signal(Signal::KILL)?;
        let begun = std::time::Instant::now();
        let status = loop {
            if let Some(status) = tracer.try_wait()? {
                break status;
            }
            ensure!(
                begun.elapsed() < LIMIT,
                "the tracer goes on without its process"
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        if status.code() == Some(2) {
            return Ok(()); // it had not begun
        }
        ensure!(status.success(), "{status}");
        read(std::path::Path::new(&ended))?;
        Ok(())
    });
}

#[test]
fn what_can_not_be_traced_is_one_sentence() {
    let name = "traces::what_can_not_be_traced_is_one_sentence";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-refused-{mode}"))?;
        let path = folder.path().join("file").to_string_lossy().into_owned();
        let pid = running.pid().to_string();
        let own = std::process::id().to_string();
        std::fs::write(folder.path().join("there"), "precious")?;
        let there = folder.path().join("there").to_string_lossy().into_owned();
        for (arguments, sentence) in [
            (
                vec!["trace", &own, "-o", &path],
                "does not run under raddle",
            ),
            (vec!["trace", &pid, "-d", "1", "-o", &there], "exists"),
            (
                vec!["trace", &pid, "-o", "/no/such/folder/a"],
                "can't be created",
            ),
            (
                vec!["trace", &pid, "--last", "1", "-o", &path],
                "has recorded nothing",
            ),
            (vec!["trace", &pid], "-o"),
            (
                vec!["trace", &pid, "--last", "1", "-d", "1", "-o", &path],
                "--duration has no meaning with --last",
            ),
        ] {
            let output = run(&arguments)?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code() == Some(2), "{arguments:?}: {output:?}");
            ensure!(
                said.lines().count() == 1 && said.contains(sentence),
                "{said}"
            );
        }
        ensure!(std::fs::read_to_string(&there)? == "precious");
        ensure!(!std::path::Path::new(&path).exists(), "a file is left");
        Ok(())
    });
}

#[test]
fn a_trace_can_go_to_standard_output() {
    let name = "traces::a_trace_can_go_to_standard_output";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-stdout-{mode}"))?;
        let pid = running.pid().to_string();
        let output = Command::new(raddle()?)
            .current_dir(folder.path())
            .args(["trace", &pid, "-d", "0.3", "-o", "-"])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.contains("in standard output"),
            "{output:?}"
        );
        ensure!(!folder.path().join("-").exists(), "a file is made");
        let file = folder.path().join("a");
        std::fs::write(&file, &output.stdout)?;
        read(&file)?;
        ensure!(output.stdout.len() > 50, "{output:?}");
        Ok(())
    });
}

#[test]
fn two_tools_trace_at_once_and_one_is_killed() {
    let name = "traces::two_tools_trace_at_once_and_one_is_killed";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-two-{mode}"))?;
        let pid = running.pid().to_string();
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let start = |name: &str| {
            let mut tracer = Command::new(raddle()?);
            tracer.args(["trace", &pid, "-d", "2", "-o", &file(name)]);
            Ok::<_, anyhow::Error>(tracer.stdout(std::process::Stdio::piped()).spawn()?)
        };
        let (first, second, mut killed) = (start("a")?, start("b")?, start("c")?);
        std::thread::sleep(Duration::from_millis(700)); // usually all have begun by then
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        killed.kill()?;
        killed.wait()?;
        for (tracer, name) in [(first, "a"), (second, "b")] {
            let output = tracer.wait_with_output()?;
            ensure!(output.status.success(), "{name}: {output:?}");
            let traced = read(std::path::Path::new(&file(name)))?;
            let turns = traced.get("ping").map_or(0, |thread| thread.turns);
            ensure!(turns == 0 || turns >= ROUNDS, "{name}: {turns} turns");
        }
        ensure!(
            !std::path::Path::new(&file("c")).exists(),
            "a killed tool leaves a file"
        );
        Ok(())
    });
}

#[test]
fn a_process_that_does_nothing_or_is_stopped_is_traced_or_refused() {
    let name = "traces::a_process_that_does_nothing_or_is_stopped_is_traced_or_refused";
    with_program(name, |mode, running| {
        let folder = RunFolder::new(&format!("trace-still-{mode}"))?;
        let pid = running.pid().to_string();
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (idle, stopped) = (file("idle"), file("stopped"));
        let said = succeed(&["trace", &pid, "-d", "0.2", "-o", &idle])?;
        ensure!(said.contains(" turns and "), "{said}");
        running.signal(Signal::STOP)?;
        std::thread::sleep(Duration::from_millis(300)); // its threads stop one by one
        let output = run(&["trace", &pid, "-d", "0.2", "-o", &stopped])?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(!std::path::Path::new(&stopped).exists());
        running.signal(Signal::CONT)?;
        let full = run(&["trace", &pid, "-d", "0.2", "-o", "/dev/full", "--force"])?;
        ensure!(full.status.code() == Some(2), "{full:?}");
        Ok(())
    });
}

#[test]
fn a_trace_ends_when_the_process_becomes_another_program() {
    let name = "traces::a_trace_ends_when_the_process_becomes_another_program";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("trace-exec-{mode}"))?;
        let file = folder.path().join("a").to_string_lossy().into_owned();
        let mut line = command_line()?;
        let program = line.pop().context("a program")?;
        let text = format!(
            "import os, signal, threading\n\
             signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
             ready = threading.Event()\n\
             threading.Thread(target=ready.set).start()\n\
             ready.wait()\n\
             print('begun', flush=True)\n\
             signal.sigwait([signal.SIGUSR1])\n\
             os.execv({program:?}, [{program:?}])\n",
        );
        let python = raddle_tests::find_tool("python3")?.into_os_string();
        let command = mode.command(&[python, "-c".into(), text.into()])?;
        let running = Running::start(mode, command, None)?;
        running.wait_until_it_says("begun\n")?;
        let pid = running.pid().to_string();
        let tracer = Command::new(raddle()?)
            .args(["trace", &pid, "-d", "30", "-o", &file])
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(700)); // usually it has begun by then
        let begun = std::time::Instant::now();
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("begun\nready\n")?;
        let output = tracer.wait_with_output()?;
        let code = output.status.code();
        ensure!(matches!(code, Some(0..=2)), "{output:?}");
        ensure!(begun.elapsed() < Duration::from_secs(20), "it went on");
        Ok(())
    });
}
