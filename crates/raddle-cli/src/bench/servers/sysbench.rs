//! sysbench, which loads databases.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::requests::{Latency, Window};
use crate::bench::process::{self, Way};
use crate::bench::programs::find;

const TEST: &str = "oltp_point_select";
const ROWS: u32 = 100_000;
/// For filling the table.
const PREPARE: Duration = Duration::from_secs(120);
const SLACK: Duration = Duration::from_secs(60);

/// Fills the table.
pub(super) fn prepare(port: u16) -> Result<(), String> {
    let mut command = command(port)?;
    process::output(Way::NativeAll, command.arg("prepare"), PREPARE).map(drop)
}

pub(super) fn run(port: u16, clients: u32, time: Duration) -> Result<Window, String> {
    let mut command = command(port)?;
    command
        .arg(format!("--threads={clients}"))
        .arg(format!("--time={}", time.as_secs()))
        .args(["--histogram=on", "--percentile=99", "run"]);
    parse(&process::output(
        Way::NativeAll,
        &mut command,
        time + SLACK,
    )?)
}

fn command(port: u16) -> Result<Command, String> {
    let sysbench = find("sysbench").ok_or("sysbench is not installed")?;
    let mut command = Command::new(sysbench);
    command
        .arg(OsStr::new(TEST))
        .args(["--mysql-host=127.0.0.1", "--mysql-user=root"])
        .arg(format!("--mysql-port={port}"))
        .args(["--tables=1", &format!("--table-size={ROWS}")])
        .stdin(Stdio::null());
    Ok(command)
}

/// Rate and number of transactions, which are one query each; latencies from the histogram.
fn parse(output: &str) -> Result<Window, String> {
    let mut lines = output.lines().map(str::trim_start);
    let line = lines.find_map(|line| line.strip_prefix("transactions:"));
    let mut words = line.unwrap_or_default().split_whitespace();
    let requests = words.next().and_then(|number| number.parse().ok());
    let requests: u64 = requests.ok_or("sysbench printed no number of transactions")?;
    let rate = words
        .next()
        .and_then(|word| word.strip_prefix('(')?.parse().ok());
    let histogram: Vec<_> = output.lines().filter_map(bucket).collect();
    let quantile_us = |part| quantile_ms(&histogram, part).map(|ms| ms * 1e3);
    let latency = match (quantile_us(0.5), quantile_us(0.99)) {
        (Some(p50_us), Some(p99_us)) => Some(Latency { p50_us, p99_us }),
        _ => None,
    };
    Ok(Window {
        requests,
        rate: rate.ok_or("sysbench printed no rate")?,
        latency,
    })
}

/// A line of the histogram: milliseconds and how many.
fn bucket(line: &str) -> Option<(f64, u64)> {
    let (value, bar) = line.split_once('|')?;
    let count = bar.split_whitespace().last()?;
    Some((value.trim().parse().ok()?, count.parse().ok()?))
}

fn quantile_ms(histogram: &[(f64, u64)], part: f64) -> Option<f64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut below = 0;
    let found = histogram.iter().find(|(_, count)| {
        below += count;
        below >= wanted
    });
    found.map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.026 |                                         1
       0.037 |**************************************** 60
       0.050 |********************                     38
       2.347 |                                         1

SQL statistics:
    transactions:                        100    (38222.16 per sec.)
    queries:                             100    (38222.16 per sec.)
";

    #[test]
    fn a_report_gives_a_window() {
        let window = Window {
            requests: 100,
            rate: 38_222.16,
            latency: Some(Latency {
                p50_us: 37.0,
                p99_us: 50.0,
            }),
        };
        assert_eq!(parse(OUTPUT), Ok(window));
        assert!(parse("FATAL: unable to connect").is_err());
        let none = "transactions: 0 (0.00 per sec.)";
        assert_eq!(parse(none).unwrap().latency, None);
    }

    #[test]
    fn quantiles_are_values_of_the_histogram() {
        let histogram = [(1.0, 1), (2.0, 1), (3.0, 98)];
        assert_eq!(quantile_ms(&histogram, 0.01), Some(1.0));
        assert_eq!(quantile_ms(&histogram, 0.5), Some(3.0));
        assert_eq!(quantile_ms(&[], 0.5), None);
    }
}
