//! How many CPUs a program sees: as many as there are carriers, where `-n` asks for few.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Program, find_tool, or_skip, raddle};

fn program() -> Result<OsString> {
    let program = Program::build("cpus.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("it is one program");
    };
    Ok(variant.command[0].clone())
}

/// The output of the program's case under `raddle run` with these options; natively without any.
fn output(options: &[&str], case: &str) -> Result<String> {
    let mut command = match options {
        [] => Command::new(program()?),
        _ => {
            let mut command = Command::new(raddle()?);
            command.arg("run").args(options).arg("--").arg(program()?);
            command
        }
    };
    let output = command.arg(case).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The lines of the case `count` if `cpus` are shown.
fn counted(cpus: u32) -> String {
    let lines = [
        format!("first: {cpus} {cpus} {cpus} {cpus} here"),
        format!("thread: {cpus} {cpus} {cpus} {cpus} {cpus} here"),
        format!("then: {cpus} {cpus} {cpus} {cpus} {cpus} here"),
        "ok count\n".to_owned(),
    ];
    lines.join("\n")
}

/// CPUs that this process may use, if these are all that are online, and several.
fn several() -> Option<u32> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?.count();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let has_all = online.trim() == format!("0-{}", allowed.saturating_sub(1));
    if allowed < 2 || !has_all {
        eprintln!("skipped: this process may not use several CPUs, and all that are online");
        return None;
    }
    Some(allowed)
}

#[test]
fn one_carrier_shows_one_cpu() {
    if several().is_some() {
        assert_eq!(output(&["-n", "1"], "count").unwrap(), counted(1));
    }
}

#[test]
fn as_many_carriers_as_cpus_or_more_show_all() {
    if let Some(all) = several() {
        let native = output(&[], "count").unwrap();
        assert_eq!(native, counted(all));
        for options in [&["-v"][..], &["-n", &all.to_string()], &["-n", "100"]] {
            assert_eq!(output(options, "count").unwrap(), native, "{options:?}");
        }
    }
}

#[test]
fn the_machines_are_shown_on_request() {
    if let Some(all) = several() {
        let options = ["-n", "1", "--cpus", "machine"];
        assert_eq!(output(&options, "count").unwrap(), counted(all));
    }
}

#[test]
fn what_a_thread_asks_for_is_what_it_gets() {
    if let Some(all) = several() {
        let said = output(&["-n", "1"], "choose").unwrap();
        assert!(said.contains(&format!("chosen: {all}\n")), "{said}");
    }
}

/// Runtimes ask for the CPUs all the time, by the process's id.
#[test]
fn asking_for_cpus_makes_no_further_call() {
    let tool = or_skip("cpus::asking_for_cpus", find_tool("strace"));
    let Some(tool) = tool else {
        return;
    };
    let mut command = Command::new(tool);
    command.args(["-f", "-e", "trace=getpid,sched_getaffinity"]);
    command.arg(raddle().unwrap());
    command.args(["run", "-n", "1", "--"]);
    let output = command.arg(program().unwrap()).arg("ask").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = String::from_utf8(output.stderr).unwrap();
    let calls = |name: &str| report.matches(name).count();
    assert!(calls("sched_getaffinity(0, ") >= 200, "{report}");
    assert!(calls("getpid()") < 50, "{report}");
}

#[test]
fn who_asks_again_sees_as_many_as_carriers_now() {
    if let Some(all) = several() {
        follow(all).unwrap();
    }
}

fn follow(all: u32) -> Result<()> {
    let mut child = Command::new(raddle()?)
        .args(["run", "--"])
        .arg(program()?)
        .arg("follow")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(child.stdout.take().context("it has an output")?).lines();
    let mut to = child.stdin.take().context("it has an input")?;
    out.next()
        .context("it says how many there are at first")??;
    let pid = child.id().to_string();
    for (carriers, shown) in [("1", 1), ("auto", all), ("1", 1), ("64", all)] {
        let ctl = Command::new(raddle()?)
            .args(["ctl", &pid, "carriers", carriers])
            .output()?;
        ensure!(ctl.status.success(), "{ctl:?}");
        writeln!(to)?;
        let line = out.next().context("it answers")??;
        ensure!(line == shown.to_string(), "{line} with {carriers}");
    }
    drop(to);
    ensure!(child.wait()?.success());
    Ok(())
}

#[test]
fn nonsense_is_refused() {
    let output = Command::new(raddle().unwrap())
        .args(["run", "--cpus", "few", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("carriers, machine"), "{said}");
}
