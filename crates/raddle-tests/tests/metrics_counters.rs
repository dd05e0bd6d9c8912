//! Counters of `raddle metrics` never fall while the exporter and the process live, and none is
//! lost while names of threads come and go.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use raddle_tests::{Mode, Program, Running, in_every_mode};

mod exporter;
use exporter::{Exporter, counters, ensure_no_fall, sum, value};

/// Groups with names, and the one of all other threads.
const GROUPS_MAX: usize = 51;

fn start(mode: Mode, source: &str, argument: &str) -> Result<Running> {
    let program = Program::build(source)?;
    let mut line = program.variants[0].command.clone();
    line.push(argument.into());
    Running::start(mode, mode.command(&line)?, None)
}

/// What the groups of a page have counted together.
fn counts_of_groups(page: &str) -> [f64; 2] {
    ["switches", "parks"].map(|it| sum(page, &format!("raddle_group_{it}_total"), ""))
}

fn groups(page: &str) -> usize {
    let begin = "raddle_group_switches_total{";
    page.lines().filter(|row| row.starts_with(begin)).count()
}

/// Scrapes `group_names.c` again and again.
fn names_lose_no_counts(test: &str, kind: &str) {
    in_every_mode(&format!("metrics_counters::{test}"), |mode| {
        if mode == Mode::Native {
            return Ok(());
        }
        let running = start(mode, "group_names.c", kind)?;
        running.wait_until_it_says("waiting\n")?;
        let exporter = Exporter::start(&[&running.pid().to_string()])?;
        let (mut before, mut sums) = (BTreeMap::new(), [0.0; 2]);
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            let page = exporter.page()?;
            ensure!(value(&page, "raddle_up{")? == 1.0, "{page}");
            let now = counters(&page);
            ensure_no_fall(&before, &now)?;
            let sums_now = counts_of_groups(&page);
            let grows = sums
                .iter()
                .zip(&sums_now)
                .all(|(before, now)| now >= before);
            ensure!(grows, "{sums:?}, then {sums_now:?}");
            let groups = groups(&page);
            ensure!(groups <= GROUPS_MAX, "{groups} groups");
            (before, sums) = (now, sums_now);
            std::thread::sleep(Duration::from_millis(50));
        }
        ensure!(before.len() > 100 && sums[0] > 1000.0, "{sums:?}");
        let named = before.keys().filter(|row| row.contains("group=\"n"));
        ensure!(named.count() >= 4 * 45, "{before:?}");
        running.terminate()
    });
}

#[test]
fn threads_that_change_their_names_lose_no_counts() {
    names_lose_no_counts("threads_that_change_their_names_lose_no_counts", "change");
}

#[test]
fn groups_that_come_and_go_lose_no_counts() {
    names_lose_no_counts("groups_that_come_and_go_lose_no_counts", "come");
}
