//! `raddle dump` of Java virtual machines: frames from memory, and virtual machines that don't
//! answer, or answer strangely.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, list, on_every_jdk, or_skip, raddle, say};
use rustix::process::Signal;
use serde_json::Value;

const MODE: Mode = Mode::Raddle { carriers: 2 };
/// A loop is compiled within this time.
const COMPILES: Duration = Duration::from_secs(20);
/// How long a dump may take on a machine that is shared, beside its own limits.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls `check` for each JDK with a program that waits, and was started with these switches.
fn with_java(
    test: &str,
    switches: &[&str],
    arguments: &[&str],
    check: impl Fn(&Running) -> Result<()>,
) {
    let run = || -> Result<Vec<(u32, Vec<OsString>)>> {
        let program = Program::build("Mixed.java")?;
        let variants = on_every_jdk(program)?.into_iter();
        let lines = variants.map(|(variant, jdk)| {
            let mut line = variant.command;
            line.splice(1..1, switches.iter().map(OsString::from));
            line.extend(arguments.iter().map(OsString::from));
            (jdk.version, line)
        });
        Ok(lines.collect())
    };
    for (version, line) in or_skip(test, run()).unwrap_or_default() {
        let one = || -> Result<()> {
            let running = Running::start(MODE, MODE.command(&line)?, None)?;
            running.wait_until_it_says("ready\n")?;
            check(&running)
        };
        or_skip(test, one().with_context(|| format!("java {version}")));
    }
}

fn dump(running: &Running, arguments: &[&str]) -> Result<Output> {
    let started = Instant::now();
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(running.pid().to_string());
    let output = command.args(arguments).output()?;
    let took = started.elapsed();
    ensure!(took < PATIENCE, "{arguments:?}: {took:?}");
    Ok(output)
}

fn document(running: &Running, arguments: &[&str]) -> Result<Value> {
    let output = dump(running, &[&["--json"], arguments].concat())?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The stack of a thread.
fn stack<'a>(document: &'a Value, thread: &Value) -> Result<&'a Value> {
    let number = thread["stack"].as_u64();
    let number = number.with_context(|| format!("no stack: {thread}"))?;
    Ok(&list(document, "stacks")?[number as usize])
}

/// The Java frames of a thread, as `name line`.
fn java(document: &Value, thread: &Value) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let Ok(stack) = stack(document, thread) else {
        return Ok(found);
    };
    for frame in list(stack, "frames")?.iter().chain([stack]) {
        // Stubs of the virtual machine are no methods.
        let methods = list(frame, "managed")?.iter();
        for managed in methods.filter(|it| it["language"] == "java") {
            let name = managed["name"].as_str().unwrap_or("?");
            let name = name.rsplit("//").next().unwrap_or(name);
            found.push(format!("{name} {}", managed["line"]));
        }
    }
    Ok(found)
}

fn named<'a>(document: &'a Value, name: &str) -> Result<&'a Value> {
    let mut threads = list(document, "threads")?.iter();
    let is_it = |it: &&Value| it["name"].as_str().is_some_and(|it| it.starts_with(name));
    threads
        .find(is_it)
        .with_context(|| format!("no thread {name}"))
}

/// Memory says the same frames as the virtual machine, in exact native stacks.
#[test]
fn frames_from_memory_are_those_that_the_virtual_machine_says() {
    let test = "java::frames_from_memory_are_those_that_the_virtual_machine_says";
    with_java(test, &[], &["20"], |running| {
        let said = document(running, &["--stacks"])?;
        let read = document(running, &["--stacks", "--no-attach"])?;
        ensure!(said["java_missing"].is_null(), "{}", said["java_missing"]);
        let (mut all, mut same, mut guessed) = (0, 0, 0);
        for thread in list(&said, "threads")? {
            let said = java(&said, thread)?;
            let mut threads = list(&read, "threads")?.iter();
            // Threads that compile may end.
            let Some(other) = threads.find(|it| it["tid"] == thread["tid"]) else {
                ensure!(said.is_empty(), "{thread} has ended");
                continue;
            };
            let found = java(&read, other)?;
            let equal = said.iter().rev().zip(found.iter().rev());
            let equal = equal.filter(|(said, found)| said == found).count();
            if equal != said.len() {
                say(&format!("{}: {said:#?} {found:#?}", thread["name"]));
            }
            all += said.len();
            same += equal;
            if let Ok(stack) = stack(&read, other)
                && !said.is_empty()
            {
                guessed += usize::from(stack["guessed"] != 0);
            }
        }
        say(&format!(
            "{same} of {all} Java frames, {guessed} guessed stacks"
        ));
        ensure!(all > 400 && same * 100 >= all * 95, "{same} of {all}");
        ensure!(guessed == 0, "{guessed} stacks have guessed frames");
        let compiled = java(&read, named(&read, "compiled-")?)?;
        ensure!(
            compiled
                .iter()
                .filter(|it| it.contains("Mixed.middle"))
                .count()
                == 6
        );
        // The names of threads don't hide their frames and locks.
        let odd = stack(&said, named(&said, "odd ")?)?.to_string();
        ensure!(
            odd.contains("locked <") && odd.contains("Mixed.owner"),
            "{odd}"
        );
        ensure!(!odd.contains("Not.a"), "{odd}");
        Ok(())
    });
}

/// The frames are those of the process, except threads that run.
#[test]
fn a_core_file_has_the_frames_of_java() {
    let test = "java::a_core_file_has_the_frames_of_java";
    with_java(test, &[], &["1"], |running| {
        let folder = RunFolder::new("java_core")?;
        let core = folder.path().join("core");
        let mut command = Command::new(raddle()?);
        command.arg("core").arg(running.pid().to_string());
        let output = command.arg("-o").arg(&core).output()?;
        ensure!(output.status.success(), "{output:?}");
        let mut command = Command::new(raddle()?);
        let output = command
            .args(["dump", "--json", "--from"])
            .arg(&core)
            .output()?;
        ensure!(output.status.success(), "{output:?}");
        let stored: Value = serde_json::from_slice(&output.stdout)?;
        let read = document(running, &["--no-attach"])?;
        for name in [
            "compiled-",
            "interpreted-",
            "reflected-",
            "stream-",
            "initializer",
        ] {
            let stored = java(&stored, named(&stored, name)?)?;
            let read = java(&read, named(&read, name)?)?;
            ensure!(
                !read.is_empty() && stored == read,
                "{name}: {stored:#?} {read:#?}"
            );
        }
        Ok(())
    });
}

#[test]
fn the_part_of_a_virtual_thread_that_is_on_a_stack_is_shown() {
    let test = "java::the_part_of_a_virtual_thread_that_is_on_a_stack_is_shown";
    with_java(test, &[], &["1"], |running| {
        let release = fs::read_link(format!("/proc/{}/exe", running.pid()))?;
        let release = release
            .ancestors()
            .nth(2)
            .context("no folder")?
            .join("release");
        let release = fs::read_to_string(release)?;
        if release.contains("JAVA_VERSION=\"17") {
            return Ok(());
        }
        let read = document(running, &["--no-attach"])?;
        let mut found = 0;
        for thread in list(&read, "threads")? {
            let frames = java(&read, thread)?;
            let at = |name: &str| frames.iter().position(|it| it.starts_with(name));
            if let Some(pinned) = at("Mixed$Pinned.<clinit>") {
                let (moved, entry) = (at("Mixed.moved"), at("jdk.internal.vm.Continuation.enter"));
                ensure!(Some(pinned) < moved && moved < entry, "{frames:#?}");
                let stack = stack(&read, thread)?;
                ensure!(stack["guessed"] == 0, "{stack:#}");
                found += 1;
            }
        }
        ensure!(found == 1, "{found} virtual threads");
        Ok(())
    });
}

#[test]
fn a_virtual_machine_without_its_service_shows_its_frames() {
    let test = "java::a_virtual_machine_without_its_service_shows_its_frames";
    with_java(test, &["-XX:+DisableAttachMechanism"], &["1"], |running| {
        let output = dump(running, &[])?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("java Mixed.park  Mixed.java:"), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("no Java locks") && said.lines().count() == 1,
            "{said}"
        );
        let output = dump(running, &["--deadlocks"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && said.lines().count() == 1,
            "{output:?}"
        );
        ensure!(running.stdout_so_far() == "ready\n", "it printed stacks");
        Ok(())
    });
}

/// A thread computes without a safepoint, so that the thread dump never ends.
#[test]
fn a_virtual_machine_that_hangs_shows_its_frames() {
    let test = "java::a_virtual_machine_that_hangs_shows_its_frames";
    let switches = [
        "-XX:-UseCountedLoopSafepoints",
        "-XX:LoopStripMiningIter=0",
        "-XX:+UseSerialGC",
    ];
    with_java(test, &switches, &["1", "hangs"], |running| {
        // It hangs once its loop is compiled; until then it answers.
        let begun = Instant::now();
        let (output, took) = loop {
            let started = Instant::now();
            let output = dump(running, &[])?;
            if !output.stderr.is_empty() || begun.elapsed() > COMPILES {
                break (output, started.elapsed());
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("java Mixed.park  Mixed.java:"), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("in time") && said.lines().count() == 1,
            "{said}"
        );
        say(&format!("a dump of a virtual machine that hangs: {took:?}"));
        Ok(())
    });
}

#[test]
fn a_stopped_virtual_machine_shows_its_frames() {
    let test = "java::a_stopped_virtual_machine_shows_its_frames";
    with_java(test, &[], &["1"], |running| {
        running.signal(Signal::STOP)?;
        while !fs::read_to_string(format!("/proc/{}/status", running.pid()))?
            .contains("T (stopped)")
        {
            thread::sleep(Duration::from_millis(1));
        }
        let output = dump(running, &[])?;
        running.signal(Signal::CONT)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let is_one = said.lines().count() == 1 && said.contains("is stopped");
        ensure!(output.status.success() && is_one, "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains("java Mixed.park  Mixed.java:"), "{text}");
        ensure!(running.stdout_so_far() == "ready\n", "it printed stacks");
        Ok(())
    });
}

#[test]
fn sockets_that_are_left_behind_or_of_others_do_no_harm() {
    let test = "java::sockets_that_are_left_behind_or_of_others_do_no_harm";
    with_java(test, &[], &["1"], |running| {
        let path = format!("/tmp/.java_pid{}", running.pid());
        // A file that is no socket.
        fs::write(&path, "")?;
        let output = dump(running, &[])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("another file") && said.lines().count() == 1,
            "{said}"
        );
        fs::remove_file(&path)?;
        // One that listens, and is another process's.
        let listener = UnixListener::bind(&path)?;
        let output = dump(running, &[])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            said.contains("another process") && said.lines().count() == 1,
            "{said}"
        );
        // One that was left behind: the virtual machine makes its own.
        drop(listener);
        let document = document(running, &[])?;
        ensure!(
            document["java_missing"].is_null(),
            "{}",
            document["java_missing"]
        );
        ensure!(running.stdout_so_far() == "ready\n", "it printed stacks");
        let _ = fs::remove_file(&path);
        Ok(())
    });
}

#[test]
fn a_virtual_machine_may_end_while_it_is_asked() {
    let test = "java::a_virtual_machine_may_end_while_it_is_asked";
    for delay_ms in [0, 10, 30, 60, 100] {
        with_java(test, &[], &["50"], |running| {
            thread::scope(|scope| {
                let asking = scope.spawn(|| dump(running, &[]));
                thread::sleep(Duration::from_millis(delay_ms));
                running.signal(Signal::KILL)?;
                let output = asking.join().map_err(|_| anyhow::anyhow!("a panic"))??;
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.code().is_some(), "{output:?}");
                ensure!(
                    said.lines().count() <= 1 && !said.contains("panicked"),
                    "{said}"
                );
                Ok(())
            })
        });
    }
}

#[test]
fn two_thousand_threads_are_read_in_a_moment() {
    let test = "java::two_thousand_threads_are_read_in_a_moment";
    with_java(test, &[], &["500"], |running| {
        for arguments in [&["--no-attach"][..], &[]] {
            let started = Instant::now();
            let output = dump(running, arguments)?;
            let text = String::from_utf8_lossy(&output.stdout);
            ensure!(text.contains("java Mixed.park"), "{text}");
            let took = started.elapsed();
            say(&format!("2,000 Java threads {arguments:?}: {took:?}"));
            ensure!(took < Duration::from_secs(10), "{took:?}");
        }
        Ok(())
    });
}
