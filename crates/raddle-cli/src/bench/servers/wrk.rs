//! wrk, which loads HTTP servers at full speed.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::requests::{self, Latency, Window};
use crate::bench::http::microseconds;
use crate::bench::process::{self, Way};
use crate::bench::programs::find;

/// The excess of wrk's time-out over a window, so that a long answer is late and not an error. wrk
/// keeps a counter for each microsecond of it.
const LATER: Duration = Duration::from_secs(2);
/// The time of wrk beyond its load, to connect and to stop.
const SLACK: Duration = Duration::from_secs(30);

pub(super) fn run(port: u16, connections: u32, time: Duration) -> Result<Window, String> {
    let wrk = find("wrk").ok_or("wrk is not installed")?;
    let mut command = Command::new(wrk);
    command
        .arg(format!("-t{}", requests::threads(connections)))
        .arg(format!("-c{connections}"))
        .arg(format!("-d{}s", time.as_secs()))
        .arg("--latency")
        .arg(format!("--timeout={}s", (time + LATER).as_secs()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .stdin(Stdio::null());
    parse(&process::output(
        Way::NativeAll,
        &mut command,
        time + SLACK,
    )?)
}

/// Errors make a window a failure, because a server that drops connections is not faster.
fn parse(output: &str) -> Result<Window, String> {
    let mut lines = output.lines().map(str::trim_start);
    let field = |name: &str| {
        let mut lines = output.lines().map(str::trim_start);
        lines
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    if let Some(errors) = field("Socket errors:").or_else(|| field("Non-2xx or 3xx responses:")) {
        return Err(format!("wrk saw errors: {errors}"));
    }
    let requests = lines.find_map(|line| line.split_once(" requests in ")?.0.parse().ok());
    let requests = requests.ok_or("wrk printed no number of requests")?;
    let rate = field("Requests/sec:").and_then(|rate| rate.parse().ok());
    let latency_us = |part| field(part).and_then(microseconds);
    let latency = Latency {
        p50_us: latency_us("50%").ok_or("wrk printed no median")?,
        p99_us: latency_us("99%").ok_or("wrk printed no 99th percentile")?,
    };
    Ok(Window {
        requests,
        rate: rate.ok_or("wrk printed no rate")?,
        latency: (requests > 0).then_some(latency),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 3s test @ http://127.0.0.1:8080/
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  500.00us  20.00ms   90.00%
    Req/Sec    25.00k     1.00k   27.00k    70.00%
  Latency Distribution
     50%    1.10ms
     75%    1.30ms
     90%    1.60ms
     99%    3.00ms
  150000 requests in 3.00s, 11.30MB read
Requests/sec:  50000.25
Transfer/sec:      3.77MB
";

    #[test]
    fn a_report_gives_a_window() {
        let window = Window {
            requests: 150_000,
            rate: 50_000.25,
            latency: Some(Latency {
                p50_us: 1100.0,
                p99_us: 3000.0,
            }),
        };
        assert_eq!(parse(OUTPUT), Ok(window));
    }

    #[test]
    fn errors_are_no_result_and_silence_has_no_latency() {
        let said = |line: &str| parse(&format!("{OUTPUT}{line}")).unwrap_err();
        assert_eq!(said("  Non-2xx or 3xx responses: 7\n"), "wrk saw errors: 7");
        assert!(
            said("  Socket errors: connect 0, read 1, write 0, timeout 0\n").contains("read 1")
        );
        let none = OUTPUT.replace("150000 requests", "0 requests");
        assert_eq!(parse(&none).unwrap().latency, None);
        assert!(parse("unable to connect").is_err());
    }
}
