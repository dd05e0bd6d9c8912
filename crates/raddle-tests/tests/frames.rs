//! `raddle dump` of a Java program with known chains of methods: the dump has exactly these, in
//! every way in which the virtual machine executes code.

use std::ffi::OsString;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::chains::{Chain, Chains, said, written};
use raddle_tests::{Mode, Program, Running, list, on_every_jdk, or_skip, raddle, say};
use serde_json::Value;

const MODE: Mode = Mode::Raddle { carriers: 2 };
const PATIENCE: Duration = Duration::from_secs(120);
/// How many threads the program has.
const THREADS: usize = 18;

/// Programs see what the virtual machine hides from them otherwise, and thread dumps have: classes
/// that it makes, and methods that are marked so.
const SHOWN: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+ShowHiddenFrames"];

/// The chains that a dump has of these threads. No stack has a guessed frame.
fn read(running: &Running, names: &Chains, arguments: &[&str]) -> Result<Chains> {
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(running.pid().to_string());
    let output = command
        .args(["--json", "--stacks"])
        .args(arguments)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let mut chains = Chains::new();
    for thread in list(&document, "threads")? {
        let name = thread["name"].as_str().unwrap_or("");
        if !names.contains_key(name) {
            continue;
        }
        let number = thread["stack"].as_u64().context("no stack")?;
        let stack = &list(&document, "stacks")?[number as usize];
        ensure!(
            stack["guessed"] == 0,
            "{name} has guessed frames: {stack:#}"
        );
        ensure!(
            list(stack, "managed")?.is_empty(),
            "{name}: not placed: {stack:#}"
        );
        let mut chain = Chain::new();
        for frame in list(stack, "frames")? {
            // Stubs of the virtual machine are no methods.
            let methods = list(frame, "managed")?.iter();
            let methods = methods.filter(|it| it["language"] == "java");
            chain.extend(methods.map(method));
        }
        let before = chains.insert(name.to_owned(), chain);
        ensure!(before.is_none(), "two threads {name}");
    }
    Ok(chains)
}

fn method(managed: &Value) -> String {
    let name = managed["name"].as_str().unwrap_or("?");
    let name = name.rsplit("//").next().unwrap_or(name);
    let line = match (managed["line"].as_i64(), managed["file"].as_str()) {
        (Some(line), _) => line,
        (None, Some("Native Method")) => -2,
        _ => -1,
    };
    format!("{name}:{line}")
}

/// Compares the chain of each thread with what the virtual machine says, and its part that is
/// the program's own with what is written.
fn compare(found: &Chains, said: &Chains, written: &Chains) -> Result<usize> {
    let mut all = 0;
    for (thread, said) in said {
        let found = found
            .get(thread)
            .with_context(|| format!("no thread {thread}"))?;
        ensure!(found == said, "{thread}: {found:#?} and not {said:#?}");
        all += found.len();
        let Some(written) = written.get(thread) else {
            continue;
        };
        // Without the threads' common begin and end, and classes that the virtual machine makes.
        let is_own = |method: &&String| {
            let others = ["Frames.lambda$start$", "Frames.forEver:", "Frames$$"];
            method.starts_with("Frames") && !others.iter().any(|it| method.starts_with(it))
        };
        let own: Vec<_> = found.iter().filter(is_own).collect();
        let is_it = |(own, written): (&&String, &String)| match written.split_once("$:") {
            // The compiler numbers lambdas.
            Some((start, line)) => own.starts_with(start) && own.ends_with(&format!(":{line}")),
            None => *own == written,
        };
        let same = own.iter().zip(written).filter(|(own, it)| is_it((own, it)));
        let is_whole = same.count() == written.len() && own.len() == written.len();
        ensure!(is_whole, "{thread}: {own:#?} and not {written:#?}");
    }
    Ok(all)
}

fn start(line: &[OsString]) -> Result<Running> {
    let running = Running::start(MODE, MODE.command(line)?, None)?;
    let started = Instant::now();
    while !running.stdout_so_far().ends_with("\nready\n") {
        ensure!(
            started.elapsed() < PATIENCE,
            "never ready: {} {}",
            running.stdout_so_far(),
            running.stderr_so_far()
        );
        thread::sleep(Duration::from_millis(10));
    }
    Ok(running)
}

fn check(line: &[OsString], written: &Chains) -> Result<usize> {
    let running = start(line)?;
    let said = said(&running.stdout_so_far());
    ensure!(said.len() == THREADS, "{} threads", said.len());
    let count = compare(&read(&running, &said, &["--no-attach"])?, &said, written)?;
    compare(&read(&running, &said, &[])?, &said, written)?;
    Ok(count)
}

/// Runs the program on each JDK with each of these sets of switches.
fn with_switches(test: &str, sets: &[&[&str]]) {
    let programs = || -> Result<_> {
        let program = Program::build("Frames.java")?;
        let variants = on_every_jdk(program)?.into_iter();
        Ok((
            variants.map(|(variant, jdk)| (variant, jdk.version)),
            written("Frames.java")?,
        ))
    };
    let Some((variants, written)) = or_skip(test, programs()) else {
        return;
    };
    for (variant, version) in variants {
        for switches in sets {
            let mut line = variant.command.clone();
            line.splice(1..1, SHOWN.iter().chain(*switches).map(OsString::from));
            let outcome = check(&line, &written);
            let outcome = outcome.with_context(|| format!("java {version} {switches:?}"));
            if let Some(count) = or_skip(test, outcome) {
                say(&format!("java {version} {switches:?}: {count} frames"));
            }
        }
    }
}

#[test]
fn chains_of_methods_are_exact_as_the_virtual_machine_chooses() {
    let test = "frames::chains_of_methods_are_exact_as_the_virtual_machine_chooses";
    with_switches(test, &[&[]]);
}

#[test]
fn chains_of_interpreted_methods_are_exact() {
    with_switches(
        "frames::chains_of_interpreted_methods_are_exact",
        &[&["-Xint"]],
    );
}

#[test]
fn chains_of_methods_of_either_compiler_are_exact() {
    let test = "frames::chains_of_methods_of_either_compiler_are_exact";
    with_switches(
        test,
        &[&["-XX:TieredStopAtLevel=1"], &["-XX:-TieredCompilation"]],
    );
}

/// What dumps have of threads that execute: how many threads were seen, how many stacks there were,
/// and how many of these had guessed frames.
fn executing(running: &Running) -> Result<[usize; 3]> {
    const CHAIN: [&str; 3] = ["Frames.mix", "Frames.chew", "Frames.computes"];
    let [mut seen, mut with_stack, mut guessed] = [0; 3];
    for _ in 0..10 {
        let mut command = Command::new(raddle()?);
        command.arg("dump").arg(running.pid().to_string());
        let output = command
            .args(["--json", "--stacks", "--no-attach"])
            .output()?;
        let document: Value = serde_json::from_slice(&output.stdout)?;
        let is_it = |it: &&Value| {
            it["name"]
                .as_str()
                .is_some_and(|it| it.starts_with("compute-"))
        };
        for thread in list(&document, "threads")?.iter().filter(is_it) {
            seen += 1;
            let Some(number) = thread["stack"].as_u64() else {
                continue;
            };
            let stack = &list(&document, "stacks")?[number as usize];
            let mut names = Vec::new();
            for frame in list(stack, "frames")? {
                let managed = list(frame, "managed")?.iter();
                let managed = managed.filter(|it| it["language"] == "java");
                names.extend(managed.filter_map(|it| it["name"].as_str()));
            }
            with_stack += 1;
            guessed += usize::from(stack["guessed"] != 0);
            let is_own = |name: &&&str| name.starts_with("Frames.") && !name.contains('$');
            let own: Vec<&str> = names.iter().filter(is_own).copied().collect();
            let is_right = !own.is_empty() && CHAIN.ends_with(&own);
            let is_whole = names.last() == Some(&"java.lang.Thread.run");
            ensure!(
                is_right && is_whole || stack["guessed"] != 0,
                "{names:?} {stack:#}"
            );
        }
    }
    Ok([seen, with_stack, guessed])
}

/// Compiled code calls routines for copies of arrays and sines, which say nothing of their frames.
#[test]
fn chains_of_threads_that_execute_are_exact() {
    let test = "frames::chains_of_threads_that_execute_are_exact";
    let Some(program) = or_skip(test, Program::build("Frames.java")) else {
        return;
    };
    for mut variant in program.variants {
        variant.command.push("4".into());
        let one = || -> Result<()> {
            let running = start(&variant.command)?;
            // The compilers have time for what is executed most.
            thread::sleep(Duration::from_secs(2));
            let [seen, with_stack, guessed] = executing(&running)?;
            say(&format!(
                "{}: {seen} threads, {with_stack} stacks, {guessed} guessed",
                variant.label
            ));
            ensure!(seen == 40 && with_stack * 2 > seen, "{seen} {with_stack}");
            ensure!(guessed * 10 <= with_stack, "{guessed} of {with_stack}");
            Ok(())
        };
        or_skip(test, one().map_err(|error| variant.name(error)));
    }
}
