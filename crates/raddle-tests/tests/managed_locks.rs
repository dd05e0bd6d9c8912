//! `raddle locks` on programs of which the runtime lets each thread wait on a word of its own:
//! Java's monitors and `java.util.concurrent`, and CPython without its global lock.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use raddle_tests::{
    Mode, Program, RunFolder, Running, free_threaded, list, on_every_jdk, or_skip, raddle, say,
};
use serde_json::Value;

const MODE: Mode = Mode::Raddle { carriers: 2 };
/// How long the program may take until its threads contend.
const PATIENCE: Duration = Duration::from_secs(60);
/// The methods of the program in Java that want locks.
const FUNCTIONS: [&str; 3] = ["Shares.lockOne", "Shares.lockTwo", "Shares.lockThree"];

/// The monitors of the program in Java of which the objects move.
const OBJECTS: [&str; 3] = [
    "of Monitors$Table no. 1",
    "of Monitors$Table no. 2",
    "of java.lang.StringBuilder no. 1",
];

/// Returns true if all waits for a lock were in this function.
fn is_wanted_in(lock: &Value, function: &str) -> bool {
    let stacks = lock["waits_at"].as_array().map_or(&[][..], Vec::as_slice);
    !stacks.is_empty() && stacks.iter().all(|it| has_function(it, function))
}

fn has_function(stack: &Value, function: &str) -> bool {
    let functions = stack["functions"].as_array().into_iter().flatten();
    functions.into_iter().any(|name| name == function)
}

/// The locks that are wanted in these functions, once there are waits for all of them.
fn locks(running: &Running, functions: &[&str]) -> Result<Vec<Value>> {
    let started = Instant::now();
    loop {
        let mut command = Command::new(raddle()?);
        command.args(["locks", "--json", "-d", "2"]);
        let output = command.arg(running.pid().to_string()).output()?;
        ensure!(started.elapsed() < PATIENCE, "{output:?}");
        // It may not have begun.
        let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let all = document["locks"].as_array().into_iter().flatten();
        let named = |function: &&str| {
            let start = format!("wanted at {function} ");
            let name = |lock: &&Value| {
                let name = lock["name"].as_str();
                name.is_some_and(|name| {
                    let is_object = name.starts_with("of ") && is_wanted_in(lock, function);
                    is_object || name.starts_with(&start)
                })
            };
            all.clone().find(name).cloned()
        };
        let found: Vec<Value> = functions.iter().filter_map(named).collect();
        let are_many = |lock: &Value| lock["waits"].as_u64().is_some_and(|waits| waits >= 10);
        if found.len() == functions.len() && found.iter().all(are_many) {
            return Ok(found);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Checks a lock that two threads contend for: its kind, place, times, waiters and holders.
fn check(lock: &Value, kind: &str, function: &str, place: &str) -> Result<()> {
    let name = format!("wanted at {function} {place}");
    let named = lock["name"].as_str().unwrap_or("");
    let is_named = match kind {
        "Java monitor" => named.starts_with("of java.lang.Object no. "),
        _ => named == name,
    };
    ensure!(lock["kind"] == kind && is_named, "{name} {lock:#}");
    ensure!(lock["threads"] == 2, "{lock:#}");
    let ns = |field: &str| lock[field].as_u64().unwrap_or(0);
    let (waited, longest) = (ns("waited_ns"), ns("longest_wait_ns"));
    ensure!(0 < longest && longest <= waited, "{lock:#}");
    // Less than two threads wait at a time.
    ensure!(waited < 4_000_000_000, "{lock:#}");
    ensure!(is_wanted_in(lock, function), "{lock:#}");
    // Stacks of threads that release a lock have no functions of Python.
    let holders = list(lock, "held_at")?;
    let are_known = kind == "PyMutex" || holders.iter().any(|it| has_function(it, function));
    ensure!(!holders.is_empty() && are_known, "{lock:#}");
    Ok(())
}

/// A recording names the words that threads wait on after the locks.
fn check_recording(running: &Running) -> Result<()> {
    let folder = RunFolder::new("managed_locks")?;
    let file = folder.path().join("a.folded");
    let mut command = Command::new(raddle()?);
    command.args(["record", "-d", "2", "-o"]).arg(&file);
    let output = command.arg(running.pid().to_string()).output()?;
    ensure!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&file)?;
    for name in [
        "(Java monitor of java.lang.Object no. ",
        "(Java lock wanted at Shares.lockThree Shares.java:",
    ] {
        ensure!(text.contains(name), "no {name}");
    }
    Ok(())
}

fn start(mode: Mode, line: &[OsString]) -> Result<Running> {
    let mut command = mode.command(line)?;
    // Long enough for all looks.
    command.arg("300");
    Running::start(mode, command, None)
}

/// The line of a program with this text, behind another one.
fn line_of(program: &str, before: &str, text: &str) -> Result<usize> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    let whole = fs::read_to_string(path.join(program))?;
    let lines = whole.lines().enumerate();
    let mut lines = lines.skip_while(|(_, line)| !line.contains(before));
    let found = lines.find(|(_, line)| line.contains(text));
    let (index, _) = found.with_context(|| format!("no line {text:?}"))?;
    Ok(index + 1)
}

/// Checks the three locks of the program.
fn check_all(running: &Running) -> Result<()> {
    let locks = locks(running, &FUNCTIONS)?;
    for (lock, function) in locks.iter().zip(FUNCTIONS) {
        let (kind, text) = match function {
            "Shares.lockThree" => ("Java lock", "THREE.lock()"),
            _ => ("Java monitor", "synchronized ("),
        };
        let method = function.replace("Shares.", " ");
        let line = line_of("Shares.java", &format!("{method}("), text)?;
        let place = format!("Shares.java:{line}");
        // The interpreter enters a monitor when it has gone on to the next byte of code.
        let next = format!("Shares.java:{}", line + 1);
        let result = check(lock, kind, function, &place);
        result.or_else(|_| check(lock, kind, function, &next))?;
    }
    Ok(())
}

/// Tries until it is well: samples of a busy machine may be few.
fn eventually(check: impl Fn() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    loop {
        match check() {
            Err(error) if started.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Checks that each object is one row, with its waiters and owners.
fn check_objects(running: &Running) -> Result<()> {
    let mut command = Command::new(raddle()?);
    command.args(["locks", "--json", "-d", "2"]);
    let output = command.arg(running.pid().to_string()).output()?;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let name = |lock: &Value| lock["name"].as_str().unwrap_or_default().to_owned();
    let is_ours = |lock: &&Value| {
        let name = name(lock);
        name.starts_with("of Monitors$Table") || name.starts_with("of java.lang.StringBuilder")
    };
    let mut rows: Vec<&Value> = list(&document, "locks")?.iter().filter(is_ours).collect();
    rows.sort_by_key(|lock| name(lock));
    ensure!(rows.iter().copied().map(name).eq(OBJECTS), "{rows:#?}");
    for lock in &rows {
        ensure!(lock["threads"] == 2, "{lock:#}");
        let holders = list(lock, "held_at")?;
        let is_owner = |it: &Value| has_function(it, "Monitors.pause");
        ensure!(holders.iter().any(is_owner), "{lock:#}");
    }
    // A thread that waits for a notification wants no lock, but for moments at its end.
    let awaits = |lock: &&Value| has_function(&lock["waits_at"][0], "Monitors.await");
    let awaited = list(&document, "locks")?.iter().filter(awaits);
    let awaited_ns: u64 = awaited.filter_map(|it| it["waited_ns"].as_u64()).sum();
    ensure!(awaited_ns < 400_000_000, "{document:#}");
    let shared = list(rows[2], "waits_at")?;
    for function in ["Monitors.read", "Monitors.write"] {
        let is_wanted = shared.iter().any(|it| has_function(it, function));
        ensure!(is_wanted, "{function} {:#}", rows[2]);
    }
    Ok(())
}

/// Two monitors that one method wants are two, and one that two methods want is one, while the
/// garbage collector moves the objects.
#[test]
fn monitors_of_java_are_their_objects() {
    let test = "managed_locks::monitors_of_java_are_their_objects";
    let program = Program::build("Monitors.java").and_then(on_every_jdk);
    for (variant, _) in or_skip(test, program).unwrap_or_default() {
        for carriers in [1, 2] {
            let one = || -> Result<()> {
                let running = start(Mode::Raddle { carriers }, &variant.command)?;
                eventually(|| check_objects(&running))
            };
            if or_skip(test, one().map_err(|error| variant.name(error))).is_some() {
                say(&format!(
                    "{}, {carriers} carriers: 3 objects",
                    variant.label
                ));
            }
        }
    }
}

#[test]
fn locks_of_java_are_their_objects_or_the_methods_that_want_them() {
    let test = "managed_locks::locks_of_java_are_their_objects_or_the_methods_that_want_them";
    let program = Program::build("Shares.java").and_then(on_every_jdk);
    for (variant, _) in or_skip(test, program).unwrap_or_default() {
        let one = || -> Result<()> {
            let running = start(MODE, &variant.command)?;
            eventually(|| check_all(&running))?;
            eventually(|| check_recording(&running))
        };
        if or_skip(test, one().map_err(|error| variant.name(error))).is_some() {
            say(&format!("{}: 3 locks", variant.label));
        }
    }
}

#[test]
fn locks_of_python_without_a_global_lock_are_the_functions_that_want_them() {
    let test =
        "managed_locks::locks_of_python_without_a_global_lock_are_the_functions_that_want_them";
    let functions = ["lock_one", "lock_two", "lock_three"];
    let Some(interpreter) = free_threaded() else {
        return;
    };
    let one = || -> Result<()> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/shares.py");
        let running = start(MODE, &[interpreter.clone().into(), path.into()])?;
        eventually(|| {
            for (lock, function) in locks(&running, &functions)?.iter().zip(functions) {
                let line = line_of("shares.py", &format!("def {function}("), ".acquire(")?;
                check(lock, "PyMutex", function, &format!("shares.py:{line}"))?;
            }
            Ok(())
        })
    };
    or_skip(test, one());
}
