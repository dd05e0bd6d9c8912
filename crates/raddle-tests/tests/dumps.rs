//! `raddle dump`: how it ends and what it says where not all can be shown, and the stacks of
//! threads that execute.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, list, raddle, say};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn command_line(source: &str) -> Result<Vec<OsString>> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    Ok(variant.command.clone())
}

/// Calls `test` with the program once it says that it is ready, at each number of carriers.
fn with_program(name: &str, source: &str, test: impl Fn(&Running) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let running = Running::start(mode, mode.command(&command_line(source)?)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&running)
    });
}

fn dump_command(pid: u32, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(pid.to_string()).args(arguments);
    Ok(command)
}

fn dump(pid: u32, arguments: &[&str]) -> Result<Output> {
    Ok(dump_command(pid, arguments)?.output()?)
}

fn dump_json(pid: u32) -> Result<Value> {
    let output = dump(pid, &["--json", "--stacks"])?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Checks that a dump fails with one sentence, and shows nothing.
fn ensure_refused(output: &Output, status: i32, sentence: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(status), "{output:?}");
    ensure!(output.stdout.is_empty(), "{output:?}");
    ensure!(
        said.lines().count() == 1 && said.contains(sentence),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_thread_that_is_not_there_is_one_sentence() {
    let name = "dumps::a_thread_that_is_not_there_is_one_sentence";
    with_program(name, "too_deep.c", |running| {
        for more in ["--stacks", "--no-stacks", "--json"] {
            let output = dump(running.pid(), &["--tid", "1", more])?;
            ensure_refused(&output, 2, "has no such thread: 1")?;
        }
        Ok(())
    });
}

#[test]
fn a_closed_output_is_told_by_the_status_alone() {
    let name = "dumps::a_closed_output_is_told_by_the_status_alone";
    with_program(name, "too_deep.c", |running| {
        for more in ["--stacks", "--no-stacks", "--json"] {
            let (reader, writer) = std::io::pipe()?;
            drop(reader);
            let mut command = dump_command(running.pid(), &[more])?;
            let child = command.stdout(writer).stderr(Stdio::piped()).spawn()?;
            let output = child.wait_with_output()?;
            ensure!(output.status.code() == Some(1), "{output:?}");
            ensure!(output.stderr.is_empty(), "{output:?}");
        }
        Ok(())
    });
}

#[test]
fn a_stack_that_is_cut_says_so() {
    let name = "dumps::a_stack_that_is_cut_says_so";
    with_program(name, "too_deep.c", |running| {
        let text = String::from_utf8(dump(running.pid(), &["--name", "deep"])?.stdout)?;
        ensure!(text.ends_with("(cut: there are more frames)\n"), "{text}");
        let text = String::from_utf8(dump(running.pid(), &[])?.stdout)?;
        ensure!(text.matches("(cut").count() == 1, "{text}");
        Ok(())
    });
}

#[test]
fn a_process_that_executes_another_program_is_one_sentence() {
    let name = "dumps::a_process_that_executes_another_program_is_one_sentence";
    with_program(name, "executes_itself.c", |running| {
        let begun = Instant::now();
        loop {
            ensure!(begun.elapsed() < LIMIT, "no dump met an execution");
            let output = dump(running.pid(), &[])?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
            ensure!(
                said.lines().count() <= 1 && !said.contains("panicked"),
                "{said}"
            );
            if said.contains("has executed another program meanwhile") {
                return ensure_refused(&output, 2, "try again");
            }
        }
    });
}

/// A thread in `vfork` waits in the kernel, and its child writes over the stack that both share.
#[test]
fn threads_that_lend_their_memory_have_true_stacks() {
    let name = "dumps::threads_that_lend_their_memory_have_true_stacks";
    with_program(name, "lent_memory.c", |running| {
        let document = dump_json(running.pid())?;
        let threads = list(&document, "threads")?;
        // libc ends its unwind table before the call in `clone`.
        for (name, wanted, is_exact) in [
            (
                "by-vfork",
                &["vfork", "lend_by_vfork", "lend", "start_thread"][..],
                true,
            ),
            (
                "by-clone",
                &["clone", "lend_by_clone", "lend", "start_thread"],
                false,
            ),
        ] {
            let thread = threads.iter().find(|it| it["name"] == name);
            let thread = thread.with_context(|| format!("no thread {name}"))?;
            ensure!(thread["stack_kind"] == "kernel", "{thread}");
            let number = thread["stack"].as_u64().context("a stack")?;
            let stack = &list(&document, "stacks")?[number as usize];
            ensure!(!is_exact || stack["guessed"] == 0, "{stack:#}");
            let frames = list(stack, "frames")?.iter();
            let own = frames.filter(|frame| frame["runtime"] == false);
            let functions = own.filter_map(|frame| frame["functions"].as_array());
            let names = functions.filter_map(|it| it.last()?["name"].as_str());
            let names: Vec<&str> = names.map(|it| it.trim_start_matches('_')).collect();
            // libc has several names for each of its functions.
            let plain = |name: &&str| {
                let plain = name.trim_start_matches("GI_").trim_start_matches('_');
                plain.trim_start_matches("libc_").to_owned()
            };
            let mut rest = names.iter().map(plain);
            let are_there = wanted.iter().all(|wanted| rest.any(|name| name == *wanted));
            ensure!(are_there && names.len() <= wanted.len() + 1, "{names:?}");
        }
        let output = dump(running.pid(), &[])?;
        let text = String::from_utf8(output.stdout)?;
        let waits = "(waits until its child, which has borrowed the memory, executes a program)";
        ensure!(text.matches(waits).count() == 2, "{text}");
        let child: u32 = running.stderr_so_far().trim().parse()?;
        let refused = dump(child, &[])?;
        ensure_refused(&refused, 2, "it borrows the memory of")
    });
}

#[test]
fn the_end_of_a_handler_is_no_code_of_the_runtime() {
    let name = "dumps::the_end_of_a_handler_is_no_code_of_the_runtime";
    with_program(name, "stack_kinds.c", |running| {
        let document = dump_json(running.pid())?;
        let mut ends = 0;
        for stack in list(&document, "stacks")? {
            for frame in list(stack, "frames")? {
                let is_end = frame["signal"] == true;
                ensure!(!is_end || frame["runtime"] == false, "{frame}");
                ends += u32::from(is_end);
            }
        }
        ensure!(ends != 0, "no handler waits");
        Ok(())
    });
}

/// Threads that compute are sampled; where the kernel permits no perf events, they say so.
#[test]
fn threads_that_execute_have_whole_stacks() {
    let name = "dumps::threads_that_execute_have_whole_stacks";
    with_program(name, "stack_kinds.c", |running| {
        let begun = Instant::now();
        let (mut sampled, mut cut) = (0, 0);
        while sampled < 3 {
            ensure!(begun.elapsed() < LIMIT, "{sampled} samples");
            let document = dump_json(running.pid())?;
            for thread in list(&document, "threads")? {
                if thread["stack_kind"] != "running" || thread["name"] != "computer" {
                    continue;
                }
                let Some(number) = thread["stack"].as_u64() else {
                    let missing = thread["stack_missing"].as_str().unwrap_or_default();
                    ensure!(missing.contains("no perf event"), "{thread}");
                    if fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")?.trim() > "2" {
                        say(&format!(
                            "skipped: {name}: the kernel permits no perf events"
                        ));
                        return Ok(());
                    }
                    continue;
                };
                let stack = &list(&document, "stacks")?[number as usize];
                let mut names = Vec::new();
                for frame in list(stack, "frames")? {
                    for function in list(frame, "functions")? {
                        names.push(function["name"].as_str().unwrap_or_default());
                    }
                }
                let rest = ["compute_inner", "compute", "start_thread"];
                let at = rest.map(|name| names.iter().position(|it| *it == name));
                // Samples that fall into the runtime's signal handler are taken again, a few times.
                if stack["end"] != "outermost" && cut < 2 {
                    cut += 1;
                    continue;
                }
                ensure!(at.is_sorted() && at[0].is_some(), "{names:?}");
                ensure!(
                    stack["guessed"] == 0 && stack["end"] == "outermost",
                    "{stack}"
                );
                sampled += 1;
            }
        }
        Ok(())
    });
}

/// A process in a PID namespace of its own: the process, and its number here.
fn start_in_namespace(mode: Mode, line: &[OsString]) -> Result<(Running, u32)> {
    let program = mode.command(line)?;
    let words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(program.get_program());
    command.args(program.get_args()).env("LC_ALL", "C");
    let running = Running::start(mode, command, None)?;
    running.wait_until_it_says("ready\n")?;
    let parent = running.pid();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok((running, children.trim().parse()?))
}

/// Two processes have the same id, each in its PID namespace, and one network namespace.
#[test]
fn processes_with_the_same_id_are_told_apart() {
    let name = "dumps::processes_with_the_same_id_are_told_apart";
    let words = ["--pid", "--fork", "--mount-proc", "true"];
    let permitted = Command::new("unshare").args(words).output();
    if !permitted.is_ok_and(|it| it.status.success()) {
        return say(&format!("skipped: {name}: no PID namespace can be made"));
    }
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let first = start_in_namespace(mode, &command_line("too_deep.c")?)?;
        let second = start_in_namespace(mode, &command_line("stack_kinds.c")?)?;
        for ((_, pid), thread) in [(&first, "\"deep\""), (&second, "\"computer\"")] {
            let output = dump(*pid, &[])?;
            let text = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.success() && text.contains(thread),
                "{output:?}"
            );
        }
        Ok(())
    });
}
