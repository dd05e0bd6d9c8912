//! `raddle dump` of a Java program with virtual threads, from JDK 21 on: those on carriers have
//! exactly the chains that the virtual machine says, and locks that others hold in the heap are no
//! deadlocks.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::chains::{Chain, Chains, said, written};
use raddle_tests::{Mode, Program, RunFolder, Running, list, on_every_jdk, or_skip, raddle, say};
use serde_json::Value;

const MODE: Mode = Mode::Raddle { carriers: 2 };
const PATIENCE: Duration = Duration::from_secs(120);
/// The first release with virtual threads that are no preview.
const FIRST: u32 = 21;
/// The virtual threads that stay on carriers.
const MOUNTED: [&str; 4] = ["initializer", "loader", "compiled", "moved"];
/// The one of which the outer frames are in the heap.
const MOVED: &str = "moved";
/// Virtual threads that wait in the heap.
const PARKED: usize = 100;
/// As in `frames.rs`; and carriers enough for all that stay on one.
const SWITCHES: [&str; 3] = [
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:+ShowHiddenFrames",
    "-Djdk.virtualThreadScheduler.parallelism=8",
];

fn dump(running: &Running, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(running.pid().to_string());
    Ok(command.args(arguments).output()?)
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

/// The methods on a stack, and the position of the one behind which further ones are in the heap.
fn methods(stack: &Value) -> Result<(Chain, Option<usize>)> {
    let (mut chain, mut cut) = (Chain::new(), None);
    for frame in list(stack, "frames")? {
        for managed in list(frame, "managed")? {
            if managed["language"] != "java" {
                continue;
            }
            let notes = list(managed, "notes")?;
            if notes.iter().any(|it| it.to_string().contains("heap")) {
                cut = Some(chain.len());
            }
            chain.push(method(managed));
        }
    }
    Ok((chain, cut))
}

/// Compares the carrier that has a virtual thread with what the virtual machine says of it.
fn compare(stacks: &[Value], name: &str, said: &Chain, written: &Chain) -> Result<usize> {
    let outermost = said
        .iter()
        .position(|it| it.starts_with("jdk.internal.vm.Continuation.enterSpecial"));
    let said = &said[..outermost.unwrap_or(said.len())];
    let first = written.first().context("no chain is written")?;
    let mut found = stacks.iter().filter_map(|stack| {
        let (chain, cut) = methods(stack).ok()?;
        chain.contains(first).then_some((stack, chain, cut))
    });
    let (stack, chain, cut) = found.next().with_context(|| format!("no thread {name}"))?;
    ensure!(found.next().is_none(), "two threads {name}");
    ensure!(
        stack["guessed"] == 0,
        "{name} has guessed frames: {stack:#}"
    );
    ensure!(
        list(stack, "managed")?.is_empty(),
        "{name}: not placed: {stack:#}"
    );
    let length = cut.map_or(said.len(), |cut| cut + 1);
    ensure!(
        cut.is_some() == (name == MOVED),
        "{name}: {cut:?} {chain:#?}"
    );
    let is_same = length <= said.len() && chain[..length] == said[..length];
    ensure!(is_same, "{name}: {chain:#?} and not {said:#?}");
    // Behind the virtual thread are the carrier's own frames.
    let rest = &chain[length..];
    let is_carrier = rest[0].starts_with("jdk.internal.vm.Continuation.enterSpecial")
        && rest[1].starts_with("jdk.internal.vm.Continuation.run")
        && rest[rest.len() - 1].starts_with("java.util.concurrent.ForkJoinWorkerThread.run");
    ensure!(is_carrier, "{name}: {rest:#?}");
    let own = chain.iter().filter(|it| written.contains(it));
    ensure!(own.eq(written), "{name}: {chain:#?} and not {written:#?}");
    Ok(length)
}

/// The virtual threads in the heap are what the virtual machine knows.
fn check_parked(running: &Running, jdk: &Path, document: &Value) -> Result<()> {
    let threads = list(document, "threads")?;
    let is_parked = |it: &&Value| it["name"].as_str().is_some_and(|it| it.contains("parked"));
    ensure!(threads.iter().filter(is_parked).count() == 0);
    let folder = RunFolder::new("virtual_threads")?;
    let file = folder.path().join("threads.txt");
    let mut command = Command::new(jdk.with_file_name("jcmd"));
    command.arg(running.pid().to_string());
    let output = command.arg("Thread.dump_to_file").arg(&file).output()?;
    ensure!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&file)?;
    let found = text.matches("\"parked-").count();
    ensure!(found == PARKED, "{found} of {PARKED}: {text}");
    Ok(())
}

fn check(line: &[OsString], jdk: &Path, written: &Chains) -> Result<usize> {
    let running = Running::start(MODE, MODE.command(line)?, None)?;
    let started = Instant::now();
    while !running.stdout_so_far().ends_with("\nready\n") {
        let so_far = [running.stdout_so_far(), running.stderr_so_far()];
        ensure!(started.elapsed() < PATIENCE, "never ready: {so_far:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = said(&running.stdout_so_far());
    ensure!(said.keys().eq(written.keys()), "{:?}", said.keys());
    let mut count = 0;
    for arguments in [&["--no-attach"][..], &[]] {
        let output = dump(&running, &[&["--json", "--stacks"], arguments].concat())?;
        ensure!(output.status.success(), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout)?;
        count = 0;
        for name in MOUNTED {
            count += compare(
                list(&document, "stacks")?,
                name,
                &said[name],
                &written[name],
            )?;
        }
        check_parked(&running, jdk, &document)?;
    }
    for _ in 0..5 {
        let output = dump(&running, &["--deadlocks"])?;
        ensure!(output.status.success(), "a false deadlock: {output:?}");
    }
    Ok(count)
}

#[test]
fn those_on_carriers_are_exact_and_no_others_are_shown() {
    let test = "virtual_threads::those_on_carriers_are_exact_and_no_others_are_shown";
    let programs = || -> Result<_> {
        let program = Program::build("Virtual.java")?;
        Ok((on_every_jdk(program)?.into_iter(), written("Virtual.java")?))
    };
    let Some((variants, written)) = or_skip(test, programs()) else {
        return;
    };
    for (variant, jdk) in variants.filter(|(_, jdk)| jdk.version >= FIRST) {
        let mut line = variant.command.clone();
        line.splice(1..1, SWITCHES.map(OsString::from));
        let java: PathBuf = jdk.java;
        let outcome = check(&line, &java, &written);
        let outcome = outcome.with_context(|| format!("java {}", jdk.version));
        if let Some(count) = or_skip(test, outcome) {
            say(&format!("java {}: {count} frames", jdk.version));
        }
    }
}
