//! Light threads as `raddle dump` shows them: this process is dumped by the tool.
//!
//! The tool is the one that `RADDLE_BIN` names, or that of the same target folder; without it
//! nothing is tested. One test, since all light threads of the process are counted.

use raddle::completion;
use raddle::light;
use raddle::runtime::{Status, status};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10_000);
/// How many light threads wait in each way.
const EACH: usize = 12;
/// Variables: how many more light threads only park, and whether the time is printed.
const MORE: &str = "RADDLE_TEST_LIGHTS";

static BEGUN: AtomicU64 = AtomicU64::new(0);

fn tool() -> Option<PathBuf> {
    let named = std::env::var_os("RADDLE_BIN").map(PathBuf::from);
    let beside = || {
        Some(
            std::env::current_exe()
                .ok()?
                .parent()?
                .parent()?
                .join("raddle"),
        )
    };
    named.or_else(beside).filter(|path| path.is_file())
}

fn dump(tool: &PathBuf, arguments: &[&str]) -> Output {
    let pid = std::process::id().to_string();
    let mut command = Command::new(tool);
    command.arg("dump").arg(pid).args(arguments);
    command.output().unwrap()
}

fn document(tool: &PathBuf, arguments: &[&str]) -> Value {
    let output = dump(tool, &[&["--json", "--stacks"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[inline(never)]
fn wait_for_unpark() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    loop {
        light::park();
    }
}

#[inline(never)]
fn sleep_long() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    light::sleep(LONG);
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn wait_for_completion() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let (promise, completion) = completion::pair::<()>();
    let _ = completion.wait();
    drop(promise);
}

#[inline(never)]
fn join_sleeper() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    light::spawn(sleep_long).join().unwrap();
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn block_in_std() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(LONG);
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

/// The names of a thread's functions, the innermost first.
fn functions(document: &Value, thread: &Value) -> Vec<String> {
    let Some(number) = thread["stack"].as_u64() else {
        return Vec::new();
    };
    let stack = &document["stacks"][number as usize];
    assert_eq!(stack["guessed"], 0, "{stack:#}");
    let frames = stack["frames"].as_array().unwrap().iter();
    let functions = frames.flat_map(|frame| frame["functions"].as_array().unwrap());
    functions
        .map(|function| function["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The light threads that have a function on their stacks.
fn with<'a>(document: &'a Value, function: &str) -> Vec<&'a Value> {
    let threads = document["threads"].as_array().unwrap().iter();
    let has_it = |thread: &&Value| {
        let names = functions(document, thread);
        names
            .iter()
            .any(|name| name.rsplit("::").next() == Some(function))
    };
    let light = threads.filter(|thread| thread["light"] == true);
    light.filter(has_it).collect()
}

/// Checks the threads with a function: their number, and the kind of their waits.
fn check(document: &Value, function: &str, count: usize, wait: &str) {
    let found = with(document, function);
    assert_eq!(found.len(), count, "{function}");
    for thread in found {
        assert_eq!(thread["state"], "waiting", "{thread:#}");
        assert_eq!(thread["wait"]["kind"], wait, "{thread:#}");
        let is_timed = thread["wait"]["deadline_ns"].is_u64();
        assert_eq!(is_timed, wait == "sleep", "{thread:#}");
        let host = thread["host"].as_u64();
        let is_host = |it: &Value| it["tid"].as_u64() == host && it["name"] == "raddle-host";
        let mut threads = document["threads"].as_array().unwrap().iter();
        assert!(threads.any(is_host), "{thread:#}");
    }
}

fn check_document(tool: &PathBuf, count: usize) {
    let all = document(tool, &[]);
    assert_eq!(all["light_threads"].as_u64(), Some(count as u64));
    check(&all, "wait_for_unpark", EACH, "unpark");
    check(&all, "wait_for_completion", EACH, "completion");
    check(&all, "sleep_long", 2 * EACH, "sleep");
    check(&all, "join_sleeper", EACH, "completion");
    // A light thread that blocks in std is on its host, and waits as that does.
    check(&all, "block_in_std", 2, "sleep");
    let threads = all["threads"].as_array().unwrap();
    let tids: BTreeSet<u64> = threads
        .iter()
        .map(|it| it["tid"].as_u64().unwrap())
        .collect();
    assert_eq!(tids.len(), threads.len());
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in threads.iter().filter(|it| it["light"] == true) {
        *kinds
            .entry(thread["stack_kind"].as_str().unwrap())
            .or_default() += 1;
    }
    assert_eq!(kinds["parked"], count, "{kinds:?}");
    let one = with(&all, "join_sleeper")[0]["tid"].to_string();
    let one = document(tool, &["--tid", &one]);
    assert_eq!(one["threads"].as_array().unwrap().len(), 1);
    assert_eq!(with(&one, "join_sleeper").len(), 1);
    let named = document(tool, &["--name", "light", "--state", "waiting"]);
    assert_eq!(named["threads"].as_array().unwrap().len(), count);
}

fn check_text(tool: &PathBuf, count: usize) {
    let text = String::from_utf8(dump(tool, &["--group"]).stdout).unwrap();
    assert!(
        text.contains(&format!(", {count} light threads, ")),
        "{text}"
    );
    // They have left their hosts in two ways, so that there may be two groups.
    let groups = text
        .lines()
        .filter(|line| line.contains("\"light\": waiting unpark #"));
    let number = |line: &str| line.split(' ').next()?.parse::<usize>().ok();
    assert_eq!(groups.filter_map(number).sum::<usize>(), EACH, "{text}");
    let text = String::from_utf8(dump(tool, &["--no-group", "--name", "light"]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("unpark")).unwrap();
    assert!(
        line.contains("  host #") && !line.contains("active="),
        "{line}"
    );
    assert_eq!(text.matches(" light threads, ").count(), 1, "{text}");
    let report = dump(tool, &["--deadlocks"]);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
}

/// The child of a fork has the light threads that it makes itself, and none of its parent's.
fn check_child(tool: &PathBuf) {
    // SAFETY: the child runs ordinary code of this process, and ends without destructors.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(light::spawn(wait_for_unpark));
        let started = Instant::now();
        let mut status = 1;
        while status != 0 && started.elapsed() < Duration::from_secs(30) {
            let document = document(tool, &[]);
            if document["light_threads"] == 1 && with(&document, "wait_for_unpark").len() == 1 {
                status = 0;
            }
        }
        // SAFETY: it ends the process at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: it fills a live number.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}

#[test]
fn light_threads_are_shown_with_their_waits_and_stacks() {
    let Some(tool) = tool().filter(|_| status() == Status::Green) else {
        println!("skipped: no raddle beside this program, or no green threads");
        return;
    };
    // Some stacks have had other light threads before.
    let earlier: Vec<_> = (0..EACH).map(|_| light::spawn(light::yield_now)).collect();
    earlier.into_iter().for_each(|it| it.join().unwrap());
    for _ in 0..EACH {
        drop(light::spawn(wait_for_unpark));
        drop(light::spawn(wait_for_completion));
        drop(light::spawn(sleep_long));
        drop(light::spawn(join_sleeper));
    }
    drop(light::spawn(block_in_std));
    drop(light::spawn(block_in_std));
    let count = 5 * EACH + 2;
    while BEGUN.load(Ordering::Relaxed) < count as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100)); // all are on their way into their waits
    check_document(&tool, count);
    check_text(&tool, count);
    check_child(&tool);
    measure(&tool);
}

/// Prints how long a dump of many light threads takes, if that is asked for.
fn measure(tool: &PathBuf) {
    let more: usize = std::env::var(MORE).map_or(0, |it| it.parse().unwrap());
    for _ in 0..more {
        drop(light::spawn(wait_for_unpark));
    }
    std::thread::sleep(Duration::from_millis(more as u64 / 50));
    if more != 0 {
        if std::env::var_os("HOLD").is_some() {
            println!("PID {}", std::process::id());
            std::thread::sleep(LONG);
        }
        for arguments in [&[][..], &["--json"]] {
            let started = Instant::now();
            let output = dump(tool, arguments);
            println!(
                "{arguments:?}: {:?}, {} bytes",
                started.elapsed(),
                output.stdout.len()
            );
        }
    }
}
