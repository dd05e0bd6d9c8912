//! That raddle is really there: threads of the program are not kernel threads.
//!
//! Without this, a runtime that quietly gives every thread a kernel thread passes everything.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode, status_number};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(60);

/// What the runtime may have beside its carriers: sysmon, and helpers for blocking calls.
const OTHERS_MAX: usize = 3;

fn kernel_threads(pid: u32) -> Result<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Threads:"));
    Ok(line
        .context("a status has a line on threads")?
        .trim()
        .parse()?)
}

fn start_waiting(mode: Mode, count: usize) -> Result<Running> {
    let program = Program::build("many_waiting.c")?;
    let mut line = program.variants[0].command.clone();
    line.push(count.to_string().into());
    let running = Running::start(mode, mode.command(&line)?, None)?;
    let started = Instant::now();
    while running.stdout_so_far() != "waiting\n" {
        ensure!(started.elapsed() < LIMIT, "it never said that all wait");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(running)
}

fn check(test: &str, count: usize) {
    in_every_mode(test, |mode| {
        let running = start_waiting(mode, count)?;
        let found = kernel_threads(running.pid())?;
        match mode {
            Mode::Native => ensure!(found == count + 1, "{found} kernel threads"),
            Mode::Raddle { carriers } => ensure!(
                found <= usize::from(carriers) + OTHERS_MAX,
                "{found} kernel threads with {carriers} carriers"
            ),
        }
        running.signal(Signal::TERM)?;
        let outcome = running.wait(LIMIT)?;
        ensure!(
            status_number(outcome.status) == 0,
            "status {}",
            outcome.status
        );
        Ok(())
    });
}

#[test]
fn five_hundred_threads_need_no_more_kernel_threads_than_carriers_and_three() {
    check(
        "presence::five_hundred_threads_need_no_more_kernel_threads_than_carriers_and_three",
        500,
    );
}

#[test]
fn ten_thousand_threads_need_no_more_either() {
    check("presence::ten_thousand_threads_need_no_more_either", 10_000);
}
