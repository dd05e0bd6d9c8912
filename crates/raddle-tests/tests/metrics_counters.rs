//! Counters of `raddle metrics` never fall while the exporter and the process live, and none is
//! lost while names of threads come and go.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, in_every_mode};

mod exporter;
use exporter::{Exporter, counters, ensure_no_fall, sum, value};

/// Groups with names, and the one of all other threads.
const GROUPS_MAX: usize = 51;
/// Pages that are compared.
const PAGES: usize = 30;

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
        let program = Program::build("group_names.c")?;
        let mut line = program.variants[0].command.clone();
        line.push(kind.into());
        let running = Running::start(mode, mode.command(&line)?, None)?;
        running.wait_until_it_says("waiting\n")?;
        let exporter = Exporter::start(&[&running.pid().to_string()])?;
        let (mut before, mut sums) = (BTreeMap::new(), [0.0; 2]);
        let (mut pages, began) = (0, Instant::now());
        while pages < PAGES || began.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(50));
            let page = exporter.page()?;
            if value(&page, "raddle_up{")? != 1.0 {
                continue; // a busy machine
            }
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
            pages += 1;
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

/// The kernel counts anew for each kernel thread, and a carrier without work ends.
#[test]
fn carriers_that_begin_again_go_on_counting() {
    /// Threads of the program that are stuck in the kernel at once, each on a carrier.
    const STUCK: f64 = 200.0;
    let test = "metrics_counters::carriers_that_begin_again_go_on_counting";
    in_every_mode(test, |mode| {
        let Mode::Raddle { carriers: 2 } = mode else {
            return Ok(()); // once will do
        };
        let program = Program::build("many_stuck.c")?;
        let folder = RunFolder::new("stuck-carriers")?;
        let mut command = mode.command(&program.variants[0].command)?;
        command.current_dir(folder.path());
        let running = Running::start(mode, command, None)?;
        running.wait_until_it_says("stuck\n")?;
        let exporter = Exporter::start(&[&running.pid().to_string()])?;
        let mut before = BTreeMap::new();
        let mut await_carriers = |state: &str| -> Result<()> {
            loop {
                std::thread::sleep(Duration::from_millis(50));
                let page = exporter.page()?;
                if value(&page, "raddle_up{")? != 1.0 {
                    continue; // a busy machine
                }
                let now = counters(&page);
                ensure_no_fall(&before, &now)?;
                before = now;
                let state = format!("state=\"{state}\"");
                if sum(&page, "raddle_carriers", &state) >= STUCK / 2.0 {
                    return Ok(());
                }
            }
        };
        for end in ["let go", "let go again"] {
            await_carriers("blocked")?;
            fs::write(folder.path().join(end), "")?;
            await_carriers("ended")?;
            fs::write(folder.path().join("again"), "")?;
        }
        running.terminate()
    });
}
