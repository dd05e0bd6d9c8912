//! `raddle gdb`: green threads in a live process and in a core of the kernel.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, find_tool, in_every_mode, raddle};

fn program(source: &str) -> Result<PathBuf> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    Ok(PathBuf::from(&variant.command[0]))
}

/// `raddle gdb` without debuginfod, which would ask the network.
fn gdb<S: AsRef<OsStr>>(commands: &[&str], rest: &[S]) -> Result<Output> {
    find_tool("gdb")?;
    let mut command = Command::new(raddle()?);
    command.args(["gdb", "--batch", "--ex", "set debuginfod enabled off"]);
    for line in commands {
        command.args(["--ex", line]);
    }
    Ok(command.args(rest).output()?)
}

/// The output. gdb 13 was seen to report a SIGSTOP of a kernel thread at the start of a program on
/// a busy machine; the cause isn't known. Then all is done once more.
fn gdb_text<S: AsRef<OsStr>>(commands: &[&str], rest: &[S]) -> Result<String> {
    const TRIES: u32 = 4;
    let mut text = String::new();
    for _ in 0..TRIES {
        let output = gdb(commands, rest)?;
        text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !text.contains("received signal SIGSTOP") {
            break;
        }
    }
    Ok(text)
}

/// Checks that the texts are in this order.
fn ensure_order(text: &str, wanted: &[&str]) -> Result<()> {
    let mut rest = text;
    for wanted in wanted {
        let at = rest.find(wanted);
        rest = &rest[at.with_context(|| format!("no {wanted} in its place in\n{text}"))?..];
    }
    Ok(())
}

/// Calls `test` with twenty parked threads of core_threads.c.
fn with_workers(name: &str, test: impl Fn(&Running) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let line = [program("core_threads.c")?.into_os_string(), "20".into()];
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&running)
    });
}

#[test]
fn parked_threads_of_a_process_are_listed_and_selected() {
    let name = "gdb::parked_threads_of_a_process_are_listed_and_selected";
    with_workers(name, |running| {
        let pid = running.pid().to_string();
        let commands = [
            "info threads",
            "echo --selected\\n",
            "raddle thread worker-7",
            "bt",
            "raddle frame worker",
            "info locals",
            "up",
            "raddle thread",
            "echo --all\\n",
            "thread apply all bt",
            "echo --applied\\n",
            "raddle apply worker-3 print $_raddle_name()",
        ];
        let text = gdb_text(&commands, &[&pid])?;
        let listed = text.split("--selected").next().unwrap_or_default();
        ensure!(
            listed.matches("\" waiting condvar 0x").count() == 20,
            "{text}"
        );
        ensure_order(
            &text,
            &[
                "[Green thread #",
                "\"worker-7\" waiting condvar",
                "pthread_cond_wait (",
                "worker (number=",
                "start_thread (",
                "twice = 14",
                "begin (",
                "--applied",
                "\"worker-3\"",
            ],
        )?;
        let all = text.split("--all").nth(1).unwrap_or_default();
        ensure!(all.matches(" worker (number=").count() == 20, "{text}");
        // Nothing has changed in the process, which goes on.
        ensure!(!running.has_ended_within(Duration::from_millis(100))?);
        let again = gdb_text(&["raddle bt all"], &[&pid])?;
        ensure!(again.matches(" worker (number=").count() == 20, "{again}");
        Ok(())
    });
}

#[test]
fn a_green_thread_is_followed_from_carrier_to_carrier() {
    let name = "gdb::a_green_thread_is_followed_from_carrier_to_carrier";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = program("stepped.c")?;
        let commands = [
            "break give_and_take if number == 2",
            "run",
            "delete",
            "echo --wait\\n",
            "raddle next",
            "raddle next",
            "print number",
            "print $_raddle_name()",
            "echo --watch\\n",
            "watch watched",
            "continue",
            "delete",
            "echo --finish\\n",
            "raddle thread taker-1",
            "raddle frame give_and_take",
            "raddle finish",
            "print (long)argument",
            "continue",
        ];
        for carriers in ["1", "2"] {
            let rest = [
                OsStr::new("-n"),
                OsStr::new(carriers),
                program.as_os_str(),
                "300".as_ref(),
            ];
            let text = gdb_text(&commands, &rest)?;
            ensure_order(
                &text,
                &[
                    "hit Breakpoint 1, give_and_take (number=number@entry=2)",
                    "--wait",
                    "give_and_take (number=",
                    "give_and_take (number=",
                    "$1 = 2",
                    "$2 = \"taker-2\"",
                    "--watch",
                    "New value = ",
                    "--finish",
                    "[Green thread #",
                    "\"taker-1\"",
                    "begin (argument=0x1)",
                    "$3 = 1",
                    "1200 turns",
                    "exited normally",
                ],
            )?;
        }
        Ok(())
    });
}

#[test]
fn a_thread_is_stepped_while_others_are_held() {
    let name = "gdb::a_thread_is_stepped_while_others_are_held";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = program("stepped.c")?;
        let commands = [
            "break stepped.c:21",
            "run",
            "delete",
            "set scheduler-locking on",
            "print after",
            "next",
            "print watched - after",
            "set scheduler-locking off",
            "continue",
        ];
        let rest = [program.as_os_str(), "100".as_ref()];
        let text = gdb_text(&commands, &rest)?;
        ensure_order(
            &text,
            &["hit Breakpoint 1", "$1 = 0", "$2 = 1", "400 turns"],
        )
    });
}

#[test]
fn an_interrupted_thread_has_its_stack_at_each_instruction_of_the_ways_back() {
    const PLACES: [(&str, usize); 5] = [
        ("raddle_signal_handler", 2),
        ("raddle_signal_restorer", 2),
        ("raddle_enter_handler", 3),
        ("raddle_handler_returned", 4),
        ("raddle_signal_arrived", 2),
    ];
    let name = "gdb::an_interrupted_thread_has_its_stack_at_each_instruction_of_the_ways_back";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let program = program("interrupted.c")?;
        let mut commands = vec![
            "break compute".to_owned(),
            "run".to_owned(),
            "delete".to_owned(),
        ];
        commands.push("set scheduler-locking step".to_owned());
        commands.push("set language c".to_owned());
        for (place, count) in PLACES {
            commands.push(format!("tbreak *&{place}"));
            commands.push("continue".to_owned());
            for _ in 0..count {
                commands.push(format!("echo --{place}\\n"));
                commands.push("bt".to_owned());
                commands.push("stepi".to_owned());
            }
        }
        commands.push("kill".to_owned());
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let text = gdb_text(&commands, &[program.as_os_str()])?;
        let stacks: Vec<_> = text.split("--raddle_").skip(1).collect();
        let outermost = [" clone3 (", " main (", " carrier_main ("];
        let whole = |stack: &&str| outermost.iter().any(|name| stack.contains(name));
        ensure!(stacks.len() == 13 && stacks.iter().all(whole), "{text}");
        Ok(())
    });
}

#[test]
fn what_can_not_be_debugged_is_refused() {
    let name = "gdb::what_can_not_be_debugged_is_refused";
    in_every_mode(name, |mode| {
        let _ = mode;
        let mut ended = Command::new("true").spawn()?;
        ended.wait()?;
        for (pid, says) in [
            (ended.id(), "there is no process"),
            (std::process::id(), "does not run under raddle"),
        ] {
            let output = gdb(&[], &[pid.to_string()])?;
            let sentence = String::from_utf8(output.stderr)?;
            ensure!(
                output.status.code() == Some(2) && sentence.contains(says),
                "{sentence}"
            );
        }
        let mut without = Command::new(raddle()?);
        let output = without
            .args(["gdb", "/bin/true"])
            .env("PATH", "/nowhere")
            .output()?;
        let sentence = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(127), "{sentence}");
        ensure!(sentence.contains("gdb can't be started"), "{sentence}");
        Ok(())
    });
}
