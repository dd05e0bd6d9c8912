//! Whether a CPU of the machine has nothing to do. What a tool uses of it costs the program
//! nothing.

use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// The least time between two looks: the kernel counts in ticks of 10 ms.
const APART: Duration = Duration::from_millis(300);
const TICKS_PER_S: f64 = 100.0;
/// So many CPUs without work, on average, are enough.
const LEAST_CPUS: f64 = 0.5;

/// See the module.
pub(super) struct Idle {
    /// Ticks of all CPUs without work, at the last look.
    ticks: Option<u64>,
    looked: Instant,
    is_there: bool,
}

impl Idle {
    pub(super) fn new() -> Idle {
        Idle {
            ticks: idle_ticks(),
            looked: Instant::now(),
            is_there: false,
        }
    }

    /// Returns true if a CPU has had nothing to do lately, and a program may use all CPUs: one that
    /// may not shares its own with the tool.
    pub(super) fn is_there(&mut self) -> bool {
        let passed = self.looked.elapsed();
        if passed >= APART {
            let now = idle_ticks();
            let idle = now
                .zip(self.ticks)
                .map(|(now, then)| now.saturating_sub(then));
            let cpus = idle.unwrap_or(0) as f64 / TICKS_PER_S / passed.as_secs_f64();
            self.is_there = cpus >= LEAST_CPUS;
            self.ticks = now;
            self.looked = Instant::now();
        }
        self.is_there
    }
}

/// `None` where the kernel doesn't say it, or not all CPUs may be used.
fn idle_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let may_be_used = available_parallelism().ok()?.get();
    let (cpus, ticks) = parse(&stat)?;
    (cpus <= may_be_used).then_some(ticks)
}

/// Returns how many CPUs there are, and the ticks of all of them without work.
fn parse(stat: &str) -> Option<(usize, u64)> {
    let is_cpu = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    let cpus = stat.lines().filter(is_cpu).count();
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let idle = all.split_whitespace().nth(3)?;
    Some((cpus, idle.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let stat = "cpu  10 20 30 400 50 6\ncpu0 5 10 15 200 25 3\ncpu1 5 10 15 200 25 3\nintr 1\n";
        assert_eq!(parse(stat), Some((2, 400)));
        assert_eq!(parse("intr 1\n"), None);
        assert!(parse(&fs::read_to_string("/proc/stat").unwrap()).is_some());
    }
}
