//! `raddle dump`: the stacks of all threads, read from outside.

use std::ffi::OsString;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle};
use serde_json::Value;

/// Calls `test` with the program once it says that it is ready, at each number of carriers.
fn with_program(
    name: &str,
    source: &str,
    arguments: &[&str],
    test: impl Fn(&Running) -> Result<()>,
) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = Program::build(source)?;
        let [variant] = program.variants.as_slice() else {
            bail!("{source} is one program");
        };
        let mut line = variant.command.clone();
        line.extend(arguments.iter().map(OsString::from));
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&running)
    });
}

fn dump(running: &Running, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command
        .arg("dump")
        .arg(running.pid().to_string())
        .args(arguments);
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

fn dump_text(running: &Running, arguments: &[&str]) -> Result<String> {
    Ok(String::from_utf8(dump(running, arguments)?.stdout)?)
}

fn dump_json(running: &Running, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["--json"], arguments].concat();
    Ok(serde_json::from_slice(&dump(running, &arguments)?.stdout)?)
}

fn list<'a>(value: &'a Value, field: &str) -> Result<&'a [Value]> {
    let list = value[field].as_array();
    Ok(list.with_context(|| format!("no list {field}"))?)
}

/// The names of the functions on a thread's stack, from the inside out, and how many frames are
/// guessed.
fn functions(document: &Value, thread: &Value) -> Result<(Vec<String>, u64)> {
    let number = thread["stack"]
        .as_u64()
        .with_context(|| format!("no stack: {thread}"))?;
    let stack = &list(document, "stacks")?[number as usize];
    let mut names = Vec::new();
    for frame in list(stack, "frames")? {
        for function in list(frame, "functions")? {
            names.push(function["name"].as_str().unwrap_or_default().to_owned());
        }
    }
    let guessed = stack["guessed"].as_u64().context("how many are guessed")?;
    Ok((names, guessed))
}

/// Checks that every thread of `document` with a name that begins so has these functions on its
/// stack, the innermost first, and no guessed frame. Returns how many threads there are.
fn check(document: &Value, name: &str, wanted: &[&str]) -> Result<usize> {
    let threads = list(document, "threads")?.iter();
    let is_it = |thread: &&Value| {
        thread["name"]
            .as_str()
            .is_some_and(|it| it.starts_with(name))
    };
    let mut count = 0;
    for thread in threads.filter(is_it) {
        let (found, guessed) = functions(document, thread)?;
        let mut rest = found.iter();
        for wanted in wanted {
            let is_there = rest.any(|found| found.contains(wanted));
            ensure!(is_there, "{wanted} is missing in {name}: {found:#?}");
        }
        ensure!(
            guessed == 0,
            "{guessed} guessed frames in {name}: {found:#?}"
        );
        count += 1;
    }
    Ok(count)
}

const WAITS: [(&str, &[&str]); 4] = [
    (
        "condition-",
        &[
            "pthread_cond_wait",
            "wait_for_condition",
            "descend",
            "start_thread",
        ],
    ),
    (
        "pipe-",
        &["read", "wait_for_pipe", "descend", "start_thread"],
    ),
    (
        "semaphore-",
        &["sem_wait", "wait_for_semaphore", "descend", "start_thread"],
    ),
    (
        "sleeper-",
        &["sleep", "sleep_long", "descend", "start_thread"],
    ),
];

fn check_parked(name: &str, source: &str) {
    with_program(name, source, &["10"], |running| {
        let document = dump_json(running, &["--stacks"])?;
        ensure!(list(&document, "threads")?.len() == 41);
        for (name, wanted) in WAITS {
            let count = check(&document, name, wanted)?;
            ensure!(count == 10, "{count} threads {name}");
        }
        Ok(())
    });
}

#[test]
fn parked_threads_of_a_c_program_have_whole_stacks() {
    let name = "stacks::parked_threads_of_a_c_program_have_whole_stacks";
    check_parked(name, "deep_stacks.c");
}

#[test]
fn parked_threads_with_frame_pointers_have_whole_stacks() {
    let name = "stacks::parked_threads_with_frame_pointers_have_whole_stacks";
    check_parked(name, "frame_pointers.c");
}

#[test]
fn equal_stacks_are_shown_once() {
    let name = "stacks::equal_stacks_are_shown_once";
    with_program(name, "deep_stacks.c", &["20"], |running| {
        let text = dump_text(running, &[])?;
        ensure!(
            text.contains("20 threads \"pipe-*\": waiting fd_read"),
            "{text}"
        );
        ensure!(text.matches("wait_for_pipe").count() == 1, "{text}");
        let each = dump_text(running, &["--no-group", "--name", "pipe-*"])?;
        ensure!(each.matches("wait_for_pipe").count() == 20, "{each}");
        let none = dump_text(running, &["--no-stacks"])?;
        ensure!(!none.contains("wait_for_pipe"), "{none}");
        Ok(())
    });
}
