//! `raddle run --watch-deadlocks` with Java programs: cycles with a monitor or an owned
//! synchronizer in them are reported once, and nothing else is.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{
    Mode, Program, Running, on_every_jdk, or_skip, say, shared_object, status_number,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than HotSpot lets a thread wait for a monitor until it looks at the monitor again.
const WHILE: Duration = Duration::from_secs(3);
const INTERVAL_MS: &str = "100";

/// A program, and what it is to do.
struct Case {
    program: &'static str,
    kind: &'static str,
    /// The oldest JDK that can.
    version: u32,
    options: &'static [&'static str],
}

const fn deadlocks(kind: &'static str) -> Case {
    Case {
        program: "Deadlocks.java",
        ..watched(kind)
    }
}

const fn watched(kind: &'static str) -> Case {
    Case {
        program: "Watched.java",
        kind,
        version: 17,
        options: &[],
    }
}

/// Runs programs on every JDK with a watch, and calls `test` with each once it has begun.
fn with_java(name: &str, cases: &[Case], test: impl Fn(&Running) -> Result<()>) {
    for case in cases {
        let programs = || -> Result<_> {
            let library = shared_object("deadlocks_library.c")?;
            Ok((library, on_every_jdk(Program::build(case.program)?)?))
        };
        let Some((library, programs)) = or_skip(name, programs()) else {
            return;
        };
        for (variant, jdk) in programs {
            if jdk.version < case.version {
                continue;
            }
            let mode = Mode::Raddle { carriers: 2 };
            let one = || -> Result<()> {
                let (java, arguments) = variant.command.split_first().context("no command")?;
                let mut line = vec![java.clone()];
                line.extend(case.options.iter().map(Into::into));
                line.extend(arguments.iter().cloned());
                line.extend([case.kind.into(), library.clone().into()]);
                let mut command = mode.command(&line)?;
                command.env("RADDLE_WATCH_DEADLOCKS", INTERVAL_MS);
                let running = Running::start(mode, command, None)?;
                running.wait_until_it_says("ready\n")?;
                test(&running)
            };
            let (kind, options) = (case.kind, case.options);
            let done = one().with_context(|| format!("{kind} {options:?}"));
            if or_skip(name, done.map_err(|error| variant.name(error))).is_some() {
                say(&format!("{}: {kind} {options:?}", variant.label));
            }
        }
    }
}

/// Waits for so many reports, and for others for a while. Returns all.
fn reports(running: &Running, count: usize) -> Result<String> {
    let started = Instant::now();
    let number = |text: &str| text.matches("raddle: process").count();
    loop {
        let text = running.stderr_so_far();
        if number(&text) >= count {
            break;
        }
        ensure!(started.elapsed() < PATIENCE, "too few reports: {text}");
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(WHILE);
    let text = running.stderr_so_far();
    ensure!(number(&text) == count, "{} reports\n{text}", number(&text));
    Ok(text)
}

fn waits(text: &str, threads: &[&str]) -> Result<()> {
    for thread in threads {
        let wait = format!("\"{thread}\" waits for: ");
        ensure!(text.contains(&wait), "no {wait}\n{text}");
    }
    let count = threads.len();
    let headline = format!("deadlock 1: {count} threads, each of which waits for the next");
    ensure!(text.contains(&headline), "{text}");
    Ok(())
}

#[test]
fn a_watch_reports_a_cycle_with_a_lock_of_java_once() {
    let name = "java_watch::a_watch_reports_a_cycle_with_a_lock_of_java_once";
    let cases = [
        deadlocks("monitors"),
        deadlocks("synchronizers"),
        deadlocks("jni"),
        watched("locks"),
        watched("shared"),
        watched("moving"),
    ];
    with_java(name, &cases, |running| {
        waits(&reports(running, 1)?, &["first", "second"])
    });
}

#[test]
fn a_watch_reports_all_of_a_ring_and_those_behind() {
    let name = "java_watch::a_watch_reports_all_of_a_ring_and_those_behind";
    with_java(name, &[watched("three")], |running| {
        let text = reports(running, 1)?;
        ensure!(text.contains("1 other thread behind"), "{text}");
        waits(&text, &["first", "second", "third"])
    });
}

/// Without its attach service, a virtual machine has the owners of monitors in its memory.
#[test]
fn a_watch_reports_monitors_of_a_machine_that_is_not_asked() {
    let name = "java_watch::a_watch_reports_monitors_of_a_machine_that_is_not_asked";
    let silent = Case {
        options: &["-XX:+DisableAttachMechanism"],
        ..deadlocks("monitors")
    };
    with_java(name, &[silent], |running| {
        let text = reports(running, 1)?;
        ensure!(text.contains("Java monitor 0x"), "{text}");
        waits(&text, &["first", "second"])
    });
}

#[test]
fn a_watch_reports_a_later_deadlock_of_java_by_itself() {
    let name = "java_watch::a_watch_reports_a_later_deadlock_of_java_by_itself";
    with_java(name, &[watched("second")], |running| {
        let text = reports(running, 2)?;
        let (first, later) = text.split_once("\nraddle: process").context("one report")?;
        waits(first, &["first", "second"])?;
        waits(later, &["third", "fourth"])
    });
}

/// Waits for what other threads will do, locks that change hands, and a cycle that a time limit
/// ends. Classes that initialise each other have no lock that says which class a thread waits for.
#[test]
fn a_watch_reports_no_waits_that_can_end() {
    let name = "java_watch::a_watch_reports_no_waits_that_can_end";
    let traffic = Case {
        version: 21,
        ..watched("virtual-traffic")
    };
    let cases = [
        deadlocks("healthy"),
        watched("contended"),
        watched("timed"),
        watched("resting"),
        watched("classes"),
        traffic,
    ];
    with_java(name, &cases, |running| {
        thread::sleep(WHILE);
        let text = running.stderr_so_far();
        ensure!(!text.contains("raddle: process"), "{text}");
        Ok(())
    });
}

/// A process may end while it is looked at: its status and its output are its own.
#[test]
fn a_watched_machine_ends_as_others_do() {
    let name = "java_watch::a_watched_machine_ends_as_others_do";
    let programs = || on_every_jdk(Program::build("Watched.java")?);
    let Some(programs) = or_skip(name, programs()) else {
        return;
    };
    for (variant, _) in programs {
        let mode = Mode::Raddle { carriers: 2 };
        let one = |milliseconds: u32| -> Result<()> {
            let mut line = variant.command.clone();
            line.extend(["ending".into(), milliseconds.to_string().into()]);
            let mut command = mode.command(&line)?;
            command.env("RADDLE_WATCH_DEADLOCKS", "10");
            let outcome = Running::start(mode, command, None)?.wait(PATIENCE)?;
            ensure!(status_number(outcome.status) == 7, "{outcome:?}");
            Ok(())
        };
        for milliseconds in (0..240).step_by(30) {
            or_skip(name, one(milliseconds).map_err(|error| variant.name(error)));
        }
    }
}
