//! The available memory of the machine and of the process's control group.

use super::sync::lock;
use std::fs::read_to_string;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a value is used before it is read again.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// Returns the available memory in percent, as of a moment ago; 100 where it can't be read.
pub(super) fn available_percent() -> u8 {
    static LAST: Mutex<Option<(Instant, u8)>> = Mutex::new(None);
    let mut last = lock(&LAST);
    match *last {
        Some((at, percent)) if at.elapsed() < GOOD_FOR => percent,
        _ => {
            let percent = look();
            *last = Some((Instant::now(), percent));
            percent
        }
    }
}

fn look() -> u8 {
    let read = |path| read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| machine(&text));
    let group = || {
        let folder = format!("/sys/fs/cgroup{}", unified(&read("/proc/self/cgroup")?)?);
        let current = read_to_string(format!("{folder}/memory.current")).ok()?;
        group(
            &read_to_string(format!("{folder}/memory.max")).ok()?,
            &current,
        )
    };
    let percents = [machine, group()]
        .into_iter()
        .flatten()
        .map(|(available, total)| (available.min(total) * 100).checked_div(total));
    percents.flatten().min().unwrap_or(100) as u8
}

/// Parses `/proc/meminfo`: available and total.
fn machine(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Some((field("MemAvailable:")?, field("MemTotal:")?))
}

/// Finds the unified hierarchy's path in `/proc/self/cgroup`.
fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Parses `memory.max` and `memory.current`: available and total; `None` without a limit.
fn group(max: &str, current: &str) -> Option<(u64, u64)> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    Some((max.saturating_sub(current), max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read() {
        let text = "MemTotal:  1000 kB\nMemFree: 5 kB\nMemAvailable:   400 kB\n";
        assert_eq!(machine(text), Some((400, 1000)));
        assert_eq!(machine("MemTotal: 7 kB\n"), None);
        assert_eq!(unified("1:cpu:/x\n0::/a/b\n"), Some("/a/b"));
        assert_eq!(group("max\n", "5\n"), None);
        assert_eq!(group("100\n", "130\n"), Some((0, 100)));
    }

    #[test]
    fn a_machine_that_runs_tests_has_some_memory_and_not_all_of_it() {
        assert!((1..100).contains(&available_percent()));
    }
}
