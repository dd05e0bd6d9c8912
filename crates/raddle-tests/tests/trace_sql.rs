//! A trace in Perfetto's own schema, and SQL over it: what it says is what the process and
//! `raddle locks` count.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, find_tool, in_every_mode, perfetto, raddle};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The locks of shares.c, and the functions of shares.py that wait for one.
const NAMES: [&str; 3] = ["lock_one", "lock_two", "lock_three"];
/// By how much the waits for a lock may differ.
const OFF: f64 = 0.02;

/// Starts a program that waits for SIGUSR1, and at last for ever.
fn start(mode: Mode, source: &str, arguments: &[&str]) -> Result<Running> {
    let mut line = Program::build(source)?.variants[0].command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let running = Running::start(mode, mode.command(&line)?, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

fn spawn(arguments: &[&str]) -> Result<Child> {
    let mut command = Command::new(raddle()?);
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command.spawn()?)
}

fn run(arguments: &[&str]) -> Result<Output> {
    let output = spawn(arguments)?.wait_with_output()?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(output)
}

/// Has a tool end what it records, and returns its output.
fn end(tool: Child) -> Result<Output> {
    rustix::process::kill_process(Pid::from_child(&tool), Signal::INT)?;
    let output = tool.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(output)
}

/// Waits until a text is there.
fn wait_for(running: &Running, text: &str) -> Result<()> {
    let begun = Instant::now();
    while !running.stdout_so_far().contains(text) {
        ensure!(begun.elapsed() < LIMIT, "it never said {text:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the rows of a query over a trace.
fn rows(file: &Path, query: &str) -> Result<Vec<Vec<Value>>> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join("trace_tables.py");
    let output = Command::new(find_tool("python3")?)
        .args([script.as_os_str(), file.as_os_str(), query.as_ref()])
        .env("PYTHONPATH", perfetto()?)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Turns, waits and wake-ups of a thread by its name.
const COUNTS: &str = "
    SELECT name,
        (SELECT count(*) FROM sched WHERE sched.tid = thread.tid),
        (SELECT count(*) FROM waking WHERE waking.tid = thread.tid),
        (SELECT count(*) FROM thread_state AS s WHERE s.tid = thread.tid AND state = 'S'),
        (SELECT count(*) FROM slice WHERE slice.tid = thread.tid AND slice.name LIKE 'semaphore %')
    FROM thread WHERE name IN ('ping', 'pong') ORDER BY name";

#[test]
fn turns_waits_and_wake_ups_are_those_that_the_process_counts() {
    let name = "trace_sql::turns_waits_and_wake_ups_are_those_that_the_process_counts";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return perfetto().map(drop);
        };
        let running = start(mode, "exchanges.c", &[])?;
        let folder = RunFolder::new(&format!("trace-sql-{mode}"))?;
        let file = folder.path().join("a.pftrace");
        let path = file.to_str().context("a path")?;
        let pid = running.pid().to_string();
        run(&["ctl", &pid, "record", "on"])?;
        running.signal(Signal::USR1)?;
        running.wait_until_it_says("ready\ndone\n")?;
        run(&["trace", &pid, "--last", "60", "-o", path])?;
        let dump = run(&["dump", &pid, "--no-stacks", "--json"])?.stdout;
        let dump: Value = serde_json::from_slice(&dump)?;
        let page = String::from_utf8(run(&["metrics", &pid])?.stdout)?;
        let counted = rows(&file, COUNTS)?;
        ensure!(counted.len() == 2, "{counted:?}");
        for row in counted {
            let thread = row[0].as_str().context("a name")?;
            let figure = |column: usize| row[column].as_u64().context("a number");
            let (turns, wakes, waits) = (figure(1)?, figure(2)?, figure(3)?);
            let threads = dump["threads"].as_array().context("threads")?;
            let dumped = threads
                .iter()
                .find(|it| it["name"] == thread)
                .context("a thread")?;
            let counter = |name: &str| dumped[name].as_u64().context("a counter");
            let metric = |name: &str| -> Result<u64> {
                let end = format!("group=\"{thread}\"}} ");
                let rows = page.lines().filter(|it| it.starts_with(name));
                let value = rows.filter_map(|it| it.split_once(&end)).next();
                Ok(value.context("a row")?.1.parse()?)
            };
            let (active, park, preempt) =
                (counter("active")?, counter("park")?, counter("preempt")?);
            ensure!(turns == active, "{thread}: {turns} turns of {active}");
            ensure!(turns == metric("raddle_group_switches_total{")?, "{page}");
            ensure!(park == metric("raddle_group_parks_total{")?, "{page}");
            // A thread that is woken before it has left its carrier does not wait.
            ensure!(
                waits <= park && park <= figure(4)?,
                "{thread}: {row:?}, {park} waits"
            );
            // The first turn follows the thread's creation, which is shown as a wake-up; the last
            // wait goes on.
            let woken = wakes + preempt;
            ensure!(wakes <= active && woken >= active, "{thread}: {row:?}");
        }
        run(&["ctl", &pid, "record", "off"])?;
        Ok(())
    });
}

/// The waits for each lock, by their addresses.
const LOCKS: &str = "
    SELECT slice.name, count(*), sum(thread_state.dur)
    FROM slice JOIN thread_state ON thread_state.tid = slice.tid AND thread_state.ts = slice.ts
    WHERE thread_state.state = 'S'
    GROUP BY slice.name";

#[test]
fn waits_for_locks_are_those_of_raddle_locks() {
    let name = "trace_sql::waits_for_locks_are_those_of_raddle_locks";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return perfetto().map(drop);
        };
        for (source, last) in [
            ("shares.c", "part lock_three"),
            ("shares.py", "part wait_rest"),
        ] {
            let running = start(mode, source, &["2", "wait"])?;
            let folder = RunFolder::new(&format!("locks-sql-{mode}"))?;
            let file = folder.path().join("a.pftrace");
            let path = file.to_str().context("a path")?;
            let pid = running.pid().to_string();
            // Both have begun when the program begins, and end when it is over.
            let trace = spawn(&["trace", &pid, "-o", path])?;
            let locks = spawn(&["locks", &pid, "--json", "-d", "60"])?;
            std::thread::sleep(Duration::from_millis(1500));
            running.signal(Signal::USR1)?;
            wait_for(&running, last)?;
            std::thread::sleep(Duration::from_millis(300));
            let said: Value = serde_json::from_slice(&end(locks)?.stdout)?;
            end(trace)?;
            let traced = rows(&file, LOCKS)?;
            let mut compared = 0;
            for lock in said["locks"].as_array().context("locks")? {
                let places = serde_json::to_string(&lock["waits_at"])?;
                // Python's locks are semaphores. The interpreter's own lock, a mutex, is waited for
                // at the same places.
                let is_in_python = lock["kind"] == "semaphore"
                    && NAMES.iter().any(|it| places.contains(&format!("\"{it}\"")));
                if !is_in_python && !NAMES.iter().any(|it| lock["name"] == *it) {
                    continue;
                }
                compared += 1;
                let address = lock["address"].as_str().context("an address")?;
                // Calls of the C library and system calls may name one word differently. Then the
                // locks are those of one name, or of all.
                let names = traced.iter().filter(|it| {
                    let name = it[0].as_str().unwrap_or_default();
                    name.split(' ').any(|word| word == address)
                });
                let names = names.map(|it| Some((it[1].as_u64()?, it[2].as_f64()?)));
                let mut names = names.collect::<Option<Vec<_>>>().context("numbers")?;
                let add = |all: (u64, f64), it: &(u64, f64)| (all.0 + it.0, all.1 + it.1);
                names.push(names.iter().fold((0, 0.0), add));
                let waited_ns = lock["waited_ns"].as_f64().context("a time")?;
                let is_same = |&(waits, traced_ns): &(u64, f64)| {
                    lock["waits"] == waits && (traced_ns / waited_ns - 1.0).abs() < OFF
                };
                ensure!(names.iter().any(is_same), "{names:?} {lock}");
            }
            ensure!(compared == 3, "{compared} locks of {source}: {said}");
        }
        Ok(())
    });
}

/// Waits of threads by their names: how many there are, how many of them name the process POSTER in
/// words and by its number, and how many arrows lead from it. Two wake-ups may have the same time.
const OTHERS: &str = "
    SELECT thread.name, count(*),
        sum(ifnull(json_extract(args, '$.woken_by') LIKE '%poster (POSTER)', 0)),
        sum(ifnull(json_extract(args, '$.waker_pid') = POSTER, 0)),
        (SELECT count(*) FROM flow WHERE flow.tid = thread.tid AND flow.pid = POSTER
            AND EXISTS (SELECT * FROM mark
                WHERE mark.pid = flow.pid AND mark.ts = out_ts AND mark.name = 'wake-up')
            AND EXISTS (SELECT * FROM mark WHERE mark.tid = flow.tid AND mark.ts = in_ts
                AND mark.name = 'woken by process POSTER'))
    FROM slice JOIN thread USING (tid) WHERE thread.name LIKE 'of-%' GROUP BY thread.name";

/// In each thread that another process wakes, most waits say so. Of those that were kept before,
/// the process is not sure, and has no arrows.
fn name_the_other_process(file: &Path, poster: &str, is_past: bool) -> Result<()> {
    let found = rows(file, &OTHERS.replace("POSTER", poster))?;
    ensure!(found.len() == 5, "{found:?}");
    for row in &found {
        let figure = |column: usize| row[column].as_u64().context("a number");
        let (waits, named) = (figure(1)?, figure(2)?);
        // The first wait may have begun before, and the last one goes on.
        ensure!(waits > 10 && named * 10 > waits * 8, "{found:?}");
        let sure = if is_past { 0 } else { named };
        ensure!((figure(3)?, figure(4)?) == (sure, sure), "{found:?}");
    }
    Ok(())
}

#[test]
fn waits_that_another_process_ends_name_it() {
    let name = "trace_sql::waits_that_another_process_ends_name_it";
    in_every_mode(name, |mode| {
        let Mode::Raddle { .. } = mode else {
            return perfetto().map(drop);
        };
        let mut line = Program::build("other_process.c")?.variants[0]
            .command
            .clone();
        line.push("stay".into());
        let running = Running::start(mode, mode.command(&line)?, None)?;
        wait_for(&running, "\n")?;
        let said = running.stdout_so_far();
        let poster = said
            .trim_end()
            .strip_prefix("poster ")
            .context("a process")?;
        let folder = RunFolder::new(&format!("others-sql-{mode}"))?;
        let pid = running.pid().to_string();
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (live, past) = (file("live"), file("past"));
        run(&["trace", &pid, "-d", "1", "-o", &live])?;
        name_the_other_process(Path::new(&live), poster, false)?;
        run(&["ctl", &pid, "flight-recorder", "on"])?;
        std::thread::sleep(Duration::from_secs(1));
        run(&["trace", &pid, "--last", "5", "-o", &past])?;
        name_the_other_process(Path::new(&past), poster, true)
    });
}
