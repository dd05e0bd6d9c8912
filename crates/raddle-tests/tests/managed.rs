//! `raddle dump`: frames of Python, Java, .NET, Mono and JavaScript between native ones.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, Running, find_tool, jdks, list, or_skip, raddle, say};
use serde_json::Value;

/// Colon-separated interpreters that are tested beside those that are found.
const PYTHONS: &str = "RADDLE_TEST_PYTHONS";
const MODE: Mode = Mode::Raddle { carriers: 2 };
const PATIENCE: Duration = Duration::from_secs(60);

fn start(line: &[OsString], variables: &[(&str, &str)]) -> Result<Running> {
    let mut command = MODE.command(line)?;
    command.envs(variables.iter().copied());
    let running = Running::start(MODE, command, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
}

fn dump(running: &Running, arguments: &[&str]) -> Result<Output> {
    let pid = running.pid().to_string();
    let mut command = Command::new(raddle()?);
    let output = command.arg("dump").arg(pid).args(arguments).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

fn document(running: &Running, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["--json"], arguments].concat();
    Ok(serde_json::from_slice(&dump(running, &arguments)?.stdout)?)
}

/// One line of a stack: `python wait_for_lock 16` or `native start_thread`; without a name, `?`.
fn lines(document: &Value, thread: &Value) -> Result<Vec<String>> {
    let number = thread["stack"]
        .as_u64()
        .with_context(|| format!("no stack: {thread}"))?;
    let stack = &list(document, "stacks")?[number as usize];
    ensure!(list(stack, "managed")?.is_empty(), "not placed: {stack:#}");
    let mut lines = Vec::new();
    for frame in list(stack, "frames")? {
        for managed in list(frame, "managed")? {
            let word = |field: &str| managed[field].as_str().unwrap_or("?").to_owned();
            let line = managed["line"]
                .as_u64()
                .map_or_else(|| "?".into(), |it| it.to_string());
            lines.push(format!("{} {} {line}", word("language"), word("name")));
        }
        let functions = list(frame, "functions")?;
        let name = |it: &Value| format!("native {}", it["name"].as_str().unwrap_or("?"));
        lines.extend(functions.iter().map(name));
        if functions.is_empty() {
            lines.push("native ?".into());
        }
    }
    Ok(lines)
}

fn threads<'a>(document: &'a Value, name: &str) -> Result<Vec<&'a Value>> {
    let all = list(document, "threads")?.iter();
    let is_it = |thread: &&Value| {
        thread["name"]
            .as_str()
            .is_some_and(|it| it.starts_with(name))
    };
    Ok(all.filter(is_it).collect())
}

/// Checks that a stack has these lines, in this order, the innermost first; a line may begin so.
fn has(stack: &[String], wanted: &[String]) -> Result<()> {
    let mut rest = stack.iter();
    for wanted in wanted {
        let is_there = rest.any(|line| line.starts_with(wanted.as_str()));
        ensure!(is_there, "{wanted} is missing: {stack:#?}");
    }
    Ok(())
}

/// Returns the number of the line with this text in a program.
fn line_of(program: &str, text: &str) -> Result<usize> {
    let whole = fs::read_to_string(source(program))?;
    let line = whole.lines().position(|line| line.contains(text));
    Ok(1 + line.with_context(|| format!("no line {text:?}"))?)
}

/// The interpreters here: version 3.9 to 3.15, each version once.
fn pythons() -> Result<Vec<PathBuf>> {
    let named = std::env::var_os(PYTHONS).unwrap_or_default();
    let mut found: Vec<PathBuf> = std::env::split_paths(&named)
        .filter(|path| path.is_file())
        .collect();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let versions = fs::read_dir(Path::new(&home).join(".pyenv/versions"));
    let managed = versions.into_iter().flatten().flatten();
    let folders = managed.map(|folder| folder.path().join("bin"));
    for folder in folders.chain([PathBuf::from("/usr/bin")]) {
        for minor in 9..=15 {
            for suffix in ["", "t"] {
                let path = folder.join(format!("python3.{minor}{suffix}"));
                found.extend(path.is_file().then_some(path));
            }
        }
    }
    ensure!(
        !found.is_empty(),
        raddle_tests::Missing("python3.9 or later".into())
    );
    found.splice(0..0, raddle_tests::free_threaded());
    Ok(found)
}

fn minor(python: &Path) -> Option<u32> {
    let name = python.file_name()?.to_str()?;
    name.strip_prefix("python3.")?
        .trim_end_matches('t')
        .parse()
        .ok()
}

/// Checks one interpreter: the four ways to wait, with exact lines, and each frame in place.
fn check_python(python: &Path) -> Result<()> {
    let line = [python.into(), source("managed.py").into(), "200".into()];
    let running = start(&line, &[])?;
    let document = document(&running, &["--stacks"])?;
    let has_classes = minor(python).is_none_or(|minor| minor >= 11);
    let frame = |class: &str, name: &str, text: &str| -> Result<String> {
        let class = if has_classes { class } else { "" };
        let line = line_of("managed.py", text)?;
        Ok(format!("python {class}{name} {line}"))
    };
    let lock = frame("", "wait_for_lock", "with LOCK")?;
    let by_hand = frame("", "called_by_c", "wait_for_lock()  # here: c")?;
    let run = format!("python {}run", if has_classes { "Thread." } else { "" });
    let native = |name: &str| format!("native {name}");
    let ways = [
        vec![frame("", "call_plainly", "wait_for_lock()  # here: plain")?],
        vec![
            by_hand,
            native(""),
            frame("", "call_through_c", "functools.reduce")?,
        ],
        vec![
            frame("", "generate", "wait_for_lock()  # here: generator")?,
            native(""),
            frame("", "call_by_generator", "for _ in generate")?,
        ],
        vec![
            frame("Holder.", "größe", "wait_for_lock()  # here: method")?,
            frame("Holder.", "hold", "self.größe()")?,
        ],
    ];
    let threads = list(&document, "threads")?;
    let mut stacks = Vec::new();
    for thread in threads {
        stacks.push(lines(&document, thread)?);
    }
    // An interpreter may have a libc of its own, without names.
    let named_start = native("start_thread");
    let has_name = stacks.iter().flatten().any(|line| *line == named_start);
    let start = if has_name { named_start } else { native("?") };
    for way in ways {
        let ends = [run.clone(), start.clone()];
        let wanted = [&[native(""), lock.clone()][..], &way, &ends].concat();
        let found = stacks.iter().filter(|stack| has(stack, &wanted).is_ok());
        ensure!(found.count() == 1, "{wanted:#?} not once in {stacks:#?}");
    }
    let event = [frame("", "wait_for_event", "NEVER.wait()")?, run, start];
    let waiting = stacks.iter().filter(|stack| has(stack, &event).is_ok());
    ensure!(waiting.count() == 200, "{event:?} not 200 times");
    let main = frame("", "<module>", "time.sleep(1000)")?;
    ensure!(
        stacks
            .iter()
            .any(|stack| has(stack, std::slice::from_ref(&main)).is_ok())
    );
    let python: Vec<_> = stacks
        .iter()
        .flatten()
        .filter(|it| it.starts_with("python"))
        .collect();
    let named = python.iter().filter(|it| !it.contains('?')).count();
    ensure!(
        named * 100 >= python.len() * 95,
        "{named} of {}",
        python.len()
    );
    let count = document["stacks"].as_array().map_or(0, Vec::len);
    let guessed = list(&document, "stacks")?
        .iter()
        .filter(|it| it["guessed"] != 0)
        .count();
    ensure!(
        guessed == 0,
        "{guessed} of {count} stacks have guessed frames"
    );
    Ok(())
}

#[test]
fn frames_of_python_are_named_and_in_place() {
    let test = "managed::frames_of_python_are_named_and_in_place";
    let Some(pythons) = or_skip(test, pythons()) else {
        return;
    };
    for python in pythons {
        let outcome = check_python(&python);
        or_skip(test, outcome.with_context(|| python.display().to_string()));
        say(&format!("tested: {}", python.display()));
    }
}

/// Checks one interpreter: the chains of forty threads are those that it says itself.
fn check_chains(python: &Path) -> Result<usize> {
    let line: [OsString; 2] = [python.into(), source("chains.py").into()];
    let running = Running::start(MODE, MODE.command(&line)?, None)?;
    let started = Instant::now();
    while !running.stdout_so_far().ends_with("\nready\n") {
        let so_far = [running.stdout_so_far(), running.stderr_so_far()];
        ensure!(started.elapsed() < PATIENCE, "never ready: {so_far:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = running.stdout_so_far();
    let mut chains: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for line in said.lines().filter(|line| *line != "ready") {
        match line.strip_prefix("stack ") {
            Some(tid) => drop(chains.insert(tid.parse()?, Vec::new())),
            None => chains
                .last_entry()
                .context("a frame before a thread")?
                .get_mut()
                .push(line.to_owned()),
        }
    }
    ensure!(chains.len() == 40, "{} threads", chains.len());
    let document = document(&running, &["--stacks"])?;
    let mut count = 0;
    for thread in list(&document, "threads")? {
        let Some(chain) = thread["tid"].as_u64().and_then(|tid| chains.remove(&tid)) else {
            continue;
        };
        let number = thread["stack"].as_u64().context("no stack")? as usize;
        let stack = &list(&document, "stacks")?[number];
        ensure!(stack["guessed"] == 0, "guessed frames: {stack:#}");
        ensure!(list(stack, "managed")?.is_empty(), "not placed: {stack:#}");
        let mut found = Vec::new();
        for frame in list(stack, "frames")? {
            for managed in list(frame, "managed")? {
                let word = |field: &str| managed[field].as_str().unwrap_or("?");
                let file = word("file").to_owned();
                found.push(format!("{} {} {file}", managed["line"], word("name")));
            }
        }
        ensure!(found == chain, "{found:#?} and not {chain:#?}");
        count += found.len();
    }
    ensure!(chains.is_empty(), "no threads {:?}", chains.keys());
    Ok(count)
}

#[test]
fn chains_of_python_are_those_that_the_interpreter_says() {
    let test = "managed::chains_of_python_are_those_that_the_interpreter_says";
    for python in or_skip(test, pythons()).unwrap_or_default() {
        let outcome = check_chains(&python).with_context(|| python.display().to_string());
        if let Some(count) = or_skip(test, outcome) {
            say(&format!("{}: {count} frames", python.display()));
        }
    }
}

/// The goal is a second; a machine that is shared gets more.
#[test]
fn ten_thousand_threads_of_python_are_read_in_a_moment() {
    const LIMIT: Duration = Duration::from_secs(10);
    let test = "managed::ten_thousand_threads_of_python_are_read_in_a_moment";
    let check = || -> Result<()> {
        let python = pythons()?.pop().context("an interpreter")?;
        let line = [python.into(), source("managed.py").into(), "10000".into()];
        let running = start(&line, &[])?;
        let started = Instant::now();
        let text = String::from_utf8(dump(&running, &["--stacks"])?.stdout)?;
        let took = started.elapsed();
        ensure!(took < LIMIT, "{took:?}");
        ensure!(text.contains("10000 threads"), "{text}");
        ensure!(text.matches("py wait_for_event").count() == 1, "{text}");
        say(&format!("10,000 threads of Python: {took:?}"));
        Ok(())
    };
    or_skip(test, check());
}

/// The command lines of a Java program, one a JDK.
fn java(arguments: &[&str]) -> Result<Vec<(u32, Vec<OsString>)>> {
    let program = Program::build("Managed.java")?;
    let variants = program.variants.into_iter();
    let lines = variants.zip(jdks()?).map(|(variant, jdk)| {
        let mut line = variant.command;
        line.extend(arguments.iter().map(OsString::from));
        (jdk.version, line)
    });
    Ok(lines.collect())
}

/// Checks one virtual machine: the ways to wait, with exact lines, between native frames.
fn check_java(line: &[OsString]) -> Result<()> {
    let running = start(line, &[])?;
    let document = document(&running, &["--stacks"])?;
    ensure!(
        document["java_missing"].is_null(),
        "{}",
        document["java_missing"]
    );
    let frame = |method: &str| -> Result<String> {
        let line = line_of("Managed.java", &format!("here: {method}"))?;
        Ok(format!("java Managed.{method} {line}"))
    };
    let calls = "native JavaCalls::call_helper".to_owned();
    for (name, method) in [
        ("monitor-owner", "ownMonitor"),
        ("lock-owner", "ownLock"),
        ("monitor-waiter", "enterMonitor"),
        ("lock-waiter", "takeLock"),
        ("object-waiter", "waitForObject"),
        ("compiled", "parkIfDeep"),
    ] {
        let [thread] = threads(&document, name)?[..] else {
            anyhow::bail!("no thread {name}");
        };
        let stack = lines(&document, thread)?;
        let ends = ["java java.lang.Thread.run".into(), calls.clone()];
        let start = ["native pthread_cond_".into(), frame(method)?];
        has(&stack, &[&start[..], &ends].concat()).with_context(|| name.to_owned())?;
    }
    // The virtual machine's own call of a class initializer is between two runs of Java frames.
    let [thread] = threads(&document, "initializer")?[..] else {
        anyhow::bail!("no thread initializer");
    };
    let initializer = format!(
        "java Managed$Slow.<clinit> {}",
        line_of("Managed.java", "here: initialize")?
    );
    let native = "native InstanceKlass::call_class_initializer".into();
    let wanted = [initializer, native, "java Managed.lambda$".into(), calls];
    has(&lines(&document, thread)?, &wanted)?;
    let mut all = 0;
    for worker in threads(&document, "worker-")? {
        has(
            &lines(&document, worker)?,
            &["java Managed.lambda$main$".into()],
        )?;
        all += 1;
    }
    ensure!(all == 200, "{all} workers");
    let text = String::from_utf8(dump(&running, &["--no-group"])?.stdout)?;
    for note in ["- locked <", "- waiting to lock <", "- parking to wait for"] {
        ensure!(text.contains(note), "{note} is missing: {text}");
    }
    let read = String::from_utf8(dump(&running, &["--no-attach", "--no-group"])?.stdout)?;
    ensure!(
        read.contains("java Managed.ownMonitor  Managed.java:"),
        "{read}"
    );
    ensure!(!read.contains("- locked <"), "{read}");
    let folder = fs::read_link(format!("/proc/{}/cwd", running.pid()))?;
    let trigger = folder.join(format!(".attach_pid{}", running.pid()));
    ensure!(!trigger.exists(), "{trigger:?} is left behind");
    Ok(())
}

#[test]
fn frames_and_locks_of_java_are_named_and_in_place() {
    let test = "managed::frames_and_locks_of_java_are_named_and_in_place";
    for (version, line) in or_skip(test, java(&["200"])).unwrap_or_default() {
        or_skip(
            test,
            check_java(&line).with_context(|| format!("java {version}")),
        );
    }
}

/// With -Xrs SIGQUIT would end it; its service listens from the begin. Without a service, SIGQUIT
/// would make it print all stacks.
#[test]
fn a_virtual_machine_gets_no_signal_that_it_does_not_expect() {
    let test = "managed::a_virtual_machine_gets_no_signal_that_it_does_not_expect";
    for (version, line) in or_skip(test, java(&[])).unwrap_or_default() {
        let start = |switch: &str| {
            let mut line = line.clone();
            line.insert(1, switch.into());
            start(&line, &[])
        };
        let check = || -> Result<()> {
            let running = start("-Xrs")?;
            let text = String::from_utf8(dump(&running, &[])?.stdout)?;
            ensure!(text.contains("java Managed.main"), "{text}");
            dump(&running, &[])?;
            let running = start("-XX:+DisableAttachMechanism")?;
            let output = dump(&running, &[])?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(
                said.contains("switched off") && said.lines().count() == 1,
                "{said}"
            );
            let document = document(&running, &[])?;
            ensure!(document["java_missing"].is_string(), "{document:#}");
            ensure!(running.stdout_so_far() == "ready\n", "it printed stacks");
            Ok(())
        };
        or_skip(test, check().with_context(|| format!("java {version}")));
    }
}

/// Checks that a dump of a program has a frame with such a name of the map.
fn check_map(line: &[OsString], switches: &[(&str, &str)], name: &str) -> Result<()> {
    let running = start(line, switches)?;
    let text = String::from_utf8(dump(&running, &["--group"])?.stdout)?;
    let is_it = |line: &str| line.trim().starts_with("map ") && line.contains(name);
    ensure!(text.lines().any(is_it), "no {name}: {text}");
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", running.pid()));
    Ok(())
}

#[test]
fn frames_of_javascript_have_the_names_of_the_map() {
    let test = "managed::frames_of_javascript_have_the_names_of_the_map";
    let Some(node) = or_skip(test, find_tool("node")) else {
        return;
    };
    let line = [
        node.into(),
        "--perf-basic-prof".into(),
        "--interpreted-frames-native-stack".into(),
        source("managed.js").into(),
    ];
    or_skip(test, check_map(&line, &[], "waitForEver"));
}

#[test]
fn frames_of_csharp_have_the_names_of_the_map() {
    let test = "managed::frames_of_csharp_have_the_names_of_the_map";
    let Some(program) = or_skip(test, Program::build("managed.cs")) else {
        return;
    };
    for variant in program.variants {
        let mut line = variant.command.clone();
        let is_mono = variant.label == "mono";
        let name = if is_mono {
            line.insert(1, OsStr::new("--jitmap").to_owned());
            "System.Threading.Monitor:Monitor_wait"
        } else {
            "Managed::Main"
        };
        let switches = [
            ("COMPlus_PerfMapEnabled", "1"),
            ("DOTNET_PerfMapEnabled", "1"),
        ];
        let mapped = check_map(&line, &switches, name);
        or_skip(test, mapped.map_err(|error| variant.name(error)));
        let without = || -> Result<()> {
            let running = start(&variant.command, &[])?;
            let text = String::from_utf8(dump(&running, &["--group"])?.stdout)?;
            let remark = "managed code without a map";
            ensure!(text.contains(remark), "{text}");
            Ok(())
        };
        or_skip(test, without().map_err(|error| variant.name(error)));
    }
}
