//! `raddle dump`: the stacks of all threads, read from outside.

mod schema;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, list, raddle};
use schema::conforms;
use serde_json::Value;

/// Calls `test` with the program once it says that it is ready, at each number of carriers.
fn with_program(
    name: &str,
    source: &str,
    arguments: &[&str],
    test: impl Fn(&Running) -> Result<()>,
) {
    with_variables(name, source, arguments, &[], test);
}

/// As [`with_program`], with more environment variables.
fn with_variables(
    name: &str,
    source: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
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
        let mut command = mode.command(&line)?;
        command.envs(variables.iter().copied());
        let running = Running::start(mode, command, None)?;
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

/// Checks that all threads of this name have a stack of this kind without guesses. Returns how many
/// there are.
fn check_kind(document: &Value, name: &str, kind: &str) -> Result<usize> {
    let threads = list(document, "threads")?.iter();
    let is_it = |thread: &&Value| thread["name"] == name && thread["stack_kind"] == kind;
    let mut count = 0;
    for thread in threads.filter(is_it) {
        let (found, guessed) = functions(document, thread)?;
        ensure!(
            guessed == 0,
            "{guessed} guessed frames in {name}: {found:#?}"
        );
        ensure!(
            found.last().is_some_and(|it| it.contains("clone")),
            "{found:#?}"
        );
        count += 1;
    }
    Ok(count)
}

#[test]
fn preempted_and_interrupted_threads_have_whole_stacks() {
    let name = "stacks::preempted_and_interrupted_threads_have_whole_stacks";
    with_program(name, "stack_kinds.c", &[], |running| {
        // Six compute; each one without a carrier was preempted.
        let mut preempted = 0;
        for _ in 0..10 {
            let document = dump_json(running, &["--stacks"])?;
            preempted += check_kind(&document, "computer", "preempted")?;
            for thread in list(&document, "threads")? {
                if thread["stack_kind"] == "preempted" {
                    let (found, _) = functions(&document, thread)?;
                    let is_there = |name: &str| found.iter().any(|it| it == name);
                    ensure!(
                        is_there("compute_inner") && is_there("compute"),
                        "{found:#?}"
                    );
                }
            }
        }
        ensure!(preempted >= 5, "{preempted} were preempted in ten dumps");
        let document = dump_json(running, &["--stacks"])?;
        let interrupted = ["sleep", "wait_in_handler", "on_signal", "raise_it"];
        let own = [&interrupted[..], &["be_interrupted", "start_thread"]].concat();
        ensure!(check(&document, "interrupted", &own)? == 1);
        let other = [
            &interrupted[..],
            &["be_interrupted_elsewhere", "start_thread"],
        ]
        .concat();
        ensure!(check(&document, "alternate", &other)? == 1);
        let child = ["wait4", "wait_for_end", "wait_for_child", "start_thread"];
        ensure!(check(&document, "parent", &child)? == 1);
        let message = [
            "msgrcv",
            "wait_for_message",
            "wait_in_kernel",
            "start_thread",
        ];
        ensure!(check(&document, "kernel", &message)? == 1);
        Ok(())
    });
}

#[test]
fn handlers_that_compute_on_alternate_stacks_have_whole_stacks() {
    let name = "stacks::handlers_that_compute_on_alternate_stacks_have_whole_stacks";
    with_program(name, "computing_handlers.c", &[], |running| {
        let own = [
            "compute_in_handler",
            "on_signal",
            "raise_it",
            "be_interrupted",
            "start_thread",
        ];
        for name in ["above", "below"] {
            // A carrier that gets no CPU for long has no sample.
            let whole = || check(&dump_json(running, &["--stacks"])?, name, &own);
            let found = (0..10).map(|_| whole()).reduce(|last, next| last.or(next));
            ensure!(matches!(found, Some(Ok(1))), "{name}: {found:?}");
        }
        Ok(())
    });
}

/// A bound thread waits in the kernel, which doesn't show its frame pointer.
#[test]
fn bound_threads_in_the_kernel_have_whole_stacks() {
    let name = "stacks::bound_threads_in_the_kernel_have_whole_stacks";
    let exclude = "name:kernel;name:parent;name:interrupted";
    let bound = [("RADDLE_EXCLUDE", exclude)];
    with_variables(name, "stack_kinds.c", &[], &bound, |running| {
        let document = dump_json(running, &["--stacks"])?;
        for name in ["kernel", "parent", "interrupted"] {
            ensure!(check_kind(&document, name, "kernel")? == 1, "{name}");
        }
        let text = dump_text(running, &["--name", "interrupted"])?;
        ensure!(text.contains("<signal handler called>"), "{text}");
        Ok(())
    });
}

#[test]
fn exceptions_and_inlined_functions_of_cpp_are_shown() {
    let name = "stacks::exceptions_and_inlined_functions_of_cpp_are_shown";
    with_program(name, "throwing.cc", &[], |running| {
        let document = dump_json(running, &["--stacks"])?;
        let unwound = ["wait_forever", "~Waits", "unwind_through", "start_thread"];
        ensure!(check(&document, "destructor", &unwound)? == 1);
        let caught = [
            "pthread_cond_wait",
            "wait_forever",
            "catch_and_wait",
            "start_thread",
        ];
        ensure!(check(&document, "catch", &caught)? == 1);
        let inlined = ["wait_forever", "operator()", "call_inlined", "wait_inlined"];
        ensure!(check(&document, "inlined", &inlined)? == 1);
        Ok(())
    });
}

#[test]
fn threads_of_rust_are_shown() {
    let name = "stacks::threads_of_rust_are_shown";
    with_program(name, "waiting_rust.rs", &[], |running| {
        let document = dump_json(running, &["--stacks"])?;
        for (name, wanted) in [
            ("lock", "wait_for_lock"),
            ("message", "wait_for_message"),
            ("condition", "wait_for_condition"),
        ] {
            ensure!(
                check(&document, name, &[wanted, "start_thread"])? == 1,
                "{name}"
            );
        }
        Ok(())
    });
}

#[test]
fn native_frames_of_python_are_shown() {
    let name = "stacks::native_frames_of_python_are_shown";
    with_program(name, "waiting_native.py", &[], |running| {
        let document = dump_json(running, &["--stacks"])?;
        let threads = list(&document, "threads")?;
        ensure!(threads.len() == 4, "{} threads", threads.len());
        for thread in threads {
            let (found, guessed) = functions(&document, thread)?;
            ensure!(
                guessed == 0 && found.len() > 5,
                "{guessed} guessed: {found:#?}"
            );
        }
        Ok(())
    });
}

/// The goal is a second; a machine that is shared gets more.
#[test]
fn ten_thousand_threads_are_read_in_a_moment() {
    const LIMIT: Duration = Duration::from_secs(10);
    let name = "stacks::ten_thousand_threads_are_read_in_a_moment";
    with_program(name, "deep_stacks.c", &["2500"], |running| {
        let started = Instant::now();
        let text = dump_text(running, &["--stacks"])?;
        let took = started.elapsed();
        ensure!(took < LIMIT, "{took:?}");
        ensure!(text.contains("2500 threads \"sleeper-*\""), "{text}");
        ensure!(text.lines().count() < 100, "{text}");
        let document = dump_json(running, &[])?;
        ensure!(list(&document, "threads")?.len() == 10_001);
        for (name, wanted) in WAITS {
            ensure!(check(&document, name, wanted)? == 2500, "{name}");
        }
        Ok(())
    });
}

/// Threads end, libraries go and children come while the stacks are read.
#[test]
fn what_changes_meanwhile_is_read_or_named() {
    let name = "stacks::what_changes_meanwhile_is_read_or_named";
    with_program(name, "passing.c", &[], |running| {
        for _ in 0..20 {
            let document = dump_json(running, &["--stacks"])?;
            for thread in list(&document, "threads")? {
                let has_stack = !thread["stack"].is_null();
                ensure!(has_stack != thread["stack_missing"].is_string(), "{thread}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_process_that_ends_meanwhile_is_one_sentence() {
    let name = "stacks::a_process_that_ends_meanwhile_is_one_sentence";
    with_program(name, "passing.c", &["150"], |running| {
        for _ in 0..200 {
            let mut command = Command::new(raddle()?);
            let output = command
                .arg("dump")
                .arg(running.pid().to_string())
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(matches!(output.status.code(), Some(0 | 2)), "{output:?}");
            ensure!(
                said.lines().count() <= 1 && !said.contains("panicked"),
                "{said}"
            );
            if output.status.code() == Some(2) && said.contains("no process") {
                return Ok(());
            }
        }
        bail!("it never ended")
    });
}

#[test]
fn filters_pick_threads() {
    let name = "stacks::filters_pick_threads";
    with_program(name, "deep_stacks.c", &["3"], |running| {
        let document = dump_json(running, &["--name", "pipe-*", "--state", "waiting"])?;
        let threads = list(&document, "threads")?;
        ensure!(threads.len() == 3, "{threads:#?}");
        let tid = threads[0]["tid"].to_string();
        for more in ["--stacks", "--no-stacks"] {
            let one = dump_json(running, &["--tid", &tid, more])?;
            ensure!(list(&one, "threads")?.len() == 1);
            ensure!(list(&one, "threads")?[0]["tid"] == threads[0]["tid"]);
        }
        let none = dump_json(running, &["--state", "exiting"])?;
        ensure!(list(&none, "threads")?.is_empty());
        Ok(())
    });
}

#[test]
fn the_json_document_is_as_its_schema_says() {
    let name = "stacks::the_json_document_is_as_its_schema_says";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dump.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    with_program(name, "stack_kinds.c", &[], |running| {
        for arguments in [&[][..], &["--no-stacks"], &["--cpu", "--interval", "0.1"]] {
            let document = dump_json(running, arguments)?;
            conforms(&document, &schema, &schema, "document")?;
        }
        let document = dump_json(running, &[])?;
        ensure!(document["stacks"].is_array() && document["stacks_missing"].is_null());
        Ok(())
    });
}

/// Makes the command's kernel refuse `process_vm_readv`, as a container's filter may.
fn refuse_reading(command: &mut Command) {
    const fn statement(code: u32, value: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: 0,
            k: value,
        }
    }
    let install = || {
        let is_call = libc::sock_filter {
            jf: 1,
            ..statement(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                libc::SYS_process_vm_readv as u32,
            )
        };
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            is_call,
            statement(
                libc::BPF_RET | libc::BPF_K,
                libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            ),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: plain calls; the kernel reads a live program.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) == 0
        };
        if done {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(install) };
}

#[test]
fn where_memory_can_not_be_read_the_process_itself_is_asked() {
    let name = "stacks::where_memory_can_not_be_read_the_process_itself_is_asked";
    with_program(name, "deep_stacks.c", &["1"], |running| {
        for (arguments, status) in [(&[][..], 0), (&["--stacks"][..], 1)] {
            let mut command = Command::new(raddle()?);
            command
                .arg("dump")
                .arg(running.pid().to_string())
                .args(arguments);
            refuse_reading(&mut command);
            let output = command.output()?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(output.status.code() == Some(status), "{output:?}");
            ensure!(
                said.lines().count() == 1 && said.contains("no stacks"),
                "{said}"
            );
            ensure!(said.contains("CAP_SYS_PTRACE"), "{said}");
            ensure!(
                shown.contains("\"pipe-0\"") && shown.contains("fd_read"),
                "{shown}"
            );
            ensure!(!shown.contains("wait_for_pipe"), "{shown}");
        }
        Ok(())
    });
}
