//! Lints of `raddle top`: bound threads that use most of the CPU time, and servers and virtual
//! machines in good health, of which nothing is said.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, Running, find_tool, in_every_mode, jdks, or_skip, raddle};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

fn start(
    mode: Mode,
    source: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<Running> {
    let program = Program::build(source)?;
    let [variant] = program.variants.as_slice() else {
        bail!("{source} is one program");
    };
    let mut line = variant.command.clone();
    line.extend(arguments.iter().map(OsString::from));
    let mut command = mode.command(&line)?;
    command.envs(variables.iter().copied());
    Running::start(mode, command, None)
}

/// Returns the document of an interval, and the kinds of its lints.
fn look(pid: u32, seconds: &str) -> Result<(Value, Vec<String>)> {
    let output = Command::new(raddle()?)
        .args(["top", &pid.to_string(), "--once", "--json", "-d", seconds])
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let lints = document["lints"].as_array().context("lints")?.iter();
    let kinds = lints.map(|it| it["kind"].as_str().unwrap_or("").to_owned());
    let kinds = kinds.collect();
    Ok((document, kinds))
}

#[test]
fn bound_threads_that_use_most_of_the_cpu_time_are_named() {
    let name = "lints::bound_threads_that_use_most_of_the_cpu_time_are_named";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(());
        };
        let variables = [("RADDLE_EXCLUDE", "name:spin-*")];
        let running = start(mode, "busy.c", &["mixed", "2"], &variables)?;
        running.wait_until_it_says("ready\n")?;
        // The thread may have less than half of a CPU on a machine that is shared.
        let begun = Instant::now();
        loop {
            let (document, kinds) = look(running.pid(), "1.5")?;
            let bound = document["lints"].as_array().context("lints")?.iter();
            let mut bound = bound.filter(|it| it["kind"] == "bound_dominate");
            if let Some(lint) = bound.next() {
                let text = lint["text"].as_str().unwrap_or_default();
                ensure!(
                    kinds.len() == 1 && text.contains("\"spin-0\""),
                    "{document}"
                );
                return Ok(());
            }
            ensure!(begun.elapsed() < LIMIT, "{document}");
        }
    });
}

#[test]
fn a_server_under_load_has_no_lints() {
    let name = "lints::a_server_under_load_has_no_lints";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(());
        };
        let wrk = find_tool("wrk")?;
        let running = start(mode, "http_server.c", &[], &[])?;
        let begun = Instant::now();
        let port = loop {
            let text = running.stdout_so_far();
            let port = text
                .strip_prefix("port ")
                .and_then(|it| it.strip_suffix('\n'));
            if let Some(port) = port {
                break port.to_owned();
            }
            ensure!(begun.elapsed() < LIMIT, "{text}");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut load = Command::new(wrk)
            .args(["-t", "1", "-d", "5s", "-c", "50"])
            .arg(format!("http://127.0.0.1:{port}/"))
            .stdout(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(500));
        let looked = look(running.pid(), "2");
        load.wait()?;
        let (document, kinds) = looked?;
        ensure!(kinds.is_empty(), "{document}");
        let rows = document["rows"].as_array().context("rows")?;
        let turns = |row: &Value| row["turns_per_s"].as_f64().unwrap_or(0.0);
        ensure!(rows.iter().map(turns).sum::<f64>() > 100.0, "{document}");
        Ok(())
    });
}

#[test]
fn a_virtual_machine_that_waits_has_no_lints() {
    let name = "lints::a_virtual_machine_that_waits_has_no_lints";
    let mode = Mode::Raddle { carriers: 2 };
    let check = || -> Result<()> {
        let program = Program::build("Mixed.java")?;
        for (variant, jdk) in program.variants.iter().zip(jdks()?) {
            let mut line = variant.command.clone();
            line.push("20".into());
            let running = Running::start(mode, mode.command(&line)?, None)?;
            running.wait_until_it_says("ready\n")?;
            let (document, kinds) = look(running.pid(), "1.5")?;
            ensure!(kinds.is_empty(), "java {}: {document}", jdk.version);
        }
        Ok(())
    };
    or_skip(name, check());
}
