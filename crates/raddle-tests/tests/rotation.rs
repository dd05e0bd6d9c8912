//! Threads that compute take turns in changing order.

use anyhow::{Context, Result, ensure};
use raddle_tests::{Mode, Program, in_every_mode};

/// An order that doesn't change is kept in one run of three or so, if nothing disturbs it.
const RUNS: u32 = 5;
/// Fewer turns of a thread say nothing: the machine is busy.
const TURNS: u64 = 20;

/// In strict rotation the same thread follows another one for ever. crossbeam-deque's
/// `no_starvation` then runs for minutes: one of its thieves always finds what the producer left.
#[test]
fn turns_of_threads_that_compute_change_their_order() {
    in_every_mode("rotation::turns_of_threads_that_compute", |mode| {
        if mode != (Mode::Raddle { carriers: 1 }) {
            return Ok(());
        }
        let program = Program::build("rotation.c")?;
        let program = program.variants[0].command[0].to_str().context("a path")?;
        for _ in 0..RUNS {
            let output = mode.command(&[program])?.output()?;
            ensure!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout)?;
            ensure!(text.lines().count() == 5, "{text}");
            for line in text.lines() {
                let numbers = line.split(' ').map(|number| Ok(number.parse()?));
                let numbers: Vec<u64> = numbers.collect::<Result<_>>()?;
                let [most, all] = numbers[..] else {
                    anyhow::bail!("{line}");
                };
                ensure!(all < TURNS || most * 100 < all * 97, "{text}");
            }
        }
        Ok(())
    });
}
