//! A server with a thread for each connection, loaded by wrk, and its use of the machine when idle.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::harness::{Case, Sample, Settings, Work};
use super::process::{self, EVERY_WAY, Way};
use super::programs::{Workshop, find, skipped, version};

const CONNECTIONS: [u32; 2] = [50, 500];
const LOAD: Duration = Duration::from_secs(4);
const IDLE: Duration = Duration::from_secs(1);
const IDLE_LEAST: Duration = Duration::from_millis(100);
/// From the end of the load to the start of the idle time.
const SETTLE: Duration = Duration::from_millis(200);
const START: Duration = Duration::from_secs(10);

/// Threads that compute, and threads that read past the cache, beside a server's.
const BUSY: [&str; 2] = ["4", "4"];
const BUSY_CONNECTIONS: u32 = 200;

pub(super) fn cases(workshop: &Workshop) -> Vec<Case> {
    CONNECTIONS
        .iter()
        .filter_map(|&connections| case(workshop, connections, &[]))
        .collect()
}

/// A server that has more to do than to serve.
pub(super) fn busy_cases(workshop: &Workshop) -> Vec<Case> {
    case(workshop, BUSY_CONNECTIONS, &BUSY)
        .into_iter()
        .collect()
}

fn case(workshop: &Workshop, connections: u32, arguments: &[&str]) -> Option<Case> {
    let program = match (find("wrk"), workshop.c_program("httpd")) {
        (Some(_), Ok(program)) => program,
        (None, _) => {
            skipped("http", "wrk is not installed");
            return None;
        }
        (_, Err(why)) => {
            skipped("http", &why);
            return None;
        }
    };
    let toolchain = version(Path::new("cc"), "--version");
    let beside = match arguments {
        [] => String::new(),
        busy => format!(" beside {} busy threads", busy.join(" + ")),
    };
    let mut command = vec![program];
    command.extend(arguments.iter().map(Into::into));
    Some(Case {
        title: format!("{connections} connections{beside}"),
        toolchain,
        command,
        work: Work::Serves {
            connections,
            idles: arguments.is_empty(),
        },
        ways: &EVERY_WAY,
    })
}

/// A server that is killed when this is dropped.
pub(super) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the server in this way and loads it natively.
pub(super) fn load(
    way: Way,
    command: &mut Command,
    connections: u32,
    settings: &Settings,
    samples: &mut Vec<Sample>,
) -> Result<Server, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(way.spawn(command).map_err(|error| error.to_string())?);
    let port = port(&mut server)?;
    let seconds = (LOAD.as_secs_f64() * settings.fraction).ceil();
    let wrk = find("wrk").ok_or("wrk is not installed")?;
    let mut wrk = Command::new(wrk);
    wrk.args([
        "-t2",
        "--latency",
        &format!("-c{connections}"),
        &format!("-d{seconds:.0}s"),
    ]);
    wrk.arg(format!("http://127.0.0.1:{port}/"))
        .stdin(Stdio::null());
    let output = process::output(Way::NativeAll, &mut wrk, settings.limit)?;
    samples.extend(parse(&output)?);
    Ok(server)
}

fn port(server: &mut Server) -> Result<u16, String> {
    let out = server.0.stdout.take().ok_or("it has no standard output")?;
    let ready = process::readable_within(&out, START).map_err(|error| error.to_string())?;
    let mut line = String::new();
    if ready {
        BufReader::new(out)
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
    }
    let port = line
        .trim_end()
        .strip_prefix("READY ")
        .and_then(|port| port.parse().ok());
    port.ok_or_else(|| format!("the server was not ready in {} s", START.as_secs()))
}

/// wrk's requests a second and its 99th percentile; errors make the run a failure, because a
/// server that drops connections is not faster.
fn parse(output: &str) -> Result<Vec<Sample>, String> {
    let field = |name: &str| {
        let line = output
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    if let Some(errors) = field("Socket errors:").or_else(|| field("Non-2xx or 3xx responses:")) {
        return Err(format!("wrk saw errors: {errors}"));
    }
    let rate = field("Requests/sec:").and_then(|rate| rate.parse().ok());
    let rate = rate.ok_or("wrk printed no rate")?;
    let mut samples = vec![Sample {
        name: "rate".into(),
        value: rate,
        unit: "req/s".into(),
    }];
    if let Some(value) = field("99%").and_then(|time| microseconds(&time)) {
        samples.push(Sample {
            name: "latency-p99".into(),
            value,
            unit: "us".into(),
        });
    }
    Ok(samples)
}

/// `1.23ms` in microseconds.
pub(super) fn microseconds(text: &str) -> Option<f64> {
    let (factor, number) = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)]
        .iter()
        .find_map(|(unit, factor)| Some((factor, text.strip_suffix(unit)?)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// Returns the CPU time a second that all threads of the server use without load.
pub(super) fn idle(server: &Server, settings: &Settings) -> Result<Sample, String> {
    std::thread::sleep(SETTLE);
    let idle_time = IDLE.mul_f64(settings.fraction).max(IDLE_LEAST);
    let before = cpu_time_ns(server.0.id())?;
    if before == 0 {
        return Err("it served and used no CPU time: /proc/PID/task/TID/schedstat is empty".into());
    }
    std::thread::sleep(idle_time);
    let used_ns = cpu_time_ns(server.0.id())?.saturating_sub(before);
    let value = used_ns as f64 / 1e3 / idle_time.as_secs_f64();
    Ok(Sample {
        name: "idle-cpu".into(),
        value,
        unit: "us/s".into(),
    })
}

fn cpu_time_ns(pid: u32) -> Result<u64, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| "the server has ended")?;
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Ok(times.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 1s test @ http://127.0.0.1:8080/
  2 threads and 50 connections
  Latency Distribution
     50%  400.00us
     99%    1.50ms
  100000 requests in 1.00s, 7.53MB read
Requests/sec: 102600.50
Transfer/sec:      7.53MB
";

    #[test]
    fn a_report_gives_rate_and_tail() {
        let samples = parse(OUTPUT).unwrap();
        let figures: Vec<_> = samples.iter().map(|s| (s.name.as_str(), s.value)).collect();
        assert_eq!(figures, [("rate", 102_600.5), ("latency-p99", 1500.0)]);
        assert!(parse("unable to connect").is_err());
    }

    #[test]
    fn errors_are_no_result() {
        let output = format!("{OUTPUT}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        let error = parse(&output).unwrap_err();
        assert_eq!(
            error,
            "wrk saw errors: connect 0, read 3, write 0, timeout 0"
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(microseconds("12.5us"), Some(12.5));
        assert_eq!(microseconds("2.00s"), Some(2e6));
        assert_eq!(microseconds("1m"), Some(6e7));
        assert_eq!(microseconds("fast"), None);
    }
}
