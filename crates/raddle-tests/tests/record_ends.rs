//! What `raddle record` counts of the end of a program.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, in_every_mode, raddle};

/// How often a program is recorded: its end comes soon after the recorder has looked, or late.
const TIMES: u32 = 4;
/// What the program may use after it has printed what it has used, in seconds.
const REST: f64 = 0.02;

/// Returns the command of the program.
fn contended() -> Result<Vec<OsString>> {
    let program = Program::build("contended.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("one program");
    };
    Ok(variant.command.clone())
}

/// Returns the CPU time of folded stacks in seconds.
fn executing(folded: &str) -> Result<f64> {
    let mut sum_us = 0.0;
    for line in folded.lines() {
        let (stack, us) = line.rsplit_once(' ').context("a weight")?;
        let last = stack.rsplit(';').next().unwrap_or_default();
        if !last.starts_with('[') || last == "[stack not read]" {
            sum_us += us.parse::<f64>()?;
        }
    }
    Ok(sum_us / 1e6)
}

#[test]
fn a_program_that_ends_has_used_no_more_cpu_time_than_the_kernel_counts() {
    let name = "record_ends::a_program_that_ends_has_used_no_more_cpu_time_than_the_kernel_counts";
    in_every_mode(name, |mode| {
        let Mode::Raddle { carriers } = mode else {
            return Ok(());
        };
        let folder = RunFolder::new(&format!("record-contended-{mode}"))?;
        let file = folder.path().join("a.folded");
        for _ in 0..TIMES {
            let mut command = Command::new(raddle()?);
            command.env("RADDLE_CARRIERS", carriers.to_string());
            // So few samples say nothing of the part of the time that was CPU time.
            command.args(["record", "-F", "10", "--force", "-o"]);
            command.arg(&file).arg("--").args(contended()?);
            let output = command.output()?;
            ensure!(output.status.success(), "{output:?}");
            let stdout = std::str::from_utf8(&output.stdout)?;
            let said = stdout.lines().find_map(|it| it.strip_prefix("kernel "));
            let kernel: f64 = said.context("a CPU time")?.parse()?;
            let folded = std::fs::read_to_string(&file)?;
            let found = executing(&folded)?;
            ensure!(
                found > kernel / 4.0 && found < kernel + REST,
                "{found} s of {kernel}: {folded}"
            );
        }
        Ok(())
    });
}
