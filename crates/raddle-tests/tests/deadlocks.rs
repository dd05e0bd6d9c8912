//! `raddle dump --deadlocks` and `raddle run --watch-deadlocks`: every seeded deadlock is found
//! with its locks and stacks. `healthy.rs` has the programs that are not reported.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{
    Mode, Program, Running, in_every_mode, list, on_every_jdk, raddle, shared_object, status_number,
};
use serde_json::Value;

/// How long a deadlock may take to be found, on a machine that is shared.
const PATIENCE: Duration = Duration::from_secs(20);
const NONE: i32 = 0;
const SOME: i32 = 3;

/// Starts a program with `flags` for `raddle run`, and waits until it says that it is ready.
fn start(mode: Mode, source: &str, arguments: &[&str], flags: &[&str]) -> Result<Running> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let mut command = mode.command(&line)?;
    for flag in flags {
        command.env("RADDLE_WATCH_DEADLOCKS", flag);
    }
    let running = Running::start(mode, command, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn dump(running: &Running, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(raddle()?);
    command.arg("dump").arg(running.pid().to_string());
    Ok(command.args(arguments).output()?)
}

/// Looks until the exit status is the wanted one, and returns the document.
fn document(running: &Running, wanted: i32) -> Result<Value> {
    let started = Instant::now();
    loop {
        let output = dump(running, &["--deadlocks", "--json"])?;
        if status_number(output.status) == wanted {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        ensure!(started.elapsed() < PATIENCE, "{output:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The functions on the stack of a thread.
fn functions(document: &Value, thread: &Value) -> Result<Vec<String>> {
    let number = thread["stack"].as_u64().context("no stack")?;
    let stack = &list(document, "stacks")?[number as usize];
    let mut names = Vec::new();
    for frame in list(stack, "frames")? {
        for function in list(frame, "functions")? {
            names.push(function["name"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(names)
}

/// A deadlock as it has to be found.
struct Wanted {
    /// The program's argument.
    case: &'static str,
    /// `cycle`, `owner_ended` or `asleep`.
    kind: &'static str,
    /// For each of its threads: the function on the stack, the kind of the object, the variable,
    /// and the kind of the owner.
    threads: &'static [[&'static str; 4]],
}

const fn wanted(
    case: &'static str,
    kind: &'static str,
    threads: &'static [[&'static str; 4]],
) -> Wanted {
    Wanted {
        case,
        kind,
        threads,
    }
}

const WANTED: &[Wanted] = &[
    wanted(
        "cycle2",
        "cycle",
        &[
            ["take_two", "mutex", "locks+0x28", "thread"],
            ["take_two", "mutex", "locks", "thread"],
        ],
    ),
    wanted(
        "cycle5",
        "cycle",
        &[
            ["take_two", "mutex", "locks", "thread"],
            ["take_two", "mutex", "locks+0x28", "thread"],
            ["take_two", "mutex", "locks+0x50", "thread"],
            ["take_two", "mutex", "locks+0x78", "thread"],
            ["take_two", "mutex", "locks+0xa0", "thread"],
        ],
    ),
    wanted(
        "recursive",
        "cycle",
        &[
            ["take_two", "recursive mutex", "locks", "thread"],
            ["take_two", "recursive mutex", "locks+0x28", "thread"],
        ],
    ),
    wanted(
        "checking",
        "cycle",
        &[
            ["take_two", "error-checking mutex", "locks", "thread"],
            ["take_two", "error-checking mutex", "locks+0x28", "thread"],
            ["take_two", "error-checking mutex", "locks+0x50", "thread"],
        ],
    ),
    wanted(
        "robust",
        "cycle",
        &[
            ["take_two", "robust mutex", "locks", "thread"],
            ["take_two", "robust mutex", "locks+0x28", "thread"],
        ],
    ),
    wanted(
        "inheriting",
        "cycle",
        &[
            ["take_two", "priority-inheriting mutex", "locks", "thread"],
            [
                "take_two",
                "priority-inheriting mutex",
                "locks+0x28",
                "thread",
            ],
        ],
    ),
    wanted(
        "process_shared",
        "cycle",
        &[
            ["take_two", "mutex", "locks", "thread"],
            ["take_two", "mutex", "locks+0x28", "thread"],
        ],
    ),
    wanted(
        "c11",
        "cycle",
        &[
            ["take_two_modern", "mutex", "modern", "thread"],
            ["take_two_modern", "mutex", "modern+0x28", "thread"],
        ],
    ),
    wanted(
        "itself",
        "cycle",
        &[["take_twice", "mutex", "lock_a", "thread"]],
    ),
    wanted(
        "join_cycle",
        "cycle",
        &[
            ["join_other", "end of a thread", "", "thread"],
            ["join_other", "end of a thread", "", "thread"],
        ],
    ),
    wanted(
        "join_mutex",
        "cycle",
        &[
            ["want_lock", "mutex", "lock_a", "thread"],
            ["join_with_lock", "end of a thread", "", "thread"],
        ],
    ),
    wanted(
        "lost",
        "owner_ended",
        &[["want_lock", "mutex", "lock_a", "ended"]],
    ),
    wanted(
        "reader",
        "cycle",
        &[
            ["write_and_lock", "mutex", "lock_a", "thread"],
            [
                "write_and_lock",
                "read-write lock (to read)",
                "shared_data",
                "thread",
            ],
        ],
    ),
    wanted(
        "writer",
        "cycle",
        &[
            ["write_and_lock", "mutex", "lock_a", "thread"],
            [
                "write_and_lock",
                "read-write lock (to write)",
                "shared_data",
                "thread",
            ],
        ],
    ),
    wanted(
        "upgrade",
        "asleep",
        &[
            ["main", "end of a thread", "", "thread"],
            [
                "upgrade_lock",
                "read-write lock (to write)",
                "shared_data",
                "",
            ],
        ],
    ),
    wanted(
        "asleep",
        "asleep",
        &[
            ["main", "end of a thread", "", "thread"],
            ["wait_for_semaphore", "semaphore", "empty", ""],
            ["wait_at_gate", "barrier", "gate", ""],
            ["wait_at_gate", "barrier", "gate", ""],
        ],
    ),
    wanted(
        "condition",
        "asleep",
        &[
            ["main", "end of a thread", "", "thread"],
            ["wait_for_condition", "condition variable", "never", ""],
        ],
    ),
];

/// Checks a document with one deadlock.
fn check(document: &Value, wanted: &Wanted) -> Result<()> {
    let [deadlock] = list(document, "deadlocks")? else {
        bail!("not one deadlock: {}", document["deadlocks"]);
    };
    ensure!(deadlock["kind"] == wanted.kind, "{deadlock}");
    let threads = list(document, "threads")?;
    let mut found = Vec::new();
    for tid in list(deadlock, "threads")? {
        let mut of_it = threads.iter().filter(|thread| thread["tid"] == *tid);
        let thread = of_it.next().context("a thread")?;
        let names = functions(document, thread)?;
        let waits_for = &thread["waits_for"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut known = wanted.threads.iter().map(|thread| thread[0]);
        let function = known.find(|it| names.iter().any(|name| name == it));
        found.push([
            function.unwrap_or_default().to_owned(),
            text(&waits_for["kind"]),
            text(&waits_for["variable"]),
            text(&waits_for["owner"]["kind"]),
        ]);
    }
    found.sort();
    let mut expected = wanted.threads.to_vec();
    expected.sort();
    ensure!(found == expected, "{found:#?}");
    Ok(())
}

/// In a cycle each thread waits for the next one.
fn check_order(document: &Value) -> Result<()> {
    let deadlock = &list(document, "deadlocks")?[0];
    let tids = list(deadlock, "threads")?;
    for (number, tid) in tids.iter().enumerate() {
        let threads = list(document, "threads")?;
        let thread = threads.iter().find(|thread| thread["tid"] == *tid);
        let owner = &thread.context("a thread")?["waits_for"]["owner"]["tid"];
        ensure!(*owner == tids[(number + 1) % tids.len()], "{deadlock}");
    }
    Ok(())
}

#[test]
fn seeded_deadlocks_are_found_with_locks_and_stacks() {
    let name = "deadlocks::seeded_deadlocks_are_found_with_locks_and_stacks";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        for wanted in WANTED {
            let running = start(mode, "deadlocks.c", &[wanted.case], &[])?;
            let document = document(&running, SOME)?;
            check(&document, wanted).context(wanted.case)?;
            if wanted.kind == "cycle" {
                check_order(&document).context(wanted.case)?;
            }
        }
        Ok(())
    });
}

#[test]
fn the_text_has_both_sides() {
    in_every_mode("deadlocks::the_text_has_both_sides", |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let running = start(mode, "deadlocks.c", &["join_mutex"], &[])?;
        document(&running, SOME)?;
        let text = String::from_utf8(dump(&running, &["--deadlocks"])?.stdout)?;
        for wanted in [
            "1 deadlock among 3 green threads",
            "deadlock 1: 2 threads, each of which waits for the next",
            "\"party-1\" waits for: mutex 0x",
            "(lock_a), held by #",
            "\"party-0\" waits for: end of a thread #",
            "    wait_for_end  deadlocks.c:",
            "    wait_for_mutex  deadlocks.c:",
        ] {
            ensure!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        let plain = String::from_utf8(dump(&running, &[])?.stdout)?;
        ensure!(plain.contains("(lock_a), held by #"), "{plain}");
        Ok(())
    });
}

/// The other process's thread is no thread of this one.
#[test]
fn an_owner_in_another_process_is_named_as_such() {
    in_every_mode(
        "deadlocks::an_owner_in_another_process_is_named_as_such",
        |mode| {
            let Mode::Raddle { .. } = mode else {
                return Ok(());
            };
            let running = start(mode, "deadlocks.c", &["processes"], &[])?;
            let started = Instant::now();
            loop {
                let document = document(&running, NONE)?;
                let main = list(&document, "threads")?
                    .iter()
                    .find(|thread| thread["main"] == true);
                let waits_for = &main.context("the main thread")?["waits_for"];
                if waits_for["kind"] == "mutex" {
                    ensure!(waits_for["owner"]["kind"] == "other_process", "{waits_for}");
                    return Ok(());
                }
                ensure!(started.elapsed() < PATIENCE, "{waits_for}");
            }
        },
    );
}

#[test]
fn locks_without_an_owner_are_found_when_all_are_asleep() {
    let name = "deadlocks::locks_without_an_owner_are_found_when_all_are_asleep";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let running = start(mode, "deadlocks_rust.rs", &[], &[])?;
        let document = document(&running, SOME)?;
        let kinds: BTreeSet<&str> = list(&document, "threads")?
            .iter()
            .filter_map(|thread| thread["waits_for"]["kind"].as_str())
            .collect();
        let wanted = ["std::sync::Mutex", "std::sync::RwLock", "end of a thread"];
        ensure!(kinds == BTreeSet::from(wanted), "{kinds:?}");
        let text = String::from_utf8(dump(&running, &["--deadlocks"])?.stdout)?;
        for wanted in [
            "std::sync::Mutex 0x",
            ": it notes no owner",
            "std::sync::RwLock 0x",
            ": read by 1 thread, which it doesn't note",
            "; its address is on the stack of #",
        ] {
            ensure!(text.contains(wanted), "{wanted} is missing in\n{text}");
        }
        Ok(())
    });
}

#[test]
fn locks_of_python_name_their_last_takers() {
    let name = "deadlocks::locks_of_python_name_their_last_takers";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        let running = start(mode, "deadlocks.py", &["cycle"], &[])?;
        let document = document(&running, SOME)?;
        let deadlock = &list(&document, "deadlocks")?[0];
        ensure!(deadlock["kind"] == "asleep", "{deadlock}");
        for thread in list(&document, "threads")? {
            let owner = &thread["waits_for"]["owner"]["kind"];
            ensure!(*owner == "last_taker", "{thread}");
        }
        let waiting = start(mode, "deadlocks.py", &["until_interrupted"], &[])?;
        for _ in 0..10 {
            self::document(&waiting, NONE)?;
        }
        Ok(())
    });
}

/// Calls `test` with each kind of Java program, once it waits, on every JDK.
fn with_java(mode: Mode, kind: &str, test: impl Fn(&Running) -> Result<()>) -> Result<()> {
    let library = shared_object("deadlocks_library.c")?;
    for (variant, _) in on_every_jdk(Program::build("Deadlocks.java")?)? {
        let mut line = variant.command.clone();
        line.extend([kind.into(), library.clone().into()]);
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("ready\n")?;
        test(&running).map_err(|error| variant.name(error))?;
    }
    Ok(())
}

#[test]
fn monitors_synchronizers_and_native_locks_of_java_are_one_graph() {
    let name = "deadlocks::monitors_synchronizers_and_native_locks_of_java_are_one_graph";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) {
            return Ok(());
        }
        let kinds = [
            ("monitors", "Java lock java.lang.Object"),
            (
                "synchronizers",
                "Java lock java.util.concurrent.locks.ReentrantLock$NonfairSync",
            ),
            ("jni", "mutex"),
        ];
        for (kind, other) in kinds {
            with_java(mode, kind, |running| {
                let document = document(running, SOME)?;
                check_order(&document)?;
                let tids = list(&list(&document, "deadlocks")?[0], "threads")?;
                let threads = list(&document, "threads")?.iter();
                let threads = threads.filter(|thread| tids.contains(&thread["tid"]));
                let mut kinds: Vec<_> = threads
                    .map(|thread| thread["waits_for"]["kind"].as_str().unwrap_or_default())
                    .collect();
                kinds.sort_unstable();
                ensure!(kinds == ["Java lock java.lang.Object", other], "{kinds:?}");
                Ok(())
            })
            .context(kind)?;
        }
        with_java(mode, "healthy", |running| {
            for _ in 0..10 {
                document(running, NONE)?;
            }
            Ok(())
        })
    });
}

/// What is said of deadlocks if a virtual machine isn't asked.
fn without_question(running: &Running) -> Result<String> {
    let mut command = Command::new(raddle()?);
    command.args(["dump", "--deadlocks", "--no-attach"]);
    let output = command.arg(running.pid().to_string()).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// The owners of monitors are in memory: a virtual machine that isn't asked has the same cycle.
#[test]
fn monitors_of_java_have_owners_without_a_question() {
    let name = "deadlocks::monitors_of_java_have_owners_without_a_question";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) {
            return Ok(());
        }
        with_java(mode, "monitors", |running| {
            let started = Instant::now();
            let text = loop {
                let text = without_question(running)?;
                if text.contains("deadlock 1: ") {
                    break text;
                }
                ensure!(started.elapsed() < PATIENCE, "{text}");
            };
            for (waiter, owner) in [("first", "second"), ("second", "first")] {
                let mut waits = text.lines().filter(|it| it.contains(": Java monitor 0x"));
                let begin = format!("\"{waiter}\" waits for");
                let line = waits.find(|it| it.contains(&begin)).context("no wait")?;
                let is_held = line.contains("of a java.lang.Object, held by #");
                ensure!(is_held && line.contains(&format!("\"{owner}\"")), "{text}");
            }
            Ok(())
        })?;
        with_java(mode, "healthy", |running| {
            ensure!(without_question(running)?.contains("no deadlock"));
            Ok(())
        })
    });
}

/// Waits until the program's standard error has a report, and returns it.
fn report(running: &Running) -> Result<String> {
    let started = Instant::now();
    loop {
        let text = running.stderr_so_far();
        if text.contains("clone3") || text.contains("start_thread") {
            return Ok(text);
        }
        ensure!(started.elapsed() < PATIENCE, "no report: {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_watch_reports_a_deadlock_once() {
    in_every_mode("deadlocks::a_watch_reports_a_deadlock_once", |mode| {
        let Mode::Raddle { .. } = mode else {
            return Ok(());
        };
        for kind in ["cycle2", "lost", "condition", "inheriting"] {
            let running = start(mode, "deadlocks.c", &[kind], &["100"])?;
            report(&running)?;
            thread::sleep(Duration::from_secs(1));
            let text = running.stderr_so_far();
            let reports = text.matches("raddle: process").count();
            ensure!(reports == 1, "{kind}: {reports} reports\n{text}");
            ensure!(text.contains("deadlock 1: "), "{text}");
        }
        Ok(())
    });
}

/// A child of the program is watched, and a program that takes the place of another.
#[test]
fn a_watch_follows_children_and_new_programs() {
    in_every_mode(
        "deadlocks::a_watch_follows_children_and_new_programs",
        |mode| {
            let Mode::Raddle { .. } = mode else {
                return Ok(());
            };
            let program = Program::build("deadlocks.c")?;
            let path = &program.variants[0].command[0];
            for script in ["exec \"$0\" cycle2", "\"$0\" cycle2; true"] {
                let line = ["sh".into(), "-c".into(), script.into(), path.clone()];
                let mut command = mode.command(&line)?;
                command.env("RADDLE_WATCH_DEADLOCKS", "100");
                let running = Running::start(mode, command, None)?;
                let text = report(&running)?;
                ensure!(text.contains("1 deadlock among 3 green threads"), "{text}");
            }
            Ok(())
        },
    );
}

/// The program sees no child, no signal and no descriptor of the watcher, and its output ends when
/// it does.
#[test]
fn a_watch_is_not_noticed() {
    const SCRIPT: &str = "\
import os, signal
print(signal.sigpending(), sorted(os.listdir('/proc/self/fd')))
try:
    os.wait()
except ChildProcessError:
    print('no child')
raise SystemExit(7)
";
    let mut native = None;
    in_every_mode("deadlocks::a_watch_is_not_noticed", |mode| {
        let mut command = mode.command(&["python3", "-c", SCRIPT])?;
        command.env("RADDLE_WATCH_DEADLOCKS", "100");
        let outcome = Running::start(mode, command, None)?.wait(PATIENCE)?;
        ensure!(status_number(outcome.status) == 7, "{outcome:?}");
        ensure!(outcome.stdout.contains("no child"), "{outcome:?}");
        ensure!(outcome.stderr.is_empty(), "{outcome:?}");
        let expected = native.get_or_insert_with(|| outcome.stdout.clone());
        ensure!(
            outcome.stdout == *expected,
            "{outcome:?}, natively {expected}"
        );
        Ok(())
    });
}
