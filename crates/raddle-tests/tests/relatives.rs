//! Processes that are related by forks without an exec share the CPUs as one program.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, raddle};
use rustix::thread::sched_getaffinity;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// Extra carriers come after two windows of 50 ms each.
const QUIET: Duration = Duration::from_secs(2);

fn extra_carriers(pid: u32) -> Result<u64> {
    let dumped = Command::new(raddle()?)
        .args(["dump", &pid.to_string(), "--json", "--no-stacks"])
        .output()?;
    ensure!(dumped.status.success(), "{dumped:?}");
    let dumped: Value = serde_json::from_slice(&dumped.stdout)?;
    dumped["carriers_extra"].as_u64().context("a number")
}

/// Starts the program on CPU 0 with so many children, each of which computes as it does.
fn compute(mode: Mode, children: &str) -> Result<Running> {
    let program = Program::build("computing.c")?;
    let program = program.variants[0].command[0].to_str().context("a path")?;
    let raddle = raddle()?;
    let raddle = raddle.to_str().context("a path")?;
    let pinned = ["taskset", "-c", "0"];
    let carried = [raddle, "run", "--extra-carriers", "5", "--"];
    let carried = if mode == Mode::Native {
        &[][..]
    } else {
        &carried[..]
    };
    let line = [&pinned[..], carried, &[program, children]].concat();
    let running = Running::start(mode, Mode::Native.command(&line)?, None)?;
    running.wait_until_it_says("computing\n")?;
    Ok(running)
}

/// Of the process and its children.
fn extra_carriers_of_family(parent: u32) -> Result<u64> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    let mut extra = extra_carriers(parent)?;
    for child in children.split_whitespace() {
        extra += extra_carriers(child.parse()?)?;
    }
    Ok(extra)
}

/// Each of five processes gets a fifth of a CPU. The others are relatives, so none has extra
/// carriers, until strangers want the CPU, too. The relatives that grow first get a quarter of the
/// CPU for all, so the others needn't grow.
#[test]
fn relatives_are_no_other_processes() {
    let name = "relatives::relatives_are_no_other_processes";
    in_every_mode(name, |mode| {
        if mode != (Mode::Raddle { carriers: 2 }) || !sched_getaffinity(None)?.is_set(0) {
            return Ok(());
        }
        if fs::read("/proc/self/schedstat").is_err() {
            eprintln!("this kernel keeps no account of the time that threads wait for a CPU");
            return Ok(());
        }
        let running = compute(Mode::Raddle { carriers: 0 }, "4")?;
        let started = Instant::now();
        while started.elapsed() < QUIET {
            let extra = extra_carriers_of_family(running.pid())?;
            ensure!(extra == 0, "{extra} extra carriers among relatives");
            std::thread::sleep(Duration::from_millis(50));
        }
        let strangers = compute(Mode::Native, "2")?;
        let started = Instant::now();
        while extra_carriers_of_family(running.pid())? == 0 {
            let took = started.elapsed();
            ensure!(took < LIMIT, "no extra carriers after {took:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        strangers.terminate()?;
        running.terminate()
    });
}
