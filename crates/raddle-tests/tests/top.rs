//! `raddle top`: what it says of programs of which the load is known. `busy.c` has a kind of load
//! for each test.

mod schema;

use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, list, raddle};
use rustix::process::Signal;
use schema::conforms;
use serde_json::Value;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/top.schema.json");

/// Runs `busy.c` with these arguments, after it says that it is ready.
fn start(mode: Mode, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Running> {
    let program = Program::build("busy.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("busy.c is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let mut command = mode.command(&line)?;
    command.envs(variables.iter().copied());
    let running = Running::start(mode, command, None)?;
    running.wait_until_it_says("ready\n")?;
    Ok(running)
}

/// Calls `test` with the program, at each number of carriers.
fn with_busy(name: &str, arguments: &[&str], test: impl Fn(&Running, u16) -> Result<()>) {
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        test(&start(mode, arguments, &[])?, carriers)
    });
}

fn top_command(pid: u32, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(raddle()?);
    command.arg("top").arg(pid.to_string()).args(arguments);
    Ok(command)
}

fn top(pid: u32, arguments: &[&str]) -> Result<Output> {
    Ok(top_command(pid, arguments)?.output()?)
}

fn document(pid: u32, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["--once", "--json"], arguments].concat();
    let output = top(pid, &arguments)?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn number(value: &Value, field: &str) -> Result<f64> {
    let number = value[field].as_f64();
    number.with_context(|| format!("no number {field} in {value}"))
}

/// Returns the rows of threads with names that begin so.
fn named<'a>(document: &'a Value, begin: &str) -> Result<Vec<&'a Value>> {
    let has = |row: &&Value| row["name"].as_str().is_some_and(|it| it.starts_with(begin));
    Ok(list(document, "rows")?.iter().filter(has).collect())
}

fn lints(document: &Value) -> Result<Vec<&str>> {
    let kinds = list(document, "lints")?
        .iter()
        .map(|it| it["kind"].as_str());
    kinds.collect::<Option<_>>().context("lints have kinds")
}

/// CPU time of a process in seconds.
fn kernel_cpu_s(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(") ").context("a name")?.1.split(' ');
    let ticks: f64 = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap_or(0.0))
        .sum();
    const TICKS_PER_SECOND: f64 = 100.0; // USER_HZ
    Ok(ticks / TICKS_PER_SECOND)
}

#[test]
fn the_document_is_as_its_schema_says() {
    let name = "top::the_document_is_as_its_schema_says";
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(SCHEMA).unwrap()).unwrap();
    with_busy(name, &["mixed"], |running, _| {
        for more in [&[][..], &["--by-name"], &["--sort", "wait", "--rows", "1"]] {
            let arguments = [more, &["-d", "0.2"]].concat();
            let found = document(running.pid(), &arguments)?;
            conforms(&found, &schema, &schema, "document")?;
        }
        Ok(())
    });
}

#[test]
fn each_thread_has_its_load() {
    let name = "top::each_thread_has_its_load";
    with_busy(name, &["mixed"], |running, carriers| {
        let pid = running.pid();
        let before_s = kernel_cpu_s(pid)?;
        let found = document(pid, &[])?;
        let used_s = kernel_cpu_s(pid)? - before_s;
        ensure!(lints(&found)?.is_empty(), "{found}");
        let all = number(&found["threads"], "all")?;
        ensure!(all == 10.0 && list(&found, "rows")?.len() == 10, "{found}");
        ensure!(found["engines"][0]["wanted"] == carriers, "{found}");
        let rows = list(&found, "rows")?;
        ensure!(
            rows[0]["name"] == "spin-0",
            "the spinning one is first: {found}"
        );
        let spins = number(&rows[0], "cpu_percent")?;
        ensure!((2.0..=101.0).contains(&spins), "{found}");
        for row in named(&found, "tick")? {
            ensure!(number(row, "wakes_per_s")? > 2.0, "{row}");
            ensure!(number(row, "cpu_percent")? < spins, "{row}");
        }
        for row in named(&found, "rest")? {
            ensure!(row["wait"]["kind"] == "condvar", "{row}");
            ensure!(number(row, "cpu_percent")? == 0.0, "{row}");
            ensure!(number(row, "since_s")? >= 1.0, "{row}");
        }
        let sum: Result<Vec<f64>> = rows.iter().map(|row| number(row, "cpu_percent")).collect();
        let (sum, told) = (
            sum?.iter().sum::<f64>(),
            number(&found["cpu"], "threads_percent")?,
        );
        ensure!((sum - told).abs() < 1.0, "{sum} {told}");
        // The tool begins and ends a little later; a tick is 10 ms.
        let used_percent = used_s * 100.0 / number(&found, "interval_s")?;
        ensure!(told <= used_percent + 5.0, "{told} of {used_percent}");
        let kernel = number(&found["cpu"], "process_percent")?;
        ensure!((told - kernel).abs() <= 10.0, "{told} and {kernel}");
        Ok(())
    });
}

#[test]
fn threads_are_picked_sorted_and_counted_by_name() {
    let name = "top::threads_are_picked_sorted_and_counted_by_name";
    with_busy(name, &["mixed", "12"], |running, _| {
        let pid = running.pid();
        let found = document(pid, &["-d", "0.3", "--by-name", "--sort", "name"])?;
        let groups = list(&found, "groups")?.iter();
        let groups: Vec<_> = groups.map(|it| (&it["name"], &it["threads"])).collect();
        let wanted = [
            ("program", 1),
            ("rest-*", 12),
            ("spin-*", 1),
            ("tick-*", 12),
        ];
        let is_same = |((name, threads), wanted): (&(&Value, &Value), &(&str, i32))| {
            **name == wanted.0 && **threads == wanted.1
        };
        ensure!(groups.iter().zip(&wanted).all(is_same), "{groups:?}");
        ensure!(groups.len() == wanted.len() && list(&found, "rows")?.is_empty());
        let arguments = [
            "-d", "0.3", "--filter", "t*k-?", "--sort", "tid", "--rows", "4",
        ];
        let found = document(pid, &arguments)?;
        let tids = list(&found, "rows")?.iter().map(|row| row["tid"].as_u64());
        let tids: Vec<_> = tids.collect();
        ensure!(tids.len() == 4 && tids.is_sorted(), "{found}");
        ensure!(found["left_out"] == 6, "{found}");
        let found = document(pid, &["-d", "0.3", "--state", "waiting", "--sort", "wait"])?;
        let waits = list(&found, "rows")?
            .iter()
            .map(|row| row["since_s"].as_f64());
        let waits: Vec<_> = waits.map(|it| it.unwrap_or(0.0)).collect();
        ensure!(
            waits.len() >= 12 && waits.is_sorted_by(|a, b| a >= b),
            "{found}"
        );
        Ok(())
    });
}

#[test]
fn a_thread_that_holds_its_carrier_in_the_kernel_is_named() {
    let name = "top::a_thread_that_holds_its_carrier_in_the_kernel_is_named";
    with_busy(name, &["stuck"], |running, _| {
        let found = document(running.pid(), &[])?;
        ensure!(lints(&found)?.contains(&"holds_carrier"), "{found}");
        let text = found["lints"][0]["text"].as_str().unwrap_or_default();
        ensure!(text.contains("\"stuck-0\" holds carrier"), "{found}");
        Ok(())
    });
}

/// A thread computes, and nothing takes the only carrier from it.
#[test]
fn starvation_is_named_with_the_cure_that_ends_it() {
    let name = "top::starvation_is_named_with_the_cure_that_ends_it";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 1 } = mode else {
            return Ok(());
        };
        let running = start(mode, &["hogged"], &[("RADDLE_QUANTUM_US", "0")])?;
        let pid = running.pid();
        let found = document(pid, &["-d", "2"])?;
        let kinds = lints(&found)?;
        ensure!(
            kinds.contains(&"starved") && kinds.contains(&"hogged"),
            "{found}"
        );
        let cure = found["lints"][0]["cure"].as_str().unwrap_or_default();
        let cure = cure.rsplit_once("raddle ").context("a command")?.1;
        let status = Command::new(raddle()?).args(cure.split(' ')).output()?;
        ensure!(status.status.success(), "{cure}: {status:?}");
        let found = document(pid, &["-d", "2"])?;
        ensure!(lints(&found)?.is_empty(), "{found}");
        Ok(())
    });
}

#[test]
fn a_crowd_of_computing_threads_is_named() {
    let name = "top::a_crowd_of_computing_threads_is_named";
    with_busy(name, &["crowd", "300"], |running, _| {
        let found = document(running.pid(), &["-d", "1.2"])?;
        ensure!(lints(&found)? == ["crowded"], "{found}");
        Ok(())
    });
}

/// After the last tool the process counts no CPU time any more: it would cost each switch.
#[test]
fn counting_ends_after_the_last_tool() {
    let name = "top::counting_ends_after_the_last_tool";
    const LASTS: Duration = Duration::from_secs(10);
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(());
        };
        let running = start(mode, &["mixed"], &[])?;
        let pid = running.pid();
        let ticks_cpu_s = || -> Result<f64> {
            let found = document(pid, &["-d", "0.1"])?;
            let ticks = named(&found, "spin")?;
            number(ticks.first().context("a thread that computes")?, "cpu_s")
        };
        let first_s = ticks_cpu_s()?;
        let begun = Instant::now();
        let second_s = ticks_cpu_s()?;
        ensure!(second_s > first_s, "{first_s} {second_s}");
        thread::sleep(LASTS * 2);
        let later_s = ticks_cpu_s()?;
        let counted = later_s - second_s;
        ensure!(
            counted < begun.elapsed().as_secs_f64() - 5.0,
            "{counted} s were counted"
        );
        Ok(())
    });
}

#[test]
fn a_batch_goes_on_until_the_process_ends() {
    let name = "top::a_batch_goes_on_until_the_process_ends";
    with_busy(name, &["resting", "3"], |running, _| {
        let counted = top(running.pid(), &["--batch", "-n", "2", "-d", "0.1"])?;
        let text = String::from_utf8(counted.stdout)?;
        ensure!(
            counted.status.success() && text.matches("\nthreads 4:").count() == 2,
            "{text}"
        );
        ensure!(text.lines().all(|line| line.len() <= 80), "{text}");
        let lines = top(
            running.pid(),
            &["--batch", "--json", "-n", "2", "-d", "0.1"],
        )?;
        for line in String::from_utf8(lines.stdout)?.lines() {
            serde_json::from_str::<Value>(line)?;
        }
        let mut command = top_command(running.pid(), &["-b", "-d", "0.1"])?;
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        thread::sleep(Duration::from_millis(500));
        running.signal(Signal::KILL)?;
        let status = child.wait()?;
        let mut said = String::new();
        child.stderr.context("a pipe")?.read_to_string(&mut said)?;
        ensure!(
            status.success() && said.contains("has ended"),
            "{status} {said}"
        );
        Ok(())
    });
}

#[test]
fn what_can_not_be_shown_is_one_sentence() {
    let refused = |arguments: &[&str], sentence: &str| {
        let output = Command::new(raddle().unwrap())
            .arg("top")
            .args(arguments)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            output.stdout.is_empty() && said.lines().count() == 1,
            "{output:?}"
        );
        assert!(said.contains(sentence), "{said}");
    };
    let own = std::process::id().to_string();
    refused(&["0", "--once"], "give the number of a process");
    refused(&["-5", "--once"], "");
    refused(&["99999999999", "--once"], "give the number of a process");
    refused(&["2000000000", "--once"], "there is no process");
    refused(&[&own, "--once"], "does not run under raddle");
    refused(&[&own], "this is no terminal");
    refused(&[&own, "--json"], "give --once or --batch");
    refused(&[&own, "--once", "-d", "0"], "0.01 to 3600");
    refused(&[&own, "--batch", "-n", "0"], "");
}

#[test]
fn a_convoy_names_the_lock() {
    let name = "top::a_convoy_names_the_lock";
    with_busy(name, &["convoy", "12"], |running, _| {
        let found = document(running.pid(), &["-d", "1.5"])?;
        let lints = list(&found, "lints")?;
        let convoy = lints.iter().find(|lint| lint["kind"] == "convoy");
        let convoy = convoy.with_context(|| format!("no convoy: {found}"))?;
        ensure!(
            list(convoy, "tids")?.len() >= 3 && convoy["lock"].is_string(),
            "{convoy}"
        );
        let text = convoy["text"].as_str().unwrap_or_default();
        ensure!(text.contains("mutex 0x"), "{text}");
        Ok(())
    });
}

#[test]
fn a_lock_that_is_held_over_a_sleep_names_its_owner() {
    let name = "top::a_lock_that_is_held_over_a_sleep_names_its_owner";
    with_busy(name, &["held", "5"], |running, _| {
        let found = document(running.pid(), &["-d", "1.2"])?;
        ensure!(lints(&found)? == ["held_lock"], "{found}");
        let text = found["lints"][0]["text"].as_str().unwrap_or_default();
        ensure!(
            text.contains("\"keep-0\" has it, and waits itself (sleep"),
            "{text}"
        );
        Ok(())
    });
}

/// Programs that wait for locks and for each other, or compute, as `healthy.rs` has them: busy, and
/// nothing is wrong.
#[test]
fn programs_in_good_health_have_no_lints() {
    let name = "top::programs_in_good_health_have_no_lints";
    const KINDS: &str = "\
        timed_cycle idle_pool signal_wakes timer_wakes timer_thread_wakes sigwait_wakes \
        process_wakes pipe_wakes child_wakes contended backing_off ping_pong long_chain \
        readers_and_writers barriers owner_dies inherited chain_of_joins event_wakes computing";
    let look = |mode: Mode, kind: &str| {
        let program = Program::build("no_deadlocks.c")?;
        let [variant] = program.variants.as_slice() else {
            bail!("no_deadlocks.c is one program");
        };
        let mut line = variant.command.clone();
        line.extend([kind.into(), "4".into()]);
        let running = Running::start(mode, mode.command(&line)?, None)?;
        thread::sleep(Duration::from_millis(500));
        let output = top(running.pid(), &["--once", "--json", "-d", "1.5"])?;
        if !output.status.success() {
            return Ok(false); // it has ended, or has one thread yet
        }
        let found: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(lints(&found)?.is_empty(), "{kind}: {found}");
        Ok(true)
    };
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(());
        };
        let mut looked_at = 0;
        for kind in KINDS.split_whitespace() {
            looked_at += usize::from(look(mode, kind)?);
        }
        ensure!(looked_at >= 15, "{looked_at} were looked at");
        Ok(())
    });
}
